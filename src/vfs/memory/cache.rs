//! The sample cache: bytes that were read and checked and not asked for yet, within the budget.
//!
//! It has shards, each with its own lock: no lock is shared by all readers. The left-over bytes of a sample that
//! was read in part are evicted when other samples need the room; a prefetched sample stays until it is read, or
//! until [`SampleCache::drop_prefetched`]; likewise intervals that were decoded ahead (`ahead`). A sample that a
//! single request reads whole, and that was not prefetched, is never cached.

mod ahead;
mod key;
mod prefetched;

use super::blocks::Blocks;
use super::budget::{Budget, Reservation};
use super::chunk::Rights;
use super::in_flight::InFlightRead;
use super::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use super::sync::{Mutex, MutexGuard};
use super::verified::Verified;
use lru::LruCache;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, Weak};

pub(in crate::vfs) use super::cached::Cached;
pub(in crate::vfs) use key::CacheKey;

/// The largest sample that is kept whole; larger ones are remembered by their blocks' checksums.
const MAX_WHOLE_BYTES: u64 = 4 << 20;
/// The most bytes that whole samples may take while they are fetched, all together.
const FETCHING_BYTES: u64 = 64 << 20;
const SHARDS: u64 = 16;

/// The answer to [`SampleCache::get_or_lead`].
pub(in crate::vfs) enum CacheAnswer {
    /// The value is cached.
    Cached(Cached),
    /// The sample was prefetched; how it came, and whether all of it has now been read.
    Prefetched(Arc<Verified>, Arrival, bool),
    /// Another read fetches the bytes.
    InFlight(Arc<InFlightRead>),
    /// No read fetches the bytes: the caller leads.
    Lead(Leader),
}

/// How a prefetched sample came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::vfs) struct Arrival {
    /// The place in the order of arrival.
    pub(in crate::vfs) number: u64,
    pub(in crate::vfs) is_announced: bool,
    pub(in crate::vfs) is_looked_up: bool,
}

/// The leader of an in-flight read. Dropped, it ends the read and lets the followers go on, whatever became
/// of the task that held it.
pub(in crate::vfs) struct Leader {
    cache: Arc<SampleCache>,
    key: CacheKey,
    is_prefetch: bool,
}

impl Leader {
    /// Caches the fetched value, of which `read_bytes` are given out at once, and ends the read. The followers find the
    /// value, also if there is no room for it, or other values need the room before they go on.
    pub(in crate::vfs) fn end_with(self, found: Cached, read_bytes: u64) {
        self.cache.keep(self.key, &found, read_bytes);
        self.cache.shard(self.key).pass(self.key, found);
    }

    /// Ends the read and leaves the fetched value to the followers alone.
    pub(in crate::vfs) fn pass_on(self, found: Cached) {
        self.cache.shard(self.key).pass(self.key, found);
    }

    /// Caches a prefetched sample, and ends the read.
    pub(in crate::vfs) fn end_prefetch(self, verified: Arc<Verified>, arrival: Arrival) {
        let CacheKey::Sample(sample) = self.key else { return };
        self.cache.busy.fetch_add(1, Ordering::Relaxed);
        let mut shard = self.cache.shard(self.key);
        let prefetched = Prefetched { verified, read_bytes: 0, arrival, read_at: 0 };
        if shard.prefetched.insert(sample, prefetched).is_some() {
            self.cache.busy.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let read = self.cache.shard(self.key).in_flight.remove(&self.key);
        if self.is_prefetch {
            self.cache.busy.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(read) = read {
            read.end();
        }
    }
}

/// Samples in memory, and the reads that fetch samples.
pub(in crate::vfs) struct SampleCache {
    shards: Vec<Mutex<Shard>>,
    blocks: Arc<Blocks>,
    budget: Budget,
    evictable: Evictable,
    concurrency: u64,
    /// The number of samples that were or are being prefetched; if it is 0, a reader of a whole sample need not look.
    busy: AtomicUsize,
    /// How far readers have come in the announced samples.
    turnover: prefetched::Turnover,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
    ahead_used: AtomicU64,
    ahead_unused: AtomicU64,
}

struct Shard {
    cached: LruCache<CacheKey, Entry>,
    /// By sample number.
    prefetched: HashMap<u64, Prefetched>,
    /// Intervals that were decoded ahead, and not asked for yet.
    ahead: HashMap<CacheKey, DecodedAhead>,
    in_flight: HashMap<CacheKey, Arc<InFlightRead>>,
    /// Reads that have ended, while their followers go on.
    passing: HashMap<CacheKey, Weak<InFlightRead>>,
}

struct Entry {
    cached: Cached,
    /// The bytes of a whole sample that were read; once all were, no reader is expected to ask again.
    read_bytes: u64,
    _reservation: Reservation,
    _evictable: Evictable,
}

/// The bytes of all entries, which make room when other bytes need it. Each entry has a share, by which it is counted.
struct Evictable {
    all: Arc<std::sync::atomic::AtomicU64>,
    bytes: u64,
}

impl Evictable {
    /// The share of an entry of `bytes` bytes.
    fn share(&self, bytes: u64) -> Self {
        self.all.fetch_add(bytes, Ordering::Relaxed);
        Self { all: Arc::clone(&self.all), bytes }
    }
}

impl Drop for Evictable {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// An interval that was decoded ahead, and the right to hold it.
struct DecodedAhead {
    verified: Arc<Verified>,
    rights: Rights,
}

struct Prefetched {
    verified: Arc<Verified>,
    read_bytes: u64,
    arrival: Arrival,
    /// How many announced samples had been begun when a part of this one was read last. 0 if no part was read, or this sample
    /// was not announced.
    read_at: u64,
}

impl SampleCache {
    /// Makes a cache beside which `concurrency` samples are being fetched at most.
    /// When it needs room, `blocks` go before entries.
    pub(in crate::vfs) fn new(budget: Budget, blocks: Arc<Blocks>, concurrency: u64) -> Self {
        let shard = || Shard {
            cached: LruCache::unbounded(),
            prefetched: HashMap::new(),
            ahead: HashMap::new(),
            in_flight: HashMap::new(),
            passing: HashMap::new(),
        };
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect(),
            blocks,
            concurrency: concurrency.max(1),
            budget,
            evictable: Evictable { all: Arc::default(), bytes: 0 },
            busy: AtomicUsize::new(0),
            turnover: prefetched::Turnover::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            ahead_used: AtomicU64::new(0),
            ahead_unused: AtomicU64::new(0),
        }
    }

    /// The largest sample that is worth keeping whole, in bytes.
    pub(in crate::vfs) fn max_whole_bytes(&self) -> u64 {
        MAX_WHOLE_BYTES.min(self.budget.cap_bytes() / 4).min(FETCHING_BYTES / self.concurrency)
    }

    /// Whether no sample was or is being prefetched.
    pub(in crate::vfs) fn is_idle(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0
    }

    fn shard(&self, key: CacheKey) -> MutexGuard<'_, Shard> {
        self.shard_at(key.spread())
    }

    fn shard_at(&self, number: u64) -> MutexGuard<'_, Shard> {
        let shard = (number % SHARDS) as usize;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up a key of which `bytes` bytes will be read; makes the caller its leader if it is neither cached nor in flight.
    pub(in crate::vfs) fn get_or_lead(self: &Arc<Self>, key: CacheKey, bytes: u64) -> CacheAnswer {
        // One lock for both steps: without it, a read that ends between them would be done again.
        let mut shard = self.shard(key);
        if let Some(found) = self.get_in(&mut shard, key, bytes) {
            return found;
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        CacheAnswer::Lead(self.lead_in(&mut shard, key, false))
    }

    /// As [`SampleCache::get_or_lead`]; `None` if the key is neither cached nor in flight.
    pub(in crate::vfs) fn get(&self, key: CacheKey, bytes: u64) -> Option<CacheAnswer> {
        self.get_in(&mut self.shard(key), key, bytes)
    }

    fn get_in(&self, shard: &mut Shard, key: CacheKey, bytes: u64) -> Option<CacheAnswer> {
        if let CacheKey::Sample(sample) = key
            && let Some((verified, arrival, is_used_up)) =
                shard.read_prefetched(sample, bytes, &self.turnover)
        {
            if is_used_up {
                self.busy.fetch_sub(1, Ordering::Relaxed);
            }
            return Some(CacheAnswer::Prefetched(verified, arrival, is_used_up));
        }
        if let Some(cached) = shard.read_cached(key, bytes) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Some(CacheAnswer::Cached(cached));
        }
        if let Some(decoded) = self.take_ahead(shard, key, bytes) {
            self.ahead_used.fetch_add(1, Ordering::Relaxed);
            return Some(CacheAnswer::Cached(decoded));
        }
        if let Some(passed) = shard.passed(key) {
            return Some(CacheAnswer::Cached(passed));
        }
        shard.in_flight.get(&key).map(|read| CacheAnswer::InFlight(Arc::clone(read)))
    }

    /// Makes the caller the leader of a key, so that no prefetch fetches it meanwhile; or gives the read that is
    /// in flight.
    pub(in crate::vfs) fn lead(
        self: &Arc<Self>,
        key: CacheKey,
    ) -> Result<Leader, Arc<InFlightRead>> {
        let mut shard = self.shard(key);
        match shard.in_flight.get(&key) {
            Some(read) => Err(Arc::clone(read)),
            None => Ok(self.lead_in(&mut shard, key, false)),
        }
    }

    /// Makes the caller the leader of a prefetch, unless the sample is cached or in flight.
    pub(in crate::vfs) fn lead_prefetch(self: &Arc<Self>, sample: u64) -> Option<Leader> {
        let key = CacheKey::Sample(sample);
        // Looked up and led under one lock, as in `get_or_lead`.
        let mut shard = self.shard(key);
        if shard.has(key) {
            return None;
        }
        self.busy.fetch_add(1, Ordering::Relaxed);
        Some(self.lead_in(&mut shard, key, true))
    }

    /// Makes the caller the leader of a key that no read fetches; `shard` is the key's own.
    fn lead_in(self: &Arc<Self>, shard: &mut Shard, key: CacheKey, is_prefetch: bool) -> Leader {
        shard.in_flight.insert(key, Arc::new(InFlightRead::new()));
        Leader { cache: Arc::clone(self), key, is_prefetch }
    }

    /// Whether a sample was prefetched and not all of it has been read.
    pub(in crate::vfs) fn has_prefetched(&self, sample: u64) -> bool {
        self.shard_at(sample).prefetched.contains_key(&sample)
    }

    /// As [`SampleCache::has_prefetched`], for the sample that arrived with this number.
    pub(in crate::vfs) fn has_arrival(&self, sample: u64, number: u64) -> bool {
        let shard = self.shard_at(sample);
        shard.prefetched.get(&sample).is_some_and(|prefetched| prefetched.arrival.number == number)
    }

    /// Takes out a prefetched sample: the kernel has it now, or no program reads it. Gives the number of its bytes
    /// that were never read.
    pub(in crate::vfs) fn drop_prefetched(&self, sample: u64) -> Option<u64> {
        let prefetched = self.shard_at(sample).prefetched.remove(&sample)?;
        self.busy.fetch_sub(1, Ordering::Relaxed);
        Some((prefetched.verified.bytes().len() as u64).saturating_sub(prefetched.read_bytes))
    }

    /// Drops the value that is cached under a key, as its bytes may be wrong.
    pub(in crate::vfs) fn forget(&self, key: CacheKey) {
        let mut shard = self.shard(key);
        shard.cached.pop(&key);
        shard.passing.remove(&key);
        drop(shard);
        self.give_up(key);
    }

    /// Evicts until the budget is kept again, prefetched samples last of all.
    pub(in crate::vfs) fn shrink(&self) {
        while self.budget.is_overdrawn() && self.blocks.evict_any() {}
        for shard in &self.shards {
            while self.budget.is_overdrawn() {
                let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
                if shard.cached.pop_lru().is_none() {
                    break;
                }
                self.evictions.fetch_add(1, Ordering::Relaxed);
            }
        }
        while self.budget.is_overdrawn() && self.give_up_any() {}
        for sample in self.prefetched() {
            if self.budget.is_overdrawn() {
                self.drop_prefetched(sample);
            }
        }
    }

    /// Empties the cache; an answer that is being sent keeps its bytes.
    pub(in crate::vfs) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.cached.clear();
            shard.passing.clear();
        }
        while self.give_up_any() {}
        for sample in self.prefetched() {
            self.drop_prefetched(sample);
        }
    }

    /// The samples that were prefetched and not read.
    fn prefetched(&self) -> Vec<u64> {
        let of = |shard: &Mutex<Shard>| -> Vec<u64> {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.prefetched.keys().copied().collect()
        };
        self.shards.iter().flat_map(of).collect()
    }

    /// Keeps a value if there is room for it.
    fn keep(&self, key: CacheKey, found: &Cached, read_bytes: u64) {
        let room = self.reserve(key.spread(), found.bytes());
        if let Some(reservation) = room.or_else(|| self.reserve_of_ahead(found.bytes())) {
            let entry = self.entry(found.clone(), read_bytes, reservation);
            self.shard(key).cached.put(key, entry);
        }
    }

    fn entry(&self, cached: Cached, read_bytes: u64, reservation: Reservation) -> Entry {
        let evictable = self.evictable.share(cached.bytes());
        Entry { cached, read_bytes, _reservation: reservation, _evictable: evictable }
    }

    /// Makes room, first by dropping blocks, then entries of the key's own shard, then entries of the other shards.
    fn reserve(&self, own_shard: u64, bytes: u64) -> Option<Reservation> {
        if bytes > self.budget.cap_bytes() {
            return None;
        }
        for place in own_shard..own_shard + SHARDS {
            loop {
                if let Some(reservation) = self.budget.reserve(bytes) {
                    return Some(reservation);
                }
                if self.blocks.evict_any() {
                    continue;
                }
                if self.shard_at(place).cached.pop_lru().is_none() {
                    break;
                }
                self.evictions.fetch_add(1, Ordering::Relaxed);
            }
        }
        None
    }

    /// Hits, misses, entries, bytes, cap, evictions.
    pub(in crate::vfs) fn figures(&self) -> CacheFigures {
        let mut figures = CacheFigures {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            entries: 0,
            ahead_entries: 0,
            intervals_ahead: 0,
            intervals_used: self.ahead_used.load(Ordering::Relaxed),
            intervals_unused: self.ahead_unused.load(Ordering::Relaxed),
            bytes: self.budget.held_bytes(),
            capacity_bytes: self.budget.cap_bytes(),
        };
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            figures.entries += shard.cached.len() as u64;
            figures.ahead_entries += shard.prefetched.len() as u64;
            figures.intervals_ahead += shard.ahead.len() as u64;
        }
        figures
    }
}

/// The cache's counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct CacheFigures {
    /// Requests answered from the left-over bytes of a sample.
    pub hits: u64,
    /// Requests for a part of a sample that had to fetch.
    pub misses: u64,
    /// Samples held now because only a part of them was asked for.
    pub entries: u64,
    /// Samples held now because they were fetched ahead.
    pub ahead_entries: u64,
    /// Intervals held now because they were decoded ahead.
    pub intervals_ahead: u64,
    /// Intervals that were asked for after they had been decoded ahead.
    pub intervals_used: u64,
    /// Intervals that were decoded ahead and dropped unused.
    pub intervals_unused: u64,
    /// Bytes held now, including blocks and bytes that are being fetched ahead.
    pub bytes: u64,
    /// The most bytes that may be held.
    pub capacity_bytes: u64,
    /// Samples dropped before all of their bytes were asked for.
    pub evictions: u64,
}

impl Shard {
    /// Whether a key is cached, prefetched or in flight.
    fn has(&self, key: CacheKey) -> bool {
        let is_prefetched =
            matches!(key, CacheKey::Sample(sample) if self.prefetched.contains_key(&sample));
        is_prefetched
            || self.cached.contains(&key)
            || self.ahead.contains_key(&key)
            || self.in_flight.contains_key(&key)
            || self.passed(key).is_some()
    }

    /// Leaves the value that a read brought to its followers; the read ends after that.
    fn pass(&mut self, key: CacheKey, found: Cached) {
        let Some(read) = self.in_flight.get(&key).filter(|read| Arc::strong_count(read) > 1) else {
            return;
        };
        read.leave(found);
        self.passing.retain(|_, read| read.strong_count() > 0);
        self.passing.insert(key, Arc::downgrade(read));
    }

    /// The value that a read brought whose followers have not all gone on.
    fn passed(&self, key: CacheKey) -> Option<Cached> {
        self.passing.get(&key)?.upgrade()?.left()
    }

    /// A cached entry of which `bytes` are read now. A whole sample leaves with its last byte.
    fn read_cached(&mut self, key: CacheKey, bytes: u64) -> Option<Cached> {
        let entry = self.cached.get_mut(&key)?;
        let Cached::Whole(verified) = &entry.cached else { return Some(entry.cached.clone()) };
        entry.read_bytes += bytes;
        if entry.read_bytes < verified.bytes().len() as u64 {
            return Some(entry.cached.clone());
        }
        Some(self.cached.pop(&key)?.cached)
    }
}

#[cfg(test)]
mod tests;
