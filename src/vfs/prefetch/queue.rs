//! What waits to be prefetched, and the counters.

use super::orders::Orders;
use super::patterns::Patterns;
use crate::catalog::Located;
use crate::vfs::memory::blocks::BlockId;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// So many samples that arrived are listed before those that were asked for are taken off the list.
const ARRIVED: usize = 4096;

#[derive(Default)]
pub(super) struct Queue {
    /// Foreseen by a pattern.
    pub(super) foreseen: VecDeque<u64>,
    pub(super) foreseen_blocks: VecDeque<BlockId>,
    pub(super) announced: Orders,
    /// How many samples were ever announced.
    pub(super) numbered: u64,
    /// The number that stores were told last.
    pub(super) reached: u64,
    /// Reads of the batch that is being fetched.
    pub(super) batch: VecDeque<MergedRead>,
    /// What a warm-up wants in a cache of the node.
    pub(super) fills: VecDeque<Fill>,
    /// Whether that cache took no more.
    pub(super) cache_is_full: bool,
    pub(super) batch_bytes: u64,
    /// The most samples that a batch had.
    pub(super) batch_samples: u64,
    /// Bytes put into the page cache for what is announced.
    pub(super) stored_bytes: u64,
    pub(super) samples: Patterns,
    pub(super) blocks: Patterns,
    /// What was announced, or looked up, and arrived.
    pub(super) arrived: Arrived,
    /// What a pattern foresaw, and arrived.
    pub(super) arrived_foreseen: Arrived,
    pub(super) arrivals: u64,
}

/// The samples that arrived and may still be in the cache: the place of each in the order of arrival, and its number.
#[derive(Default)]
pub(super) struct Arrived {
    samples: VecDeque<(u64, u64)>,
    /// How long the list may get before it is gone through.
    limit: usize,
}

impl Arrived {
    /// Lists further samples. What `is_there` no more is taken off now and then, or the list would grow while there is room
    /// for all.
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

impl Queue {
    /// The number, in the order of announcement, of the first sample that waits.
    pub(super) fn first_number(&self) -> u64 {
        self.numbered - self.announced.len() as u64
    }
}

/// One read of samples that lie close together.
pub(super) struct MergedRead {
    pub(super) part: usize,
    pub(super) range: Range<u64>,
    pub(super) samples: Vec<(u64, Located)>,
    pub(super) is_announced: bool,
}

/// A range of a part, with so many samples in it, for a cache of the node.
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
    /// Announced samples finished: fetched, there already, or failed.
    pub done: u64,
    /// Those of them that could not be had.
    pub failed: u64,
    /// Samples and blocks that a pattern foresaw.
    pub foreseen: u64,
    /// Samples and blocks whose fetch began when a sample was looked up.
    pub looked_up: u64,
    /// Reads.
    pub reads: u64,
    /// Samples that came with another's read.
    pub merged: u64,
    /// Bytes read.
    pub fetched_bytes: u64,
    /// Bytes of them put into the kernel's page cache.
    pub stored_bytes: u64,
    /// Bytes dropped because they were not read in time.
    pub unused_bytes: u64,
    /// Samples that were asked for after they had been fetched.
    pub used: u64,
}
