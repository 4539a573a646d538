//! Prefetched samples that are read, and announced samples that readers have left after a part of them.

use super::*;
// No code depends on the order of these atomics with others: the models need not try it.
use std::sync::atomic::AtomicU64 as Counter;

/// The readers that may be in the midst of samples at a time, however few samples the memory holds: each reader comes back
/// before as many other samples were begun.
const LEAST_AGE: u64 = 32;

/// How far readers have come in the announced samples.
#[derive(Default)]
pub(super) struct Turnover {
    /// The number of announced samples of which a part was read; and of any other samples, while announced ones lack room.
    begun: Counter,
    /// The value of `begun` from which on there may be samples that were left.
    look_at: Counter,
}

impl SampleCache {
    /// Announced samples that readers have left after a part of them. Since that part was read, half as many other samples
    /// were begun as are held: a reader of several requests for a sample, beside other readers, comes back sooner.
    pub(in crate::vfs) fn left_in_part(&self) -> Vec<u64> {
        if !self.may_be_left() {
            return Vec::new();
        }
        let begun = self.turnover.begun.load(Ordering::Relaxed);
        let (mut held, mut begun_ones) = (0_u64, Vec::new());
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let announced = shard.prefetched.iter().filter(|(_, p)| p.arrival.is_announced);
            for (&sample, prefetched) in announced {
                held += 1;
                if prefetched.read_at > 0 {
                    begun_ones.push((prefetched.read_at, sample));
                }
            }
        }
        let age = (held / 2).max(LEAST_AGE);
        self.turnover.look_at.store(begun + age.div_ceil(4), Ordering::Relaxed);
        begun_ones.retain(|(read_at, _)| read_at + age <= begun);
        begun_ones.into_iter().map(|(_, sample)| sample).collect()
    }

    /// Notes that a sample was begun that is not here.
    pub(in crate::vfs) fn another_is_begun(&self) {
        self.turnover.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes the next look for left samples due: announced ones were dropped, and those that come may be of another size.
    pub(in crate::vfs) fn look_for_left_anew(&self) {
        self.turnover.look_at.store(0, Ordering::Relaxed);
    }

    /// Whether enough samples were begun since [`SampleCache::left_in_part`] has looked.
    pub(in crate::vfs) fn may_be_left(&self) -> bool {
        let Turnover { begun, look_at } = &self.turnover;
        begun.load(Ordering::Relaxed) >= look_at.load(Ordering::Relaxed)
    }
}

impl Shard {
    /// A prefetched sample of which `bytes` are read now, how it came, and whether all of it has been read.
    pub(super) fn read_prefetched(
        &mut self,
        sample: u64,
        bytes: u64,
        turnover: &Turnover,
    ) -> Option<(Arc<Verified>, Arrival, bool)> {
        let prefetched = self.prefetched.get_mut(&sample)?;
        prefetched.read_bytes += bytes;
        let (verified, arrival) = (Arc::clone(&prefetched.verified), prefetched.arrival);
        if arrival.is_announced {
            prefetched.read_at = match prefetched.read_at {
                0 => turnover.begun.fetch_add(1, Ordering::Relaxed) + 1,
                _ => turnover.begun.load(Ordering::Relaxed),
            };
        }
        let is_used_up = prefetched.read_bytes >= verified.bytes().len() as u64;
        if is_used_up {
            self.prefetched.remove(&sample);
        }
        Some((verified, arrival, is_used_up))
    }
}
