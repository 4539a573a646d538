//! Large aligned blocks around small samples: a device gives 256 KiB almost as fast as 4, so the bytes
//! around a sample are fetched with it.
//!
//! A block is dropped once all of it was given out. If memory is short, blocks that are almost used up go first, then those
//! that no reader has used for longer than chance explains; while there are neither, samples are fetched one by one: a
//! random pass over more data than fits must not throw out blocks that it will still need.

use super::budget::{Budget, Reservation};
use super::chunk::Chunk;
use super::in_flight::InFlightRead;
use super::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use super::sync::{Mutex, MutexGuard};
use crate::io::Buffer;
use crate::store::Profile;
use lru::LruCache;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

/// A block should hold this many samples.
const SAMPLES_A_BLOCK: u64 = 32;
/// The cache should hold this many blocks.
const MIN_BLOCKS: u64 = 16;
/// If the cache holds less than all data divided by this, hardly a second sample of a block is asked for.
const WORTHWHILE: u64 = 64;
/// A block is given up after this many times the reads within which chance would use it once.
const IDLE_FACTOR: u64 = 16;
const SHARDS: u64 = 16;

/// The ID of a block: the part, and the block's number in it.
pub(in crate::vfs) type BlockId = (usize, u64);

/// The answer to [`Blocks::get_or_lead`].
pub(in crate::vfs) enum BlockAnswer {
    /// The block is held; whether it is asked for the first time.
    Held(Arc<Chunk>, bool),
    /// Another read fetches the block.
    InFlight(Arc<InFlightRead>),
    /// The caller must fetch the block.
    Lead(BlockLeader),
    /// There is no room for the block.
    Refused,
}

/// The leader of an in-flight read of a block. Dropped, it ends the read, whether the block came or not.
pub(in crate::vfs) struct BlockLeader {
    blocks: Arc<Blocks>,
    id: BlockId,
    reservation: Option<Reservation>,
}

impl BlockLeader {
    pub(in crate::vfs) fn id(&self) -> BlockId {
        self.id
    }

    /// Keeps the block and wakes the followers.
    pub(in crate::vfs) fn end_with(
        mut self,
        buffer: Buffer,
        range: Range<usize>,
    ) -> Option<Arc<Chunk>> {
        let chunk = Arc::new(Chunk::new(buffer, range, (self.reservation.take()?, None)));
        self.blocks.keep(self.id, Arc::clone(&chunk));
        Some(chunk)
    }
}

impl Drop for BlockLeader {
    fn drop(&mut self) {
        let read = self.blocks.shard(self.id).in_flight.remove(&self.id);
        self.blocks.busy.fetch_sub(1, Ordering::Relaxed);
        if let Some(read) = read {
            read.end();
        }
    }
}

pub(in crate::vfs) struct Blocks {
    shards: Vec<Mutex<Shard>>,
    budget: Budget,
    /// The size of a block. It is fixed, as it numbers the blocks.
    block_bytes: u64,
    /// The size of the largest small sample: larger samples are fetched alone.
    max_small_bytes: u64,
    data_bytes: u64,
    /// The number of samples: within so many reads each is read once, were they all read once.
    samples: u64,
    mean_bytes: u64,
    /// The number of blocks held or in flight; at 0, readers take no lock to look for a block.
    busy: AtomicUsize,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    fetched: AtomicU64,
    hits: AtomicU64,
    refused: AtomicU64,
    evicted: AtomicU64,
}

/// The counters of blocks, as `stats.json` shows them.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct BlockFigures {
    /// Size of a block; 0 if blocks are not worth their memory.
    pub block_bytes: u64,
    /// Blocks held now.
    pub entries: u64,
    /// Blocks that were fetched.
    pub fetched: u64,
    /// Samples that lay in a block that was held.
    pub hits: u64,
    /// Samples that were fetched alone because there was no room for a block.
    pub refused: u64,
    /// Blocks dropped before they were used up.
    pub evicted: u64,
}

struct Shard {
    held: LruCache<BlockId, Entry>,
    in_flight: HashMap<BlockId, Arc<InFlightRead>>,
    /// The number of reads that looked for a block here.
    ticks: u64,
}

struct Entry {
    chunk: Arc<Chunk>,
    /// The bytes that were given out.
    used: u64,
    last_tick: u64,
}

impl Entry {
    fn bytes(&self) -> u64 {
        self.chunk.length() as u64
    }

    fn is_almost_used_up(&self) -> bool {
        self.used * 8 >= self.bytes() * 7
    }
}

impl Blocks {
    /// Makes blocks for `samples` samples of `data_bytes` bytes together, in a store of this profile.
    pub(in crate::vfs) fn new(
        budget: Budget,
        samples: u64,
        data_bytes: u64,
        profile: &Profile,
    ) -> Self {
        let Profile { min_block_bytes, max_block_bytes, max_small_bytes, .. } = *profile;
        let mean_bytes = data_bytes / samples.max(1);
        let most = floor_power_of_two(budget.cap_bytes() / MIN_BLOCKS);
        let most = most.clamp(min_block_bytes, max_block_bytes);
        let wanted = mean_bytes.saturating_mul(SAMPLES_A_BLOCK).min(max_block_bytes);
        let block_bytes = wanted.next_power_of_two().max(min_block_bytes).min(most);
        let shard = || Shard { held: LruCache::unbounded(), in_flight: HashMap::new(), ticks: 0 };
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect(),
            budget,
            block_bytes,
            max_small_bytes,
            data_bytes,
            samples,
            mean_bytes: mean_bytes.max(1),
            busy: AtomicUsize::new(0),
            counts: Counts::default(),
        }
    }

    /// Whether no block is held or in flight.
    pub(in crate::vfs) fn is_idle(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0
    }

    /// Whether blocks are worth their memory with this dataset.
    pub(in crate::vfs) fn is_worthwhile(&self) -> bool {
        let cap_bytes = self.budget.cap_bytes();
        self.mean_bytes <= self.max_small_bytes
            && self.block_bytes <= cap_bytes / MIN_BLOCKS
            && cap_bytes >= self.data_bytes / WORTHWHILE
    }

    /// Whether a sample is small beside a block.
    pub(in crate::vfs) fn is_small(&self, length_bytes: u64) -> bool {
        length_bytes <= self.max_small_bytes.min(self.block_bytes / 4)
    }

    /// The block that a range of a part lies in; `None` if it lies in two.
    pub(in crate::vfs) fn around(&self, part: usize, range: &Range<u64>) -> Option<BlockId> {
        let number = range.start / self.block_bytes;
        (range.end <= (number + 1) * self.block_bytes).then_some((part, number))
    }

    /// The range of a block in a part of `container_bytes` bytes.
    pub(in crate::vfs) fn range(&self, (_, number): BlockId, container_bytes: u64) -> Range<u64> {
        let start = number * self.block_bytes;
        start..(start + self.block_bytes).min(container_bytes).max(start)
    }

    /// How many blocks a part of `container_bytes` bytes has.
    pub(in crate::vfs) fn count(&self, container_bytes: u64) -> u64 {
        container_bytes.div_ceil(self.block_bytes)
    }

    /// About how many blocks all samples take.
    pub(in crate::vfs) fn total(&self) -> u64 {
        self.count(self.data_bytes)
    }

    /// The two blocks of a range, if both are held.
    pub(in crate::vfs) fn both(&self, part: usize, range: &Range<u64>) -> Option<[Arc<Chunk>; 2]> {
        let number = range.start / self.block_bytes;
        let middle = (number + 1) * self.block_bytes;
        let find = |number, bytes| {
            let id = (part, number);
            Some(self.find(&mut self.shard(id), id, bytes)?.0)
        };
        Some([find(number, middle - range.start)?, find(number + 1, range.end - middle)?])
    }

    /// Whether a block is held or in flight.
    pub(in crate::vfs) fn has(&self, id: BlockId) -> bool {
        let shard = self.shard(id);
        shard.held.contains(&id) || shard.in_flight.contains_key(&id)
    }

    fn shard(&self, (part, number): BlockId) -> MutexGuard<'_, Shard> {
        let shard = (number.wrapping_add(part as u64) % SHARDS) as usize;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A held block, of which `bytes` bytes will be given out; `shard` is the block's own.
    fn find(&self, shard: &mut Shard, id: BlockId, bytes: u64) -> Option<(Arc<Chunk>, bool)> {
        shard.ticks += 1;
        let (chunk, is_first, is_used_up) = shard.touch(id, bytes)?;
        if is_used_up {
            self.busy.fetch_sub(1, Ordering::Relaxed);
        }
        self.counts.hits.fetch_add(1, Ordering::Relaxed);
        Some((chunk, is_first))
    }

    /// The block if it is held or in flight; never makes the caller its leader.
    pub(in crate::vfs) fn get(&self, id: BlockId, bytes: u64) -> Option<BlockAnswer> {
        // One lock for both steps: without it, a block that arrives between them would seem to be neither.
        let mut shard = self.shard(id);
        if let Some((chunk, is_first)) = self.find(&mut shard, id, bytes) {
            return Some(BlockAnswer::Held(chunk, is_first));
        }
        shard.in_flight.get(&id).map(|read| BlockAnswer::InFlight(Arc::clone(read)))
    }

    /// Asks for a block of which `bytes` bytes will be given out.
    pub(in crate::vfs) fn get_or_lead(self: &Arc<Self>, id: BlockId, bytes: u64) -> BlockAnswer {
        if let Some(found) = self.get(id, bytes) {
            return found;
        }
        match self.lead(id) {
            Some(lead) => BlockAnswer::Lead(lead),
            None => {
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
                BlockAnswer::Refused
            }
        }
    }

    /// Makes the caller the leader of a block's read, unless the block is held or in flight, or there is no room.
    pub(in crate::vfs) fn lead(self: &Arc<Self>, id: BlockId) -> Option<BlockLeader> {
        let mut shard = self.shard(id);
        if shard.held.contains(&id) || shard.in_flight.contains_key(&id) {
            return None;
        }
        let reservation = loop {
            if let Some(reservation) = self.reserve() {
                break reservation;
            }
            if !self.evict(&mut shard) {
                return None;
            }
        };
        shard.in_flight.insert(id, Arc::new(InFlightRead::new()));
        self.busy.fetch_add(1, Ordering::Relaxed);
        Some(BlockLeader { blocks: Arc::clone(self), id, reservation: Some(reservation) })
    }

    /// Takes room for a block; blocks leave some room for samples that are fetched alone.
    fn reserve(&self) -> Option<Reservation> {
        let most = self.budget.cap_bytes() - self.budget.cap_bytes() / 16;
        let fits = self.budget.held_bytes() + self.block_bytes <= most;
        fits.then(|| self.budget.reserve(self.block_bytes)).flatten()
    }

    /// Drops a block that will hardly be used; false if there is none.
    fn evict(&self, shard: &mut Shard) -> bool {
        let Some((_, entry)) = shard.held.peek_lru() else { return false };
        if !entry.is_almost_used_up() {
            let left = (entry.bytes() - entry.used.min(entry.bytes())).max(1);
            let samples_left = (left / self.mean_bytes).max(1);
            let chance = self.samples / SHARDS / samples_left;
            if shard.ticks - entry.last_tick < IDLE_FACTOR * chance.max(1) {
                return false;
            }
        }
        shard.held.pop_lru();
        self.busy.fetch_sub(1, Ordering::Relaxed);
        self.counts.evicted.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Drops a block for bytes that were asked for: the block of a shard that was not used for longest.
    pub(in crate::vfs) fn evict_any(&self) -> bool {
        if self.is_idle() {
            return false;
        }
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            if shard.held.pop_lru().is_some() {
                self.busy.fetch_sub(1, Ordering::Relaxed);
                self.counts.evicted.fetch_add(1, Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    /// The bytes of all blocks that are held.
    pub(in crate::vfs) fn held_bytes(&self) -> u64 {
        let held = |shard: &Mutex<Shard>| {
            shard.lock().unwrap_or_else(PoisonError::into_inner).held.len() as u64
        };
        match self.is_idle() {
            true => 0,
            false => self.shards.iter().map(held).sum::<u64>() * self.block_bytes,
        }
    }

    fn keep(&self, id: BlockId, chunk: Arc<Chunk>) {
        self.counts.fetched.fetch_add(1, Ordering::Relaxed);
        self.busy.fetch_add(1, Ordering::Relaxed);
        let mut shard = self.shard(id);
        let last_tick = shard.ticks;
        shard.held.put(id, Entry { chunk, used: 0, last_tick });
    }

    /// Forgets a block, as its bytes are wrong.
    pub(in crate::vfs) fn remove(&self, id: BlockId) {
        if self.shard(id).held.pop(&id).is_some() {
            self.busy.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(in crate::vfs) fn figures(&self) -> BlockFigures {
        let entries = |shard: &Mutex<Shard>| {
            shard.lock().unwrap_or_else(PoisonError::into_inner).held.len() as u64
        };
        BlockFigures {
            block_bytes: if self.is_worthwhile() { self.block_bytes } else { 0 },
            entries: self.shards.iter().map(entries).sum(),
            fetched: self.counts.fetched.load(Ordering::Relaxed),
            hits: self.counts.hits.load(Ordering::Relaxed),
            refused: self.counts.refused.load(Ordering::Relaxed),
            evicted: self.counts.evicted.load(Ordering::Relaxed),
        }
    }
}

impl Shard {
    /// The block; whether it was used for the first time; whether it was dropped because all of it was used.
    fn touch(&mut self, id: BlockId, bytes: u64) -> Option<(Arc<Chunk>, bool, bool)> {
        let entry = self.held.get_mut(&id)?;
        let is_first = entry.used == 0;
        entry.used += bytes;
        entry.last_tick = self.ticks;
        let chunk = Arc::clone(&entry.chunk);
        let is_used_up = entry.used >= entry.bytes();
        if is_used_up {
            self.held.pop(&id);
        } else if entry.is_almost_used_up() {
            self.held.demote(&id);
        }
        Some((chunk, is_first, is_used_up))
    }
}

fn floor_power_of_two(number: u64) -> u64 {
    number.checked_ilog2().map_or(0, |log| 1 << log)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    /// 10,000 samples of 3 KiB.
    fn blocks(cap_bytes: u64) -> Arc<Blocks> {
        Arc::new(Blocks::new(Budget::new(cap_bytes), 10_000, 10_000 * 3 * KIB, &Profile::DISK))
    }

    fn fetch(blocks: &Arc<Blocks>, number: u64) -> bool {
        let Some(lead) = blocks.lead((0, number)) else { return false };
        lead.end_with(Buffer::with_capacity(256 << 10).unwrap(), 0..256 << 10).is_some()
    }

    #[test]
    fn a_block_holds_many_samples_and_the_cache_many_blocks() {
        let of =
            |cap: u64, mean: u64| Blocks::new(Budget::new(cap), 1000, 1000 * mean, &Profile::DISK);
        assert_eq!(of(512 << 20, 3 * KIB).block_bytes, 256 * KIB);
        assert_eq!(of(512 << 20, 20 * KIB).block_bytes, 1024 * KIB);
        assert!(of(512 << 20, 20 * KIB).is_worthwhile());
        assert!(!of(512 << 20, 4096 * KIB).is_worthwhile(), "they are no small samples");
        assert!(!of(1 << 20, 3 * KIB).is_worthwhile(), "there is no room for blocks");
        assert!(!of(512 << 20, 100 * KIB).is_worthwhile());
        assert!(Arc::new(of(0, 0)).lead((0, 0)).is_none());
    }

    #[test]
    fn memory_that_comes_later_makes_blocks_worthwhile_and_memory_that_goes_ends_that() {
        let blocks = blocks(0);
        assert!(!blocks.is_worthwhile());
        blocks.budget.set_cap_bytes(8 << 20);
        assert!(blocks.is_worthwhile() && fetch(&blocks, 0));
        blocks.budget.set_cap_bytes(1 << 20);
        assert!(!blocks.is_worthwhile());
    }

    #[test]
    fn a_used_up_block_leaves_and_frees_its_memory() {
        let blocks = blocks(8 << 20);
        assert!(blocks.is_idle() && fetch(&blocks, 3) && !blocks.is_idle());
        for _ in 0..255 {
            assert!(matches!(blocks.get_or_lead((0, 3), KIB), BlockAnswer::Held(..)));
        }
        assert_eq!(blocks.budget.held_bytes(), 256 * KIB);
        assert!(matches!(blocks.get_or_lead((0, 3), KIB), BlockAnswer::Held(..)));
        assert_eq!(blocks.budget.held_bytes(), 0);
        assert!(blocks.is_idle());
    }

    #[test]
    fn a_pass_over_more_than_fits_throws_nothing_out_that_it_still_needs() {
        let blocks = blocks(8 << 20);
        let fetched = (0..100).filter(|&number| fetch(&blocks, number)).count();
        assert_eq!(fetched, 30, "what fits, and leaves some room");
        assert!(blocks.has((0, 0)) && !blocks.has((0, 99)));
        assert!(matches!(blocks.get_or_lead((0, 99), KIB), BlockAnswer::Refused));
    }

    #[test]
    fn what_is_almost_used_up_or_was_not_used_for_long_makes_room() {
        let blocks = blocks(8 << 20);
        (0..30).for_each(|number| assert!(fetch(&blocks, number)));
        assert!(!fetch(&blocks, 32));
        assert!(matches!(blocks.get_or_lead((0, 16), 230 * KIB), BlockAnswer::Held(..)));
        assert!(fetch(&blocks, 32), "16 went, of the same shard");
        assert!(!blocks.has((0, 16)));
        // 10,000 reads, 16 shards, 85 samples a block: within some 7 reads one would be of this block.
        for _ in 0..200 {
            assert!(matches!(blocks.get_or_lead((0, 5), 0), BlockAnswer::Held(..)));
        }
        assert!(fetch(&blocks, 37), "21 went");
        assert!(blocks.has((0, 5)) && !blocks.has((0, 21)));
    }

    #[test]
    fn a_range_lies_in_a_block_or_in_two() {
        let blocks = blocks(8 << 20);
        assert_eq!(blocks.around(1, &(256 * KIB..512 * KIB)), Some((1, 1)));
        assert_eq!(blocks.around(1, &(256 * KIB..512 * KIB + 1)), None);
        assert_eq!(blocks.range((1, 1), 300 * KIB), 256 * KIB..300 * KIB);
        let two = 256 * KIB - 1..256 * KIB + 1;
        assert!(
            blocks.both(0, &two).is_none() && fetch(&blocks, 0) && blocks.both(0, &two).is_none()
        );
        assert!(fetch(&blocks, 1) && blocks.both(0, &two).is_some());
    }

    #[test]
    fn who_waits_for_a_block_is_woken_also_if_it_does_not_come() {
        let blocks = blocks(8 << 20);
        let lead = blocks.lead((0, 1)).unwrap();
        let BlockAnswer::InFlight(read) = blocks.get_or_lead((0, 1), 1) else {
            panic!("it is on its way")
        };
        let woken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&woken);
        read.when_ended(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        drop(lead);
        assert_eq!(woken.load(Ordering::Relaxed), 1);
        assert_eq!(blocks.budget.held_bytes(), 0);
        assert!(blocks.is_idle());
    }
}
