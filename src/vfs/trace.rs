//! Requests and where their time went: recorded only while `/.ffrfs/trace` is read.
//!
//! While the file is not read, a request costs one relaxed load. While it is read, ended requests are kept in a queue
//! of limited length, from which the oldest are dropped first. A reader is known by the name under which it reads
//! (`trace.NAME`), and for each reader the last request that it has read is noted. Tracing goes on for some
//! seconds after each read, so that it ends soon after a reader has died.

use super::{Errno, Operation, Span};
use crate::store::remote::{Observer, Request};
use crossbeam_utils::CachePadded;
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The time for which a read keeps tracing on; unit tests may wait longer for a CPU.
pub const TRACED_FOR: Duration = Duration::from_secs(if cfg!(test) { 3600 } else { 5 });

const SHARDS: usize = 8;
/// The most ended requests that are kept in each shard.
const SHARD_EVENTS: usize = 8192;
/// The most phases of one request that are kept: a read of a whole huge sample has thousands.
const MAX_PHASES: usize = 64;
/// The most requests that one page has.
const PAGE_EVENTS: usize = 4096;
/// The most readers at a time.
const MAX_READERS: usize = 64;

/// A phase in which a request spends its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The request waits for a thread or its turn: it came with others, or its read must wait for the disk.
    Queue,
    /// The request waits for another in-flight read, of a request or a prefetch.
    Wait,
    /// Its bytes come from the host's page cache.
    Cache,
    /// Its bytes come from the disk.
    Disk,
    /// Its bytes come from a store.
    Store,
    /// Its bytes are checked and decoded.
    Verify,
    /// The answer is put together and given to the kernel.
    Reply,
    /// A request to a store waits for the first byte of the answer.
    FirstByte,
    /// The same, after the request was sent a second time.
    Hedge,
    /// The answer of a store comes.
    Body,
}

impl Phase {
    /// The name that reports use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Phase::Queue => "queue",
            Phase::Wait => "wait",
            Phase::Cache => "cache",
            Phase::Disk => "disk",
            Phase::Store => "store",
            Phase::Verify => "verify",
            Phase::Reply => "reply",
            Phase::FirstByte => "first-byte",
            Phase::Hedge => "hedge",
            Phase::Body => "body",
        }
    }
}

/// The inode, name or bytes that a request asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    /// An inode.
    Inode(u64),
    /// A directory, and a name that is not in it.
    Name(u64, Box<[u8]>),
    /// A fetch ahead: the part, the inode of the first sample, and the number of samples.
    Ahead { part: usize, first: Option<u64>, samples: usize },
    /// A request to a store.
    Store(Box<Request>),
}

/// A request of the kernel or to a store, or a fetch ahead, that has ended.
#[derive(Debug, Clone)]
pub(super) struct Event {
    /// `None` for a fetch ahead or a request to a store.
    pub(super) operation: Option<Operation>,
    pub(super) subject: Subject,
    /// The thread that asked; 0 if the kernel asked for itself, or ffrfs made the request.
    pub(super) pid: u32,
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
    /// The number of bytes that the answer has, or the error.
    pub(super) answer: Result<u64, Errno>,
    pub(super) start: Instant,
    pub(super) end: Instant,
    pub(super) phases: Vec<(Phase, Instant, Instant)>,
}

/// A request under way; empty if tracing is off.
#[must_use]
pub struct Traced(Option<Box<Open>>);

struct Open {
    event: Event,
    phase: Option<(Phase, Instant)>,
}

impl Traced {
    /// The value for a request that is not traced.
    pub const NONE: Self = Self(None);

    fn new(operation: Option<Operation>, ino: u64, pid: u32, start: Instant) -> Self {
        let event = Event {
            operation,
            subject: Subject::Inode(ino),
            pid,
            offset_bytes: 0,
            length_bytes: 0,
            answer: Ok(0),
            start,
            end: start,
            phases: Vec::new(),
        };
        Self(Some(Box::new(Open { event, phase: None })))
    }

    /// Notes the bytes that were asked for.
    pub fn range(mut self, offset_bytes: u64, length_bytes: u64) -> Self {
        if let Some(open) = &mut self.0 {
            (open.event.offset_bytes, open.event.length_bytes) = (offset_bytes, length_bytes);
        }
        self
    }

    /// Notes when the request arrived, if it then waited for its thread: the wait is a phase.
    pub fn arrived(mut self, at: Option<Instant>) -> Self {
        if let (Some(open), Some(at)) = (&mut self.0, at) {
            let began = open.event.start;
            open.event.start = at.min(began);
            open.event.phases.push((Phase::Queue, open.event.start, began));
        }
        self
    }

    /// Notes the result of looking a name up in the directory: the inode that was found, or `None`.
    pub fn looked_up(&mut self, name: &[u8], found: Option<u64>) {
        if let Some(open) = &mut self.0
            && let Subject::Inode(directory) = open.event.subject
        {
            open.event.subject =
                found.map_or_else(|| Subject::Name(directory, name.into()), Subject::Inode);
        }
    }

    /// Begins a phase and ends the one before. If the phase is the same, it goes on.
    pub fn enter(&mut self, phase: Phase) {
        let Some(open) = &mut self.0 else { return };
        if open.phase.is_none_or(|(before, _)| before != phase) {
            let now = Instant::now();
            open.leave(now);
            open.phase = Some((phase, now));
        }
    }

    /// Ends the phase without beginning another.
    pub fn leave(&mut self) {
        if let Some(open) = &mut self.0 {
            open.leave(Instant::now());
        }
    }

    /// Drops the phase that was begun last: it brought no bytes.
    pub fn cancel(&mut self) {
        if let Some(open) = &mut self.0 {
            open.phase = None;
        }
    }
}

impl Open {
    fn leave(&mut self, now: Instant) {
        if let Some((phase, since)) = self.phase.take()
            && self.event.phases.len() < MAX_PHASES
        {
            self.event.phases.push((phase, since, now));
        }
    }
}

/// Ended events, numbered in the order in which they ended.
type Kept = VecDeque<(u64, Arc<Event>)>;

/// The recorded events and their readers.
pub struct Trace {
    /// The time until which tracing is on, in milliseconds since `epoch`; 0 if it is off.
    until_ms: AtomicU64,
    epoch: Instant,
    epoch_time: SystemTime,
    /// The number of the last event.
    last: AtomicU64,
    shards: Vec<CachePadded<Mutex<Kept>>>,
    /// The number of the last event that each reader has read, by the reader's name.
    readers: Mutex<HashMap<Box<[u8]>, u64>>,
}

/// Some of the recorded events, in the order in which they ended.
pub(super) struct Page {
    pub(super) events: Vec<(u64, Arc<Event>)>,
    /// The number of the last event up to which the page goes.
    pub(super) last: u64,
    /// The number of unread events up to `last` that were dropped before they were read.
    pub(super) lost: u64,
    /// Whether more events follow.
    pub(super) has_more: bool,
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            until_ms: AtomicU64::new(0),
            epoch: Instant::now(),
            epoch_time: SystemTime::now(),
            last: AtomicU64::new(0),
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            readers: Mutex::default(),
        }
    }
}

impl Trace {
    /// Whether tracing is on. Switches it off if the trace has not been read for a while.
    #[must_use]
    pub fn is_on(&self) -> bool {
        let until_ms = self.until_ms.load(Ordering::Relaxed);
        until_ms != 0 && self.is_on_until(until_ms)
    }

    #[cold]
    fn is_on_until(&self, until_ms: u64) -> bool {
        if self.now_ms() <= until_ms {
            return true;
        }
        let off = self.until_ms.compare_exchange(until_ms, 0, Ordering::Relaxed, Ordering::Relaxed);
        if off.is_ok() {
            self.lock_readers().clear();
            self.shards.iter().for_each(|shard| *lock(shard) = Kept::new());
        }
        off.is_err_and(|now| now != 0)
    }

    /// The number of readers while tracing is on, otherwise 0.
    pub(super) fn readers(&self) -> usize {
        if self.is_on() { self.lock_readers().len() } else { 0 }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Begins to record a request on an inode, whose handling began at `start`.
    pub fn begin(&self, operation: Operation, ino: u64, pid: u32, start: Instant) -> Traced {
        match self.is_on() {
            true => Traced::new(Some(operation), ino, pid, start),
            false => Traced::NONE,
        }
    }

    /// Ends the record of a request, which was answered with this number of bytes or an error.
    pub fn end(&self, traced: Traced, answer: Result<u64, Errno>) {
        let Some(mut open) = traced.0 else { return };
        let now = Instant::now();
        open.leave(now);
        // ENOSYS tells the kernel that it can do this itself: no failure.
        let answer = if answer == Err(Errno::ENOSYS) { Ok(0) } else { answer };
        (open.event.end, open.event.answer) = (now, answer);
        self.push(open.event);
    }

    /// Begins to record a fetch ahead whose result is being taken in, and which began at `since`. It is ended like a
    /// request.
    pub(super) fn begin_ahead(
        &self,
        span: &Span,
        first: Option<u64>,
        samples: usize,
        since: Instant,
    ) -> Traced {
        if !self.is_on() {
            return Traced::NONE;
        }
        let mut traced =
            Traced::new(None, 0, 0, since).range(span.range().start, span.length() as u64);
        if let Some(open) = &mut traced.0 {
            open.event.subject = Subject::Ahead { part: span.part(), first, samples };
            open.phase = Some((Phase::Disk, since));
        }
        traced
    }

    fn push(&self, event: Event) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static MINE: Cell<Option<usize>> = const { Cell::new(None) });
        let mine = MINE.get().unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        MINE.set(Some(mine));
        let mut shard = lock(&self.shards[mine]);
        if self.until_ms.load(Ordering::Relaxed) == 0 {
            return;
        }
        if shard.len() == SHARD_EVENTS {
            shard.pop_front();
        }
        // The number is given while the shard is locked: a thread that has locked all shards misses no event.
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        shard.push_back((number, Arc::new(event)));
    }

    /// Returns the events that a reader has not read yet. To a new reader, all events until now count as read.
    pub(super) fn page(&self, reader: &[u8]) -> Page {
        let read = self.is_on().then(|| self.lock_readers().get(reader).copied()).flatten();
        let shards: Vec<_> = self.shards.iter().map(|shard| lock(shard)).collect();
        let newest = self.last.load(Ordering::Relaxed);
        let read = read.unwrap_or(newest);
        let unread = shards.iter().flat_map(|shard| {
            let first = shard.partition_point(|(number, _)| *number <= read);
            shard.range(first..).cloned()
        });
        let mut events: Vec<_> = unread.collect();
        drop(shards);
        events.sort_unstable_by_key(|(number, _)| *number);
        let has_more = events.len() > PAGE_EVENTS;
        events.truncate(PAGE_EVENTS);
        let last = match events.last() {
            Some((number, _)) if has_more => *number,
            _ => newest,
        };
        Page { lost: last - read - events.len() as u64, events, last, has_more }
    }

    /// Notes that a reader has read a page whose last event has this number, and keeps tracing on.
    pub(super) fn was_read(&self, reader: &[u8], last: u64) {
        let until_ms = self.now_ms() + TRACED_FOR.as_millis() as u64;
        let mut readers = self.lock_readers();
        if readers.len() < MAX_READERS || readers.contains_key(reader) {
            let read = readers.entry(reader.into()).or_insert(last);
            *read = last.max(*read);
        }
        drop(readers);
        self.until_ms.fetch_max(until_ms, Ordering::Relaxed);
    }

    /// Nanoseconds from the mount until `at`.
    pub(super) fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX)
    }

    /// The time of the mount, in nanoseconds since 1970.
    pub(super) fn epoch_unix_nanos(&self) -> u64 {
        let since = self.epoch_time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    fn lock_readers(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, u64>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Trace {
    fn is_watching(&self) -> bool {
        self.is_on()
    }

    fn ended(&self, request: Request) {
        let steps = &request.steps;
        let end = steps.ended.unwrap_or_else(Instant::now);
        let begins = [
            (Phase::Queue, Some(steps.asked)),
            (Phase::FirstByte, steps.sent),
            (Phase::Hedge, steps.hedged),
            (Phase::Body, steps.first_byte),
        ];
        let begins: Vec<_> =
            begins.into_iter().filter_map(|(phase, at)| Some((phase, at?))).collect();
        let ends = begins.iter().skip(1).map(|(_, at)| *at).chain([end]);
        self.push(Event {
            operation: None,
            pid: 0,
            offset_bytes: request.range.start,
            length_bytes: request.range.end - request.range.start,
            answer: request.error.as_ref().map_or(Ok(request.bytes), |error| Err(error.into())),
            start: steps.asked,
            end,
            phases: begins.iter().zip(ends).map(|((phase, at), end)| (*phase, *at, end)).collect(),
            subject: Subject::Store(Box::new(request)),
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
