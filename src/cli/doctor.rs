//! `ffrfs doctor`: the features that this host offers, those that a mount would use, and advice.

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
    #[command(flatten)]
    remote: RemoteArgs,
}

pub(super) fn run(args: &DoctorArgs) -> Result<Exit, Failure> {
    logging::to_stderr("error");
    patience::check(args.remote.paths())?;
    let mut checks = doctor::host();
    let mut unusable = None;
    let places = args.places.iter().map(|place| PartName::from(place.clone().into_os_string()));
    let places: Vec<PartName> = places.collect();
    // Mounts come first: beside the threads that ask a store, no process can be made that asks a mount.
    let paths: Vec<&Path> = places.iter().filter_map(PartName::as_path).collect();
    let mut of_paths = doctor::places(&paths, args.seconds).into_iter();
    for place in &places {
        match place {
            PartName::Path(_) => checks.extend(of_paths.next().into_iter().flatten()),
            url @ PartName::Url(_) => {
                let options = Options { remote: args.remote.options()?, ..Options::default() };
                let (of_store, exit) = doctor::store(url, &options);
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
