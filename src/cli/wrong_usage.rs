//! Messages about command lines that clap refuses, in one line of ours: the option, the value, and the values that would do.

use super::remote::refusal;
use crate::format::quoted;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error;
use std::num::{IntErrorKind, ParseIntError};

/// clap's message without usage and help, and with the option's name in front.
pub(super) fn in_one_line(error: &clap::Error) -> String {
    let arg = plain(&text(error, ContextKind::InvalidArg));
    let value = text(error, ContextKind::InvalidValue);
    // An argument without a name is told by its value.
    let shown = match value.is_empty() || value.ends_with(':') {
        true => &format!("'{value}'"),
        false => &value,
    };
    let named = if arg.starts_with('-') { format!("{arg} {shown}") } else { value.clone() };
    let said = match error.kind() {
        ErrorKind::InvalidValue if value.is_empty() && arg.starts_with('-') => {
            let usage = text(error, ContextKind::InvalidArg).replace(['<', '>'], "");
            format!("{arg} needs a value: {usage}")
        }
        ErrorKind::InvalidValue if value.is_empty() => format!("{arg}: an empty name"),
        ErrorKind::InvalidValue => {
            let valid = text(error, ContextKind::ValidValue);
            format!("{named}: not one of {valid}")
        }
        ErrorKind::ValueValidation => {
            let why = why(error);
            match named == value && why.contains(&quoted(value.as_str())) {
                true => why,
                false => format!("{named}: {why}"),
            }
        }
        ErrorKind::ArgumentConflict if !arg.is_empty() => {
            let others = texts(error, ContextKind::PriorArg);
            let others: Vec<_> = others.iter().map(|other| plain(other)).collect();
            match others.contains(&arg) {
                true => format!("{arg} is given twice"),
                false => format!("{arg} cannot be used with {}", others.join(" and ")),
            }
        }
        ErrorKind::TooManyValues if arg.starts_with('-') => format!("{arg} takes no value"),
        ErrorKind::UnknownArgument if let Some(why) = secret(&arg) => return why,
        ErrorKind::UnknownArgument if arg.starts_with('-') => format!("unknown option {arg}"),
        ErrorKind::UnknownArgument => format!("unexpected argument {arg}"),
        ErrorKind::InvalidSubcommand => {
            format!("unknown command {}", text(error, ContextKind::InvalidSubcommand))
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = texts(error, ContextKind::InvalidArg);
            let missing: Vec<_> = missing.iter().map(|arg| plain(arg)).collect();
            format!("missing: {}", missing.join(", "))
        }
        _ => first_paragraph(error),
    };
    let suggested =
        suggested(error).map_or(String::new(), |name| format!("; did you mean {name}?"));
    let help = help_of(error).map_or(String::new(), |command| format!(" ({command} --help)"));
    format!("{said}{suggested}{help}")
}

/// The reason why an option is refused, if its value is a secret.
fn secret(arg: &str) -> Option<String> {
    refusal(&arg.strip_prefix("--")?.replace('_', "-"))
}

/// The names that clap would have understood, if they are near the given one.
pub(super) fn suggested(error: &clap::Error) -> Option<String> {
    let kinds = [
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        (ContextKind::InvalidValue, ContextKind::SuggestedValue),
        (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
    ];
    let near = kinds.into_iter().map(|(given, suggested)| {
        let given = text(error, given);
        let mut names = texts(error, suggested);
        names.retain(|name| is_near(&given.replace('_', "-"), &name.replace('_', "-")));
        names
    });
    let mut names = near.into_iter().find(|names| !names.is_empty())?;
    for name in names.iter_mut().filter(|name| name.starts_with("--")) {
        // Long options have aliases with underscores, which no help shows.
        *name = name.replace('_', "-");
    }
    names.dedup();
    Some(names.join(" or "))
}

/// Whether one name was probably meant by the other: a few letters are wrong, missing, too many or in another order.
pub(super) fn is_near(given: &str, name: &str) -> bool {
    let letters = |text: &str| text.trim_start_matches('-').chars().collect::<Vec<_>>();
    let (given, name) = (letters(given), letters(name));
    let most = (given.len().saturating_sub(1) / 3).clamp(1, 3);
    given.len().abs_diff(name.len()) <= most && distance(&given, &name) <= most
}

/// The number of letters that must be changed, put in, left out or swapped with the next one.
fn distance(a: &[char], b: &[char]) -> usize {
    let (mut before, mut last): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..=b.len()).collect());
    for (row, letter) in a.iter().enumerate() {
        let mut now = vec![row + 1];
        for (column, other) in b.iter().enumerate() {
            let changed = last[column] + usize::from(letter != other);
            let mut least = changed.min(last[column + 1] + 1).min(now[column] + 1);
            if row > 0 && column > 0 && *letter == b[column - 1] && a[row - 1] == *other {
                least = least.min(before[column - 1] + 1);
            }
            now.push(least);
        }
        before = std::mem::replace(&mut last, now);
    }
    last[b.len()]
}

/// The option of `--uid <N>`, the words of `<SOURCE> [NAME]...`.
fn plain(arg: &str) -> String {
    let arg = if arg.starts_with('-') { arg.split([' ', '=']).next().unwrap_or(arg) } else { arg };
    let word =
        |word: &str| word.trim_end_matches("...").trim_matches(['[', ']', '<', '>']).to_owned();
    arg.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn texts(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(all)) => all.clone(),
        _ => Vec::new(),
    }
}

fn text(error: &clap::Error, kind: ContextKind) -> String {
    texts(error, kind).join(", ")
}

/// The reason why a value is wrong, without the words of a programming language.
fn why(error: &clap::Error) -> String {
    let Some(source) = error.source() else { return "not a valid value".to_owned() };
    let sources = std::iter::successors(Some(source), |error| (*error).source());
    let number = sources.filter_map(|error| error.downcast_ref::<ParseIntError>()).next();
    match number.map(ParseIntError::kind) {
        Some(IntErrorKind::Zero) => "it must be above 0".to_owned(),
        Some(IntErrorKind::PosOverflow | IntErrorKind::NegOverflow) => {
            "the number is too large".to_owned()
        }
        Some(_) => "not a whole number".to_owned(),
        None => in_words(&source.to_string()),
    }
}

/// `0 is not in 1..=1024` as people say it.
fn in_words(why: &str) -> String {
    let range = why.split_once(" is not in ").and_then(|(_, range)| range.split_once(".."));
    match range {
        Some((least, most)) if most.len() > 18 || most.is_empty() => {
            format!("it must be at least {least}")
        }
        Some((least, most)) => {
            format!("it must be from {least} to {}", most.trim_start_matches('='))
        }
        None => why.to_owned(),
    }
}

fn first_paragraph(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join(" ");
    line.strip_prefix("error: ").map_or(line.clone(), str::to_owned)
}

/// The command whose help would tell more: the words of `Usage: ffrfs mount [OPTIONS] …` before the placeholders
/// of arguments.
fn help_of(error: &clap::Error) -> Option<String> {
    let ContextValue::StyledStr(usage) = error.get(ContextKind::Usage)? else { return None };
    let usage = usage.to_string();
    let words = usage.strip_prefix("Usage: ")?.split_whitespace();
    let command: Vec<_> = words.take_while(|word| !word.starts_with(['[', '<', '-'])).collect();
    (!command.is_empty()).then(|| command.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(args: &[&str]) -> String {
        let args = std::iter::once(&"ffrfs").chain(args);
        let error = super::super::command().try_get_matches_from(args).unwrap_err();
        in_one_line(&error)
    }

    #[test]
    fn a_wrong_value_is_named_with_its_option_and_in_plain_words() {
        let mount = |option| said(&["mount", "a.zip", "m", option]);
        assert_eq!(mount("--uid=x"), "--uid x: not a whole number");
        assert_eq!(
            mount("--uid=99999999999"),
            "--uid 99999999999: it must be from 0 to 4294967294"
        );
        // This number means that there is no user.
        let none = mount("--gid=4294967295");
        assert_eq!(none, "--gid 4294967295: it must be from 0 to 4294967294");
        assert_eq!(mount("--threads=0"), "--threads 0: it must be from 1 to 1024");
        assert_eq!(mount("--fanout=0"), "--fanout 0: it must be at least 1");
        assert_eq!(mount("--fmask=9"), "--fmask 9: not an octal number from 0 to 777");
        let empty = mount("--memory=");
        assert!(empty.starts_with("--memory '': not a size"), "{empty}");
        assert_eq!(said(&["verify", "x", "-j", "0"]), "--jobs 0: it must be above 0");
        let negative = said(&["mount", "a.zip", "m", "--uid", "-1"]);
        assert!(negative.starts_with("--uid -1: it must be from 0 to"), "{negative}");
        let negative = said(&["ls", "a.ffr", "--fanout", "-3"]);
        assert!(negative.starts_with("--fanout -3: it must be at least 1"), "{negative}");
        let negative = said(&["mount", "a.zip", "m", "--memory", "-5G"]);
        assert!(negative.starts_with("--memory -5G: "), "{negative}");
        let verify = mount("--verify=somtimes");
        assert!(verify.starts_with("--verify somtimes: not one of always, once, off"), "{verify}");
    }

    #[test]
    fn what_is_unknown_is_refused_with_the_nearest_name_and_where_help_is() {
        let unknown =
            "unknown option --alow-other; did you mean --allow-other? (ffrfs mount --help)";
        assert_eq!(said(&["mount", "a.zip", "m", "--alow-other"]), unknown);
        for far in [&["info", "x", "--all"][..], &["info", "--include"], &["bench", "--include"]] {
            let far = said(far);
            assert!(far.starts_with("unknown option ") && !far.contains("did you mean"), "{far}");
        }
        let secret = said(&["mount", "a.zip", "m", "--password", "x"]);
        assert!(
            secret.starts_with("password is a secret") && secret.contains("password-file=FILE")
        );
        let typo = said(&["verfy", "x"]);
        assert!(typo.starts_with("unknown command verfy; did you mean verify?"), "{typo}");
        let missing = said(&["ls"]);
        assert!(missing.starts_with("missing: SOURCE"), "{missing}");
        assert_eq!(said(&["extract"]), "missing: SOURCE… OUTDIR (ffrfs extract --help)");
        assert_eq!(said(&["cat"]), "missing: SOURCE NAME (ffrfs cat --help)");
        assert_eq!(said(&["convert"]), "missing: IN… OUT (ffrfs convert --help)");
    }

    #[test]
    fn what_contradicts_itself_or_is_empty_is_refused_without_placeholders() {
        let both = said(&["ls", "a", "--flat", "--names", "x"]);
        assert!(both.starts_with("--flat cannot be used with --names (ffrfs ls"), "{both}");
        let files = said(&["mount", "a", "m", "--password-file", "x", "--password-fd", "3"]);
        let wanted = "--password-file cannot be used with --password-fd";
        assert!(files.starts_with(wanted), "{files}");
        let value = said(&["mount", "a", "m", "--rw=yes"]);
        assert!(value.starts_with("--rw takes no value"), "{value}");
        let unheard = said(&["mount", "a", "m", "--control=rw", "--no-control"]);
        assert!(unheard.starts_with("--control cannot be used with --no-control"), "{unheard}");
        assert_eq!(said(&["mount", "a", ""]), "SOURCE… MOUNTPOINT: an empty name");
        assert_eq!(said(&["completions", "tcsh"]), "tcsh: not one of bash, zsh, fish");
        let set = said(&["set", "m", "verify:"]);
        assert_eq!(set, "\"verify:\" is not NAME=VALUE");
        let control = said(&["set", "m", "a\u{9b}b"]);
        assert_eq!(control, r#""a\x9bb" is not NAME=VALUE"#);
    }

    #[test]
    fn a_name_is_near_another_if_few_letters_differ() {
        for (given, name) in [
            ("nofial", "nofail"),
            ("nonempt", "nonempty"),
            ("_netde", "_netdev"),
            ("--alow-other", "--allow-other"),
            ("verfy", "verify"),
        ] {
            assert!(is_near(given, name) && is_near(name, given), "{given}");
        }
        for (given, name) in
            [("frob", "ro"), ("tcsh", "zsh"), ("include", "pickles"), ("", "ro"), ("a", "")]
        {
            assert!(!is_near(given, name) || given.len() < 2, "{given}");
        }
        assert_eq!(distance(&['a', 'b', 'c'], &['b', 'a', 'c']), 1);
        assert_eq!(distance(&['a'], &[]), 1);
    }
}
