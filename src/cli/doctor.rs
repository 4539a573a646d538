//! `ffrfs doctor`: what this host offers, what a mount would use, and what to change.
//!
//! What a check makes of what it found is a function of file contents, so that tests can give it anything.

mod host;
mod mounted;
mod resources;
pub(crate) mod storage;

use crate::daemon::logging;
use crate::failure::{Exit, Failure};
use crate::io::mounts;
use crate::vfs::report;
use clap::Args;
use serde::Serialize;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Say what this host offers, what a mount would use, and what to change
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Mount points to look at, and containers to look at how they are stored
    #[arg(value_name = "MOUNTPOINT|CONTAINER")]
    places: Vec<PathBuf>,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// How long to look at what a mount is doing
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = super::stats::seconds)]
    seconds: Duration,
    /// Print what the mount point says, and nothing else
    // For `doctor` itself: see `mounted::ask`.
    #[arg(long, hide = true)]
    answer: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// As it should be.
    Ok,
    /// It works, and could be better; or it cannot be known.
    Note,
    /// Mounting would fail, or what is mounted does not work.
    Problem,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    pub(crate) check: String,
    pub(crate) state: State,
    pub(crate) found: String,
    /// What to change; empty where all is well.
    pub(crate) advice: String,
}

impl Check {
    pub(crate) fn ok(check: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(check, State::Ok, found, "")
    }

    pub(crate) fn note(
        check: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::new(check, State::Note, found, advice)
    }

    fn problem(
        check: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::new(check, State::Problem, found, advice)
    }

    /// What comes from files and paths may hold anything: a line stays a line.
    fn new(
        check: impl Into<String>,
        state: State,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let clean = |text: String| text.replace(char::is_control, "?");
        let (check, found, advice) = (check.into(), found.into(), advice.into());
        Self { check: clean(check), state, found: clean(found), advice: clean(advice) }
    }

    fn line(&self) -> String {
        let state = match self.state {
            State::Ok => "ok     ",
            State::Note => "note   ",
            State::Problem => "problem",
        };
        let Self { check, found, advice, .. } = self;
        let advice = if advice.is_empty() { String::new() } else { format!("; {advice}") };
        format!("{state}  {check}: {found}{advice}\n")
    }
}

pub(crate) fn run(args: &DoctorArgs) -> Result<Exit, Failure> {
    if args.answer {
        mounted::answer(&args.places);
    }
    logging::to_stderr("error");
    let mut checks = host::checks();
    checks.extend(resources::checks());
    for place in &args.places {
        checks.extend(look_at(place, args.seconds));
    }
    let text = if args.json {
        report::json(&checks)
    } else {
        checks.iter().map(Check::line).collect::<String>().into_bytes()
    };
    std::io::stdout().write_all(&text).map_err(|e| Failure::output("standard output", e))?;
    let works = checks.iter().all(|check| check.state != State::Problem);
    Ok(if works { Exit::Ok } else { Exit::Mount })
}

/// A mount point or a container. The mount table is asked first: to touch a mount may take for ever.
fn look_at(place: &Path, pause: Duration) -> Vec<Check> {
    let name = place.display().to_string();
    let absolute = std::path::absolute(place).unwrap_or_else(|_| place.to_owned());
    let ours = |path: &Path| {
        let mount = mounts::at(path).ok().flatten();
        mount.filter(|mount| mount.fs_type == mounts::FS_TYPE)
    };
    if let Some(mount) = ours(&absolute) {
        return mounted::checks(&name, &mount, pause);
    }
    match place.canonicalize() {
        Err(e) => vec![Check::problem(name, e.to_string(), "give a container or a mount point")],
        Ok(path) => match ours(&path) {
            Some(mount) => mounted::checks(&name, &mount, pause),
            None if is_empty_folder(&path) => {
                vec![Check::ok(name, "an empty folder, on which nothing is mounted")]
            }
            None => storage::checks(&name, &path),
        },
    }
}

fn is_empty_folder(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// A small text file; `None` if it cannot be read.
pub(crate) fn text(path: impl AsRef<Path>) -> Option<String> {
    fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// The number that a file holds.
fn number(text: Option<&str>) -> Option<u64> {
    text?.trim().parse().ok()
}

/// `3 MiB`, or what was not a number.
fn mebibytes(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_a_line_whatever_was_found() {
        let check = Check::problem("a\nb", "\x1b[31mred\r\n", "do\tit");
        assert_eq!(check.line(), "problem  a?b: ?[31mred??; do?it\n");
        assert_eq!(Check::ok("a", "b").line(), "ok       a: b\n");
    }

    #[test]
    fn numbers_are_read_and_what_is_none_is_not() {
        assert_eq!(number(Some(" 12\n")), Some(12));
        for odd in [None, Some(""), Some("-1"), Some("x"), Some("99999999999999999999")] {
            assert_eq!(number(odd), None, "{odd:?}");
        }
        assert_eq!(mebibytes(1 << 20), "1 MiB");
        assert_eq!(mebibytes(4096), "4 KiB");
    }
}
