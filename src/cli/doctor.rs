//! `ffrfs doctor`: what this host offers, what a mount would use, and what to change.

use super::print::unless_unread;
use super::remote::RemoteArgs;
use crate::daemon::doctor::{self, Check, State};
use crate::daemon::{logging, patience};
use crate::dataset::Options;
use crate::failure::{Exit, Failure};
use crate::format::PartName;
use crate::vfs::report;
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Report what this host offers, what a mount would use, and what to change
#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Mount points and containers to check beside the host
    #[arg(value_name = "MOUNTPOINT|CONTAINER|URL")]
    places: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// How long to watch a mount's requests
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = super::seconds::seconds)]
    seconds: Duration,
    /// Print the mount point's info.json, and nothing else
    // `doctor` starts itself with it: see `ask`.
    #[arg(long, hide = true)]
    answer: bool,
    #[command(flatten)]
    remote: RemoteArgs,
}

pub(super) fn run(args: &DoctorArgs) -> Result<Exit, Failure> {
    if args.answer {
        let place = args.places.first().map_or(Path::new(""), PathBuf::as_path);
        std::process::exit(doctor::answer(place));
    }
    logging::to_stderr("error");
    patience::check(args.remote.paths())?;
    let mut checks = doctor::host();
    let mut unusable = None;
    for place in &args.places {
        match PartName::from(place.clone().into_os_string()) {
            PartName::Path(path) => checks.extend(doctor::place(&path, args.seconds, ask)),
            url @ PartName::Url(_) => {
                let options = Options { remote: args.remote.options()?, ..Options::default() };
                let (of_store, exit) = doctor::store(&url, &options);
                checks.extend(of_store);
                unusable = unusable.or(Some(exit).filter(|exit| *exit != Exit::Ok));
            }
        }
    }
    let text = if args.json {
        report::json(&checks)
    } else {
        checks.iter().map(line).collect::<String>().into_bytes()
    };
    let written = std::io::stdout().write_all(&text);
    unless_unread(written.map_err(|e| Failure::output("standard output", e)))?;
    let works = checks.iter().all(|check| check.state != State::Problem);
    Ok(if works { Exit::Ok } else { unusable.unwrap_or(Exit::Mount) })
}

/// The command that asks the mount on `target` how it is.
fn ask(target: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["doctor", "--answer", "--"]).arg(target);
    command
}

fn line(check: &Check) -> String {
    let state = match check.state {
        State::Ok => "ok     ",
        State::Note => "note   ",
        State::Problem => "problem",
    };
    let Check { check, found, advice, .. } = check;
    let advice = if advice.is_empty() { String::new() } else { format!("; {advice}") };
    format!("{state}  {check}: {found}{advice}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_a_line_with_its_advice() {
        assert_eq!(line(&Check::problem("a", "b", "c")), "problem  a: b; c\n");
        assert_eq!(line(&Check::ok("a", "b")), "ok       a: b\n");
    }
}
