//! Fetches whole objects into the node's cache. Imports from [`crate::store`].

use crate::dataset::on_threads;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::io::ReadError;
use crate::store::{Bytes, Cause, Part};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// The length of a request: most tools upload objects in parts of this length.
const CHUNK_BYTES: u64 = 8 << 20;
/// The number of chunks that are fetched at a time.
const TOGETHER: usize = 16;

/// The result of a fill.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Filled {
    /// Bytes of the objects that are now in the cache.
    pub(crate) cached_bytes: u64,
    /// Bytes that the cache did not take.
    pub(crate) refused_bytes: u64,
}

/// Fetches the objects among these parts, in order; calls `came` with the number of bytes that are in the cache.
///
/// # Errors
/// A store does not deliver the bytes, or the user interrupts the work.
pub(crate) fn fill(
    parts: &[Arc<Part>],
    interrupt: &Interrupt,
    came: &(dyn Fn(u64) + Sync),
) -> Result<Filled, Failure> {
    let chunks: Vec<_> = parts.iter().flat_map(chunks_of).collect();
    let (next, cached, refused) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let failure = Mutex::new(None);
    let failed = || failure.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        while failed().is_none()
            && let Some((part, range)) = chunks.get(next.fetch_add(1, Relaxed))
        {
            let bytes = range.end - range.start;
            let count = match part.wait(range.clone(), Cause::Fill) {
                Ok(_) => &cached,
                Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::StorageFull => &refused,
                Err(error) => {
                    failed().get_or_insert(unreadable(part, error));
                    return;
                }
            };
            count.fetch_add(bytes, Relaxed);
            if let Err(why) = interrupt.check() {
                failed().get_or_insert(why);
                return;
            }
            came(bytes);
        }
    };
    on_threads(TOGETHER.min(chunks.len()), &work);
    match failed().take() {
        Some(why) => Err(why),
        None => {
            Ok(Filled { cached_bytes: cached.into_inner(), refused_bytes: refused.into_inner() })
        }
    }
}

fn unreadable(part: &Part, error: ReadError) -> Failure {
    let error = match error {
        ReadError::Io(error) => error,
        error => io::Error::other(error),
    };
    Failure::unreadable(part.name(), error)
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
