//! Prefetched samples that are read, and announced ones that readers have left after a part of them.

use super::*;
// Nothing depends on their order with others: the models need not try it.
use std::sync::atomic::AtomicU64 as Counter;

/// So many readers may be in the midst of samples at a time, however few the memory holds: each comes back before as many
/// others were begun.
const LEAST_AGE: u64 = 32;

/// How far readers have come in what is announced.
#[derive(Default)]
pub(super) struct Turnover {
    /// Announced samples of which something was read; and any others, while those lack room.
    begun: Counter,
    /// When `begun` is this much, there may be samples that were left.
    look_at: Counter,
}

impl SampleCache {
    /// Announced samples that readers have left after a part of them. Since that was read, half as many others were begun as
    /// are held: who reads a sample in several requests, beside other readers, comes back sooner.
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

    /// A sample was begun that is not here.
    pub(in crate::vfs) fn another_is_begun(&self) {
        self.turnover.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Announced samples were dropped: those that come may be of another size.
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
