//! The caches in memory, within one budget: blocks of parts, checked samples, checksums and checkpoints of large
//! samples; and the reads in flight.

pub(super) mod block_checksums;
pub(super) mod blocks;
pub(super) mod budget;
pub(super) mod cache;
pub(super) mod cached;
pub(super) mod chunk;
pub(super) mod in_flight;
#[cfg(all(loom, test))]
mod loom;
mod sync;
pub(super) mod turns;
pub(super) mod verified;

use crate::format::{Content, Sample};
use crate::store::Profile;
use blocks::Blocks;
use budget::Budget;
use cache::SampleCache;
use std::sync::Arc;
use turns::Turns;

/// The caches of a mount and their limits.
pub(super) struct Memory {
    budget: Budget,
    fetching: Budget,
    blocks: Arc<Blocks>,
    cache: Arc<SampleCache>,
    turns: Arc<Turns>,
}

impl Memory {
    /// Makes caches of up to `cap_bytes`, and `fetching_bytes` beside them for bytes on their way to readers, for a dataset
    /// of `samples` samples with `data_bytes` bytes, of which `concurrency` are read and `threads` decoded at a time, in a
    /// store of this profile.
    pub(super) fn new(
        (cap_bytes, fetching_bytes): (u64, u64),
        (samples, data_bytes): (u64, u64),
        (concurrency, threads): (u64, u64),
        profile: &Profile,
    ) -> Self {
        let budget = Budget::new(cap_bytes);
        let blocks = Arc::new(Blocks::new(budget.clone(), samples, data_bytes, profile));
        let cache = SampleCache::new(budget.clone(), Arc::clone(&blocks), concurrency);
        // One turn more than CPUs: while one interval is fetched, the others are decoded.
        let turns = Arc::new(Turns::new(threads as usize + 1, budget.clone()));
        let fetching = Budget::new(fetching_bytes);
        Self { budget, fetching, blocks, cache: Arc::new(cache), turns }
    }

    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The budget of bytes that are being fetched for readers: beside the other budget, as no cache decides about them.
    pub(super) fn fetching(&self) -> &Budget {
        &self.fetching
    }

    pub(super) fn blocks(&self) -> &Arc<Blocks> {
        &self.blocks
    }

    /// Turns to decode intervals.
    pub(super) fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    pub(super) fn cache(&self) -> &Arc<SampleCache> {
        &self.cache
    }

    /// Whether a sample is held in memory as a whole, as it is stored and as it is shown.
    pub(super) fn fits_whole(&self, at: &Sample) -> bool {
        at.largest_bytes() <= self.cache.max_whole_bytes()
    }

    /// Whether a sample is taken out of a block: its decoded size counts, too.
    pub(super) fn is_small(&self, at: &Sample) -> bool {
        self.blocks.is_small(at.length_bytes)
            && (!matches!(at.content, Content::Encoded(_)) || self.fits_whole(at))
    }
}
