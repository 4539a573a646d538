//! A store in memory with faults: late, broken and refused responses, as a test chooses.

use super::client::{Body, Client, Object};
use super::error::{ErrorKind, StoreError};
use super::location::Location;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::sleep;

/// The response to a request for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// All bytes, after the usual time.
    Good,
    /// All bytes, after the given time.
    After(Duration),
    /// No bytes but this error.
    Fails(ErrorKind),
    /// No bytes but the demand to retry after this time.
    Throttled(Duration),
    /// The given number of bytes, then a broken connection.
    Breaks(usize),
    /// The given number of bytes, then silence.
    Hangs(usize),
}

/// A store with one object.
pub(crate) struct MemoryStore {
    pub(crate) bytes: Bytes,
    /// The time to the first byte.
    pub(crate) latency: Duration,
    /// The length of each piece, and the time that it takes.
    pub(crate) piece: (usize, Duration),
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    answers: VecDeque<Answer>,
    asked: Vec<Range<u64>>,
    /// The time that each page of a listing takes, and the number of its objects.
    pages: Vec<(Duration, usize)>,
    /// Whether the object has neither ETag nor date.
    is_unversioned: bool,
}

/// The bytes of an object of this length.
pub(crate) fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 8) ^ (at >> 16).wrapping_mul(31)) as u8).collect()
}

/// The object's URL.
pub(crate) fn location() -> Location {
    Location::parse("s3://bucket/object").unwrap().unwrap()
}

impl MemoryStore {
    pub(crate) fn new(length: usize) -> Arc<Self> {
        Self::with(length, Duration::from_millis(5), (64 << 10, Duration::ZERO))
    }

    pub(crate) fn with(length: usize, latency: Duration, piece: (usize, Duration)) -> Arc<Self> {
        let state = State { pages: vec![(Duration::ZERO, 1)], ..State::default() };
        let (bytes, state) = (Bytes::from(content(length)), Mutex::new(state));
        Arc::new(Self { bytes, latency, piece, state })
    }

    /// Sets the responses to the next requests; later ones are good.
    pub(crate) fn answer(&self, answers: impl IntoIterator<Item = Answer>) {
        self.lock().answers.extend(answers);
    }

    /// Sets the pages of listings: the time that each page takes, and the number of its objects.
    pub(crate) fn set_pages(&self, pages: impl IntoIterator<Item = (Duration, usize)>) {
        self.lock().pages = pages.into_iter().collect();
    }

    /// The ranges of all requests so far.
    pub(crate) fn asked(&self) -> Vec<Range<u64>> {
        self.lock().asked.clone()
    }

    /// Leaves the ETag and the date of the object out.
    pub(crate) fn forget_version(&self) {
        self.lock().is_unversioned = true;
    }

    pub(crate) fn object(&self) -> Object {
        let is_versioned = !self.lock().is_unversioned;
        Object {
            location: location(),
            length_bytes: self.bytes.len() as u64,
            modified: is_versioned.then_some(SystemTime::UNIX_EPOCH),
            version_id: None,
            etag: is_versioned.then(|| "\"1\"".to_owned()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until something has happened, also on a machine that is busy with other work.
pub(crate) fn wait_until(what: &str, has_happened: impl Fn() -> bool) {
    let start = Instant::now();
    while !has_happened() {
        assert!(start.elapsed() < Duration::from_secs(60), "it has not happened in time: {what}");
        thread::yield_now();
    }
}

fn error(kind: ErrorKind) -> StoreError {
    StoreError::new(location().to_string(), kind, "as the test wants")
}

impl Client for MemoryStore {
    fn head<'a>(&'a self, _: &'a Location) -> BoxFuture<'a, Result<Object, StoreError>> {
        Box::pin(async {
            sleep(self.latency).await;
            Ok(self.object())
        })
    }

    fn get<'a>(
        &'a self,
        _: &'a Object,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Body, StoreError>> {
        Box::pin(async move {
            let answer = {
                let mut state = self.lock();
                state.asked.push(range.clone());
                state.answers.pop_front().unwrap_or(Answer::Good)
            };
            let bytes = self.bytes.slice(range.start as usize..range.end as usize);
            let (mut latency, mut length) = (self.latency, bytes.len());
            match answer {
                Answer::Good => {}
                Answer::After(time) => latency = time,
                Answer::Breaks(bytes) | Answer::Hangs(bytes) => length = length.min(bytes),
                Answer::Fails(kind) => {
                    sleep(latency).await;
                    return Err(error(kind));
                }
                Answer::Throttled(pause) => {
                    sleep(latency).await;
                    let retry_after = Some(pause);
                    return Err(StoreError { retry_after, ..error(ErrorKind::Throttled) });
                }
            }
            sleep(latency).await;
            let (piece, pause) = self.piece;
            let good = bytes.slice(..length);
            let pieces: Vec<Bytes> = (0..length)
                .step_by(piece.max(1))
                .map(|start| good.slice(start..length.min(start + piece)))
                .collect();
            let pieces = stream::iter(pieces).then(move |piece| async move {
                sleep(pause).await;
                Ok(piece)
            });
            Ok(match answer {
                Answer::Breaks(_) => {
                    let broken = stream::once(async { Err(error(ErrorKind::Broken)) });
                    pieces.chain(broken).boxed()
                }
                Answer::Hangs(_) => pieces.chain(stream::pending()).boxed(),
                _ => pieces.boxed(),
            })
        })
    }

    fn list<'a>(&'a self, _: &'a Location) -> BoxStream<'a, Result<Vec<Object>, StoreError>> {
        let pages = stream::iter(self.lock().pages.clone());
        let pages = pages.then(move |(time, objects)| async move {
            sleep(time).await;
            Ok(vec![self.object(); objects])
        });
        pages.boxed()
    }
}
