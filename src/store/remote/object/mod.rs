//! An object as a part of a dataset. Imports the fetcher and the interface of remote parts.

mod fetch;
mod fill;
mod flights;
mod keep;
mod opening;
mod order;
mod replacing;
mod waiting;

pub(super) use fetch::Fetcher;
pub(super) use fill::Fill;
pub(super) use opening::Opening;
pub(super) use replacing::Replacing;

use super::counters::add;
use super::error::StoreError;
use super::runtime;
use crate::io::{File, ReadError, Reading};
use crate::store::cache::BLOCK_BYTES;
use crate::store::{Arrival, Cause, Pin, Place, Remote};
use bytes::Bytes;
use flights::{CHUNK_BYTES, around};
use opening::cut;
use std::fmt::Display;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::runtime::Handle;
use waiting::Waiting;

/// The least bytes that are fetched to open a container without a cache.
const OPENING_BYTES: u64 = 256 << 10;
/// A read that skips at most this much after the last one counts as sequential.
const SKIPPED_BYTES: u64 = 1 << 20;
/// After this many sequential reads, more of them are expected.
const SEQUENTIAL_READS: u64 = 2;
/// How many chunks ahead a container is fetched that is scanned to open it.
const SCAN_CHUNKS: u64 = 16;

static LAST: AtomicU64 = AtomicU64::new(0);

/// One version of an object.
pub(super) struct RemoteObject {
    fetcher: Arc<Fetcher>,
    fill: Arc<Fill>,
    opening: Arc<Opening>,
    number: u64,
    /// The end of the last read, and the number of sequential reads before it.
    last_end: AtomicU64,
    sequential: AtomicU64,
}

impl RemoteObject {
    pub(super) fn new(fetcher: Arc<Fetcher>, fill: Arc<Fill>, opening: Arc<Opening>) -> Self {
        let (last_end, sequential) = (AtomicU64::new(0), AtomicU64::new(0));
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        Self { fetcher, fill, opening, number, last_end, sequential }
    }

    fn is_sequential(&self, range: &Range<u64>) -> bool {
        let last = self.last_end.swap(range.end, Ordering::Relaxed);
        if !(last..=last.saturating_add(SKIPPED_BYTES)).contains(&range.start) {
            self.sequential.store(0, Ordering::Relaxed);
            return false;
        }
        self.sequential.fetch_add(1, Ordering::Relaxed) >= SEQUENTIAL_READS
    }

    fn has_room(&self) -> bool {
        self.fetcher.entry.as_ref().is_some_and(|entry| entry.has_room())
    }

    /// Announces chunks.
    fn expect(&self, chunks: Range<u64>) {
        let Ok(runtime) = runtime::handle() else { return };
        let count = self.fetcher.object.length_bytes.div_ceil(CHUNK_BYTES);
        for chunk in chunks.start..chunks.end.min(count) {
            if self.fetcher.lock().announced.insert(chunk) {
                self.fill.add(runtime, &self.fetcher, chunk);
            }
        }
    }

    /// Fills the cache's file with the chunks around `range`.
    fn fill_range(&self, runtime: &Handle, range: Range<u64>, arrival: Arrival) {
        let waiting =
            Waiting::for_file(range.clone(), arrival.watch(), move |kept: Result<(), _>| {
                arrival.finish(kept.map_err(failed));
            });
        let fetcher = Arc::clone(&self.fetcher);
        runtime.spawn(fetcher.bring(Arc::new(waiting), range, Cause::Fill, true));
    }

    /// The wait for `range`, widened for the reads that follow. `None` if the bytes were remembered, and are delivered.
    fn open(&self, range: Range<u64>, is_bulk: bool, arrival: Arrival) -> Option<Waiting> {
        if let Some(pieces) = self.opening.get(self.number, &range) {
            arrival.deliver(pieces);
            return None;
        }
        let length = if is_bulk { CHUNK_BYTES } else { OPENING_BYTES };
        let wide = around(&range, length, self.fetcher.object.length_bytes);
        let (opening, number, kept) = (Arc::clone(&self.opening), self.number, wide.clone());
        Some(Waiting::new(
            wide,
            || true,
            move |arrived| match arrived {
                Ok(pieces) => {
                    let asked = cut(&pieces, kept.start, &range);
                    // Before the reader is told, so that its next read finds the bytes.
                    opening.keep(number, kept, pieces);
                    arrival.deliver(asked);
                }
                Err(error) => arrival.finish(Err(failed(error))),
            },
        ))
    }
}

fn failed(error: StoreError) -> ReadError {
    ReadError::Io(io::Error::from(error))
}

impl Remote for RemoteObject {
    fn len_bytes(&self) -> u64 {
        self.fetcher.object.length_bytes
    }

    fn file(&self) -> Option<&File> {
        self.fetcher.entry.as_ref().map(|entry| entry.file())
    }

    fn pin(&self, range: &Range<u64>) -> Option<Pin> {
        let entry = self.fetcher.entry.as_ref()?;
        let reading = Reading::begin();
        (range.end <= entry.length_bytes() && entry.is_present(range)).then(|| reading.into())
    }

    fn note_hit(&self, bytes: u64) {
        let counters = &self.fetcher.engine.counters;
        add(&counters.hits, 1);
        add(&counters.used_bytes, bytes);
        if let Some(entry) = &self.fetcher.entry {
            entry.note_use(true);
        }
    }

    fn begin(&self, range: Range<u64>, cause: Cause, arrival: Arrival) {
        if range.is_empty() {
            return arrival.deliver(Vec::new());
        }
        if let Some(error) = self.fetcher.refused(&range) {
            return arrival.finish(Err(failed(error)));
        }
        let runtime = match runtime::handle() {
            Ok(runtime) => runtime,
            Err(error) => return arrival.finish(Err(error.into())),
        };
        if cause == Cause::Fill {
            return self.fill_range(runtime, range, arrival);
        }
        let counters = &self.fetcher.engine.counters;
        add(&counters.misses, 1);
        if let Some(entry) = &self.fetcher.entry {
            entry.note_use(false);
        }
        add(&counters.used_bytes, range.end - range.start);
        let is_bulk = cause == Cause::Prefetch || self.is_sequential(&range);
        let waiting =
            if cause == Cause::Open && !self.has_room() {
                match self.open(range, is_bulk, arrival) {
                    Some(waiting) => waiting,
                    None => return,
                }
            } else {
                if cause == Cause::Open && is_bulk {
                    let chunk = range.start / CHUNK_BYTES;
                    self.expect(chunk..chunk + SCAN_CHUNKS);
                }
                Waiting::new(range, arrival.watch(), move |arrived: Result<Vec<Bytes>, _>| {
                    match arrived {
                        Ok(pieces) => arrival.deliver(pieces),
                        Err(error) => arrival.finish(Err(failed(error))),
                    }
                })
            };
        let part = waiting.range().clone();
        let fetcher = Arc::clone(&self.fetcher);
        runtime.spawn(fetcher.bring(Arc::new(waiting), part, cause, is_bulk));
    }

    fn announce(&self, range: Range<u64>, place: Place) {
        if let Some(replacing) = &self.fetcher.replacing {
            replacing.announce(&range, place);
        }
        if !range.is_empty() && self.has_room() {
            self.expect(range.start / CHUNK_BYTES..range.end.div_ceil(CHUNK_BYTES));
        }
    }

    fn note_reached(&self, number: u64) {
        if let Some(replacing) = &self.fetcher.replacing {
            replacing.advance(number);
        }
    }

    fn forget_announced(&self) {
        if let Some(replacing) = &self.fetcher.replacing {
            replacing.forget_reads();
        }
    }

    fn note_end(&self) {
        if let Some(entry) = &self.fetcher.entry {
            entry.note_end();
        }
    }

    fn lose(&self, why: &dyn Display) -> bool {
        let Some(entry) = &self.fetcher.entry else { return false };
        tracing::warn!("{}: the cache cannot be read: {why}", self.fetcher.object.location);
        entry.lose();
        true
    }

    fn check(&self, range: Range<u64>) {
        let Some(entry) = &self.fetcher.entry else { return };
        let changed = entry.compare(&range);
        if changed > 0 {
            let location = &self.fetcher.object.location;
            tracing::warn!(
                "{location}: {changed} MiB of its cached bytes, at byte {} or after it, have changed on the disk; they are \
                 fetched again",
                range.start
            );
        }
    }

    fn distrust(&self, range: Range<u64>) -> bool {
        let Some(entry) = &self.fetcher.entry else { return false };
        // Also absent blocks: another reader of the same bytes may have been faster.
        for block in range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES) {
            entry.invalidate(block);
        }
        true
    }
}
