//! The source and the mount point of a command line that cannot be understood as a whole, so that its fault is told with the
//! mount that is meant: mount(8) mixes the messages of several mounts.

use super::remote::refusal;
use super::wrong_usage::suggested;
use crate::daemon::mount::{name_in, name_of_all};
use crate::failure::{Exit, Failure};
use crate::format::PartName;
use clap::{Arg, CommandFactory};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Wrong usage of `ffrfs mount`, with the source and the mount point in front, if the arguments tell them.
pub(super) fn name_usage(failure: Failure, args: &[OsString]) -> Failure {
    match args {
        [_, command, args @ ..] if command == "mount" => name_words(failure, &words(args)),
        _ => failure,
    }
}

/// Wrong usage, with sources and mount point in front: the last word is the mount point of the others.
pub(super) fn name_words(failure: Failure, words: &[&OsStr]) -> Failure {
    let is_help = failure.exit != Exit::Usage || failure.reason::<clap::Error>().is_some();
    let Some((target, sources @ [_, ..])) = words.split_last().filter(|_| !is_help) else {
        return failure;
    };
    let sources: Vec<PartName> = sources.iter().map(|&name| name.to_owned().into()).collect();
    let first = sources.first().map(ToString::to_string).unwrap_or_default();
    name_in(failure, &name_of_all(first, sources.len()), &sources, Path::new(target))
}

/// The arguments that are neither options nor their values; empty if these cannot be told apart.
fn words(args: &[OsString]) -> Vec<&OsStr> {
    let (mut words, mut is_certain) = (Vec::new(), true);
    let mut args = args.iter().map(OsString::as_os_str);
    while let Some(arg) = args.next() {
        match arg.as_bytes() {
            b"--" => words.extend(args.by_ref()),
            // `-o` may also stand behind other short options in one word.
            [b'-', short @ .., b'o'] if !short.contains(&b'o') && !short.starts_with(b"-") => {
                _ = args.next();
            }
            [b'-', b'-', name @ ..] if !name.contains(&b'=') => match takes_value(name) {
                Some(true) => _ = args.next(),
                Some(false) => {}
                // The next argument may be the value of this option.
                None => is_certain = false,
            },
            [b'-', _, ..] => {}
            _ => words.push(arg),
        }
    }
    if is_certain || words.len() == 2 { words } else { Vec::new() }
}

/// Whether the option of this name takes a value, or the one that was probably meant; `None` if no option was.
fn takes_value(name: &[u8]) -> Option<bool> {
    let name = String::from_utf8_lossy(name).replace('_', "-");
    let command = super::Cli::command();
    let mount = command.find_subcommand("mount")?;
    let find = |name: &str| mount.get_arguments().find(|arg| arg.get_long() == Some(name));
    let takes = |arg: &Arg| arg.get_action().takes_values();
    if name == "help" || name == "version" {
        return Some(false);
    }
    // A secret is no option, but is given with a value.
    if refusal(&name).is_some() {
        return Some(true);
    }
    find(&name).map(takes).or_else(|| {
        let parsed = command.clone().try_get_matches_from(["ffrfs", "mount", &format!("--{name}")]);
        let meant = suggested(&parsed.err()?)?;
        find(meant.strip_prefix("--")?).map(takes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(args: &[&str]) -> String {
        let args = ["ffrfs", "mount"].iter().chain(args).map(OsString::from).collect::<Vec<_>>();
        name_usage(Failure::usage("wrong"), &args).to_string()
    }

    #[test]
    fn wrong_usage_names_source_and_mount_point_wherever_they_stand() {
        for args in [
            &["/a.zip", "/m", "--alow-other"][..],
            &["--alow-other", "/a.zip", "/m"],
            &["--verify", "x", "/a.zip", "-o", "b,c", "/m"],
            &["-fo", "b,c", "--verify", "x", "/a.zip", "/m"],
            &["-f", "--cache_size=1G", "--", "/a.zip", "/m"],
            &["/a.zip", "--memry", "1G", "-obad", "/m"],
            &["--frob", "/a.zip", "/m"],
        ] {
            assert_eq!(said(args), "/a.zip on /m: wrong", "{args:?}");
        }
        assert_eq!(said(&["/a.zip", "/b.zip", "/m", "--uid=x"]), "/a.zip and 1 more on /m: wrong");
    }

    #[test]
    fn what_cannot_be_told_is_not_named() {
        for args in [&["/a.zip"][..], &["--frob", "x", "/a.zip", "/m"], &[], &["--verify", "x"]] {
            assert_eq!(said(args), "wrong", "{args:?}");
        }
        let args = ["ffrfs", "info", "/a.zip", "/m"].map(OsString::from);
        assert_eq!(name_usage(Failure::usage("wrong"), &args).to_string(), "wrong");
    }
}
