//! Waiting for bytes that are not on this machine, no longer than the profile's patience. Imports `io`.

use crate::io::{File, Kept, ReadError, Reading};
use bytes::Bytes;
use std::collections::HashSet;
use std::fmt::Display;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{io, thread};

/// The reason why bytes are fetched. It decides the order of requests, and how many bytes around the range are fetched with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A program waits for the bytes.
    Demand,
    /// A program has announced that it will read them, or a pattern of reads predicts it.
    Prefetch,
    /// A container is being opened.
    Open,
    /// The bytes go into the part's file, and no reader waits for them. The arrival finishes when the file has them; if
    /// the file cannot take them, with an error of the kind `StorageFull`.
    Fill,
}

impl Cause {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Demand => "demand",
            Self::Prefetch => "prefetch",
            Self::Open => "open",
            Self::Fill => "fill",
        }
    }

    /// Whether a reader waits for the bytes, so that they are fetched before prefetched ones.
    #[must_use]
    pub fn is_urgent(self) -> bool {
        matches!(self, Self::Demand | Self::Open)
    }
}

/// The place of an announced read in the reading order of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// How many reads were announced before this one.
    pub number: u64,
    /// How many successive reads the memory holds: a read of the same bytes that follows sooner finds them there.
    pub held: u64,
}

/// Fetches the bytes of one part to this machine: a client of an object store.
pub trait Remote: Send + Sync {
    /// The length of the part.
    fn len_bytes(&self) -> u64;

    /// The file with the present ranges, at the same offsets and as long as the part. `None` without a cache.
    fn file(&self) -> Option<&File>;

    /// Pins `range` in the file, if all of it is present and it does not end behind the part. Called for each read, so it must
    /// be cheap. While one of its pins is held, the bytes of a range stay in the file, though another pin may be refused.
    fn pin(&self, range: &Range<u64>) -> Option<Pin>;

    /// Counts a read that found all its bytes in the file.
    fn note_hit(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Begins to fetch `range` and returns at once; `arrival` takes the result. Several threads may request the same
    /// bytes at a time.
    fn begin(&self, range: Range<u64>, cause: Cause, arrival: Arrival);

    /// Announces that `range` will be read, at this place of the reading order. A store with a cache that has room
    /// fetches the range in the background.
    fn announce(&self, range: Range<u64>, place: Place) {
        let _ = (range, place);
    }

    /// Notes that the announced reads with lower numbers than this one have begun or will not come, for all parts of the
    /// dataset.
    fn note_reached(&self, number: u64) {
        let _ = number;
    }

    /// Notes that the announced reads that have not begun will not come, for all parts of the dataset.
    fn forget_announced(&self) {}

    /// Notes that no more reads will come, and that the process may end without dropping this.
    fn note_end(&self) {}

    /// Notes that the file could not be read, for example because a user has deleted it. Returns whether the bytes can
    /// be requested again; from then on they come without the file.
    fn lose(&self, why: &dyn Display) -> bool {
        let _ = why;
        false
    }

    /// Compares the present blocks of `range` with their checksums, each once. A block that differs is absent from then on: the
    /// read that needs it fetches it again. Blocks the thread.
    fn check(&self, range: Range<u64>) {
        let _ = range;
    }

    /// Notes that the bytes of `range` failed their check. Returns whether they may have come from the cache, which has now
    /// dropped them, so that they should be fetched again, once.
    fn distrust(&self, range: Range<u64>) -> bool {
        let _ = range;
        false
    }
}

/// How absent bytes have arrived.
pub enum Arrived {
    /// In the part's file, where they stay at least while the pin is held.
    InFile(Pin),
    /// In memory: all of the range, in order.
    Bytes(Vec<Bytes>),
}

impl Arrived {
    /// Copies bytes that arrived in memory to the beginning of `target`; returns the pin of bytes in the file.
    ///
    /// # Panics
    /// `target` is shorter than the requested range.
    pub fn take(self, target: &mut [u8]) -> Option<Pin> {
        match self {
            Self::InFile(pin) => Some(pin),
            Self::Bytes(pieces) => {
                let mut rest = target;
                for piece in pieces {
                    let (next, behind) = rest.split_at_mut(piece.len());
                    next.copy_from_slice(&piece);
                    rest = behind;
                }
                None
            }
        }
    }
}

/// While a pin is held, the bytes of its range stay in the file.
pub struct Pin(Kept);

impl Pin {
    /// A pin that owns `held` and drops it with itself.
    #[must_use]
    pub fn new(held: impl Send + 'static) -> Self {
        Self(Kept::Value(Box::new(held)))
    }

    /// A pin for bytes that always stay present.
    #[must_use]
    pub fn none() -> Self {
        Self(Kept::Nothing)
    }

    /// The value that the pin owns.
    #[must_use]
    pub fn into_held(self) -> Kept {
        self.0
    }
}

impl From<Reading> for Pin {
    fn from(reading: Reading) -> Self {
        Self(Kept::Reading(reading))
    }
}

type Then = Box<dyn FnOnce(Result<Arrived, ReadError>) + Send>;

/// The duty to report how the fetch of a range ended. Dropping it reports that the store gave no answer.
pub struct Arrival(Arc<Awaited>);

/// A range that a reader waits for.
struct Awaited {
    remote: Arc<dyn Remote>,
    range: Range<u64>,
    is_fill: bool,
    /// Taken by the first to finish the wait: the client or the deadline.
    then: Mutex<Option<Then>>,
}

impl Arrival {
    /// Reports that the range is in the part's file, or why the fetch failed. `Ok` for an absent range is an error of
    /// the client, and the reader gets an error.
    pub fn finish(self, fetched: Result<(), ReadError>) {
        self.0.finish(fetched.and_then(|()| self.0.pin()));
    }

    /// Delivers the bytes of the range, in order. Any other length is an error of the client, as above.
    pub fn deliver(self, pieces: Vec<Bytes>) {
        let length: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let is_whole = length == self.0.range.end - self.0.range.start;
        self.0.finish(if is_whole { Ok(Arrived::Bytes(pieces)) } else { Err(short()) });
    }

    /// A function that tells whether the reader still waits.
    pub fn watch(&self) -> impl Fn() -> bool + Send + use<> {
        let awaited = Arc::downgrade(&self.0);
        move || awaited.upgrade().is_some_and(|awaited| lock(&awaited.then).is_some())
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let then = lock(&self.0.then).take();
        if let Some(then) = then {
            then(Err(io::Error::other("the store gave no answer").into()));
        }
    }
}

fn short() -> ReadError {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the store's answer is short").into()
}

impl Awaited {
    fn finish(&self, fetched: Result<Arrived, ReadError>) {
        let then = lock(&self.then).take();
        if let Some(then) = then {
            then(fetched);
        }
    }

    fn pin(&self) -> Result<Arrived, ReadError> {
        let pin = self.remote.pin(&self.range);
        // Blocks of a range that was filled may be evicted again by now.
        pin.or_else(|| self.is_fill.then(Pin::none)).map(Arrived::InFile).ok_or_else(short)
    }
}

/// Requests a range of a remote part.
pub(super) fn begin(
    remote: &Arc<dyn Remote>,
    patience: Duration,
    (range, cause): (Range<u64>, Cause),
    then: impl FnOnce(Result<Arrived, ReadError>) + Send + 'static,
) {
    if range.end > remote.len_bytes() {
        // Without a request: the store's refusal would be taken for a change of the object.
        return then(Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()));
    }
    let is_fill = cause == Cause::Fill;
    let then: Then = Box::new(then);
    let awaited = Arc::new(Awaited {
        remote: Arc::clone(remote),
        range: range.clone(),
        is_fill,
        then: Mutex::new(Some(then)),
    });
    // No reader waits for a fill: on a slow link the store's own limits are enough.
    let patience = if is_fill { patience * 20 } else { patience };
    DEADLINES.add(patience, &awaited);
    remote.begin(range, cause, Arrival(awaited));
}

/// Ends all waits for bytes of these remotes with the error `Interrupted`.
pub(super) fn give_up<'a>(remotes: impl Iterator<Item = &'a Arc<dyn Remote>>) {
    let address = |remote: &Arc<dyn Remote>| Arc::as_ptr(remote).cast::<()>();
    let ended: HashSet<_> = remotes.map(address).collect();
    let all: Vec<_> = {
        let watched = lock(&DEADLINES.watched);
        watched.awaited.iter().filter_map(|(_, awaited)| awaited.upgrade()).collect()
    };
    for awaited in all.iter().filter(|awaited| ended.contains(&address(&awaited.remote))) {
        let why = io::Error::new(io::ErrorKind::Interrupted, "the mount has ended");
        awaited.finish(Err(why.into()));
    }
}

/// Ends waits whose deadline has passed. The thread runs only while there are waits.
static DEADLINES: Deadlines =
    Deadlines { watched: Mutex::new(Watched::NONE), added: Condvar::new() };

struct Deadlines {
    watched: Mutex<Watched>,
    added: Condvar,
}

struct Watched {
    awaited: Vec<(Instant, Weak<Awaited>)>,
    /// Finished waits are removed from the list when it is longer than this.
    limit: usize,
    /// When the thread's timer fires.
    next: Option<Instant>,
    has_thread: bool,
}

impl Watched {
    const NONE: Self = Self { awaited: Vec::new(), limit: 0, next: None, has_thread: false };

    fn drop_ended(&mut self) {
        self.awaited.retain(|(_, awaited)| awaited.strong_count() > 0);
        self.limit = self.awaited.len() * 2 + 64;
    }
}

/// The thread ends after this long without a wait.
const IDLE: Duration = Duration::from_secs(10);

impl Deadlines {
    fn add(&'static self, patience: Duration, awaited: &Arc<Awaited>) {
        let deadline = Instant::now() + patience;
        let mut watched = lock(&self.watched);
        watched.awaited.push((deadline, Arc::downgrade(awaited)));
        if watched.awaited.len() > watched.limit {
            watched.drop_ended();
        }
        if !watched.has_thread {
            let thread = thread::Builder::new().name("ffrfs-deadlines".to_owned());
            match thread.spawn(|| self.watch()) {
                Ok(_) => watched.has_thread = true,
                Err(error) => {
                    tracing::warn!("reads of a store that hangs will not time out: {error}")
                }
            }
        }
        // Each read adds a deadline, usually later than the one that the thread sleeps until.
        if watched.next.is_none_or(|next| deadline < next) {
            watched.next = Some(deadline);
            drop(watched);
            self.added.notify_one();
        }
    }

    fn watch(&self) {
        let mut watched = lock(&self.watched);
        loop {
            let now = Instant::now();
            watched.drop_ended();
            let (late, rest) =
                watched.awaited.drain(..).partition(|(deadline, _)| *deadline <= now);
            watched.awaited = rest;
            if !Vec::is_empty(&late) {
                drop(watched);
                for awaited in late.iter().filter_map(|(_, awaited)| awaited.upgrade()) {
                    let late = io::Error::new(io::ErrorKind::TimedOut, "the store does not answer");
                    awaited.finish(Err(late.into()));
                }
                watched = lock(&self.watched);
                continue;
            }
            watched.next = watched.awaited.iter().map(|(deadline, _)| *deadline).min();
            let pause = watched.next.map_or(IDLE, |next| next.saturating_duration_since(now));
            let (guard, timeout) =
                self.added.wait_timeout(watched, pause).unwrap_or_else(PoisonError::into_inner);
            watched = guard;
            if timeout.timed_out() && watched.awaited.is_empty() {
                (watched.has_thread, watched.next) = (false, None);
                return;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
