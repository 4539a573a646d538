//! Encoded samples too large to be decoded at once: one pass decodes all of it in bounded memory, checks it,
//! and notes where decoding can begin; after that a read decodes the intervals that it needs.
//!
//! An interval that was decoded is kept in the sample cache, under a key of its own, for the reads that
//! follow; it is checked against the CRC-32 that the pass took of it.

mod kept;
mod pass;
mod spool;

pub use kept::{StreamKey, StreamStore};
pub(super) use pass::Pass;

use super::Vfs;
use super::bad::Fault;
use super::cache::{Entered, Known};
use super::pieces::Pieces;
use super::read::{Goal, Step, Task};
use super::verify::Verified;
use crate::catalog::Located;
use crate::format::{Container, Decoder, Restart, Sample};
use crate::io::Buffer;
use pass::Stop;
use spool::Spool;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much is decoded for a read in the middle, at least.
const INTERVAL_BYTES: u64 = 4 << 20;
/// An interval must fit in memory; encodings whose parts are larger cannot be read in the middle.
const MAX_INTERVAL_BYTES: u64 = 64 << 20;
const NO_RESTARTS: &str = "more than 64 MiB without a place to begin at: its encoding cannot be read in the \
     middle";
/// What was decoded to disk is read so much at a time.
const SPOOLED_INTERVAL_BYTES: u64 = 1 << 20;
/// What a file there counts in the cache, so that there are not too many of them.
const SPOOLED_BYTES: u64 = 256 << 10;
/// How much is read at a time in a pass.
const PASS_BYTES: u64 = 1 << 20;
/// How much is decoded at a time in a pass.
const STEP_BYTES: usize = 256 << 10;
/// A stream can go on within a byte, and look a little ahead.
const SLACK_BYTES: u64 = 16;
/// Keys of intervals, far above all sample numbers: of each stream `1 << INTERVAL_BITS`.
const KEYS: u64 = 1 << 62;
const INTERVAL_BITS: u32 = 24;
/// Keys of intervals of containers, and how many each has.
const CONTAINER_KEYS: u64 = 1 << 63;
const CONTAINER_BITS: u32 = 36;

/// Where a large encoded sample can be decoded from.
pub(super) struct Stream {
    first_key: u64,
    intervals: Vec<Interval>,
    memory_bytes: u64,
    /// If it was decoded to a file: what is read instead.
    spool: Option<Spool>,
}

#[derive(Debug)]
struct Interval {
    /// `None`: the start of the stream.
    from: Option<Restart>,
    decoded: Range<u64>,
    stored: Range<u64>,
    crc32: u32,
}

impl Stream {
    fn new(intervals: Vec<Interval>, spool: Option<Spool>) -> Self {
        static STREAMS: AtomicU64 = AtomicU64::new(0);
        let number = STREAMS.fetch_add(1, Ordering::Relaxed) % (1 << 36);
        let states = intervals.iter().filter_map(|interval| interval.from.as_ref());
        let memory_bytes = states.map(|from| from.state.len() as u64).sum::<u64>()
            + (intervals.capacity() * size_of::<Interval>()) as u64
            + spool.as_ref().map_or(0, |_| SPOOLED_BYTES);
        Self { first_key: KEYS + (number << INTERVAL_BITS), intervals, memory_bytes, spool }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// An interval out of the file that all was decoded to. `None`: there is none.
    fn spooled(&self, number: u64) -> Option<Result<Verified, Fault>> {
        let spool = self.spool.as_ref()?;
        let interval = self.intervals.get(number as usize)?;
        Some(spool.read(&interval.decoded, interval.crc32))
    }

    fn number_at(&self, decoded_bytes: u64) -> usize {
        self.intervals.partition_point(|interval| interval.decoded.end <= decoded_bytes)
    }
}

/// What intervals are of.
#[derive(Clone)]
pub(super) enum Streams {
    /// A sample of its own.
    Sample(Arc<Stream>),
    /// The whole container.
    Container,
}

impl Streams {
    fn spooled(&self, number: u64) -> Option<Result<Verified, Fault>> {
        match self {
            Streams::Sample(stream) => stream.spooled(number),
            Streams::Container => None,
        }
    }
}

/// The part of a file that an interval has.
struct Part {
    number: u64,
    key: u64,
    /// Which bytes of the file.
    file: Range<u64>,
    /// The interval in the decoded stream, and where in that the part begins.
    decoded: Range<u64>,
    first: u64,
    /// Where it is decoded from.
    stored: Range<u64>,
}

impl Part {
    /// The bytes of the file up to byte `end`.
    fn of<'a>(&self, decoded: &'a Verified, end: u64) -> &'a [u8] {
        let start = (self.first - self.decoded.start) as usize;
        &decoded.bytes()[start..start + (end - self.file.start) as usize]
    }
}

impl Vfs {
    /// Whether an encoding cannot be undone step by step, and the sample fits in memory all the same.
    pub(super) fn must_decode_at_once(
        &self,
        container: &dyn Container,
        index: u64,
        at: &Sample,
    ) -> bool {
        let bytes = at.size_bytes().saturating_add(at.length_bytes);
        bytes <= self.cache_bytes() / 2 && matches!(container.decoder(index, None), Ok(None))
    }

    /// Where a stream can be decoded from, if an earlier mount has found out.
    pub(super) fn kept_stream(&self, located: &Located) -> Option<Arc<Stream>> {
        let bytes = self.store_for(located)?.load(&key_of(located))?;
        let stream = Stream::read(&bytes, &located.sample)?;
        (stream.memory_bytes <= self.options.cache_bytes / 4).then(|| Arc::new(stream))
    }

    /// Keeps that for the next mount, unless the sample should have been checked, and was not.
    fn keep_stream(&self, located: &Located, stream: &Stream, was_checked: bool) {
        let store = self.store_for(located).filter(|_| stream.spool.is_none());
        if let Some(store) = store.filter(|_| was_checked || located.sample.checksum.is_none()) {
            store.keep(&key_of(located), stream.write());
        }
    }

    fn store_for(&self, located: &Located) -> Option<&dyn StreamStore> {
        let store = self.streams.get()?.as_ref();
        self.container(located).may_keep_restarts(located.index).then_some(store)
    }

    /// Where samples are decoded to that cannot be decoded from the middle. What was said first counts.
    pub fn spool_to(&self, folder: PathBuf) {
        let _ = self.spool.set(folder);
    }

    /// Begins a pass; gives what to do, and the stored bytes to fetch for it.
    pub(super) fn begin_pass(
        &self,
        container: &dyn Container,
        index: u64,
        at: &Sample,
    ) -> Result<(Pass, Range<u64>), Fault> {
        self.begin_pass_to(container, index, at, None)
    }

    fn begin_pass_to(
        &self,
        container: &dyn Container,
        index: u64,
        at: &Sample,
        spool: Option<Spool>,
    ) -> Result<(Pass, Range<u64>), Fault> {
        let decoder = container.decoder(index, None);
        let decoder = decoder.map_err(|error| Fault::Structure(error.to_string()))?;
        let decoder = decoder.ok_or_else(|| {
            Fault::Structure("too large to be decoded at once, as its encoding must be".to_owned())
        })?;
        // So that the notes, up to 32 KiB an interval, take an eighth of the memory at most.
        let notes = (self.cache_bytes() / 8 / (32 << 10)).max(1);
        let least = INTERVAL_BYTES.min(self.cache_bytes() / 8);
        let interval_bytes = match spool {
            Some(_) => SPOOLED_INTERVAL_BYTES,
            None => least.max(at.size_bytes() / notes).clamp(STEP_BYTES as u64, MAX_INTERVAL_BYTES),
        };
        let end = PASS_BYTES.min(at.length_bytes);
        let pass = Pass::new(decoder, at.size_bytes(), interval_bytes, spool, at.checksum);
        Ok((pass, 0..end))
    }

    /// Takes what was fetched for a pass.
    pub(super) fn take_pass(&self, mut task: Task, mut pass: Box<Pass>) -> Step {
        let at = task.located.sample;
        let Range { start, end } = task.span.range();
        let (bytes, is_last) = (task.span.bytes(), end == at.end_bytes());
        let taken = catch_unwind(AssertUnwindSafe(|| pass.take(bytes, is_last)));
        let done = match taken {
            Ok(Ok(taken)) => start + taken as u64,
            Ok(Err(Stop::NoRestarts)) => return self.spool_instead(task),
            Ok(Err(Stop::Fault(fault))) => return self.fail(task, fault),
            Err(_) => return self.fail(task, Fault::Structure("the decoder failed".to_owned())),
        };
        if done < at.end_bytes() && !pass.is_ended() {
            return task.next(Goal::Pass(pass), done..(done + PASS_BYTES).min(at.end_bytes()));
        }
        let must_check = self.must_check(task.sample(), &task.located);
        let stream = pass.finish(must_check);
        if must_check {
            self.stats.verified(stream.is_ok());
        }
        let stream = match stream {
            Ok(stream) => Arc::new(stream),
            Err(fault) => return self.fail(task, fault),
        };
        self.keep_stream(&task.located, &stream, must_check);
        if must_check {
            self.verified.set(task.sample());
        }
        if let Some(lead) = task.lead.take() {
            lead.land(Known::Stream(Arc::clone(&stream)), 0);
        }
        self.read_stream(task, &Streams::Sample(stream))
    }

    /// Begins the pass anew, and decodes to a file.
    fn spool_instead(&self, task: Task) -> Step {
        let (at, container) = (task.located.sample, self.container(&task.located));
        if !container.may_keep_restarts(task.located.index) {
            let why =
                format!("{NO_RESTARTS}. It is encrypted: no --spool writes it to disk decrypted");
            return self.fail(task, Fault::Structure(why));
        }
        let Some(folder) = self.spool.get() else {
            let why = format!("{NO_RESTARTS}. --spool DIR decodes it to disk");
            return self.fail(task, Fault::Structure(why));
        };
        let begun = Spool::new(folder)
            .and_then(|spool| self.begin_pass_to(container, task.located.index, &at, Some(spool)));
        match begun {
            Ok((pass, stored)) => {
                let range = task.of_container(stored.start, stored.end);
                task.next(Goal::Pass(Box::new(pass)), range)
            }
            Err(fault) => self.fail(task, fault),
        }
    }

    /// Decodes the next interval that the wanted range lies in, or gives the range out.
    pub(super) fn next_interval(
        &self,
        mut task: Task,
        streams: &Streams,
        mut pieces: Box<Pieces>,
    ) -> Step {
        let want = task.want.clone();
        loop {
            let at = pieces.end();
            let part = match self.part_at(&task, streams, at) {
                Ok(Some(part)) if at < want.end && part.file.start < want.end => part,
                Ok(_) => return self.give_pieces(&want, *pieces),
                Err(fault) => return self.fail(task, fault),
            };
            let end = part.file.end.min(want.end);
            match self.cache.enter(part.key, end - part.file.start) {
                Entered::Hit(Known::Whole(decoded)) | Entered::Ahead(decoded, _) => {
                    pieces.copy(&want, part.file.start, part.of(&decoded, end));
                }
                Entered::Join(flight) => return Step::Wait(flight),
                Entered::Lead(lead) => {
                    if let Some(spooled) = streams.spooled(part.number) {
                        match spooled.map(Arc::new) {
                            Ok(decoded) => {
                                pieces.copy(&want, part.file.start, part.of(&decoded, end));
                                lead.land(Known::Whole(decoded), end - part.file.start);
                                continue;
                            }
                            Err(fault) => return self.fail(task, fault),
                        }
                    }
                    task.lead = Some(lead);
                    let range = part.stored.clone();
                    return task.next(Goal::Interval(streams.clone(), part.number, pieces), range);
                }
                // Keys of intervals have nothing else.
                Entered::Hit(_) => return self.fail(task, Fault::Damaged),
            }
        }
    }

    /// Decodes the interval that was fetched, and goes on with the range from there.
    pub(super) fn take_interval(
        &self,
        mut task: Task,
        streams: &Streams,
        number: u64,
        mut pieces: Box<Pieces>,
    ) -> Step {
        let decoded = match self.decode_interval(&task, streams, number) {
            Ok(decoded) => Arc::new(decoded),
            Err(fault) => return self.fail(task, fault),
        };
        let part = match self.part_at(&task, streams, pieces.end()) {
            Ok(Some(part)) if part.number == number => part,
            _ => return self.fail(task, Fault::Damaged),
        };
        let end = part.file.end.min(task.want.end);
        pieces.copy(&task.want.clone(), part.file.start, part.of(&decoded, end));
        if let Some(lead) = task.lead.take() {
            lead.land(Known::Whole(decoded), end - part.file.start);
        }
        self.next_interval(task, streams, pieces)
    }

    /// The part of a file at or behind byte `at` that one interval has; `None` if there is a hole up to its
    /// end.
    fn part_at(&self, task: &Task, streams: &Streams, at: u64) -> Result<Option<Part>, Fault> {
        let located = &task.located;
        let sample = located.sample;
        if at >= sample.size_bytes() {
            return Ok(None);
        }
        match streams {
            Streams::Sample(stream) => {
                let number = stream.number_at(at);
                let interval = stream.intervals.get(number).ok_or(Fault::Damaged)?;
                let last = (interval.stored.end + SLACK_BYTES).min(sample.length_bytes);
                Ok(Some(Part {
                    number: number as u64,
                    key: stream.first_key + number as u64,
                    file: at..interval.decoded.end,
                    decoded: interval.decoded.clone(),
                    first: at,
                    stored: sample.offset_bytes + interval.stored.start..sample.offset_bytes + last,
                }))
            }
            Streams::Container => {
                let container = self.container(located);
                let structure = |error: crate::format::Error| Fault::Structure(error.to_string());
                let piece = container.piece(located.index, at).map_err(structure)?;
                let Some(piece) = piece else { return Ok(None) };
                let start = at.max(piece.at_bytes);
                let first = piece.offset_bytes + (start - piece.at_bytes);
                let stream = container.stream().ok_or(Fault::Damaged)?;
                let interval = stream.interval(first).ok_or(Fault::Damaged)?;
                let left = (piece.at_bytes + piece.length_bytes).saturating_sub(start);
                let length = left.min(interval.decoded.end - first);
                let base = self.dataset.base_of(located.container);
                Ok(Some(Part {
                    number: interval.number,
                    key: CONTAINER_KEYS
                        + ((located.container as u64) << CONTAINER_BITS)
                        + interval.number,
                    file: start..start + length,
                    decoded: interval.decoded,
                    first,
                    stored: base + interval.stored.start..base + interval.stored.end,
                }))
            }
        }
    }

    fn decode_interval(
        &self,
        task: &Task,
        streams: &Streams,
        number: u64,
    ) -> Result<Verified, Fault> {
        let (bytes, container) = (task.span.bytes(), self.container(&task.located));
        let decode = || match streams {
            Streams::Sample(stream) => {
                let interval = stream.intervals.get(number as usize).ok_or("no such interval")?;
                self.decode_part(task, interval)
            }
            Streams::Container => {
                let stream = container.stream().ok_or("no stream")?;
                let interval = stream.nth(number).ok_or("no such interval")?;
                let length = (interval.decoded.end - interval.decoded.start) as usize;
                let mut buffer = Buffer::with_capacity(length);
                stream.decode(number, bytes, &mut buffer.as_mut_slice()[..length])?;
                Ok(Verified::unchecked(buffer, 0..length))
            }
        };
        catch_unwind(AssertUnwindSafe(decode))
            .unwrap_or_else(|_| Err("the decoder failed; please report this".to_owned()))
            .map_err(Fault::Structure)
    }

    fn decode_part(&self, task: &Task, interval: &Interval) -> Result<Verified, String> {
        let length = (interval.decoded.end - interval.decoded.start) as usize;
        let mut buffer = Buffer::with_capacity(length);
        let out = &mut buffer.as_mut_slice()[..length];
        let container = self.container(&task.located);
        let decoder = container.decoder(task.located.index, interval.from.as_ref());
        let mut decoder = decoder
            .map_err(|error| error.to_string())?
            .ok_or_else(|| "it cannot be decoded in parts".to_owned())?;
        let is_last = task.span.range().end == task.located.sample.extent().end;
        fill(decoder.as_mut(), task.span.bytes(), out, is_last)?;
        match crc32fast::hash(out) == interval.crc32 {
            true => Ok(Verified::unchecked(buffer, 0..length)),
            false => Err("a part that was read again is not what it was".to_owned()),
        }
    }

    /// Reads a sample whose stream is known.
    pub(super) fn read_stream(&self, task: Task, streams: &Streams) -> Step {
        let pieces = self.begin_pieces(&task.want);
        self.next_interval(task, streams, pieces)
    }
}

/// Decodes until `out` is full.
fn fill(
    decoder: &mut dyn Decoder,
    mut input: &[u8],
    mut out: &mut [u8],
    is_last: bool,
) -> Result<(), String> {
    while !out.is_empty() {
        let progress = decoder.decode(input, out, is_last)?;
        if progress.taken == 0 && progress.given == 0 {
            return Err("the encoding ends early".to_owned());
        }
        input = input.get(progress.taken..).unwrap_or_default();
        out = out.get_mut(progress.given..).unwrap_or_default();
    }
    Ok(())
}

fn key_of(located: &Located) -> StreamKey {
    let at = located.sample;
    StreamKey {
        file: located.part,
        offset_bytes: at.offset_bytes,
        stored_bytes: at.length_bytes,
        decoded_bytes: at.size_bytes(),
        checksum: at.checksum,
    }
}
