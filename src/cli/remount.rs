//! `mount -o remount,…`: changes options of a mount in use.
//!
//! mount(8) passes more options than the user gave: those of the line in fstab, or else those of the mount
//! table. So only an option that differs from the mount's own is a change.

use super::{Cli, options};
use crate::daemon::live::Live;
use crate::daemon::{remount, settings};
use crate::failure::{Exit, Failure};
use clap::{ArgMatches, CommandFactory};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Options of the kernel's own, which the mount table shows beside ours.
const KERNELS: [&str; 8] = [
    "user_id",
    "group_id",
    "rootmode",
    "fd",
    "max_read",
    "blksize",
    "seclabel",
    "default_permissions",
];

/// The options that differ from those of the mount.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    settings: Vec<(String, String)>,
    read_only: Option<bool>,
    noexec: Option<bool>,
    /// Options that cannot be changed.
    refused: Vec<String>,
}

/// Changes the mount on `target` to the options in `list`; if `fake`, only checks whether it can.
pub(super) fn run(target: &Path, list: &OsStr, fake: bool) -> Result<(), Failure> {
    let target = remount::mounted_at(target)?;
    let mut list = list.to_owned();
    for name in KERNELS {
        list = options::without(&list, name).0;
    }
    let wanted = parsed(&list)?;
    let mount = Live::at(&target)?;
    let given = mount.info()?.options.into_iter().map(|option| escaped(&option));
    let given = parsed(&given.collect::<Vec<_>>().join(OsStr::new(",")))?;
    let changes = changes(&wanted, &given);
    if let [first, ..] = &changes.refused[..] {
        let what = changes.refused.join(", ");
        let why = format!(
            "{}: remount cannot change {what}; unmount it, and mount it again with {first}",
            target.display()
        );
        return Err(Failure::new(Exit::Mount, why));
    }
    // Asked first: a remount that is refused changes nothing.
    let flags = remount::new_flags(&target, changes.read_only, changes.noexec)?;
    if fake {
        return Ok(());
    }
    if !changes.settings.is_empty() {
        mount.set(&changes.settings)?;
    }
    flags.map_or(Ok(()), |flags| flags.set())
}

/// An option as part of a list.
fn escaped(option: &str) -> OsString {
    option.replace('\\', "\\\\").replace(',', "\\,").into()
}

/// Parses a list as `ffrfs mount -o LIST` does.
fn parsed(list: &OsStr) -> Result<ArgMatches, Failure> {
    let mut args: Vec<OsString> = vec!["ffrfs".into(), "mount".into()];
    args.extend(options::flags(list, options::takes)?);
    args.extend(["--".into(), "SOURCE".into(), "MOUNTPOINT".into()]);
    let mut matches = Cli::command().try_get_matches_from(args)?;
    let (_, matches) = matches.remove_subcommand().ok_or_else(|| Failure::usage("not a mount"))?;
    Ok(matches)
}

/// The options that are `wanted` and differ from those `given` at the mount.
fn changes(wanted: &ArgMatches, given: &ArgMatches) -> Changes {
    let mut changes = Changes::default();
    for option in options::given(wanted) {
        let (name, value) = option.split_once('=').unwrap_or((&option, "true"));
        match name {
            "ro" | "rw" => changes.read_only = Some(name == "ro"),
            "exec" | "noexec" => changes.noexec = Some(name == "noexec"),
            // nosuid and nodev are always in effect.
            "suid" | "nosuid" | "dev" | "nodev" => {}
            _ if settings::can_change(name) => {
                changes.settings.push((name.to_owned(), value.to_owned()));
            }
            // In the mount table allow_root is called allow_other.
            "allow_other" if given.get_flag("allow_root") => {}
            _ if is_so(given, name, value) => {}
            _ => changes.refused.push(option),
        }
    }
    changes
}

/// Whether an option has this value, given or by default.
fn is_so(given: &ArgMatches, name: &str, value: &str) -> bool {
    let mut values = given.get_raw(name).into_iter().flatten();
    values.any(|given| given.to_string_lossy() == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(wanted: &str, given: &str) -> Changes {
        let parsed = |list: &str| parsed(list.as_ref()).unwrap();
        changes(&parsed(wanted), &parsed(given))
    }

    #[test]
    fn an_option_with_its_present_value_is_no_change() {
        let given = "suffix=.jpg,allow_other,uid=7,fsname=a b";
        let same = "allow_other,uid=7,suffix=.jpg,dup=auto,fsname=a b";
        assert_eq!(changed(same, given), Changes::default());
    }

    #[test]
    fn options_that_can_change_are_told_from_those_that_cannot() {
        let changes =
            changed("verify=once,ro,noexec,nodev,memory=1G,uid=8,flat", "uid=7,verify=off");
        let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(changes.settings, [setting("verify", "once"), setting("memory", "1G")]);
        assert_eq!((changes.read_only, changes.noexec), (Some(true), Some(true)));
        assert_eq!(changes.refused, ["flat", "uid=8"]);
    }

    #[test]
    fn allow_other_in_the_mount_table_may_be_allow_root() {
        assert_eq!(changed("allow_other", "allow_root"), Changes::default());
        assert_eq!(changed("allow_other", "ro").refused, ["allow_other"]);
    }
}
