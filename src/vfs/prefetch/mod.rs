//! What is fetched before it is asked for: samples that were announced, and those that a pattern foresees.
//!
//! Decides what to fetch and what becomes of it; a thread of the transport does it ([`Vfs::next_fetch`],
//! [`Vfs::land`]). Samples whose inodes the kernel knows go into its page cache, so that nobody asks for
//! them; the others stay in the sample cache until they are asked for, in a window of half the memory that
//! moves on as they are. What is not asked for in time is dropped and counted.

mod land;
mod plan;

use super::block::{BlockId, BlockLead, Rights};
use super::budget::Budget;
use super::cache::Lead;
use super::inode::Inode;
use super::pattern::Patterns;
use super::span::Span;
use super::verify::Verified;
use super::{Errno, Vfs};
use crate::catalog::{Located, Node};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Of so many samples it is remembered that they were fetched on demand.
const LATELY: u64 = 1024;

/// What is to be fetched ahead.
pub(super) struct Prefetch {
    queue: Mutex<Queue>,
    window: Budget,
    /// Called when there is something to do.
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
    lacks_room: AtomicBool,
    /// Whether more is announced than is being fetched.
    is_announced: AtomicBool,
    /// Fetches that a reader waits for.
    waited_for: AtomicU64,
    /// Of the samples that arrived, the last one that was used.
    last_used: AtomicU64,
    /// Samples that were fetched on demand of late (plus 1), each at its place: a pattern may have foreseen
    /// them when it was too late.
    lately: Vec<AtomicU64>,
    /// Samples fetched on demand since one that was fetched ahead was used.
    demanded: AtomicU64,
    counts: Counts,
}

#[derive(Default)]
struct Queue {
    /// Foreseen by a pattern.
    foreseen: VecDeque<u64>,
    foreseen_blocks: VecDeque<BlockId>,
    announced: VecDeque<u64>,
    /// Reads of the batch that is being fetched.
    batch: VecDeque<Extent>,
    batch_bytes: u64,
    /// The most samples that a batch had.
    batch_samples: u64,
    /// Bytes put into the page cache for what is announced.
    stored_bytes: u64,
    samples: Patterns,
    blocks: Patterns,
    /// What arrived and may still wait in the cache, in order.
    arrived: VecDeque<(u64, u64)>,
    arrivals: u64,
    /// How long that list may get before it is gone through.
    arrived_limit: usize,
}

/// A read of samples that lie together.
struct Extent {
    part: usize,
    range: Range<u64>,
    samples: Vec<(u64, Located)>,
    is_announced: bool,
}

#[derive(Default)]
struct Counts {
    announced: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    in_flight: AtomicU64,
    foreseen: AtomicU64,
    looked_up: AtomicU64,
    reads: AtomicU64,
    merged: AtomicU64,
    fetched_bytes: AtomicU64,
    stored_bytes: AtomicU64,
    unused_bytes: AtomicU64,
    used: AtomicU64,
}

/// `prefetch` in `stats.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PrefetchFigures {
    /// Samples announced since the mount.
    pub announced: u64,
    /// Samples announced and not begun.
    pub waiting: u64,
    /// Whether what waits finds no room until some of what is there was read.
    pub is_full: bool,
    /// Samples that are being fetched, or put into the kernel's page cache.
    pub in_flight: u64,
    /// Announced samples finished: fetched, there already, or failed.
    pub done: u64,
    /// Those of them that could not be had.
    pub failed: u64,
    /// Samples and blocks that a pattern foresaw.
    pub foreseen: u64,
    /// Samples and blocks whose fetch began when a sample was looked up.
    pub looked_up: u64,
    /// Reads.
    pub reads: u64,
    /// Samples that came with another's read.
    pub merged: u64,
    /// Bytes read.
    pub fetched_bytes: u64,
    /// Bytes of them put into the kernel's page cache.
    pub stored_bytes: u64,
    /// Bytes dropped because nobody asked for them.
    pub unused_bytes: u64,
    /// Samples that were asked for after they had been fetched.
    pub used: u64,
}

impl Prefetch {
    pub(super) fn new(cap_bytes: u64) -> Self {
        Self {
            queue: Mutex::default(),
            window: Budget::new(cap_bytes / 2),
            waker: OnceLock::new(),
            lacks_room: AtomicBool::new(false),
            is_announced: AtomicBool::new(false),
            waited_for: AtomicU64::new(0),
            last_used: AtomicU64::new(0),
            demanded: AtomicU64::new(0),
            lately: (0..LATELY).map(|_| AtomicU64::new(0)).collect(),
            counts: Counts::default(),
        }
    }

    /// With more or less memory. What is there stays; the caller drops what is too much.
    pub(super) fn set_cap_bytes(&self, cap_bytes: u64) {
        self.window.set_cap_bytes(cap_bytes / 2);
        self.lacks_room.store(false, Ordering::Relaxed);
        self.wake();
    }

    /// How many samples may wait.
    fn capacity(&self) -> usize {
        usize::try_from(self.window.cap_bytes() / 16).unwrap_or(usize::MAX).max(1 << 16)
    }

    fn place(&self, sample: u64) -> &AtomicU64 {
        &self.lately[(sample % LATELY) as usize]
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker();
        }
    }
}

/// Something to fetch ahead. Owned by whoever fetches it; dropped, nobody waits for it any more.
pub struct Fetch {
    span: Span,
    what: What,
    is_announced: bool,
    since: Instant,
    _in_flight: InFlight,
}

enum What {
    Samples(Vec<(u64, Located, Lead)>, Rights),
    Block(BlockLead),
}

/// Counts samples as being fetched, as long as it lives.
struct InFlight(Arc<Prefetch>, u64);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.counts.in_flight.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Fetch {
    /// What to fetch.
    pub fn span(&mut self) -> &mut Span {
        &mut self.span
    }
}

/// A sample for the kernel's page cache.
pub struct Delivery {
    sample: u64,
    verified: Arc<Verified>,
    /// Until it is stored it is not done: who waits for a warm-up waits for this too.
    _in_flight: InFlight,
}

impl Delivery {
    /// The inode.
    #[must_use]
    pub fn ino(&self) -> u64 {
        Inode::Node(Node::Sample(self.sample)).number()
    }

    /// All bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.verified.bytes()
    }
}

/// A fetch that a reader waits for, as long as it lives.
pub(super) struct Waited(Arc<Prefetch>);

impl Waited {
    pub(super) fn new(prefetch: &Arc<Prefetch>) -> Self {
        prefetch.waited_for.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(prefetch))
    }
}

impl Drop for Waited {
    fn drop(&mut self) {
        self.0.waited_for.fetch_sub(1, Ordering::Relaxed);
    }
}

fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl Vfs {
    /// Queues samples, by number, to be fetched in this order: all of them or none.
    ///
    /// # Errors
    /// ENOSPC: too many are waiting. Try again later.
    pub fn announce(&self, samples: &[u64]) -> Result<(), Errno> {
        let mut queue = self.prefetch.lock();
        if queue.announced.len() + samples.len() > self.prefetch.capacity() {
            return Err(Errno::ENOSPC);
        }
        if queue.announced.is_empty() && queue.batch.is_empty() {
            (queue.batch_bytes, queue.stored_bytes) = (0, 0);
        }
        queue.announced.extend(samples);
        self.prefetch.is_announced.store(!queue.announced.is_empty(), Ordering::Relaxed);
        drop(queue);
        add(&self.prefetch.counts.announced, samples.len() as u64);
        self.prefetch.wake();
        Ok(())
    }

    /// Whether what lies around a small sample is fetched with it: not where it is announced what will be
    /// read.
    pub(super) fn takes_blocks(&self) -> bool {
        self.blocks.is_worthwhile() && !self.prefetch.is_announced.load(Ordering::Relaxed)
    }

    /// Calls `waker` whenever [`Vfs::next_fetch`] may have something new.
    pub fn when_there_is_something_to_fetch(&self, waker: impl Fn() + Send + Sync + 'static) {
        let _ = self.prefetch.waker.set(Box::new(waker));
    }

    /// Whether a reader waits for the disk: what is fetched ahead should leave it room.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.reads_waiting() > 0
    }

    /// Reads that wait for the disk now.
    pub(super) fn reads_waiting(&self) -> u64 {
        self.prefetch.waited_for.load(Ordering::Relaxed)
    }

    /// What became of the announced samples.
    #[must_use]
    pub fn prefetch_figures(&self) -> PrefetchFigures {
        let counts = &self.prefetch.counts;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let queue = self.prefetch.lock();
        let batch: usize = queue.batch.iter().map(|extent| extent.samples.len()).sum();
        PrefetchFigures {
            announced: get(&counts.announced),
            waiting: (queue.announced.len() + batch) as u64,
            is_full: self.prefetch.lacks_room.load(Ordering::Relaxed),
            in_flight: get(&counts.in_flight),
            done: get(&counts.done),
            failed: get(&counts.failed),
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
    pub(super) fn announced_capacity(&self) -> usize {
        self.prefetch.capacity()
    }

    #[cfg(test)]
    pub(super) fn announced_order(&self) -> Vec<u64> {
        self.prefetch.lock().announced.iter().copied().collect()
    }

    /// How many samples are listed as having arrived, and how many have.
    #[cfg(test)]
    pub(super) fn arrivals(&self) -> (usize, u64) {
        let queue = self.prefetch.lock();
        (queue.arrived.len(), queue.arrivals)
    }
}
