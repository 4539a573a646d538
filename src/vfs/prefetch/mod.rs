//! Samples that are fetched before they are read: announced ones, those that a pattern foresees, and looked-up ones.
//!
//! Decides which samples to fetch and where they go; a thread of the transport fetches ([`Prefetch::next_fetch`],
//! [`Prefetch::land`]). Samples whose inodes the kernel knows go into its page cache, so that no request for
//! them comes; the others stay in the sample cache until they are read, in a window of half the memory, or of a quarter
//! where they were looked up. Samples that are not read in time are dropped and counted.

mod demand;
mod fetch;
mod fill;
mod land;
mod orders;
mod patterns;
mod plan;
mod queue;

pub(super) use fetch::WaitingRead;
pub use fetch::{Delivery, Fetch};
pub(super) use orders::UNNAMED;
pub use queue::PrefetchFigures;

use super::bits::Bits;
use super::memory::Memory;
use super::memory::budget::Budget;
use super::samples::Samples;
use super::{Errno, Trace};
use crate::store::Place;
use plan::Refused;
use queue::{Counts, Given, Queue, add};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The number of samples last fetched on demand that are remembered, and of samples last read.
const RECENT_DEMANDS: u64 = 1024;

/// Fetches samples ahead, and remembers which samples readers ask for.
pub(super) struct Prefetch {
    samples: Arc<Samples>,
    memory: Arc<Memory>,
    trace: Arc<Trace>,
    queue: Mutex<Queue>,
    refused: Mutex<Vec<Refused>>,
    /// Held while stores are told the order of samples, so that they hear of announcements as they came. Taken before the
    /// queue's lock, for which readers and fetches wait.
    telling: Mutex<()>,
    /// The budget of samples that were announced or foreseen.
    window: Budget,
    /// The budget of samples that were looked up.
    looked_up_window: Budget,
    /// The count of samples that were looked up and are worth fetching, with room or without; fetches on demand count, too.
    lookups: AtomicU64,
    /// The most bytes of announced samples that may lie unread in the kernel's page cache.
    kernel_bytes: u64,
    /// Samples whose inodes the kernel knows.
    in_kernel: Bits,
    /// Samples that the kernel's page cache was given, and whose inodes it has not dropped since.
    delivered: Bits,
    /// The function to call when there is a sample to fetch.
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
    lacks_room: AtomicBool,
    /// Whether more samples are announced than are being fetched.
    is_announced: AtomicBool,
    /// The highest arrival number of a sample that was announced or foreseen, and was read, in part at least.
    last_used: AtomicU64,
    /// As `last_used`, of announced samples alone.
    last_announced_used: AtomicU64,
    /// The sample (plus 1) that was last fetched on demand, by its number modulo the length: a pattern may
    /// have foreseen it when it was too late.
    recent_demands: Vec<AtomicU64>,
    /// In the same way, samples that were read whole since the last announcement, and not as announced: their turn in the order
    /// may be still to come, or have come in vain.
    recent_reads: Vec<AtomicU64>,
    /// Samples fetched on demand since a prefetched one was read.
    demanded: AtomicU64,
    has_remote_parts: bool,
    counts: Arc<Counts>,
}

impl Prefetch {
    /// Makes a prefetcher with half of the memory as window; up to `kernel_bytes` of announced samples go to the kernel.
    pub(super) fn new(
        samples: Arc<Samples>,
        memory: Arc<Memory>,
        trace: Arc<Trace>,
        kernel_bytes: u64,
    ) -> Self {
        let bits = samples.dataset().len();
        Self {
            queue: Mutex::default(),
            refused: Mutex::default(),
            telling: Mutex::default(),
            window: Budget::new(memory.budget().cap_bytes() / 2),
            looked_up_window: Budget::new(memory.budget().cap_bytes() / 4),
            lookups: AtomicU64::new(0),
            kernel_bytes,
            in_kernel: Bits::new(bits),
            delivered: Bits::new(bits),
            waker: OnceLock::new(),
            lacks_room: AtomicBool::new(false),
            is_announced: AtomicBool::new(false),
            last_used: AtomicU64::new(0),
            last_announced_used: AtomicU64::new(0),
            demanded: AtomicU64::new(0),
            recent_demands: (0..RECENT_DEMANDS).map(|_| AtomicU64::new(0)).collect(),
            recent_reads: (0..RECENT_DEMANDS).map(|_| AtomicU64::new(0)).collect(),
            has_remote_parts: samples.store().parts().iter().any(|part| part.is_remote()),
            counts: Arc::default(),
            samples,
            memory,
            trace,
        }
    }

    /// Notes that the kernel is told of a sample's inode: its page cache can take the file's bytes from then on.
    pub(super) fn kernel_knows(&self, sample: u64) {
        self.in_kernel.set(sample);
    }

    /// Notes that the kernel has dropped a sample's inode, and its pages.
    pub(super) fn kernel_forgot(&self, sample: u64) {
        self.in_kernel.clear(sample);
        self.delivered.clear(sample);
        self.takes_latest_read(sample);
    }

    /// Changes the windows' sizes. Held samples stay; the caller drops those that are too many.
    pub(in crate::vfs) fn set_cap_bytes(&self, cap_bytes: u64) {
        self.window.set_cap_bytes(cap_bytes / 2);
        self.looked_up_window.set_cap_bytes(cap_bytes / 4);
        self.lacks_room.store(false, Ordering::Relaxed);
        self.wake();
    }

    /// The most announced samples that may wait.
    fn capacity(&self) -> usize {
        usize::try_from(self.window.cap_bytes() / 16).unwrap_or(usize::MAX).max(1 << 16)
    }

    fn latest_demand(&self, sample: u64) -> &AtomicU64 {
        &self.recent_demands[(sample % RECENT_DEMANDS) as usize]
    }

    fn latest_read(&self, sample: u64) -> &AtomicU64 {
        &self.recent_reads[(sample % RECENT_DEMANDS) as usize]
    }

    /// Whether an announced sample was read before its turn came. One read counts for one announcement.
    fn takes_latest_read(&self, sample: u64) -> bool {
        let (read, order) = (self.latest_read(sample), Ordering::Relaxed);
        read.compare_exchange(sample + 1, 0, order, order).is_ok()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn telling(&self) -> MutexGuard<'_, ()> {
        self.telling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::vfs) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker();
        }
    }

    /// Queues samples, by number, to be fetched in this order, after samples that were announced before: all of them or none.
    /// [`Prefetch::drop_order`] knows them by the order's name.
    ///
    /// # Errors
    /// ENOSPC if too many samples wait: try again later.
    pub(in crate::vfs) fn announce(&self, order: u64, samples: &[u64]) -> Result<(), Errno> {
        let _telling = self.telling();
        let mut queue = self.lock();
        let has_room = queue.announced.len() + samples.len() <= self.capacity();
        if !has_room || !queue.announced.has_room_for(order) {
            return Err(Errno::ENOSPC);
        }
        if queue.announced.is_empty() && queue.batch.is_empty() {
            (queue.batch_bytes, queue.given) = (0, Given::default());
        }
        queue.announced.extend(order, samples);
        // Samples that were read before may have left the page cache.
        self.recent_reads.iter().for_each(|read| read.store(0, Ordering::Relaxed));
        let first = queue.numbered;
        queue.numbered += samples.len() as u64;
        self.is_announced.store(!queue.announced.is_empty(), Ordering::Relaxed);
        drop(queue);
        add(&self.counts.announced, samples.len() as u64);
        self.announce_to_stores(samples, first);
        self.wake();
        Ok(())
    }

    /// Counts announced samples that are never fetched.
    pub(in crate::vfs) fn skip(&self, samples: u64) {
        for count in [&self.counts.announced, &self.counts.done, &self.counts.skipped] {
            add(count, samples);
        }
    }

    /// Drops all orders, and the ranges that warm-ups have not begun to fetch.
    pub(in crate::vfs) fn drop_all(&self) {
        self.drop_order(UNNAMED);
        let mut queue = self.lock();
        queue.fills.clear();
        queue.cache_is_full = false;
    }

    /// Drops the rest of an order, because its reader reads other samples now; [`UNNAMED`] stands for all orders.
    ///
    /// If samples of the order were fetched last, the fetched samples go with it, or they would keep their room until they are
    /// read. Other orders that were fetched just before lose their fetched samples, too: their readers fetch them on demand.
    pub(in crate::vfs) fn drop_order(&self, order: u64) {
        let _telling = self.telling();
        let mut queue = self.lock();
        let mut left = None;
        if order == UNNAMED {
            self.drop_announced(&mut queue);
        } else {
            let was_last = queue.announced.took_last(order);
            let dropped = queue.announced.drop_order(order);
            if dropped == 0 && !was_last {
                return;
            }
            if was_last {
                self.drop_fetched(&mut queue);
            }
            if dropped > 0 {
                left = self.number_anew(&mut queue);
            }
        }
        self.lacks_room.store(false, Ordering::Relaxed);
        drop(queue);
        if let Some((left, first)) = left {
            self.samples.store().forget_announced();
            self.announce_to_stores(&left, first);
        }
        self.wake();
    }

    /// Drops all announcements and the samples that were fetched for them; gives the number of samples and reads that waited.
    fn drop_announced(&self, queue: &mut Queue) -> usize {
        let dropped = queue.announced.len();
        queue.announced.clear();
        if self.has_remote_parts {
            self.samples.store().forget_announced();
        }
        self.is_announced.store(false, Ordering::Relaxed);
        dropped + self.drop_fetched(queue)
    }

    /// Drops the reads of the batch, and fetched samples that no program has read yet; gives the number of dropped reads.
    fn drop_fetched(&self, queue: &mut Queue) -> usize {
        let dropped = queue.batch.len();
        queue.batch.clear();
        for mut arrived in [&mut queue.arrived, &mut queue.arrived_foreseen].map(std::mem::take) {
            while let Some((_, sample)) = arrived.pop_first() {
                self.drop_unused(sample);
            }
        }
        self.drop_looked_up(queue, 0);
        self.memory.cache().look_for_left_anew();
        dropped
    }

    /// Numbers the samples that still wait as if they had been announced now, for stores, if there are stores: the numbers of
    /// the dropped samples have gone. Gives the samples and the first number.
    fn number_anew(&self, queue: &mut Queue) -> Option<(Vec<u64>, u64)> {
        self.is_announced.store(!queue.announced.is_empty(), Ordering::Relaxed);
        self.has_remote_parts.then(|| {
            let first = queue.numbered;
            queue.numbered += queue.announced.len() as u64;
            (queue.announced.iter().copied().collect(), first)
        })
    }

    /// Tells stores the order in which samples will be read, from number `first` on: samples with room there are fetched long
    /// before they have room here, and samples that are read last or not again make room.
    fn announce_to_stores(&self, samples: &[u64], first: u64) {
        if !self.has_remote_parts {
            return;
        }
        let held = self.memory.budget().cap_bytes() / self.mean_bytes();
        for (number, &sample) in (first..).zip(samples) {
            if let Ok(located) = self.samples.locate(sample) {
                let place = Place { number, held };
                self.samples.store().part(located.part).announce(located.sample.extent(), place);
            }
        }
    }

    /// The mean stored length of a sample, in bytes, at least 1.
    fn mean_bytes(&self) -> u64 {
        let dataset = self.samples.dataset();
        (dataset.data_bytes() / dataset.len().max(1)).max(1)
    }

    /// Whether the bytes around a small sample are fetched with it: not while announced samples wait.
    pub(in crate::vfs) fn takes_blocks(&self) -> bool {
        self.memory.blocks().is_worthwhile() && !self.is_announced.load(Ordering::Relaxed)
    }

    /// Calls `waker` whenever [`Prefetch::next_fetch`] may have a new fetch.
    pub(in crate::vfs) fn when_there_is_something_to_fetch(
        &self,
        waker: impl Fn() + Send + Sync + 'static,
    ) {
        let _ = self.waker.set(Box::new(waker));
    }

    /// Whether announced samples wait for room. Memory may become free a moment after its last reader has told of it, without a
    /// further call: look again.
    pub(in crate::vfs) fn lacks_room(&self) -> bool {
        self.lacks_room.load(Ordering::Relaxed)
    }

    /// Whether a reader waits for the disk: prefetches should leave room for its read.
    pub(in crate::vfs) fn is_waited_for(&self) -> bool {
        self.reads_waiting() > 0
    }

    /// Counts a read as waiting for the disk, as long as the guard lives.
    pub(in crate::vfs) fn waiting_read(&self) -> WaitingRead {
        WaitingRead::new(&self.counts)
    }

    /// The number of reads that wait for the disk now.
    pub(in crate::vfs) fn reads_waiting(&self) -> u64 {
        self.counts.waiting_reads.load(Ordering::Relaxed)
    }

    /// The counters of prefetched samples.
    pub(in crate::vfs) fn figures(&self) -> PrefetchFigures {
        let counts = &self.counts;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let queue = self.lock();
        let batch: usize = queue.batch.iter().map(|read| read.samples.len()).sum();
        PrefetchFigures {
            announced: get(&counts.announced),
            waiting: (queue.announced.len() + batch) as u64
                + queue.fills.iter().map(|fill| fill.samples).sum::<u64>(),
            is_full: self.lacks_room(),
            cache_is_full: queue.cache_is_full,
            in_flight: get(&counts.in_flight),
            done: get(&counts.done),
            failed: get(&counts.failed),
            skipped: get(&counts.skipped),
            foreseen: get(&counts.foreseen),
            looked_up: get(&counts.looked_up),
            reads: get(&counts.reads),
            merged: get(&counts.merged),
            fetched_bytes: get(&counts.fetched_bytes),
            stored_bytes: get(&counts.stored_bytes),
            unused_bytes: get(&counts.unused_bytes),
            used: get(&counts.used),
        }
    }

    #[cfg(test)]
    pub(in crate::vfs) fn announced_capacity(&self) -> usize {
        self.capacity()
    }

    #[cfg(test)]
    pub(in crate::vfs) fn announced_order(&self) -> Vec<u64> {
        self.lock().announced.iter().copied().collect()
    }

    /// How many samples are listed as having arrived, and how many have.
    #[cfg(test)]
    pub(in crate::vfs) fn arrivals(&self) -> (usize, u64) {
        let queue = self.lock();
        let announced_and_foreseen = queue.arrived.len() + queue.arrived_foreseen.len();
        (announced_and_foreseen + queue.arrived_looked_up.len(), queue.arrivals)
    }
}
