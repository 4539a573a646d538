//! The samples and ranges that wait to be prefetched, and the counters.

use super::orders::Orders;
use super::patterns::Patterns;
use crate::catalog::Located;
use crate::vfs::memory::blocks::BlockId;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of arrived samples that are listed before those that were asked for are taken off the list.
const ARRIVED: usize = 4096;
/// A sample that arrived this many samples and two batches before the one that is asked for now will not be asked for any more.
pub(super) const STALE: u64 = 256;

#[derive(Default)]
pub(super) struct Queue {
    /// The samples that a pattern foresaw.
    pub(super) foreseen: VecDeque<u64>,
    pub(super) foreseen_blocks: VecDeque<BlockId>,
    pub(super) announced: Orders,
    /// The number of samples that were ever announced.
    pub(super) numbered: u64,
    /// The number that stores were told last.
    pub(super) reached: u64,
    /// Reads of the batch that is being fetched.
    pub(super) batch: VecDeque<MergedRead>,
    /// The ranges that a warm-up wants in a cache of the node.
    pub(super) fills: VecDeque<Fill>,
    /// Whether that cache took no more ranges.
    pub(super) cache_is_full: bool,
    pub(super) batch_bytes: u64,
    /// The most samples that a batch had.
    pub(super) batch_samples: u64,
    /// The bytes of announced samples that the page cache was given.
    pub(super) given: Given,
    pub(super) samples: Patterns,
    pub(super) blocks: Patterns,
    /// The announced samples that arrived.
    pub(super) arrived: Arrived,
    /// The samples that a pattern foresaw, and that arrived.
    pub(super) arrived_foreseen: Arrived,
    /// The samples that were fetched because they were looked up, in the order of arrival.
    pub(super) arrived_looked_up: VecDeque<LookedUp>,
    pub(super) arrivals: u64,
}

/// The samples that arrived and may still be in the cache: the place of each in the order of arrival, and its number.
#[derive(Default)]
pub(super) struct Arrived {
    samples: VecDeque<(u64, u64)>,
    /// The length that the list may reach before it is gone through.
    limit: usize,
}

impl Arrived {
    /// Lists further samples. Samples for which `is_there` is false are taken off now and then, or the list would grow while
    /// there is room for all.
    pub(super) fn extend(&mut self, samples: Vec<(u64, u64)>, is_there: impl Fn(u64, u64) -> bool) {
        self.samples.extend(samples);
        if self.samples.len() > self.limit.max(ARRIVED) {
            self.samples.retain(|&(order, sample)| is_there(sample, order));
            self.limit = self.samples.len() * 2;
        }
    }

    pub(super) fn first(&self) -> Option<(u64, u64)> {
        self.samples.front().copied()
    }

    pub(super) fn pop_first(&mut self) -> Option<(u64, u64)> {
        self.samples.pop_front()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }
}

/// A sample that was fetched because it was looked up.
pub(super) struct LookedUp {
    /// The number of lookups up to the sample's arrival.
    pub(super) lookups: u64,
    /// The place in the order of arrival.
    pub(super) number: u64,
    pub(super) sample: u64,
}

/// Bytes that the page cache was given, and that may not have been read yet.
#[derive(Default)]
pub(super) struct Given {
    /// One past the place in the order of arrival of the last sample of a read, and how many bytes of the read were given.
    reads: VecDeque<(u64, u64)>,
    pub(super) bytes: u64,
}

impl Given {
    /// Counts bytes of a read.
    pub(super) fn add(&mut self, number: u64, bytes: u64) {
        if bytes > 0 {
            self.reads.push_back((number, bytes));
            self.bytes += bytes;
        }
    }

    /// Takes off the bytes of reads that arrived `age` or more before the sample that was read last: they are taken to have
    /// been read.
    pub(super) fn take_off_read(&mut self, age: u64, last_used: u64) {
        while let Some(&(number, bytes)) = self.reads.front()
            && number + age <= last_used
        {
            self.reads.pop_front();
            self.bytes -= bytes;
        }
    }
}

impl Queue {
    /// The age of stale samples: one that arrived so long before the sample asked for now will not be asked for any more.
    pub(super) fn stale_age(&self) -> u64 {
        STALE + 2 * self.batch_samples
    }

    /// The number, in the order of announcement, of the first sample that waits.
    pub(super) fn first_number(&self) -> u64 {
        self.numbered - self.announced.len() as u64
    }
}

/// The reasons for which samples were fetched again so far: once for each reason.
#[derive(Clone, Copy, Default)]
pub(super) struct Again {
    /// The samples lie elsewhere.
    pub(super) is_moved: bool,
    /// A cache has given wrong bytes, and dropped them.
    pub(super) is_distrusted: bool,
}

/// One read of samples that lie close together.
pub(super) struct MergedRead {
    pub(super) part: usize,
    pub(super) range: Range<u64>,
    pub(super) samples: Vec<(u64, Located)>,
    pub(super) is_announced: bool,
    pub(super) again: Again,
}

impl MergedRead {
    /// Makes a read of each of its samples alone.
    pub(super) fn apart(self) -> impl DoubleEndedIterator<Item = Self> {
        let Self { part, samples, is_announced, again, .. } = self;
        samples.into_iter().map(move |(sample, located)| {
            let (range, samples) = (located.sample.extent(), vec![(sample, located)]);
            Self { part, range, samples, is_announced, again }
        })
    }
}

/// A range of a part, and the number of samples in it, for a cache of the node.
pub(super) struct Fill {
    pub(super) part: usize,
    pub(super) range: Range<u64>,
    pub(super) samples: u64,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) announced: AtomicU64,
    pub(super) done: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) skipped: AtomicU64,
    pub(super) in_flight: AtomicU64,
    pub(super) foreseen: AtomicU64,
    pub(super) looked_up: AtomicU64,
    pub(super) reads: AtomicU64,
    pub(super) merged: AtomicU64,
    pub(super) fetched_bytes: AtomicU64,
    pub(super) stored_bytes: AtomicU64,
    pub(super) unused_bytes: AtomicU64,
    pub(super) used: AtomicU64,
    /// Reads that wait for the disk now.
    pub(super) waiting_reads: AtomicU64,
}

pub(super) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// `prefetch` in `stats.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PrefetchFigures {
    /// Samples announced since the mount.
    pub announced: u64,
    /// Samples announced and not begun.
    pub waiting: u64,
    /// Whether waiting samples find no room until some of the prefetched ones were read.
    pub is_full: bool,
    /// Whether the samples of a warm-up that wait find no room in the node's cache.
    pub cache_is_full: bool,
    /// Samples that are being fetched, or put into the kernel's page cache.
    pub in_flight: u64,
    /// Announced samples finished: fetched, there already, failed, or skipped.
    pub done: u64,
    /// Announced samples that could not be read.
    pub failed: u64,
    /// Announced samples that are fetched only when they are read: they are decoded then, or have holes, or are too large for
    /// the memory.
    pub skipped: u64,
    /// Samples and blocks that a pattern foresaw.
    pub foreseen: u64,
    /// Samples and blocks whose fetch began when a sample was looked up.
    pub looked_up: u64,
    /// Reads of samples ahead.
    pub reads: u64,
    /// Samples that came with the read of another sample.
    pub merged: u64,
    /// Bytes read.
    pub fetched_bytes: u64,
    /// Bytes that were put into the kernel's page cache.
    pub stored_bytes: u64,
    /// Bytes dropped because they were not read in time.
    pub unused_bytes: u64,
    /// Samples that were asked for after they had been fetched.
    pub used: u64,
}
