//! `ffrfs verify`: every sample against its checksum.

use super::open::OpenArgs;
use super::print::{to_stdout, unless_unread};
use super::view::{ViewArgs, say_not_shown};
use crate::catalog::{Catalog, Node, ROOT};
use crate::daemon::logging;
use crate::dataset::{NameOptions, Opened};
use crate::failure::{Exit, Failure, say};
use crate::format::PartName;
use crate::format::mds::LIST_NAME;
use crate::format::{counted, one_line, one_or_many};
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
    view: ViewArgs,
}

pub(super) fn run(args: &VerifyArgs) -> Result<Exit, Failure> {
    logging::to_stderr("warn");
    args.view.check_answered()?;
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
    let catalog = args.asked_names(&opened)?;
    let is_selected = !args.view.selection.selection().is_everything();
    let wanted = match &catalog {
        Some(catalog) if is_selected => {
            let mut list = named_samples(&opened, catalog)?;
            list.retain(|sample| (first..end).contains(sample));
            Wanted::List(list)
        }
        _ => Wanted::Range(first..end),
    };
    let mut outcome = verify(&opened, wanted, thread_count(args.jobs), &interrupt)?;
    let catalog = match catalog {
        None => args.found_names(&opened, &outcome)?,
        asked => asked,
    };
    if let Some(catalog) = &catalog {
        if !outcome.bad.is_empty() {
            outcome.name_bad_samples(&opened, catalog)?;
        }
        // No names were read of numbered samples.
        let is_told = !is_selected && args.tells_of_all(&outcome);
        outcome.renamed =
            (is_told && matches!(catalog, Catalog::Tree(_))).then(|| catalog.renamed());
    }
    unless_unread(print(args, &opened, &outcome))?;
    if let Some(renamed) = outcome.renamed.as_ref().filter(|_| !args.json) {
        say_not_shown(renamed, "; verify counts them, too");
    }
    Ok(outcome.exit())
}

impl VerifyArgs {
    /// The names, if an option is about names. Files that systems leave are checked, too, if they are selected.
    fn asked_names(&self, opened: &Opened) -> Result<Option<Catalog>, Failure> {
        let options = self.view.options();
        if options.is_plain() && options.selection.is_everything() {
            return Ok(None);
        }
        let all = options.all || !options.selection.is_everything();
        let view = ViewArgs { all, ..self.view.clone() };
        opened.catalog(&view, &self.open).map(Some)
    }

    /// The names for the report; without options about names, they are not needed before.
    fn found_names(&self, opened: &Opened, outcome: &Verified) -> Result<Option<Catalog>, Failure> {
        let view = ViewArgs::default();
        if !outcome.bad.is_empty() {
            // The names themselves may be damaged.
            let named = opened.catalog(&view, &self.open);
            let flat = ViewArgs { flat: true, ..view };
            return named.or_else(|_| opened.catalog(&flat, &self.open)).map(Some);
        }
        // All numbered samples are shown. Names that cannot be read are no concern of a check of samples.
        if !self.tells_of_all(outcome) || !has_names(opened) {
            return Ok(None);
        }
        let unseen = NameOptions { are_unseen: true, ..view.options() };
        // Without --allow-damaged: numbers in place of names that cannot be read are of no use here.
        Ok(opened.named(&unseen, false).ok())
    }

    /// Whether all samples were checked, so that the user is told of files in the containers that are not shown.
    fn tells_of_all(&self, outcome: &Verified) -> bool {
        outcome.complete && self.sample.is_none()
    }
}

/// Whether names are stored, under which a sample may be left out or hidden.
fn has_names(opened: &Opened) -> bool {
    let last = opened.dataset.containers().len().saturating_sub(1);
    let is_numbered = opened.dataset.is_numbered();
    is_numbered.is_ok_and(|is_numbered| !is_numbered) || has_index(&opened.dataset, last)
}

/// All samples that have a name, in order.
fn named_samples(opened: &Opened, catalog: &Catalog) -> Result<Vec<u64>, Failure> {
    let mut samples = Vec::new();
    catalog.walk(&opened.dataset, ROOT, &mut |_, node| {
        if let Node::Sample(sample) = node {
            samples.push(sample);
        }
    })?;
    samples.sort_unstable();
    samples.dedup();
    Ok(samples)
}

fn print(args: &VerifyArgs, opened: &Opened, outcome: &Verified) -> Result<(), Failure> {
    if args.json {
        return to_stdout(&report::json(outcome));
    }
    for bad in &outcome.bad {
        let BadSample { sample, path, container, offset, length, fault, .. } = bad;
        let name = if path.is_empty() { String::new() } else { format!(" ({path})") };
        let at = format!("at byte {offset}, {}", counted(length, "byte"));
        let line = one_line(format!("{container}: sample {sample}{name} {at}: {fault}"));
        to_stdout(format!("{line}\n").as_bytes())?;
    }
    for WrongHash { container, algorithm, expected, found } in &outcome.listed_hashes.wrong {
        let wrong =
            format!("{container}: {algorithm} of the file: expected {expected}, found {found}");
        to_stdout(format!("{}\n", one_line(wrong)).as_bytes())?;
    }
    let checked = outcome.samples.saturating_sub(outcome.not_verifiable + outcome.encrypted.all);
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
    for sentence in outcome.encrypted.sentences("sample is", "samples are") {
        say(format_args!("{sentence}"));
    }
    if !outcome.complete {
        let to = args.sample.and_then(|(_, last)| last).map_or(String::new(), |l| l.to_string());
        say(format_args!("ffrfs: interrupted; go on with --sample {}-{to}", outcome.checked_to));
    }
    Ok(())
}

/// Says how many of all samples are no files: `info` does not count these.
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
