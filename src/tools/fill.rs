//! Fetching all of some objects into the node's cache. Imports from [`crate::store`].

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::io::ReadError;
use crate::store::{Bytes, Cause, Part};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What is fetched with one request: the parts in which most tools upload objects.
const CHUNK_BYTES: u64 = 8 << 20;
/// Chunks that are fetched at a time; each is in memory until it has come.
const TOGETHER: usize = 16;
/// How long the last blocks may take to get from memory into the cache.
const PATIENCE: Duration = Duration::from_secs(2);

/// What was fetched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Filled {
    /// Bytes of the objects that are in the cache now.
    pub(crate) cached_bytes: u64,
    /// Bytes that the cache did not take.
    pub(crate) refused_bytes: u64,
}

/// Fetches the objects among these parts, in order; `came` hears of the bytes that are in the cache.
///
/// # Errors
/// A store does not give the bytes, or the user interrupts the work.
pub(crate) fn fill(
    parts: &[Arc<Part>],
    interrupt: &Interrupt,
    came: &(dyn Fn(u64) + Sync),
) -> Result<Filled, Failure> {
    let chunks: Vec<_> = parts.iter().flat_map(chunks_of).collect();
    let (next, cached) = (AtomicUsize::new(0), AtomicU64::new(0));
    let failure = Mutex::new(None);
    let failed = || failure.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        while failed().is_none()
            && let Some((part, range)) = chunks.get(next.fetch_add(1, Relaxed))
        {
            let fetched = part.wait(range.clone(), Cause::Prefetch).map(drop);
            let fetched = fetched.map_err(|error| match error {
                ReadError::Io(error) => Failure::unreadable(part.name(), error),
                error => Failure::unreadable(part.name(), io::Error::other(error)),
            });
            if let Err(why) = fetched.and_then(|()| interrupt.check()) {
                failed().get_or_insert(why);
                return;
            }
            came(range.end - range.start);
        }
    };
    thread::scope(|scope| (0..TOGETHER.min(chunks.len())).for_each(|_| drop(scope.spawn(work))));
    if let Some(why) = failed().take() {
        return Err(why);
    }
    let deadline = Instant::now() + PATIENCE;
    for (part, range) in &chunks {
        while !is_cached(part, range) && Instant::now() < deadline && has_file(part) {
            thread::sleep(Duration::from_millis(5));
        }
        let bytes = if is_cached(part, range) { range.end - range.start } else { 0 };
        cached.fetch_add(bytes, Relaxed);
    }
    let all: u64 = chunks.iter().map(|(_, range)| range.end - range.start).sum();
    let cached_bytes = cached.into_inner();
    Ok(Filled { cached_bytes, refused_bytes: all - cached_bytes })
}

fn chunks_of(part: &Arc<Part>) -> impl Iterator<Item = (Arc<Part>, Range<u64>)> {
    let length = match part.bytes() {
        Bytes::Remote(_) => part.len_bytes(),
        Bytes::Local(_) | Bytes::Memory(_) => 0,
    };
    let part = Arc::clone(part);
    (0..length.div_ceil(CHUNK_BYTES)).map(move |chunk| {
        let start = chunk * CHUNK_BYTES;
        (Arc::clone(&part), start..(start + CHUNK_BYTES).min(length))
    })
}

fn is_cached(part: &Part, range: &Range<u64>) -> bool {
    matches!(part.bytes(), Bytes::Remote(remote) if remote.pin(range).is_some())
}

fn has_file(part: &Part) -> bool {
    part.file().is_some()
}
