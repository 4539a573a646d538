//! `ffrfs verify`: every sample against its checksum, on several threads, in order of the file.

mod streams;

use super::view::ViewArgs;
use crate::catalog::Located;
use crate::daemon::logging;
use crate::dataset::checksums::CheckedBy;
use crate::dataset::open;
use crate::dataset::open::{OpenArgs, Opened};
use crate::failure::{Exit, Failure, say};
use crate::format::checksum::Hasher;
use crate::format::{self, Checksum, Container, Content, Mismatch, PartName};
use crate::io::{Buffer, ReadError};
use crate::store::Part;
use crate::tools::interrupt::Interrupt;
use crate::vfs::report;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::num::NonZeroU16;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use streams::Intervals;

/// How much is read at a time, so that small samples become large reads.
const SPAN_BYTES: u64 = 4 << 20;
/// The most that is decoded at once, where an encoding cannot be undone step by step.
const MAX_DECODED_BYTES: u64 = 1 << 30;

/// Check every sample against its checksum, and say where there is none
#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// Containers, or folders, globs or brace lists of them
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// Threads [default: as many as CPUs]
    #[arg(short = 'j', long, value_name = "N")]
    jobs: Option<NonZeroU16>,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Only these: I, I-J (both included) or I- (to the end)
    #[arg(long, value_name = "I-J", value_parser = parse_range)]
    sample: Option<(u64, Option<u64>)>,
    #[command(flatten)]
    open: OpenArgs,
}

#[derive(Debug, Serialize)]
struct Bad {
    sample: u64,
    path: String,
    container: PartName,
    index: u64,
    offset: u64,
    length: u64,
    #[serde(flatten)]
    fault: Fault,
}

#[derive(Debug, Clone, Serialize, PartialEq)]
#[serde(tag = "reason", rename_all = "snake_case")]
enum Fault {
    Checksum { expected: String, found: String },
    Damaged,
    Structure { error: String },
    Unreadable { error: String },
}

#[derive(Debug, Default, Serialize)]
struct Outcome {
    first_sample: u64,
    /// One past the last.
    end_sample: u64,
    /// All samples from the first up to this were checked.
    checked_to: u64,
    bytes: u64,
    /// Samples of formats without checksums.
    not_verifiable: u64,
    complete: bool,
    bad: Vec<Bad>,
}

pub(super) fn run(args: &VerifyArgs) -> Result<Exit, Failure> {
    logging::to_stderr("warn");
    let mut open = args.open.clone();
    open.read_password(&args.sources)?;
    let opened = open::open(&args.sources, &open)?;
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
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.map_or(cpus, |jobs| usize::from(jobs.get()));
    let run = Run::new(&opened, first..end);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| run.work());
        }
    });
    let mut outcome = run.finish()?;
    name_bad_samples(&opened, &args.open, &mut outcome.bad)?;
    print(args, &outcome).map_err(|e| Failure::output("standard output", e))?;
    Ok(exit_of(&outcome))
}

fn exit_of(outcome: &Outcome) -> Exit {
    let unreadable = |bad: &Bad| matches!(bad.fault, Fault::Unreadable { .. });
    match &outcome.bad[..] {
        _ if !outcome.complete => Exit::Interrupted,
        [] => Exit::Ok,
        bad if bad.iter().all(unreadable) => Exit::Unreadable,
        _ => Exit::Checksum,
    }
}

/// What the threads share.
struct Run<'a> {
    opened: &'a Opened,
    range: Range<u64>,
    interrupt: Interrupt,
    progress: ProgressBar,
    intervals: Intervals,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    /// Spans that are being checked, by their first sample.
    under_way: Vec<u64>,
    outcome: Outcome,
    failure: Option<Failure>,
}

/// Samples that lie one behind the other, to be read at once; or one large sample.
struct Span {
    first: u64,
    samples: Vec<Located>,
}

impl<'a> Run<'a> {
    fn new(opened: &'a Opened, range: Range<u64>) -> Self {
        let progress = if std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template(
                "{bar:30} {human_pos}/{human_len} samples, {elapsed}, {eta} left",
            );
            let bar = ProgressBar::new(range.end - range.start);
            let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.tick();
            bar
        } else {
            ProgressBar::hidden()
        };
        let state = State { next: range.start, ..State::default() };
        let interrupt = Interrupt::listen();
        let intervals = Intervals::default();
        Self { opened, range, interrupt, progress, intervals, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut buffer = Buffer::empty();
        loop {
            let span = match self.take() {
                Ok(Some(span)) => span,
                Ok(None) => return,
                Err(failure) => {
                    self.lock().failure.get_or_insert(failure);
                    return;
                }
            };
            // A sample that was left unfinished is not checked: the span stays under way.
            if !self.check(&span, &mut buffer) {
                return;
            }
            self.lock().under_way.retain(|&first| first != span.first);
            self.progress.inc(span.samples.len() as u64);
        }
    }

    /// The next span; `None` when there is none, or the user wants an end.
    fn take(&self) -> Result<Option<Span>, Failure> {
        let mut state = self.lock();
        if self.interrupt.requested() || state.failure.is_some() || state.next >= self.range.end {
            return Ok(None);
        }
        let span = span(self.opened, state.next..self.range.end)?;
        state.next = span.first + span.samples.len() as u64;
        state.under_way.push(span.first);
        Ok(Some(span))
    }

    /// False if it was interrupted.
    fn check(&self, span: &Span, buffer: &mut Buffer) -> bool {
        let faults = match &span.samples[..] {
            [] => return true,
            [first, ..] if let Some(stream) = self.container(first).stream() => {
                let each = span.samples.iter();
                match each.map(|one| self.check_in_stream(stream, one, buffer)).collect() {
                    Some(found) => found,
                    None => return false,
                }
            }
            [one] => match self.check_streaming(one, buffer) {
                Some(found) => vec![found],
                None => return false,
            },
            several => self.check_together(several, buffer),
        };
        let mut state = self.lock();
        for (place, (located, fault)) in span.samples.iter().zip(faults).enumerate() {
            let at = located.sample;
            state.outcome.bytes += if at.damaged { 0 } else { at.size_bytes() };
            let checked_by = self.opened.checked_by(located);
            state.outcome.not_verifiable += u64::from(checked_by == CheckedBy::Nothing);
            let Some(fault) = fault else { continue };
            state.outcome.bad.push(Bad {
                sample: span.first + place as u64,
                path: String::new(),
                container: self.opened.store.part(located.part).name().clone(),
                index: located.index,
                offset: at.offset_bytes,
                length: at.length_bytes,
                fault,
            });
        }
        true
    }

    /// Checks samples that lie one behind the other with one read.
    fn check_together(&self, samples: &[Located], buffer: &mut Buffer) -> Vec<Option<Fault>> {
        let start = samples[0].sample.extent().start;
        let end = samples.iter().map(|l| l.sample.extent().end).max().unwrap_or(start);
        let length = (end - start) as usize;
        buffer.reserve(length);
        let target = &mut buffer.as_mut_slice()[..length];
        if self.part(&samples[0]).read(target, start, length).is_err() {
            // One of them is to blame, the others may be fine.
            let each = samples.iter().map(|one| self.check_streaming(one, buffer).flatten());
            return each.collect();
        }
        let each = samples.iter().map(|located| {
            let extent = located.sample.extent();
            let range = (extent.start - start) as usize..(extent.end - start) as usize;
            self.check_bytes(located, &buffer.as_slice()[range])
        });
        each.collect()
    }

    /// Checks a sample whose whole extent is in memory.
    fn check_bytes(&self, located: &Located, extent: &[u8]) -> Option<Fault> {
        let (at, container) = (located.sample, self.container(located));
        let (lead, stored) = extent.split_at(at.lead_bytes as usize);
        if !lead.is_empty() {
            match container.check_lead(located.index, lead) {
                Ok(true) => {}
                Ok(false) => return self.check_streaming(located, &mut Buffer::empty()).flatten(),
                Err(error) => return Some(Fault::Structure { error: error.to_string() }),
            }
        }
        match at.content {
            Content::Encoded(size) => {
                let mut out = vec![0; size as usize];
                match container.decode(located.index, stored, &mut out) {
                    Ok(()) => check(at.checksum, &out),
                    Err(error) => Some(Fault::Structure { error: error.to_string() }),
                }
            }
            _ => check(at.checksum, stored),
        }
    }

    /// Checks one sample of any size with bounded memory; `None` if it was interrupted.
    fn check_streaming(&self, located: &Located, buffer: &mut Buffer) -> Option<Option<Fault>> {
        if located.sample.damaged {
            return Some(Some(Fault::Damaged));
        }
        let located = match open::exact(&self.opened.dataset, &self.opened.store, located) {
            Ok(located) => located,
            Err(error) => return Some(Some(Fault::Structure { error: error.to_string() })),
        };
        match located.sample.content {
            Content::Encoded(_) => self.check_encoded(&located, buffer),
            Content::Stored | Content::Prefixed(_) | Content::Sparse(_) => {
                let mut hashing = Hashing::new(located.sample.checksum);
                let read = self.read_stored(&located, buffer, &mut |bytes, _| {
                    hashing.update(bytes);
                    Ok(())
                })?;
                Some(read.err().or_else(|| hashing.finish()))
            }
        }
    }

    /// Decodes a sample step by step, or at once if its encoding or its size says so.
    fn check_encoded(&self, located: &Located, buffer: &mut Buffer) -> Option<Option<Fault>> {
        let (at, container) = (located.sample, self.container(located));
        let structure = |error: String| Some(Some(Fault::Structure { error }));
        let decoder = match container.decoder(located.index, None) {
            Ok(decoder) => decoder.filter(|_| at.size_bytes() > SPAN_BYTES),
            Err(error) => return structure(error.to_string()),
        };
        let Some(mut decoder) = decoder else {
            if at.size_bytes().max(at.length_bytes) > MAX_DECODED_BYTES {
                return structure(format!("more than {MAX_DECODED_BYTES} bytes to decode at once"));
            }
            let mut stored = Vec::new();
            let read = self.read_stored(located, buffer, &mut |bytes, _| {
                stored.extend_from_slice(bytes);
                Ok(())
            })?;
            return Some(read.err().or_else(|| self.check_bytes(located, &stored)));
        };
        let (mut hashing, mut given) = (Hashing::new(at.checksum), 0);
        let mut out = vec![0; SPAN_BYTES as usize];
        let read = self.read_stored(located, buffer, &mut |mut bytes, is_last| {
            loop {
                let progress = decoder.decode(bytes, &mut out, is_last)?;
                hashing.update(&out[..progress.given]);
                given += progress.given as u64;
                bytes = &bytes[progress.taken..];
                if given > at.size_bytes() {
                    return Err(format!(
                        "more than the {} bytes that it should be",
                        at.size_bytes()
                    ));
                }
                if progress.is_end || (progress.given < out.len() && bytes.is_empty()) {
                    return Ok(());
                }
                if progress.given == 0 && progress.taken == 0 {
                    return Err("the encoding ends early".to_owned());
                }
            }
        })?;
        let short = (given < at.size_bytes()).then(|| Fault::Structure {
            error: format!("{given} bytes instead of {}", at.size_bytes()),
        });
        Some(read.err().or(short).or_else(|| hashing.finish()))
    }

    /// Reads the stored bytes of a sample piece by piece; `None` if it was interrupted.
    fn read_stored(
        &self,
        located: &Located,
        buffer: &mut Buffer,
        take: &mut Take,
    ) -> Option<Result<(), Fault>> {
        let (at, file) = (located.sample, self.part(located));
        let mut done = 0;
        buffer.reserve(SPAN_BYTES as usize);
        while done < at.length_bytes {
            if self.interrupt.requested() {
                return None;
            }
            let length = (at.length_bytes - done).min(SPAN_BYTES) as usize;
            let target = &mut buffer.as_mut_slice()[..length];
            if let Err(error) = file.read(target, at.offset_bytes + done, length) {
                return Some(Err(Fault::Unreadable { error: reason(&error) }));
            }
            done += length as u64;
            if let Err(error) = take(target, done == at.length_bytes) {
                return Some(Err(Fault::Structure { error }));
            }
        }
        Some(Ok(()))
    }

    fn container(&self, located: &Located) -> &dyn Container {
        self.opened.dataset.parts()[located.container].as_ref()
    }

    fn part(&self, located: &Located) -> &Part {
        self.opened.store.part(located.part)
    }

    fn finish(self) -> Result<Outcome, Failure> {
        self.progress.finish_and_clear();
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = state.failure {
            return Err(failure);
        }
        let mut outcome = state.outcome;
        outcome.first_sample = self.range.start;
        outcome.end_sample = self.range.end;
        outcome.checked_to = state.under_way.into_iter().min().unwrap_or(state.next);
        outcome.complete = outcome.checked_to >= self.range.end;
        outcome.bad.sort_by_key(|bad| bad.sample);
        Ok(outcome)
    }
}

/// The first samples of `range` that one read can fetch; at least one.
fn span(opened: &Opened, range: Range<u64>) -> format::Result<Span> {
    let mut span = Span { first: range.start, samples: Vec::new() };
    for sample in range {
        let Some(located) = opened.dataset.locate(sample)? else { break };
        if let Some(first) = span.samples.first() {
            let (at, extent) = (located.sample, located.sample.extent());
            let start = first.sample.extent().start;
            let fits = extent.end.saturating_sub(start) <= SPAN_BYTES
                && extent.start >= start
                && at.size_bytes() <= SPAN_BYTES;
            let alike =
                located.container == first.container && !at.damaged && !first.sample.damaged;
            if !fits || !alike {
                break;
            }
        }
        span.samples.push(located);
    }
    Ok(span)
}

fn check(expected: Option<Checksum>, bytes: &[u8]) -> Option<Fault> {
    expected?.check(bytes).err().map(Fault::from)
}

/// The checksum of a sample that has one, counted as its bytes come.
struct Hashing(Option<(Checksum, Hasher)>);

impl Hashing {
    fn new(expected: Option<Checksum>) -> Self {
        Self(expected.map(|expected| (expected, expected.hasher())))
    }

    fn update(&mut self, bytes: &[u8]) {
        if let Some((_, hasher)) = &mut self.0 {
            hasher.update(bytes);
        }
    }

    fn finish(self) -> Option<Fault> {
        let (expected, hasher) = self.0?;
        expected.compare(hasher.finish()).err().map(Fault::from)
    }
}

impl From<Mismatch> for Fault {
    fn from(Mismatch { expected, found }: Mismatch) -> Self {
        Fault::Checksum { expected: format!("{expected:#010x}"), found: format!("{found:#010x}") }
    }
}

fn reason(error: &ReadError) -> String {
    error.to_string()
}

/// Takes stored bytes, and whether they are the last.
type Take<'a> = dyn FnMut(&[u8], bool) -> Result<(), String> + 'a;

/// Names are looked for only where something is bad.
fn name_bad_samples(opened: &Opened, open: &OpenArgs, bad: &mut [Bad]) -> Result<(), Failure> {
    if bad.is_empty() {
        return Ok(());
    }
    let view = ViewArgs::default();
    // The names themselves may be what is damaged.
    let catalog = opened
        .catalog(&view, open)
        .or_else(|_| opened.catalog(&ViewArgs { flat: true, ..view }, open))?;
    let samples: Vec<u64> = bad.iter().map(|bad| bad.sample).collect();
    let paths = catalog.paths(&opened.dataset, &samples)?;
    for (bad, path) in bad.iter_mut().zip(paths) {
        bad.path = String::from_utf8_lossy(&path).into_owned();
    }
    Ok(())
}

fn print(args: &VerifyArgs, outcome: &Outcome) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if args.json {
        return out.write_all(&report::json(outcome));
    }
    for bad in &outcome.bad {
        let reason = match &bad.fault {
            Fault::Checksum { expected, found } => {
                format!("checksum mismatch: expected {expected}, found {found}")
            }
            Fault::Damaged => {
                "damaged: its bytes are not all there, or cannot be decrypted or decoded".to_owned()
            }
            Fault::Structure { error } => error.clone(),
            Fault::Unreadable { error } => format!("cannot be read: {error}"),
        };
        let Bad { sample, path, container, offset, length, .. } = bad;
        let name = if path.is_empty() { String::new() } else { format!(" ({path})") };
        writeln!(
            out,
            "{container}: sample {sample}{name} at byte {offset}, {length} bytes: {reason}"
        )?;
    }
    drop(out);
    let read = outcome.checked_to - outcome.first_sample;
    // What lies beyond an interruption may be among them.
    let checked = read.saturating_sub(outcome.not_verifiable);
    let bytes = indicatif::HumanBytes(outcome.bytes);
    say(format_args!("{checked} samples checked, {bytes} read: {} bad", outcome.bad.len()));
    if outcome.not_verifiable > 0 {
        let samples = outcome.not_verifiable;
        say(format_args!("{samples} samples have no checksum: not verifiable"));
    }
    if !outcome.complete {
        let to = args.sample.and_then(|(_, last)| last).map_or(String::new(), |l| l.to_string());
        say(format_args!("interrupted; go on with --sample {}-{to}", outcome.checked_to));
    }
    Ok(())
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
