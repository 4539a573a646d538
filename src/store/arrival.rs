//! Bytes that are not on this machine yet: asked for, and waited for no longer than the store's patience.

use crate::io::{File, ReadError};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{io, thread};

/// What brings the bytes of one part to this machine: a client of an object store.
pub trait Remote: Send + Sync {
    /// The file that holds the ranges that are present, at the same offsets; as long as the part.
    fn file(&self) -> &File;

    /// Holds `range` in the file, if all of it is present. Called for each read, so it must be cheap. A range stays
    /// present, for others too, as long as one of its pins is held.
    fn pin(&self, range: &Range<u64>) -> Option<Pin>;

    /// Begins to make `range` present and returns at once; `arrival` hears how that ended. Demands for the
    /// same bytes may come from several threads at a time.
    fn begin(&self, range: Range<u64>, arrival: Arrival);
}

/// As long as it is held, a range that is present stays present.
pub struct Pin(Option<Box<dyn Send>>);

impl Pin {
    /// A pin that `held` is dropped with.
    #[must_use]
    pub fn new(held: impl Send + 'static) -> Self {
        Self(Some(Box::new(held)))
    }

    /// For bytes that are always present.
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// What is held.
    #[must_use]
    pub fn into_held(self) -> Option<Box<dyn Send>> {
        self.0
    }
}

type Then = Box<dyn FnOnce(Result<Pin, ReadError>) + Send>;

/// The duty to say how the fetch of a range ended. Dropped, it says that nothing came.
pub struct Arrival(Arc<Awaited>);

/// A range that somebody waits for.
struct Awaited {
    remote: Arc<dyn Remote>,
    range: Range<u64>,
    /// Taken by whoever comes first: the client, or the deadline.
    then: Mutex<Option<Then>>,
}

impl Arrival {
    /// The range is present, or does not come. To say `Ok` of a range that is not present is an error of the
    /// client, which its reader sees as one.
    pub fn finish(self, fetched: Result<(), ReadError>) {
        self.0.finish(fetched);
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.0.finish(Err(io::Error::other("the store gave no answer").into()));
    }
}

impl Awaited {
    fn finish(&self, fetched: Result<(), ReadError>) {
        let then = lock(&self.then).take();
        if let Some(then) = then {
            then(fetched.and_then(|()| self.pin()));
        }
    }

    fn pin(&self) -> Result<Pin, ReadError> {
        let short = || io::Error::new(io::ErrorKind::UnexpectedEof, "the store's answer is short");
        self.remote.pin(&self.range).ok_or_else(|| short().into())
    }
}

/// Asks for a range of a remote part.
pub(super) fn begin(
    remote: &Arc<dyn Remote>,
    patience: Duration,
    range: Range<u64>,
    then: impl FnOnce(Result<Pin, ReadError>) + Send + 'static,
) {
    let (of, then): (_, Then) = (range.clone(), Box::new(then));
    let awaited = Awaited { remote: Arc::clone(remote), range: of, then: Mutex::new(Some(then)) };
    let awaited = Arc::new(awaited);
    DEADLINES.add(patience, &awaited);
    remote.begin(range, Arrival(awaited));
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
    has_thread: bool,
}

impl Watched {
    const NONE: Self = Self { awaited: Vec::new(), has_thread: false };
}

/// A thread without anything to watch ends after this.
const IDLE: Duration = Duration::from_secs(10);

impl Deadlines {
    fn add(&'static self, patience: Duration, awaited: &Arc<Awaited>) {
        let mut watched = lock(&self.watched);
        watched.awaited.push((Instant::now() + patience, Arc::downgrade(awaited)));
        if !watched.has_thread {
            let thread = thread::Builder::new().name("ffrfs-deadlines".to_owned());
            match thread.spawn(|| self.watch()) {
                Ok(_) => watched.has_thread = true,
                Err(error) => tracing::warn!("a store that hangs will not be noticed: {error}"),
            }
        }
        drop(watched);
        self.added.notify_one();
    }

    fn watch(&self) {
        let mut watched = lock(&self.watched);
        loop {
            let now = Instant::now();
            watched.awaited.retain(|(_, awaited)| awaited.strong_count() > 0);
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
            let next = watched.awaited.iter().map(|(deadline, _)| *deadline).min();
            let pause = next.map_or(IDLE, |next| next.saturating_duration_since(now));
            let (guard, timeout) =
                self.added.wait_timeout(watched, pause).unwrap_or_else(PoisonError::into_inner);
            watched = guard;
            if timeout.timed_out() && watched.awaited.is_empty() {
                watched.has_thread = false;
                return;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
