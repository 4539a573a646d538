//! What clap refuses, in one line of ours: which option, which value, and what would do.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error;
use std::num::{IntErrorKind, ParseIntError};

/// clap's message without usage and help, and with the option's name in front.
pub(super) fn in_one_line(error: &clap::Error) -> String {
    let arg = text(error, ContextKind::InvalidArg);
    // `--uid <N>`
    let arg = arg.split(" <").next().unwrap_or_default();
    let value = text(error, ContextKind::InvalidValue);
    let said = match error.kind() {
        ErrorKind::InvalidValue if value.is_empty() => format!("{arg} needs a value"),
        ErrorKind::InvalidValue => {
            let valid = text(error, ContextKind::ValidValue);
            format!("{arg} {value}: not one of {valid}")
        }
        ErrorKind::ValueValidation => format!("{arg} {value}: {}", why(error)),
        ErrorKind::UnknownArgument if arg.starts_with('-') => format!("unknown option {arg}"),
        ErrorKind::UnknownArgument => format!("unexpected argument {arg}"),
        ErrorKind::InvalidSubcommand => {
            format!("unknown command {}", text(error, ContextKind::InvalidSubcommand))
        }
        ErrorKind::MissingRequiredArgument => {
            format!("missing: {}", text(error, ContextKind::InvalidArg))
        }
        _ => first_paragraph(error),
    };
    let suggested =
        suggested(error).map_or(String::new(), |name| format!("; did you mean {name}?"));
    let help = help_of(error).map_or(String::new(), |command| format!(" ({command} --help)"));
    format!("{said}{suggested}{help}")
}

/// What clap would have understood instead.
pub(super) fn suggested(error: &clap::Error) -> Option<String> {
    let kinds =
        [ContextKind::SuggestedArg, ContextKind::SuggestedValue, ContextKind::SuggestedSubcommand];
    let names = kinds.into_iter().map(|kind| text(error, kind)).find(|name| !name.is_empty())?;
    // Long options have aliases with underscores, which no help shows.
    let is_option = names.starts_with("--");
    let names = if is_option { names.replace('_', "-") } else { names };
    Some(names.replace(", ", " or "))
}

fn text(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(all)) => all.join(", "),
        _ => String::new(),
    }
}

/// Why a value is wrong, without the words of a programming language.
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

/// The command whose help would tell more: of `Usage: ffrfs mount [OPTIONS] …` the words before what stands for
/// arguments.
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
    use clap::CommandFactory;

    fn said(args: &[&str]) -> String {
        let args = std::iter::once(&"ffrfs").chain(args);
        let error = super::super::Cli::command().try_get_matches_from(args).unwrap_err();
        in_one_line(&error)
    }

    #[test]
    fn a_wrong_value_is_named_with_its_option_and_in_plain_words() {
        let mount = |option| said(&["mount", "a.zip", "m", option]);
        assert_eq!(mount("--uid=x"), "--uid x: not a whole number");
        assert_eq!(
            mount("--uid=99999999999"),
            "--uid 99999999999: it must be from 0 to 4294967295"
        );
        assert_eq!(mount("--threads=0"), "--threads 0: it must be from 1 to 1024");
        assert_eq!(mount("--fanout=0"), "--fanout 0: it must be at least 1");
        assert_eq!(mount("--fmask=9"), "--fmask 9: not an octal number from 0 to 777");
        assert_eq!(said(&["verify", "x", "-j", "0"]), "--jobs 0: it must be above 0");
        let verify = mount("--verify=somtimes");
        assert!(verify.starts_with("--verify somtimes: not one of always, once, off"), "{verify}");
    }

    #[test]
    fn what_is_unknown_is_refused_with_the_nearest_name_and_where_help_is() {
        let unknown =
            "unknown option --alow-other; did you mean --allow-other? (ffrfs mount --help)";
        assert_eq!(said(&["mount", "a.zip", "m", "--alow-other"]), unknown);
        let all = said(&["info", "x", "--all"]);
        assert!(all.contains("did you mean --allow-damaged?"), "{all}");
        let typo = said(&["verfy", "x"]);
        assert!(typo.starts_with("unknown command verfy; did you mean verify?"), "{typo}");
        let missing = said(&["ls"]);
        assert!(missing.starts_with("missing: <SOURCE>"), "{missing}");
    }
}
