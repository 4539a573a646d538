//! `ffrfs verify`: every sample against its checksum.

use super::open::OpenArgs;
use super::print::{to_stdout, unless_unread};
use super::view::{SelectionArgs, ViewArgs};
use crate::catalog::{Node, ROOT};
use crate::daemon::logging;
use crate::dataset::Opened;
use crate::failure::{Exit, Failure, say};
use crate::format::PartName;
use crate::format::mds::LIST_NAME;
use crate::format::{counted, one_or_many};
use crate::interrupt::Interrupt;
use crate::tools::info::has_index;
use crate::tools::reader::thread_count;
use crate::tools::verify::{BadSample, ListedHashes, Verified, Wanted, WrongHash, verify};
use crate::vfs::report;
use clap::Args;
use std::num::NonZeroU16;

/// Check every sample against its checksum, and say where there is none
#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// Containers, or directories, globs or brace lists of them
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PartName>,
    /// Threads [default: as many as CPUs]
    #[arg(short = 'j', long, value_name = "N")]
    jobs: Option<NonZeroU16>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Check only these samples: I, I-J (both included) or I- (to the end)
    #[arg(long, value_name = "I-J", value_parser = parse_range)]
    sample: Option<(u64, Option<u64>)>,
    #[command(flatten)]
    open: OpenArgs,
    #[command(flatten)]
    selection: SelectionArgs,
}

pub(super) fn run(args: &VerifyArgs) -> Result<Exit, Failure> {
    logging::to_stderr("warn");
    let mut open = args.open.clone();
    open.read_password(&args.sources)?;
    let opened = open.open(&args.sources)?;
    let samples = opened.dataset.len();
    let (first, last) = args.sample.unwrap_or((0, None));
    let end = last.map_or(samples, |last| last.saturating_add(1));
    if (first >= end || end > samples) && args.sample.is_some() {
        let message = format!("--sample: there are samples 0 to {}", samples.saturating_sub(1));
        return Err(Failure::usage(if samples == 0 {
            "there is no sample".into()
        } else {
            message
        }));
    }
    let interrupt = Interrupt::listen();
    let wanted = match selected(&opened, args)? {
        None => Wanted::Range(first..end),
        Some(list) => {
            let is_meant = |sample: &u64| (first..end).contains(sample);
            Wanted::List(list.into_iter().filter(is_meant).collect())
        }
    };
    let mut outcome = verify(&opened, wanted, thread_count(args.jobs), &interrupt)?;
    name_bad_samples(&opened, &args.open, &mut outcome)?;
    unless_unread(print(args, &opened, &outcome))?;
    Ok(outcome.exit())
}

/// The samples whose names are selected, in order; `None` for all, whatever they are called.
fn selected(opened: &Opened, args: &VerifyArgs) -> Result<Option<Vec<u64>>, Failure> {
    if args.selection.selection().is_everything() {
        return Ok(None);
    }
    let view = ViewArgs { selection: args.selection.clone(), all: true, ..ViewArgs::default() };
    let catalog = opened.catalog(&view, &args.open)?;
    let mut samples = Vec::new();
    catalog.walk(&opened.dataset, ROOT, &mut |_, node| {
        if let Node::Sample(sample) = node {
            samples.push(sample);
        }
    })?;
    samples.sort_unstable();
    samples.dedup();
    Ok(Some(samples))
}

/// Names are looked up only where something is bad.
fn name_bad_samples(
    opened: &Opened,
    open: &OpenArgs,
    outcome: &mut Verified,
) -> Result<(), Failure> {
    if outcome.bad.is_empty() {
        return Ok(());
    }
    let view = ViewArgs::default();
    // The names themselves may be what is damaged.
    let catalog = opened
        .catalog(&view, open)
        .or_else(|_| opened.catalog(&ViewArgs { flat: true, ..view }, open))?;
    Ok(outcome.name_bad_samples(opened, &catalog)?)
}

fn print(args: &VerifyArgs, opened: &Opened, outcome: &Verified) -> Result<(), Failure> {
    if args.json {
        return to_stdout(&report::json(outcome));
    }
    for bad in &outcome.bad {
        let BadSample { sample, path, container, offset, length, fault, .. } = bad;
        let name = if path.is_empty() { String::new() } else { format!(" ({path})") };
        let at = format!("at byte {offset}, {}", counted(length, "byte"));
        to_stdout(format!("{container}: sample {sample}{name} {at}: {fault}\n").as_bytes())?;
    }
    for WrongHash { container, algorithm, expected, found } in &outcome.listed_hashes.wrong {
        let text =
            format!("{container}: {algorithm} of the file: expected {expected}, found {found}\n");
        to_stdout(text.as_bytes())?;
    }
    let checked = outcome.samples.saturating_sub(outcome.not_verifiable + outcome.encrypted);
    let bytes = indicatif::HumanBytes(outcome.bytes);
    say(format_args!(
        "{} checked{}, {bytes} read: {} bad",
        counted(checked, "sample"),
        indexes(opened, outcome),
        outcome.bad.len()
    ));
    let ListedHashes { right, wrong, unchecked, .. } = &outcome.listed_hashes;
    if *right > 0 || !wrong.is_empty() {
        let bad = wrong.len();
        say(format_args!(
            "{} that {LIST_NAME} lists: {bad} bad",
            one_or_many(right, "file has the hash", "files have the hashes")
        ));
    }
    for (algorithm, files) in unchecked {
        say(format_args!(
            "{algorithm} of {} in {LIST_NAME} is not checked",
            counted(files, "file")
        ));
    }
    if outcome.not_verifiable > 0 {
        let samples = outcome.not_verifiable;
        say(format_args!(
            "{} no checksum: not verifiable",
            one_or_many(samples, "sample has", "samples have")
        ));
    }
    if outcome.encrypted > 0 {
        let samples = outcome.encrypted;
        say(format_args!(
            "{} encrypted: give --password-file",
            one_or_many(samples, "sample is", "samples are")
        ));
    }
    if !outcome.complete {
        let to = args.sample.and_then(|(_, last)| last).map_or(String::new(), |l| l.to_string());
        say(format_args!("ffrfs: interrupted; go on with --sample {}-{to}", outcome.checked_to));
    }
    Ok(())
}

/// Says how many of all samples are no files, which `info` does not count.
fn indexes(opened: &Opened, outcome: &Verified) -> String {
    if outcome.samples != opened.dataset.len() {
        return String::new();
    }
    let containers = 0..opened.dataset.containers().len();
    match containers.filter(|container| has_index(&opened.dataset, *container)).count() {
        0 => String::new(),
        some => {
            let hold = one_or_many(some, "of them holds", "of them hold");
            format!(" ({hold} the names of the others)")
        }
    }
}

fn parse_range(text: &str) -> Result<(u64, Option<u64>), String> {
    let wrong = || "a sample number, I-J or I- is needed".to_owned();
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    match text.split_once('-') {
        None => number(text).map(|one| (one, Some(one))),
        Some((first, "")) => Ok((number(first)?, None)),
        Some((first, last)) => {
            let (first, last) = (number(first)?, number(last)?);
            if first <= last { Ok((first, Some(last))) } else { Err(wrong()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_samples_are_one_a_span_or_open() {
        assert_eq!(parse_range("7"), Ok((7, Some(7))));
        assert_eq!(parse_range("7-9"), Ok((7, Some(9))));
        assert_eq!(parse_range("7-"), Ok((7, None)));
        for wrong in ["", "-", "-7", "9-7", "a", "1-b"] {
            assert!(parse_range(wrong).is_err(), "{wrong}");
        }
    }
}
