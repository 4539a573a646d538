//! The sample cache: what was read and checked and not asked for yet, up to a hard cap of bytes.
//!
//! In shards, each with its own lock: no lock is shared by all readers. Samples that a single request
//! asks for whole never come here.

use super::flight::Flight;
use super::verify::{Digests, Verified};
use lru::LruCache;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The largest sample that is kept whole; larger ones are remembered by their blocks' checksums.
const MAX_WHOLE_BYTES: u64 = 4 << 20;
/// What is being fetched must not take more than this in all.
const FETCHING_BYTES: u64 = 64 << 20;
/// A shard should hold several of the largest.
const SHARDS: u64 = 16;

/// What is known of a sample.
#[derive(Clone)]
pub(super) enum Known {
    /// All its bytes.
    Whole(Arc<Verified>),
    /// The checksums of its blocks.
    Digests(Arc<Digests>),
}

impl Known {
    fn bytes(&self) -> u64 {
        match self {
            Known::Whole(verified) => verified.capacity(),
            Known::Digests(digests) => digests.memory_bytes(),
        }
    }
}

/// The answer to [`SampleCache::enter`].
pub(super) enum Entered {
    /// It is known.
    Hit(Known),
    /// It is being fetched: wait.
    Join(Arc<Flight>),
    /// Nobody fetches it: the caller must.
    Lead(Lead),
}

/// The duty to fetch a sample that others may wait for. Dropped, it lets them go: nobody waits for ever,
/// whatever becomes of the task that holds it.
pub(super) struct Lead {
    cache: Arc<SampleCache>,
    sample: u64,
}

impl Lead {
    /// Keeps what was fetched, of which `asked` bytes are given out at once, and wakes who waits.
    pub(super) fn land(self, found: Known, asked: u64) {
        self.cache.keep(self.sample, found, asked);
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        let flight = self.cache.shard(self.sample).flights.remove(&self.sample);
        if let Some(flight) = flight {
            flight.land();
        }
    }
}

pub(super) struct SampleCache {
    shards: Vec<Mutex<Shard>>,
    shard_bytes: u64,
    max_whole_bytes: u64,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
}

struct Shard {
    known: LruCache<u64, Slot>,
    bytes: u64,
    flights: HashMap<u64, Arc<Flight>>,
}

struct Slot {
    known: Known,
    /// Bytes of a whole sample that were given out; when all were, nobody is expected to ask again.
    served: u64,
}

impl SampleCache {
    /// A cache of at most `cap_bytes` bytes, beside which `concurrency` samples are being fetched at most.
    pub(super) fn new(cap_bytes: u64, concurrency: u64) -> Self {
        let shards = (cap_bytes / (4 * MAX_WHOLE_BYTES)).clamp(1, SHARDS);
        let shard_bytes = cap_bytes / shards;
        let shard = || Shard { known: LruCache::unbounded(), bytes: 0, flights: HashMap::new() };
        Self {
            shards: (0..shards).map(|_| Mutex::new(shard())).collect(),
            shard_bytes,
            max_whole_bytes: MAX_WHOLE_BYTES
                .min(shard_bytes / 4)
                .min(FETCHING_BYTES / concurrency.max(1)),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// The largest sample that is worth keeping whole, in bytes.
    pub(super) fn max_whole_bytes(&self) -> u64 {
        self.max_whole_bytes
    }

    fn shard(&self, sample: u64) -> MutexGuard<'_, Shard> {
        let shard = (sample % self.shards.len() as u64) as usize;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a sample of which `asked` bytes will be given out.
    pub(super) fn enter(self: &Arc<Self>, sample: u64, asked: u64) -> Entered {
        let mut shard = self.shard(sample);
        if let Some(known) = shard.touch(sample, asked) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Entered::Hit(known);
        }
        if let Some(flight) = shard.flights.get(&sample) {
            return Entered::Join(Arc::clone(flight));
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        shard.flights.insert(sample, Arc::new(Flight::new()));
        Entered::Lead(Lead { cache: Arc::clone(self), sample })
    }

    fn keep(&self, sample: u64, found: Known, asked: u64) {
        let evicted = self.shard(sample).keep(sample, found, asked, self.shard_bytes);
        self.evictions.fetch_add(evicted, Ordering::Relaxed);
    }

    /// Hits, misses, entries, bytes, cap, evictions.
    pub(super) fn figures(&self) -> Figures {
        let mut figures = Figures {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            entries: 0,
            bytes: 0,
            capacity_bytes: self.shard_bytes * self.shards.len() as u64,
        };
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            figures.entries += shard.known.len() as u64;
            figures.bytes += shard.bytes;
        }
        figures
    }
}

/// The cache's counters.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(super) struct Figures {
    /// Requests answered from the cache.
    pub hits: u64,
    /// Requests that had to fetch.
    pub misses: u64,
    /// Samples held now.
    pub entries: u64,
    /// Bytes held now.
    pub bytes: u64,
    /// The cap.
    pub capacity_bytes: u64,
    /// Samples dropped before all of their bytes were asked for.
    pub evictions: u64,
}

impl Shard {
    fn touch(&mut self, sample: u64, asked: u64) -> Option<Known> {
        let slot = self.known.get_mut(&sample)?;
        let Known::Whole(verified) = &slot.known else { return Some(slot.known.clone()) };
        slot.served += asked;
        if slot.served < verified.bytes().len() as u64 {
            return Some(slot.known.clone());
        }
        let slot = self.known.pop(&sample)?;
        self.bytes -= slot.known.bytes();
        Some(slot.known)
    }

    /// Keeps `known` within `cap_bytes`; gives the number of others that had to go.
    fn keep(&mut self, sample: u64, known: Known, served: u64, cap_bytes: u64) -> u64 {
        let bytes = known.bytes();
        if bytes > cap_bytes {
            return 0;
        }
        let mut evicted = 0;
        while self.bytes + bytes > cap_bytes {
            let Some((_, slot)) = self.known.pop_lru() else { break };
            self.bytes -= slot.known.bytes();
            evicted += 1;
        }
        self.bytes += bytes;
        if let Some(old) = self.known.put(sample, Slot { known, served }) {
            self.bytes -= old.known.bytes();
        }
        evicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Buffer;

    fn whole(bytes: usize) -> Known {
        let buffer = Buffer::with_capacity(bytes);
        let crc = crc32fast::hash(&buffer.as_slice()[..bytes]);
        Known::Whole(Arc::new(Verified::check(buffer, bytes, crc).ok().unwrap()))
    }

    fn lead(cache: &Arc<SampleCache>, sample: u64) -> Lead {
        match cache.enter(sample, 1) {
            Entered::Lead(lead) => lead,
            _ => panic!("nobody else fetches sample {sample}"),
        }
    }

    #[test]
    fn a_sample_leaves_when_all_of_it_was_given_out() {
        let cache = Arc::new(SampleCache::new(64 << 20, 1));
        lead(&cache, 5).land(whole(300), 100);
        assert!(matches!(cache.enter(5, 100), Entered::Hit(_)));
        assert_eq!(cache.figures().entries, 1);
        assert!(matches!(cache.enter(5, 100), Entered::Hit(_)));
        assert_eq!((cache.figures().entries, cache.figures().bytes), (0, 0));
    }

    #[test]
    fn the_cap_is_hard_and_the_least_recently_used_goes_first() {
        let cache = Arc::new(SampleCache::new(64 << 10, 1));
        for sample in 0..100 {
            lead(&cache, sample).land(whole(8 << 10), 1);
            assert!(cache.figures().bytes <= 64 << 10);
        }
        assert!(matches!(cache.enter(99, 1), Entered::Hit(_)));
        lead(&cache, 0);
        assert_eq!(cache.figures().evictions, 92);
    }

    #[test]
    fn a_second_asker_joins_the_first_and_is_told_when_it_landed() {
        let cache = Arc::new(SampleCache::new(64 << 20, 1));
        let first = lead(&cache, 1);
        let Entered::Join(flight) = cache.enter(1, 1) else { panic!("joined") };
        let told = Arc::new(AtomicU64::new(0));
        let count = |told: &Arc<AtomicU64>| {
            let told = Arc::clone(told);
            move || {
                told.fetch_add(1, Ordering::Relaxed);
            }
        };
        flight.when_landed(count(&told));
        assert_eq!(told.load(Ordering::Relaxed), 0);
        drop(first);
        assert_eq!(told.load(Ordering::Relaxed), 1);
        flight.when_landed(count(&told));
        assert_eq!(told.load(Ordering::Relaxed), 2);
        lead(&cache, 1);
    }

    #[test]
    fn a_cache_without_room_keeps_nothing() {
        let cache = Arc::new(SampleCache::new(0, 1));
        assert_eq!(cache.max_whole_bytes(), 0);
        lead(&cache, 1).land(whole(4096), 1);
        assert_eq!(cache.figures().entries, 0);
    }
}
