//! The sample cache: what was read and checked and not asked for yet, within the budget.
//!
//! In shards, each with its own lock: no lock is shared by all readers. What is left over of a sample that
//! was asked for in part goes when others need the room; what was fetched ahead stays until it is asked
//! for, or [`SampleCache::drop_ahead`] gives it up. Samples that a single request asks for whole, and that
//! nobody fetched ahead, never come here.

use super::block::Blocks;
use super::budget::{Budget, Reservation};
use super::in_flight::InFlightRead;
use super::stream::Stream;
use super::verify::{Digests, Verified};
use lru::LruCache;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The largest sample that is kept whole; larger ones are remembered by their blocks' checksums.
const MAX_WHOLE_BYTES: u64 = 4 << 20;
/// What is being fetched must not take more than this in all.
const FETCHING_BYTES: u64 = 64 << 20;
const SHARDS: u64 = 16;

/// What is known of a sample.
#[derive(Clone)]
pub(super) enum Known {
    /// All its bytes.
    Whole(Arc<Verified>),
    /// The checksums of its blocks.
    Digests(Arc<Digests>),
    /// Where it can be decoded from.
    Stream(Arc<Stream>),
}

impl Known {
    fn bytes(&self) -> u64 {
        match self {
            Known::Whole(verified) => verified.capacity(),
            Known::Digests(digests) => digests.memory_bytes(),
            Known::Stream(stream) => stream.memory_bytes(),
        }
    }
}

/// The answer to [`SampleCache::enter`].
pub(super) enum Entered {
    /// It is known.
    Hit(Known),
    /// It was fetched ahead; its place in the order of arrival, if all of it was given out now.
    Ahead(Arc<Verified>, Option<u64>),
    /// It is being fetched: wait.
    Join(Arc<InFlightRead>),
    /// Nobody fetches it: the caller must.
    Lead(Lead),
}

/// The duty to fetch a sample that others may wait for. Dropped, it lets them go: nobody waits for ever,
/// whatever becomes of the task that holds it.
pub(super) struct Lead {
    cache: Arc<SampleCache>,
    sample: u64,
    is_ahead: bool,
}

impl Lead {
    /// Keeps what was fetched, of which `asked` bytes are given out at once, and wakes who waits.
    pub(super) fn land(self, found: Known, asked: u64) {
        self.cache.keep(self.sample, found, asked);
    }

    /// Keeps what was fetched ahead, as number `order` that arrived, and wakes who waits.
    pub(super) fn land_ahead(self, verified: Arc<Verified>, order: u64) {
        self.cache.busy.fetch_add(1, Ordering::Relaxed);
        let mut shard = self.cache.shard(self.sample);
        if shard.ahead.insert(self.sample, Ahead { verified, served: 0, order }).is_some() {
            self.cache.busy.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        let flight = self.cache.shard(self.sample).flights.remove(&self.sample);
        if self.is_ahead {
            self.cache.busy.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(flight) = flight {
            flight.end();
        }
    }
}

pub(super) struct SampleCache {
    shards: Vec<Mutex<Shard>>,
    blocks: Arc<Blocks>,
    budget: Budget,
    concurrency: u64,
    /// Samples that were or are being fetched ahead: as long as there is none, nobody looks.
    busy: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
}

struct Shard {
    known: LruCache<u64, Slot>,
    ahead: HashMap<u64, Ahead>,
    flights: HashMap<u64, Arc<InFlightRead>>,
}

struct Slot {
    known: Known,
    /// Bytes of a whole sample that were given out; when all were, nobody is expected to ask again.
    served: u64,
    _reservation: Reservation,
}

struct Ahead {
    verified: Arc<Verified>,
    served: u64,
    order: u64,
}

impl SampleCache {
    /// A cache beside which `concurrency` samples are being fetched at most.
    /// Where it needs room, `blocks` go before what was asked for.
    pub(super) fn new(budget: Budget, blocks: Arc<Blocks>, concurrency: u64) -> Self {
        let shard = || Shard {
            known: LruCache::unbounded(),
            ahead: HashMap::new(),
            flights: HashMap::new(),
        };
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect(),
            blocks,
            concurrency: concurrency.max(1),
            budget,
            busy: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// The largest sample that is worth keeping whole, in bytes.
    pub(super) fn max_whole_bytes(&self) -> u64 {
        MAX_WHOLE_BYTES.min(self.budget.cap_bytes() / 4).min(FETCHING_BYTES / self.concurrency)
    }

    /// Whether nothing was or is being fetched ahead.
    pub(super) fn is_idle(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0
    }

    fn shard(&self, sample: u64) -> MutexGuard<'_, Shard> {
        let shard = (sample % SHARDS) as usize;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a sample of which `asked` bytes will be given out.
    pub(super) fn enter(self: &Arc<Self>, sample: u64, asked: u64) -> Entered {
        if let Some(found) = self.look(sample, asked) {
            return found;
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        match self.lead(sample, false) {
            Ok(lead) => Entered::Lead(lead),
            Err(flight) => Entered::Join(flight),
        }
    }

    /// What is there, or is being fetched; never makes the caller fetch.
    pub(super) fn look(&self, sample: u64, asked: u64) -> Option<Entered> {
        let mut shard = self.shard(sample);
        if let Some((verified, used_up)) = shard.touch_ahead(sample, asked) {
            if used_up.is_some() {
                self.busy.fetch_sub(1, Ordering::Relaxed);
            }
            return Some(Entered::Ahead(verified, used_up));
        }
        if let Some(known) = shard.touch(sample, asked) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Some(Entered::Hit(known));
        }
        shard.flights.get(&sample).map(|flight| Entered::Join(Arc::clone(flight)))
    }

    /// The duty to fetch a sample for one reader, so that nobody fetches it ahead meanwhile; or the fetch
    /// that is under way.
    pub(super) fn claim(self: &Arc<Self>, sample: u64) -> Result<Lead, Arc<InFlightRead>> {
        self.lead(sample, false)
    }

    fn lead(self: &Arc<Self>, sample: u64, is_ahead: bool) -> Result<Lead, Arc<InFlightRead>> {
        let mut shard = self.shard(sample);
        if let Some(flight) = shard.flights.get(&sample) {
            return Err(Arc::clone(flight));
        }
        shard.flights.insert(sample, Arc::new(InFlightRead::new()));
        Ok(Lead { cache: Arc::clone(self), sample, is_ahead })
    }

    /// The duty to fetch a sample ahead, unless it is there or on its way.
    pub(super) fn lead_ahead(self: &Arc<Self>, sample: u64) -> Option<Lead> {
        {
            let shard = self.shard(sample);
            if shard.known.contains(&sample) || shard.ahead.contains_key(&sample) {
                return None;
            }
        }
        let lead = self.lead(sample, true).ok()?;
        self.busy.fetch_add(1, Ordering::Relaxed);
        Some(lead)
    }

    /// Whether what was fetched ahead still waits to be asked for.
    pub(super) fn has_ahead(&self, sample: u64) -> bool {
        self.shard(sample).ahead.contains_key(&sample)
    }

    /// Whether what arrived as number `order` still waits to be asked for.
    pub(super) fn has_arrival(&self, sample: u64, order: u64) -> bool {
        self.shard(sample).ahead.get(&sample).is_some_and(|ahead| ahead.order == order)
    }

    /// Takes out what was fetched ahead: it is elsewhere now, or nobody wants it. Gives how much of it
    /// nobody had asked for, in bytes.
    pub(super) fn drop_ahead(&self, sample: u64) -> Option<u64> {
        let ahead = self.shard(sample).ahead.remove(&sample)?;
        self.busy.fetch_sub(1, Ordering::Relaxed);
        Some((ahead.verified.bytes().len() as u64).saturating_sub(ahead.served))
    }

    /// Lets go of what is held until the budget is kept again, what was fetched ahead last of all.
    pub(super) fn shrink(&self) {
        while self.budget.is_overdrawn() && self.blocks.evict_any() {}
        for shard in &self.shards {
            while self.budget.is_overdrawn() {
                let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
                if shard.known.pop_lru().is_none() {
                    break;
                }
                self.evictions.fetch_add(1, Ordering::Relaxed);
            }
        }
        for sample in self.ahead() {
            if self.budget.is_overdrawn() {
                self.drop_ahead(sample);
            }
        }
    }

    /// Forgets all samples; who holds one keeps it.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            shard.lock().unwrap_or_else(PoisonError::into_inner).known.clear();
        }
        for sample in self.ahead() {
            self.drop_ahead(sample);
        }
    }

    /// The samples that were fetched ahead and not asked for.
    fn ahead(&self) -> Vec<u64> {
        let of = |shard: &Mutex<Shard>| -> Vec<u64> {
            shard.lock().unwrap_or_else(PoisonError::into_inner).ahead.keys().copied().collect()
        };
        self.shards.iter().flat_map(of).collect()
    }

    fn keep(&self, sample: u64, known: Known, served: u64) {
        let Some(reservation) = self.reserve(sample, known.bytes()) else { return };
        let slot = Slot { known, served, _reservation: reservation };
        self.shard(sample).known.put(sample, slot);
    }

    /// Makes room, first where blocks are, then in the sample's own shard, then in others.
    fn reserve(&self, sample: u64, bytes: u64) -> Option<Reservation> {
        if bytes > self.budget.cap_bytes() {
            return None;
        }
        for place in sample..sample + SHARDS {
            loop {
                if let Some(reservation) = self.budget.reserve(bytes) {
                    return Some(reservation);
                }
                if self.blocks.evict_any() {
                    continue;
                }
                if self.shard(place).known.pop_lru().is_none() {
                    break;
                }
                self.evictions.fetch_add(1, Ordering::Relaxed);
            }
        }
        None
    }

    /// Hits, misses, entries, bytes, cap, evictions.
    pub(super) fn figures(&self) -> CacheFigures {
        let mut figures = CacheFigures {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            entries: 0,
            ahead_entries: 0,
            bytes: self.budget.held_bytes(),
            capacity_bytes: self.budget.cap_bytes(),
        };
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            figures.entries += shard.known.len() as u64;
            figures.ahead_entries += shard.ahead.len() as u64;
        }
        figures
    }
}

/// The cache's counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct CacheFigures {
    /// Requests answered from what was left over of a sample.
    pub hits: u64,
    /// Requests for a part of a sample that had to fetch.
    pub misses: u64,
    /// Samples held now because only a part of them was asked for.
    pub entries: u64,
    /// Samples held now because they were fetched ahead.
    pub ahead_entries: u64,
    /// Bytes held now, blocks and what is being fetched ahead included.
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
        Some(self.known.pop(&sample)?.known)
    }

    fn touch_ahead(&mut self, sample: u64, asked: u64) -> Option<(Arc<Verified>, Option<u64>)> {
        let ahead = self.ahead.get_mut(&sample)?;
        ahead.served += asked;
        let verified = Arc::clone(&ahead.verified);
        let is_used_up = ahead.served >= verified.bytes().len() as u64;
        let used_up = is_used_up.then_some(ahead.order);
        if is_used_up {
            self.ahead.remove(&sample);
        }
        Some((verified, used_up))
    }
}

#[cfg(test)]
mod tests {
    use super::super::verify::Memory;
    use super::*;
    use crate::format::ChecksumKind;
    use crate::io::Buffer;

    fn whole(bytes: usize) -> Known {
        let buffer = Buffer::with_capacity(bytes);
        let crc = ChecksumKind::Crc32.of(&buffer.as_slice()[..bytes]);
        Known::Whole(Arc::new(
            Verified::check(Memory::Own(buffer), 0..bytes, Some(crc)).ok().unwrap(),
        ))
    }

    fn cache(cap_bytes: u64) -> Arc<SampleCache> {
        let budget = Budget::new(cap_bytes);
        let blocks = Arc::new(Blocks::new(budget.clone(), 0, 0));
        Arc::new(SampleCache::new(budget, blocks, 1))
    }

    fn lead(cache: &Arc<SampleCache>, sample: u64) -> Lead {
        match cache.enter(sample, 1) {
            Entered::Lead(lead) => lead,
            _ => panic!("nobody else fetches sample {sample}"),
        }
    }

    #[test]
    fn a_sample_leaves_when_all_of_it_was_given_out() {
        let cache = cache(64 << 20);
        lead(&cache, 5).land(whole(300), 100);
        assert!(matches!(cache.enter(5, 100), Entered::Hit(_)));
        assert_eq!(cache.figures().entries, 1);
        assert!(matches!(cache.enter(5, 100), Entered::Hit(_)));
        assert_eq!((cache.figures().entries, cache.figures().bytes), (0, 0));
    }

    #[test]
    fn the_cap_is_hard_and_the_least_recently_used_goes_first() {
        let cache = cache(64 << 10);
        for sample in 0..100 {
            lead(&cache, sample).land(whole(8 << 10), 1);
            assert!(cache.figures().bytes <= 64 << 10);
        }
        assert!(matches!(cache.enter(99, 1), Entered::Hit(_)));
        lead(&cache, 0);
        assert_eq!((cache.figures().entries, cache.figures().evictions), (8, 92));
    }

    #[test]
    fn what_was_fetched_ahead_stays_until_all_of_it_was_given_out() {
        let cache = cache(64 << 20);
        let Known::Whole(verified) = whole(300) else { unreachable!() };
        let ahead = cache.lead_ahead(7).unwrap();
        assert!(cache.lead_ahead(7).is_none() && !cache.is_idle());
        assert!(matches!(cache.look(7, 1), Some(Entered::Join(_))));
        ahead.land_ahead(Arc::clone(&verified), 3);
        assert!(matches!(cache.enter(7, 100), Entered::Ahead(_, None)));
        assert!(matches!(cache.enter(7, 200), Entered::Ahead(_, Some(3))));
        assert!(cache.is_idle() && cache.look(7, 1).is_none());
        cache.lead_ahead(8).unwrap().land_ahead(verified, 4);
        assert!(matches!(cache.enter(8, 100), Entered::Ahead(_, None)));
        assert_eq!((cache.drop_ahead(8), cache.drop_ahead(8)), (Some(200), None));
        assert!(cache.is_idle());
    }

    #[test]
    fn a_second_asker_joins_the_first_and_is_told_when_it_landed() {
        let cache = cache(64 << 20);
        let first = lead(&cache, 1);
        let Entered::Join(flight) = cache.enter(1, 1) else { panic!("joined") };
        let told = Arc::new(AtomicU64::new(0));
        let count = |told: &Arc<AtomicU64>| {
            let told = Arc::clone(told);
            move || {
                told.fetch_add(1, Ordering::Relaxed);
            }
        };
        flight.when_ended(count(&told));
        assert_eq!(told.load(Ordering::Relaxed), 0);
        drop(first);
        assert_eq!(told.load(Ordering::Relaxed), 1);
        flight.when_ended(count(&told));
        assert_eq!(told.load(Ordering::Relaxed), 2);
        lead(&cache, 1);
    }

    #[test]
    fn a_lowered_cap_frees_memory_at_once_and_forgetting_frees_all() {
        let cache = cache(1 << 20);
        (0..100).for_each(|sample| lead(&cache, sample).land(whole(8 << 10), 1));
        cache.budget.set_cap_bytes(64 << 10);
        cache.shrink();
        assert_eq!((cache.figures().entries, cache.figures().bytes), (8, 64 << 10));
        let Known::Whole(verified) = whole(300) else { unreachable!() };
        cache.lead_ahead(700).unwrap().land_ahead(verified, 1);
        cache.clear();
        assert_eq!((cache.figures().entries, cache.figures().bytes), (0, 0));
        assert!(cache.is_idle());
    }

    #[test]
    fn a_cache_without_room_keeps_nothing() {
        let cache = cache(0);
        assert_eq!(cache.max_whole_bytes(), 0);
        lead(&cache, 1).land(whole(4096), 1);
        assert_eq!(cache.figures().entries, 0);
    }
}
