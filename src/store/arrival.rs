//! Bytes that are not on this machine yet: asked for, and waited for no longer than the store's patience.

use crate::io::{File, ReadError};
use bytes::Bytes;
use std::collections::HashSet;
use std::fmt::Display;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{io, thread};

/// Why bytes are fetched: what a store fetches first, and how much of what lies around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A program waits for them.
    Demand,
    /// They were announced, or a pattern foresees them.
    Prefetch,
    /// A container is being opened.
    Open,
    /// They are to be in the part's file, and nobody takes them now. The arrival comes when the file has them; if it
    /// cannot take them, that is an error of the kind `StorageFull`.
    Fill,
}

impl Cause {
    /// The name that reports use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Demand => "demand",
            Self::Prefetch => "prefetch",
            Self::Open => "open",
            Self::Fill => "fill",
        }
    }

    /// Whether somebody waits for the bytes, so that they come before those that are fetched ahead.
    #[must_use]
    pub fn is_urgent(self) -> bool {
        matches!(self, Self::Demand | Self::Open)
    }
}

/// What brings the bytes of one part to this machine: a client of an object store.
pub trait Remote: Send + Sync {
    /// The length of the part.
    fn len_bytes(&self) -> u64;

    /// The file that holds the ranges that are present, at the same offsets; as long as the part. `None` if
    /// nothing is kept.
    fn file(&self) -> Option<&File>;

    /// Holds `range` in the file, if all of it is present. Called for each read, so it must be cheap. A range stays
    /// present, for others too, as long as one of its pins is held.
    fn pin(&self, range: &Range<u64>) -> Option<Pin>;

    /// A read found all its bytes in the file.
    fn note_hit(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Begins to fetch `range` and returns at once; `arrival` hears how that ended. Demands for the
    /// same bytes may come from several threads at a time.
    fn begin(&self, range: Range<u64>, cause: Cause, arrival: Arrival);

    /// `range` will be read: announced, in the order in which ranges are given here. A store with room to keep it
    /// fetches it in the background.
    fn announce(&self, range: Range<u64>) {
        let _ = range;
    }

    /// Nothing is read any more, and the process may end without dropping this.
    fn note_end(&self) {}

    /// The file could not be read, as when somebody has deleted it. Tells whether the bytes can be asked for anew: they
    /// come without the file from then on.
    fn lose(&self, why: &dyn Display) -> bool {
        let _ = why;
        false
    }

    /// What was read of `range` failed its check. Tells whether it was kept here and is forgotten now, so that it
    /// should be fetched once more.
    fn distrust(&self, range: Range<u64>) -> bool {
        let _ = range;
        false
    }
}

/// How bytes that were absent have come.
pub enum Arrived {
    /// They are in the part's file, at least as long as the pin is held.
    InFile(Pin),
    /// All of them, in order.
    Bytes(Vec<Bytes>),
}

impl Arrived {
    /// Copies bytes that came without a file to the beginning of `target`; gives the pin of those in the file.
    ///
    /// # Panics
    /// `target` is shorter than the range that was asked for.
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

/// As long as it is held, a range that is present stays present.
pub struct Pin(Option<Box<dyn Send>>);

impl Pin {
    /// A pin that `held` is dropped with.
    #[must_use]
    pub fn new(held: impl Send + 'static) -> Self {
        Self(Some(Box::new(held)))
    }

    /// For bytes that stay present.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// What is held.
    #[must_use]
    pub fn into_held(self) -> Option<Box<dyn Send>> {
        self.0
    }
}

type Then = Box<dyn FnOnce(Result<Arrived, ReadError>) + Send>;

/// The duty to say how the fetch of a range ended. Dropped, it says that nothing came.
pub struct Arrival(Arc<Awaited>);

/// A range that a reader waits for.
struct Awaited {
    remote: Arc<dyn Remote>,
    range: Range<u64>,
    /// Taken by whoever comes first: the client, or the deadline.
    then: Mutex<Option<Then>>,
}

impl Arrival {
    /// The range is in the part's file, or does not come. To say `Ok` of a range that is not present is an error of the
    /// client, which its reader sees as one.
    pub fn finish(self, fetched: Result<(), ReadError>) {
        self.0.finish(fetched.and_then(|()| self.0.pin()));
    }

    /// The bytes of the range, in order. Other than all of them are an error of the client, as above.
    pub fn deliver(self, pieces: Vec<Bytes>) {
        let length: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let is_whole = length == self.0.range.end - self.0.range.start;
        self.0.finish(if is_whole { Ok(Arrived::Bytes(pieces)) } else { Err(short()) });
    }

    /// Tells whether the reader still waits.
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
        self.remote.pin(&self.range).map(Arrived::InFile).ok_or_else(short)
    }
}

/// Asks for a range of a remote part.
pub(super) fn begin(
    remote: &Arc<dyn Remote>,
    patience: Duration,
    (range, cause): (Range<u64>, Cause),
    then: impl FnOnce(Result<Arrived, ReadError>) + Send + 'static,
) {
    let (of, then): (_, Then) = (range.clone(), Box::new(then));
    let awaited = Awaited { remote: Arc::clone(remote), range: of, then: Mutex::new(Some(then)) };
    let awaited = Arc::new(awaited);
    // Nobody waits for what only fills a cache: the store's own limits are enough for a slow link.
    let patience = if cause == Cause::Fill { patience * 20 } else { patience };
    DEADLINES.add(patience, &awaited);
    remote.begin(range, cause, Arrival(awaited));
}

/// Ends all waits for bytes of these, as interrupted.
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

/// Ends the wait for what does not come. Its thread runs while there is something to watch.
static DEADLINES: Deadlines =
    Deadlines { watched: Mutex::new(Watched::NONE), added: Condvar::new() };

struct Deadlines {
    watched: Mutex<Watched>,
    added: Condvar,
}

struct Watched {
    awaited: Vec<(Instant, Weak<Awaited>)>,
    /// What has ended is taken off the list when it gets longer than this.
    limit: usize,
    /// When the thread wakes by itself.
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

/// A thread without anything to watch ends after this.
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
                Err(error) => tracing::warn!("a store that hangs will not be noticed: {error}"),
            }
        }
        // Each read adds one, mostly later than what the thread waits for.
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
