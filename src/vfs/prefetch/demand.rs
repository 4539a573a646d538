//! The samples that readers ask for: they show whether prefetched samples are used, and which patterns there are.

use super::Prefetch;
use super::queue::{STALE, add};
use crate::catalog::Located;
use crate::vfs::memory::cache::Arrival;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most bytes, or blocks, that are fetched ahead by a pattern.
const AHEAD_BYTES: u64 = 16 << 20;
const AHEAD_BLOCKS: u64 = 16;
/// The number of samples fetched on demand, with no prefetched one read meanwhile, after which announcements are
/// dropped: the readers read other samples.
const UNFORESEEN_LIMIT: u64 = 8192;

/// Raises a number. Most readers find it as high already: they do not write it.
fn raise(number: &AtomicU64, to: u64) {
    if number.load(Ordering::Relaxed) < to {
        number.fetch_max(to, Ordering::Relaxed);
    }
}

impl Prefetch {
    pub(super) fn wake_if_there_is_room(&self) {
        let has_room = self.window.held_bytes() <= self.window.cap_bytes() / 4 * 3;
        if has_room && self.lacks_room.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Wakes the prefetching thread if readers may have left announced samples, which take up room, after a part of them.
    fn wake_if_some_may_be_left(&self) {
        if self.lacks_room() && self.memory.cache().may_be_left() {
            self.wake();
        }
    }

    /// Notes that a prefetched sample was read, and whether all of it has been read by now.
    pub(in crate::vfs) fn prefetched_was_read(
        &self,
        sample: u64,
        located: &Located,
        (arrival, is_used_up): (Arrival, bool),
    ) {
        self.demanded.store(0, Ordering::Relaxed);
        // A read of a part shows as well how far the reader has come.
        if !arrival.is_looked_up {
            raise(&self.last_used, arrival.number);
        }
        if arrival.is_announced {
            raise(&self.last_announced_used, arrival.number);
        }
        if !is_used_up {
            self.wake_if_some_may_be_left();
            return;
        }
        add(&self.counts.used, 1);
        // This was the announced read. The order need not be found out, and if it names the sample once more, the sample
        // will be read once more.
        if !arrival.is_announced {
            self.latest_read(sample).store(sample + 1, Ordering::Relaxed);
            self.observe(sample, located);
        }
        self.wake_if_there_is_room();
    }

    /// Notes that the kernel asked for bytes that memory does not have: it has dropped pages of a sample that it was given. If
    /// it asks for the whole sample, the sample's announcement may be still to come.
    pub(in crate::vfs) fn was_not_prefetched(&self, sample: u64, is_whole: bool) {
        if self.delivered.get(sample) {
            self.delivered.clear(sample);
        }
        if is_whole && self.is_announced.load(Ordering::Relaxed) {
            self.latest_read(sample).store(sample + 1, Ordering::Relaxed);
        }
    }

    /// Notes that a sample must be fetched on demand: it was not prefetched.
    pub(in crate::vfs) fn demanded(&self, sample: u64, located: &Located) {
        let is_begun = self.latest_demand(sample).swap(sample + 1, Ordering::Relaxed) != sample + 1;
        if is_begun {
            self.lookups.fetch_add(1, Ordering::Relaxed);
        }
        // Readers are ahead of the announced samples, or elsewhere.
        if is_begun && self.lacks_room() {
            self.memory.cache().another_is_begun();
            self.wake_if_some_may_be_left();
        }
        self.observe(sample, located);
        let demanded = self.demanded.fetch_add(1, Ordering::Relaxed);
        if demanded > UNFORESEEN_LIMIT && self.lacks_room.swap(false, Ordering::Relaxed) {
            self.demanded.store(0, Ordering::Relaxed);
            let mut queue = self.lock();
            let dropped = self.drop_announced(&mut queue);
            tracing::info!(
                dropped,
                "the reads do not follow the announced order: the prefetch hints are dropped"
            );
        }
    }

    /// Looks for a pattern in the samples that are asked for.
    pub(in crate::vfs) fn observe(&self, sample: u64, located: &Located) {
        // To wait for the lock would delay a reader: rather a number is missed.
        let Ok(mut queue) = self.queue.try_lock() else { return };
        self.drop_looked_up(&mut queue, STALE);
        let at = located.sample;
        let foreseen = if self.memory.blocks().is_worthwhile() && self.memory.is_small(&at) {
            let Some((part, number)) =
                self.memory.blocks().around(located.part, &(at.extent().start..at.extent().start))
            else {
                return;
            };
            // Block numbers of different parts are no neighbours.
            let base = (part as u64) << 40;
            let blocks = self.memory.blocks().count(self.samples.bytes_of(part));
            let all = base..base + blocks;
            let next = queue.blocks.observe(
                base + number,
                AHEAD_BLOCKS,
                &all,
                self.memory.blocks().total(),
            );
            queue.foreseen_blocks.extend(next.iter().map(|number| (part, number - base)));
            next.len()
        } else {
            let depth = (AHEAD_BYTES / at.largest_bytes().max(1)).clamp(2, 1024);
            let len = self.samples.dataset().len();
            let next = queue.samples.observe(sample, depth, &(0..len), len);
            queue.foreseen.extend(&next);
            next.len()
        };
        drop(queue);
        if foreseen > 0 {
            add(&self.counts.foreseen, foreseen as u64);
            self.wake();
        }
    }
}
