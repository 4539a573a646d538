//! What readers ask for: it shows whether what was prefetched is used, and which patterns there are.

use super::Prefetch;
use super::queue::{STALE, add};
use crate::catalog::Located;
use crate::vfs::memory::cache::Arrival;
use std::sync::atomic::{AtomicU64, Ordering};

/// How far a pattern is followed.
const AHEAD_BYTES: u64 = 16 << 20;
const AHEAD_BLOCKS: u64 = 16;
/// After so many samples fetched on demand, none of them prefetched, announcements are dropped: the readers
/// read something else.
const UNFORESEEN_LIMIT: u64 = 8192;

/// Most readers find the number there: they do not write it.
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

    /// Readers may have left announced samples for good after a part of them, which take up room.
    fn wake_if_some_may_be_left(&self) {
        if self.lacks_room() && self.memory.cache().may_be_left() {
            self.wake();
        }
    }

    /// A prefetched sample was read; whether all of it has been by now.
    pub(in crate::vfs) fn prefetched_was_read(
        &self,
        sample: u64,
        located: &Located,
        (arrival, is_used_up): (Arrival, bool),
    ) {
        self.demanded.store(0, Ordering::Relaxed);
        // A part of it shows as well how far the reader has come.
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
        // This was the read that was announced. Of the order nothing has to be found out, and if it names the sample once
        // more, it will be read once more.
        if !arrival.is_announced {
            self.latest_read(sample).store(sample + 1, Ordering::Relaxed);
            self.observe(sample, located);
        }
        self.wake_if_there_is_room();
    }

    /// The kernel asked for bytes that memory has not: of a sample that it was given it has dropped pages. If it asks for the
    /// whole sample, its announcement may be still to come.
    pub(in crate::vfs) fn was_not_prefetched(&self, sample: u64, is_whole: bool) {
        if self.delivered.get(sample) {
            self.delivered.clear(sample);
        }
        if is_whole && self.is_announced.load(Ordering::Relaxed) {
            self.latest_read(sample).store(sample + 1, Ordering::Relaxed);
        }
    }

    /// A sample must be fetched on demand: it was not prefetched.
    pub(in crate::vfs) fn demanded(&self, sample: u64, located: &Located) {
        let is_begun = self.latest_demand(sample).swap(sample + 1, Ordering::Relaxed) != sample + 1;
        if is_begun {
            self.lookups.fetch_add(1, Ordering::Relaxed);
        }
        // Readers are ahead of what was announced, or elsewhere.
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

    /// Looks for a pattern in what is asked for.
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
            // Numbers of different containers are no neighbours.
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
