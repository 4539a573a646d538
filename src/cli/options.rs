//! `-o a,b=c` as mount(8) users write it: each option becomes the long flag of its name.

use super::remote::refusal;
use super::wrong_usage;
use crate::failure::Failure;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, CommandFactory};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Options for mount(8), fstab and libfuse that have no effect here, or are always in effect.
const IGNORED: &[&str] = &[
    "_netdev",
    "async",
    "atime",
    "auto",
    "defaults",
    "dirsync",
    "diratime",
    "group",
    "iversion",
    "kernel_cache",
    "lazytime",
    "loud",
    "mand",
    "noatime",
    "noauto",
    "nodiratime",
    "nofail",
    "noiversion",
    "nonempty",
    "nolazytime",
    "nomand",
    "norelatime",
    "nostrictatime",
    "nouser",
    "nousers",
    "owner",
    "relatime",
    "silent",
    "strictatime",
    "sync",
    "user",
    "users",
];
const IGNORED_PREFIXES: &[&str] = &["x-", "X-", "comment=", "subtype=", "user="];

/// Options of libfuse that are refused, and why.
const REFUSED: &[(&str, &str)] = &[
    (
        "auto-unmount",
        "nobody unmounts when the daemon is killed; the next mount there removes the dead one, and so does \
         `ffrfs umount --dead`",
    ),
    ("max-read", "ffrfs chooses the size of requests itself; leave it out"),
];

/// The names that other programs have for options of ours.
const OTHER_NAMES: &[(&str, &str)] =
    &[("readonly", "ro"), ("read-only", "ro"), ("readwrite", "rw"), ("read-write", "rw")];

/// Whether a flag of this (dashed) name exists, and whether it takes a value.
pub(crate) type Takes = fn(&str) -> Option<bool>;

/// Long flags of `ffrfs mount` that are not mount options.
const NO_OPTIONS: [&str; 7] =
    ["options", "foreground", "config", "source", "mountpoint", "help", "version"];

/// For `-o` and config files: whether a flag of that name exists, and whether it takes a value.
pub(crate) fn takes(name: &str) -> Option<bool> {
    let command = super::Cli::command();
    let mount = command.find_subcommand("mount")?;
    let arg = mount.get_arguments().find(|arg| arg.get_long() == Some(name))?;
    takes_value(arg)
}

/// Whether an argument of `ffrfs mount` takes a value; `None` if it is not a mount option.
fn takes_value(arg: &Arg) -> Option<bool> {
    let name = arg.get_long()?;
    (!NO_OPTIONS.contains(&name)).then(|| arg.get_action().takes_values())
}

/// The words that a shell offers behind `-o`: `name`, or `name=` and, with each known value, `name=value`.
pub(crate) fn offered() -> Vec<String> {
    let command = super::Cli::command();
    let mount = command.find_subcommand("mount");
    let shown = mount.into_iter().flat_map(clap::Command::get_arguments);
    let mut offered = Vec::new();
    for arg in shown.filter(|arg| !arg.is_hide_set()) {
        let name = arg.get_long().unwrap_or_default().replace('-', "_");
        match takes_value(arg) {
            Some(true) => {
                let values = arg.get_possible_values();
                let values = values.iter().map(|value| format!("{name}={}", value.get_name()));
                offered.push(format!("{name}="));
                offered.extend(values);
            }
            Some(false) => offered.push(name),
            None => {}
        }
    }
    offered
}

/// Whether an option has no effect here, or is always in effect.
pub(crate) fn is_ignored(option: &str) -> bool {
    IGNORED.contains(&option) || IGNORED_PREFIXES.iter().any(|prefix| option.starts_with(prefix))
}

/// Replaces `-o LIST` after the sub-command `mount` by long flags.
///
/// # Errors
/// An option is not known, or `-o` has no list.
pub(crate) fn expand(args: Vec<OsString>, takes: Takes) -> Result<Vec<OsString>, Failure> {
    if args.get(1).is_none_or(|command| command != "mount") {
        return Ok(args);
    }
    let mut out: Vec<OsString> = Vec::with_capacity(args.len());
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let bytes = arg.as_bytes();
        let list = if arg == "--" {
            out.push(arg);
            out.extend(args);
            break;
        } else if arg == "-o" || arg == "--options" {
            args.next().ok_or_else(|| Failure::usage("-o needs a list of options"))?
        } else if let Some(list) = bytes.strip_prefix(b"--options=") {
            OsStr::from_bytes(list).to_owned()
        } else if let Some(list) = bytes.strip_prefix(b"-o") {
            OsStr::from_bytes(list).to_owned()
        } else {
            out.push(arg);
            continue;
        };
        out.extend(flags(&list, takes)?);
    }
    Ok(out)
}

/// The long flags for a list of options, without those that have no effect.
///
/// # Errors
/// An option is not known.
pub(crate) fn flags(list: &OsStr, takes: Takes) -> Result<Vec<OsString>, Failure> {
    let options = split(list.as_bytes());
    let flags = options.iter().enumerate().filter_map(|(at, option)| {
        let before = at.checked_sub(1).map(|before| &options[before]);
        let flag = flag(option, takes).map_err(|failure| match before {
            Some(before) if is_rest(option, before, takes) => {
                let before = String::from_utf8_lossy(before);
                let option = String::from_utf8_lossy(option);
                Failure::usage(format!(
                    "{failure}; if it belongs to `{before}`, its comma is written \\,: `{before}\\,{option}`"
                ))
            }
            _ => failure,
        });
        flag.transpose()
    });
    flags.collect()
}

/// Whether an unknown option may be the rest of the value before it, which a comma has cut.
fn is_rest(option: &[u8], before: &[u8], takes: Takes) -> bool {
    let name =
        |option: &[u8]| dashed(option.split(|&byte| byte == b'=').next().unwrap_or_default());
    let opens = before.iter().filter(|byte| **byte == b'{').count();
    let is_open = opens > before.iter().filter(|byte| **byte == b'}').count();
    let has_value = before.contains(&b'=') && takes(&name(before)) == Some(true);
    let is_number = before.last().is_some_and(u8::is_ascii_digit);
    takes(&name(option)).is_none() && has_value && (is_open || !is_number)
}

/// The options of a list whose names are known.
pub(crate) fn known(list: &OsStr, takes: Takes) -> OsString {
    let is_known = |option: &Vec<u8>| {
        let name = option.split(|&byte| byte == b'=').next().unwrap_or_default();
        is_ignored(&String::from_utf8_lossy(option)) || takes(&dashed(name)).is_some()
    };
    joined(split(list.as_bytes()).into_iter().filter(is_known))
}

/// Takes the options called `name` (with or without a value) out of a list: returns the rest, and whether the list
/// had such an option.
pub(crate) fn without(list: &OsStr, name: &str) -> (OsString, bool) {
    let is_meant = |option: &Vec<u8>| option.split(|&b| b == b'=').next() == Some(name.as_bytes());
    let (meant, others): (Vec<_>, Vec<_>) = split(list.as_bytes()).into_iter().partition(is_meant);
    (joined(others.into_iter()), !meant.is_empty())
}

/// The inverse of [`split`].
fn joined(options: impl Iterator<Item = Vec<u8>>) -> OsString {
    let mut out = Vec::new();
    for option in options {
        if !out.is_empty() {
            out.push(b',');
        }
        for byte in option {
            if matches!(byte, b',' | b'\\') {
                out.push(b'\\');
            }
            out.push(byte);
        }
    }
    OsString::from_vec(out)
}

/// The mount options that were given on the command line of `ffrfs mount`, as `name` or `name=value`.
pub(crate) fn given(matches: &ArgMatches) -> Vec<String> {
    let command = super::Cli::command();
    let Some(mount) = command.find_subcommand("mount") else { return Vec::new() };
    let options = |arg: &Arg| -> Option<Vec<String>> {
        let id = arg.get_id().as_str();
        takes(arg.get_long()?)?;
        let name = arg.get_long()?.replace('-', "_");
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            return None;
        }
        if !arg.get_action().takes_values() {
            return Some(vec![name]);
        }
        let values = matches.get_raw(id)?;
        Some(values.map(|value| format!("{name}={}", value.to_string_lossy())).collect())
    };
    mount.get_arguments().filter_map(options).flatten().collect()
}

/// Splits a list at commas; a backslash takes the comma or backslash behind it literally.
fn split(list: &[u8]) -> Vec<Vec<u8>> {
    let mut options = vec![Vec::new()];
    let mut bytes = list.iter().copied();
    while let Some(byte) = bytes.next() {
        let option = options.last_mut().expect("there is always one");
        match byte {
            b',' => options.push(Vec::new()),
            b'\\' => match bytes.next() {
                Some(escaped @ (b',' | b'\\')) => option.push(escaped),
                Some(other) => option.extend([b'\\', other]),
                None => option.push(b'\\'),
            },
            _ => option.push(byte),
        }
    }
    options.retain(|option| !option.is_empty());
    options
}

/// The name of an option as that of a long flag.
fn dashed(name: &[u8]) -> String {
    String::from_utf8_lossy(name).replace('_', "-")
}

/// Refuses an option: says why, or names the one that was probably meant.
pub(crate) fn unknown(option: &str, name: &str) -> String {
    if let Some((_, why)) = REFUSED.iter().find(|(known, _)| *known == name) {
        return format!("mount option `{option}`: {why}");
    }
    if option.trim() != option {
        return format!("mount option `{option}`: no blank may stand before or after a comma");
    }
    let other = OTHER_NAMES.iter().find(|(other, _)| *other == name);
    let parsed =
        super::Cli::command().try_get_matches_from(["ffrfs", "mount", &format!("--{name}")]);
    let meant = parsed.err().and_then(|error| wrong_usage::suggested(&error));
    let meant = meant.as_deref().and_then(|flag| flag.strip_prefix("--"));
    let meant = meant.filter(|meant| takes(meant).is_some()).map(|meant| meant.replace('-', "_"));
    let given = option.split('=').next().unwrap_or_default();
    let accepted = || IGNORED.iter().find(|known| wrong_usage::is_near(given, known));
    let meant = other.map(|(_, ours)| (*ours).to_owned()).or(meant);
    match meant.or_else(|| accepted().map(|known| (*known).to_owned())) {
        Some(meant) => format!("unknown mount option `{option}`; did you mean {meant}?"),
        None => format!("unknown mount option `{option}` (ffrfs mount --help lists them)"),
    }
}

/// The long flag for an option; `None` if the option has no effect.
fn flag(option: &[u8], takes: Takes) -> Result<Option<OsString>, Failure> {
    let text = String::from_utf8_lossy(option);
    if is_ignored(&text) {
        return Ok(None);
    }
    let (name, value) = match option.iter().position(|&b| b == b'=') {
        Some(at) => (&option[..at], Some(&option[at + 1..])),
        None => (option, None),
    };
    let name = dashed(name);
    match (takes(&name), value) {
        (None, Some(_)) if let Some(why) = refusal(name.trim()) => Err(Failure::usage(why)),
        (None, _) => Err(Failure::usage(unknown(&text, &name))),
        (Some(false), Some(_)) => {
            Err(Failure::usage(format!("mount option `{text}`: {name} takes no value")))
        }
        (Some(true), None) => {
            Err(Failure::usage(format!("mount option `{text}` needs a value: {text}=…")))
        }
        (Some(_), value) => {
            let mut flag = format!("--{name}").into_bytes();
            if let Some(value) = value {
                flag.push(b'=');
                flag.extend_from_slice(value);
            }
            Ok(Some(OsString::from_vec(flag)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(args: &[&str]) -> Result<Vec<String>, String> {
        let takes: Takes = |name| match name {
            "allow-other" => Some(false),
            "uid" | "names" => Some(true),
            _ => None,
        };
        let args = args.iter().map(OsString::from).collect();
        let out = expand(args, takes).map_err(|failure| format!("{failure:?}"))?;
        Ok(out.into_iter().map(|arg| arg.into_string().unwrap()).collect())
    }

    #[test]
    fn options_become_long_flags_wherever_they_stand() {
        let out = expanded(&["ffrfs", "mount", "a", "-o", "allow_other,uid=7", "m", "-ouid=8"]);
        let flags = ["ffrfs", "mount", "a", "--allow-other", "--uid=7", "m", "--uid=8"];
        assert_eq!(out.unwrap(), flags);
    }

    #[test]
    fn options_for_other_readers_of_fstab_are_ignored() {
        let list = "defaults,noauto,nofail,_netdev,user,x-systemd.automount,x-foo=a,,relatime";
        assert_eq!(expanded(&["ffrfs", "mount", "-o", list]).unwrap(), ["ffrfs", "mount"]);
    }

    #[test]
    fn an_unknown_option_is_refused_by_name() {
        let error = expanded(&["ffrfs", "mount", "-o", "allow_other,frobnicate=1"]).unwrap_err();
        assert!(error.contains("frobnicate=1"), "{error}");
        for (given, meant) in [
            ("nonempt", "nonempty"),
            ("nofial", "nofail"),
            ("_netde", "_netdev"),
            ("readonly", "ro"),
            ("read_only", "ro"),
            ("readwrite", "rw"),
        ] {
            let said = unknown(given, &dashed(given.as_bytes()));
            assert!(said.ends_with(&format!("did you mean {meant}?")), "{said}");
        }
        let said = unknown("frob=1", "frob");
        assert!(!said.contains("did you mean"), "{said}");
    }

    #[test]
    fn a_missing_and_a_superfluous_value_are_refused() {
        assert!(expanded(&["ffrfs", "mount", "-o", "uid"]).is_err());
        assert!(expanded(&["ffrfs", "mount", "-o", "allow_other=yes"]).is_err());
        assert!(expanded(&["ffrfs", "mount", "-o"]).is_err());
    }

    #[test]
    fn an_escaped_comma_belongs_to_the_value() {
        let out = expanded(&["ffrfs", "mount", "-o", "names=a\\,b\\\\c\\d,uid=1"]).unwrap();
        assert_eq!(out[2..], ["--names=a,b\\c\\d", "--uid=1"]);
    }

    #[test]
    fn an_unknown_option_that_a_comma_has_cut_off_is_told_with_how_the_comma_is_written() {
        let refused = |list| expanded(&["ffrfs", "mount", "-o", list]).unwrap_err();
        let said = refused("names={a,b}");
        assert!(said.contains("if it belongs to `names={a`") && said.contains(","), "{said}");
        for list in ["uid=7,frob", "allow_other,frob", "frob"] {
            assert!(!refused(list).contains("belongs"), "{list}");
        }
    }

    #[test]
    fn other_commands_and_arguments_behind_two_dashes_are_left_alone() {
        let args = ["ffrfs", "ls", "-o", "x"];
        assert_eq!(expanded(&args).unwrap(), args);
        let args = ["ffrfs", "mount", "--", "-o", "x"];
        assert_eq!(expanded(&args).unwrap(), args);
    }

    #[test]
    fn names_of_options_are_offered_with_the_values_that_are_known() {
        let offered = super::offered();
        for name in ["allow_other", "cache_size=", "verify=", "verify=once", "transport=uring"] {
            assert!(offered.iter().any(|option| option == name), "{name}: {offered:?}");
        }
        for none in ["foreground", "exec", "source=", "verify"] {
            assert!(!offered.iter().any(|option| option == none), "{none}");
        }
        let is_taken = |option: &String| {
            takes(&dashed(option.split('=').next().unwrap_or_default().as_bytes())).is_some()
        };
        assert!(offered.iter().all(is_taken), "{offered:?}");
    }

    #[test]
    fn every_long_flag_is_a_mount_option() {
        assert_eq!(super::takes("allow-other"), Some(false));
        assert_eq!(super::takes("cache-size"), Some(true));
        assert_eq!(super::takes("suffix"), Some(true));
        for other in ["foreground", "config", "source", "mountpoint"] {
            assert_eq!(super::takes(other), None);
        }
        assert_eq!(super::takes("frobnicate"), None);
    }
}
