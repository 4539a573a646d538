//! Checks every sample of a dataset against its checksum, on several threads, in the order of the containers; and files
//! against hashes that are listed of them.

mod listed;

use crate::catalog::{Catalog, Renamed};
use crate::dataset::Opened;
use crate::dataset::checksums::CheckedBy;
use crate::failure::{Exit, Failure};
use crate::format::{self, Fault, Mismatch, PartName};
use crate::interrupt::Interrupt;
use crate::tools::encrypted::Encrypted;
use crate::tools::progress;
use crate::tools::reader::{
    CheckedSample, SampleChecker, SampleReader, Span, exit_of, for_each, next_span,
};
use indicatif::ProgressBar;
pub(crate) use listed::{ListedHashes, WrongHash};
use serde::Serialize;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The result of the check.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Verified {
    pub(crate) first_sample: u64,
    /// One past the last sample.
    pub(crate) end_sample: u64,
    /// All samples to check from the first up to this one were checked.
    pub(crate) checked_to: u64,
    /// The number of samples that were checked.
    pub(crate) samples: u64,
    pub(crate) bytes: u64,
    /// Samples of formats without checksums.
    pub(crate) not_verifiable: u64,
    #[serde(flatten)]
    pub(crate) encrypted: Encrypted,
    /// Bad samples that the given password does not open: theirs is another one, or they are damaged.
    pub(crate) other_password: u64,
    pub(crate) complete: bool,
    pub(crate) bad: Vec<BadSample>,
    /// Of files as a whole; compared when all samples are checked.
    pub(crate) listed_hashes: ListedHashes,
    /// Names that are not shown as they are stored, if all samples were checked and their names were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) renamed: Option<Renamed>,
}

/// A sample whose bytes are wrong or cannot be read.
#[derive(Debug, Serialize)]
pub(crate) struct BadSample {
    pub(crate) sample: u64,
    pub(crate) path: String,
    pub(crate) container: PartName,
    pub(crate) index: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    #[serde(flatten)]
    reason: Reason,
    #[serde(skip)]
    pub(crate) fault: Fault,
}

/// A [`Fault`] in JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
enum Reason {
    Checksum {
        /// What the checksum is of, if it is not the sample.
        #[serde(skip_serializing_if = "Option::is_none")]
        part: Option<String>,
        expected: String,
        found: String,
    },
    Damaged,
    Encrypted,
    /// As `.ffrfs/bad` says it.
    #[serde(rename = "encrypted with another password, or damaged")]
    OtherPassword,
    Structure {
        error: String,
    },
    Unreadable {
        error: String,
    },
}

impl From<&Fault> for Reason {
    fn from(fault: &Fault) -> Self {
        match fault {
            Fault::Checksum(Mismatch { expected, found }) => Reason::Checksum {
                part: None,
                expected: format!("{expected:#010x}"),
                found: format!("{found:#010x}"),
            },
            Fault::PartChecksum { what, expected, found } => Reason::Checksum {
                part: Some(what.clone()),
                expected: format!("{expected:#010x}"),
                found: format!("{found:#010x}"),
            },
            Fault::Damaged => Reason::Damaged,
            Fault::Locked | Fault::Encryption(_) => Reason::Encrypted,
            Fault::OtherPassword => Reason::OtherPassword,
            Fault::Structure(error) => Reason::Structure { error: error.clone() },
            Fault::Unreadable(error) | Fault::Lacking(error) => {
                Reason::Unreadable { error: error.clone() }
            }
        }
    }
}

impl Verified {
    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self.complete {
            true if self.bad.is_empty() && self.encrypted.all > 0 => Exit::Password,
            true if !self.listed_hashes.wrong.is_empty() => Exit::Checksum,
            true => exit_of(self.bad.iter().map(|bad| &bad.fault)),
            false => Exit::Interrupted,
        }
    }

    /// Looks up the paths of the bad samples.
    pub(crate) fn name_bad_samples(
        &mut self,
        opened: &Opened,
        catalog: &Catalog,
    ) -> format::Result<()> {
        let samples: Vec<u64> = self.bad.iter().map(|bad| bad.sample).collect();
        let paths = catalog.paths(&opened.dataset, &samples)?;
        for (bad, path) in self.bad.iter_mut().zip(paths) {
            bad.path = String::from_utf8_lossy(&path).into_owned();
        }
        Ok(())
    }
}

/// The samples to check.
pub(crate) enum Wanted {
    /// All samples of a range.
    Range(Range<u64>),
    /// These samples, in order.
    List(Vec<u64>),
}

impl Wanted {
    /// The range from the first to the last sample.
    fn range(&self) -> Range<u64> {
        match self {
            Wanted::Range(range) => range.clone(),
            Wanted::List(list) => {
                list.first().copied().unwrap_or(0)..list.last().map_or(0, |last| last + 1)
            }
        }
    }

    fn len(&self) -> u64 {
        match self {
            Wanted::Range(range) => range.end - range.start,
            Wanted::List(list) => list.len() as u64,
        }
    }
}

/// Checks the wanted samples on `threads` threads. If the user interrupts it, the result says how far it got.
///
/// # Errors
/// A container was changed so that its index cannot be read.
pub(crate) fn verify(
    opened: &Opened,
    wanted: Wanted,
    threads: usize,
    interrupt: &Interrupt,
) -> Result<Verified, Failure> {
    let reader = SampleReader::new(opened, interrupt);
    let range = wanted.range();
    let run = Run {
        opened,
        checker: SampleChecker::new(reader, None),
        progress: progress::of_samples(wanted.len()),
        wanted,
        state: Mutex::new(State { next: range.start, ..State::default() }),
    };
    let checked = for_each(threads, interrupt, &|| run.take(), &|span: Span, scratch| {
        // A span whose check was interrupted stays in `under_way`.
        let checked = run.checker.check_span(&span.located, scratch)?;
        run.note(&span, checked);
        Ok(())
    });
    run.progress.finish_and_clear();
    match checked {
        Err(failure) if failure.exit != Exit::Interrupted => return Err(failure),
        _ => {}
    }
    let state = run.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut outcome = state.outcome;
    outcome.first_sample = range.start;
    outcome.end_sample = range.end;
    outcome.checked_to = state.under_way.into_iter().min().unwrap_or(state.next);
    outcome.complete = outcome.checked_to >= range.end;
    outcome.bad.sort_by_key(|bad| bad.sample);
    if outcome.complete && outcome.samples == opened.dataset.len() {
        match listed::compare(opened, threads, interrupt) {
            Ok(hashes) => outcome.listed_hashes = hashes,
            Err(failure) if failure.exit == Exit::Interrupted => outcome.complete = false,
            Err(failure) => return Err(failure),
        }
        let checked = outcome.listed_hashes.samples;
        outcome.not_verifiable = outcome.not_verifiable.saturating_sub(checked);
    }
    Ok(outcome)
}

/// The state that the threads share.
struct Run<'a> {
    opened: &'a Opened,
    wanted: Wanted,
    checker: SampleChecker<'a>,
    progress: ProgressBar,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    /// Spans that are being checked, by their first sample.
    under_way: Vec<u64>,
    outcome: Verified,
}

impl Run<'_> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Result<Option<Span>, Failure> {
        let mut state = self.lock();
        let dataset = &self.opened.dataset;
        let span = match &self.wanted {
            Wanted::Range(range) => next_span(dataset, &mut (state.next..range.end).peekable())?,
            Wanted::List(list) => {
                let rest = &list[list.partition_point(|sample| *sample < state.next)..];
                next_span(dataset, &mut rest.iter().copied().peekable())?
            }
        };
        let (Some(first), Some(last)) = (span.samples.first(), span.samples.last()) else {
            return Ok(None);
        };
        state.under_way.push(*first);
        state.next = last + 1;
        Ok(Some(span))
    }

    fn note(&self, span: &Span, checked: Vec<CheckedSample>) {
        let mut state = self.lock();
        state.outcome.samples += span.samples.len() as u64;
        for ((sample, located), checked) in span.samples.iter().zip(&span.located).zip(checked) {
            let at = located.sample;
            state.outcome.bytes += if at.damaged { 0 } else { at.size_bytes() };
            let checked_by = self.opened.checked_by(located);
            state.outcome.not_verifiable += u64::from(checked_by == CheckedBy::Nothing);
            let Err(fault) = checked else { continue };
            if state.outcome.encrypted.count(&fault) {
                continue;
            }
            state.outcome.other_password += u64::from(fault == Fault::OtherPassword);
            state.outcome.bad.push(BadSample {
                sample: *sample,
                path: String::new(),
                container: self.opened.store.part(located.part).name().clone(),
                index: located.index,
                offset: at.offset_bytes,
                length: at.length_bytes,
                reason: (&fault).into(),
                fault,
            });
        }
        if let Some(first) = span.samples.first() {
            state.under_way.retain(|other| other != first);
        }
        self.progress.inc(span.samples.len() as u64);
    }
}
