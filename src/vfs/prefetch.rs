//! What is fetched before it is asked for: samples that were announced, and those that a pattern foresees.
//!
//! Decides what to fetch and what becomes of it; a thread of the transport does it ([`Vfs::next_fetch`],
//! [`Vfs::land`]). Samples whose inodes the kernel knows go into its page cache, so that nobody asks for
//! them; the others stay in the sample cache until they are asked for, in a window of half the memory that
//! moves on as they are. What is not asked for in time is dropped and counted.

use super::bad::{Bad, Fault};
use super::block::{BlockId, BlockLead, Chunk, Rights};
use super::budget::Budget;
use super::cache::Lead;
use super::pattern::Patterns;
use super::span::Span;
use super::verify::Verified;
use super::{Errno, Stage, Vfs};
use crate::catalog::Located;
use crate::io::{Buffer, ReadError};
use serde::Serialize;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Samples that lie this near to one another are fetched with one read: about as fast as two reads.
const MERGE_GAP_BYTES: u64 = 16 << 10;
/// The largest read of several samples.
const MERGED_BYTES: u64 = 1 << 20;
/// Announced samples are sorted by place in batches; the first are small, so that a reader need not wait.
const FIRST_BATCH_BYTES: u64 = 2 << 20;
const MAX_BATCH_SAMPLES: usize = 1 << 16;
/// How far a pattern is followed.
const AHEAD_BYTES: u64 = 16 << 20;
const AHEAD_BLOCKS: u64 = 16;
/// What arrived this long before what is asked for now, and two batches, will not be asked for any more.
const STALE: u64 = 256;
/// So many samples fetched on demand, none of them fetched ahead: the readers do something else.
const ASTRAY: u64 = 8192;

/// What is to be fetched ahead.
pub(super) struct Prefetch {
    queue: Mutex<Queue>,
    window: Budget,
    capacity: usize,
    /// Called when there is something to do.
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
    lacks_room: AtomicBool,
    /// Whether more is announced than is being fetched.
    is_announced: AtomicBool,
    /// Fetches that a reader waits for.
    waited_for: AtomicU64,
    /// Of the samples that arrived, the last one that was used.
    last_used: AtomicU64,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PrefetchFigures {
    /// Samples announced since the mount.
    pub announced: u64,
    /// Samples announced and not begun.
    pub waiting: u64,
    /// Samples that are being fetched.
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
            capacity: usize::try_from(cap_bytes / 32).unwrap_or(usize::MAX).max(1 << 16),
            waker: OnceLock::new(),
            lacks_room: AtomicBool::new(false),
            is_announced: AtomicBool::new(false),
            waited_for: AtomicU64::new(0),
            last_used: AtomicU64::new(0),
            demanded: AtomicU64::new(0),
            counts: Counts::default(),
        }
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
pub struct Store {
    sample: u64,
    verified: Arc<Verified>,
}

impl Store {
    /// The inode.
    #[must_use]
    pub fn ino(&self) -> u64 {
        super::Inode::Node(crate::catalog::Node::Sample(self.sample)).number()
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
        if queue.announced.len() + samples.len() > self.prefetch.capacity {
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
        self.prefetch.waited_for.load(Ordering::Relaxed) > 0
    }

    /// What to fetch next; `None` if nothing is to be, or there is no room for it now.
    pub fn next_fetch(&self) -> Option<Fetch> {
        let mut queue = self.prefetch.lock();
        loop {
            while let Some(id) = queue.foreseen_blocks.pop_front() {
                if let Some(fetch) = self.fetch_of_block(id) {
                    return Some(fetch);
                }
            }
            if !queue.foreseen.is_empty() {
                let foreseen: Vec<u64> = queue.foreseen.drain(..).collect();
                for extent in self.extents(&foreseen, false).into_iter().rev() {
                    queue.batch.push_front(extent);
                }
            }
            if queue.batch.is_empty() && !self.begin_batch(&mut queue) {
                return None;
            }
            let Some(extent) = queue.batch.pop_front() else { continue };
            let Some(rights) = self.room_for(&mut queue, &extent) else {
                if extent.range.end - extent.range.start > self.prefetch.window.cap_bytes() {
                    self.finished(&extent, true);
                    continue;
                }
                if extent.is_announced {
                    queue.batch.push_front(extent);
                }
                self.prefetch.lacks_room.store(true, Ordering::Relaxed);
                return None;
            };
            if let Some(fetch) = self.fetch_of_extent(extent, rights) {
                return Some(fetch);
            }
        }
    }

    /// What to fetch because a sample was looked up, if those that are will be read, it may be in a
    /// container that `is_cold`, and nobody fetches it.
    pub fn looked_up(&self, ino: u64, is_cold: impl Fn(usize) -> bool) -> Option<Fetch> {
        let super::Inode::Node(crate::catalog::Node::Sample(sample)) = super::Inode::of(ino) else {
            return None;
        };
        if !self.stats.reads_follow_lookups() {
            return None;
        }
        let located = self.to_fetch(sample).filter(|located| is_cold(located.part))?;
        let at = located.sample;
        let range = at.offset_bytes..end_of(&located);
        let fetch = if self.takes_blocks() && self.blocks.is_small(at.length_bytes) {
            let id = self.blocks.around(located.part, &range)?;
            self.fetch_of_block(id)?
        } else if at.length_bytes <= self.cache.max_whole_bytes() {
            let rights = (self.budget.reserve(at.length_bytes + 8192)?, None);
            let samples = vec![(sample, located)];
            let extent = Extent { part: located.part, range, samples, is_announced: false };
            self.fetch_of_extent(extent, rights)?
        } else {
            return None;
        };
        add(&self.prefetch.counts.looked_up, 1);
        Some(fetch)
    }

    fn fetch_of_block(&self, id: BlockId) -> Option<Fetch> {
        let lead = self.blocks.lead(id)?;
        let range = self.blocks.range(id, self.parts[id.0].size_bytes);
        let span = Span::new(id.0, range, self.buffers.take(0));
        let _in_flight = self.in_flight(0);
        let since = Instant::now();
        Some(Fetch { span, what: What::Block(lead), is_announced: false, since, _in_flight })
    }

    fn in_flight(&self, samples: u64) -> InFlight {
        add(&self.prefetch.counts.in_flight, samples);
        InFlight(Arc::clone(&self.prefetch), samples)
    }

    /// `None` if all of it is there, or on its way.
    fn fetch_of_extent(&self, extent: Extent, rights: Rights) -> Option<Fetch> {
        let Extent { part, samples, is_announced, .. } = extent;
        let all = samples.len();
        let lead = |(sample, located)| Some((sample, located, self.cache.lead_ahead(sample)?));
        let samples: Vec<_> = samples.into_iter().filter_map(lead).collect();
        if is_announced {
            add(&self.prefetch.counts.done, (all - samples.len()) as u64);
        }
        let start = samples.iter().map(|(_, located, _)| located.sample.offset_bytes).min()?;
        let ends = samples.iter().map(|(_, located, _)| end_of(located));
        let span = Span::new(part, start..ends.max()?, self.buffers.take(0));
        let _in_flight = self.in_flight(samples.len() as u64);
        let (what, since) = (What::Samples(samples, rights), Instant::now());
        Some(Fetch { span, what, is_announced, since, _in_flight })
    }

    /// Makes room for a read: stale samples go, then blocks, which nobody has announced.
    fn room_for(&self, queue: &mut Queue, extent: &Extent) -> Option<Rights> {
        // With what it may have to be read with.
        let bytes = extent.range.end - extent.range.start + 8192;
        let window = self.prefetch.window.reserve(bytes).or_else(|| {
            self.drop_stale(queue);
            self.prefetch.window.reserve(bytes)
        })?;
        loop {
            if let Some(reservation) = self.budget.reserve(bytes) {
                return Some((reservation, Some(window)));
            }
            if !self.blocks.evict_any() {
                return None;
            }
        }
    }

    fn drop_stale(&self, queue: &mut Queue) {
        let last_used = self.prefetch.last_used.load(Ordering::Relaxed);
        let age = STALE + 2 * queue.batch_samples;
        while let Some(&(order, sample)) = queue.arrived.front() {
            if self.cache.has_ahead(sample) {
                if order + age > last_used {
                    break;
                }
                self.drop_unused(sample);
            }
            queue.arrived.pop_front();
        }
    }

    fn drop_unused(&self, sample: u64) {
        if let Some(unused) = self.cache.drop_ahead(sample) {
            add(&self.prefetch.counts.unused_bytes, unused);
        }
    }

    /// Sorts the next announced samples by place; false if there are none.
    fn begin_batch(&self, queue: &mut Queue) -> bool {
        let most = (self.prefetch.window.cap_bytes() / 4).max(1);
        let limit = queue.batch_bytes.clamp(FIRST_BATCH_BYTES.min(most), most);
        queue.batch_bytes = limit * 2;
        let mean = (self.total_bytes / self.dataset.len().max(1)).max(1);
        let count = usize::try_from(limit / mean).unwrap_or(usize::MAX);
        let count = count.clamp(1, MAX_BATCH_SAMPLES).min(queue.announced.len());
        self.prefetch.is_announced.store(count > 0, Ordering::Relaxed);
        if count == 0 {
            return false;
        }
        let mut samples: Vec<u64> = queue.announced.drain(..count).collect();
        queue.batch_samples = queue.batch_samples.max(count as u64);
        if self.blocks.is_worthwhile() && self.total_bytes < self.budget.cap_bytes() / 8 * 7 {
            queue.foreseen_blocks.extend(self.take_blocks(&mut samples));
        }
        queue.batch = self.extents(&samples, true).into();
        true
    }

    /// Takes out the samples that come with a block, where all blocks fit and the samples' bytes need not be
    /// stored; gives the blocks in the order of their places.
    fn take_blocks(&self, samples: &mut Vec<u64>) -> Vec<BlockId> {
        let mut blocks = Vec::new();
        let before = samples.len();
        samples.retain(|&sample| {
            let Some(located) = self.to_fetch(sample).filter(|_| !self.known.get(sample)) else {
                return true;
            };
            let range = located.sample.offset_bytes..end_of(&located);
            let id = self.blocks.around(located.part, &range);
            let id = id.filter(|_| self.blocks.is_small(located.sample.length_bytes));
            blocks.extend(id);
            id.is_none()
        });
        add(&self.prefetch.counts.done, (before - samples.len()) as u64);
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// Reads for samples, in the order of their places.
    fn extents(&self, samples: &[u64], is_announced: bool) -> Vec<Extent> {
        let mut located: Vec<(u64, Located)> = Vec::with_capacity(samples.len());
        for &sample in samples {
            if let Some(found) = self.to_fetch(sample) {
                located.push((sample, found));
            } else if is_announced {
                add(&self.prefetch.counts.done, 1);
            }
        }
        located.sort_unstable_by_key(|(_, at)| (at.part, at.sample.offset_bytes));
        let mut extents: Vec<Extent> = Vec::new();
        for (sample, at) in located {
            let (start, end) = (at.sample.offset_bytes, end_of(&at));
            if let Some(last) = extents.last_mut()
                && last.part == at.part
                && start <= last.range.end.saturating_add(MERGE_GAP_BYTES)
                && end.max(last.range.end) - last.range.start <= MERGED_BYTES
            {
                last.range.end = last.range.end.max(end);
                last.samples.push((sample, at));
                add(&self.prefetch.counts.merged, 1);
                continue;
            }
            let samples = vec![(sample, at)];
            extents.push(Extent { part: at.part, range: start..end, samples, is_announced });
        }
        extents
    }

    /// Where a sample lies that is worth fetching: there, not known to be bad, and not with the kernel.
    fn to_fetch(&self, sample: u64) -> Option<Located> {
        if self.delivered.get(sample) {
            return None;
        }
        let located = self.located(sample).ok()?;
        let at = located.sample;
        let is_good = !at.damaged && !self.bad.is_hopeless(sample, located.part);
        (is_good && at.length_bytes > 0).then_some(located)
    }

    fn finished(&self, extent: &Extent, is_failed: bool) {
        if extent.is_announced {
            add(&self.prefetch.counts.done, extent.samples.len() as u64);
            add(
                &self.prefetch.counts.failed,
                if is_failed { extent.samples.len() as u64 } else { 0 },
            );
        }
    }

    /// Takes what was fetched, or not. What it gives is to be stored in the kernel's page cache; it can be
    /// asked for meanwhile.
    pub fn land(&self, mut fetch: Fetch, fetched: Result<(), ReadError>) -> Vec<Store> {
        let samples = match &fetch.what {
            What::Samples(samples, _) => samples.len() as u64,
            What::Block(_) => 0,
        };
        if fetch.is_announced {
            add(&self.prefetch.counts.done, samples);
        }
        if let Err(error) = fetched {
            // Whoever asks for it will be told.
            if fetch.is_announced {
                add(&self.prefetch.counts.failed, samples);
            }
            if let ReadError::Changed(_) = error {
                let path = &self.parts[fetch.span.part()].path;
                self.bad.add_container(fetch.span.part(), path, error.to_string());
            }
            return Vec::new();
        }
        let bytes = fetch.span.length() as u64;
        self.stats.fetched(bytes);
        self.stats.stage(Stage::Ahead, fetch.since);
        add(&self.prefetch.counts.reads, 1);
        add(&self.prefetch.counts.fetched_bytes, bytes);
        let buffer = fetch.span.swap_buffer(Buffer::empty());
        match fetch.what {
            What::Block(lead) => {
                lead.land(buffer, fetch.span.place());
                Vec::new()
            }
            What::Samples(samples, rights) => {
                let chunk = Arc::new(Chunk::new(buffer, fetch.span.place(), rights));
                self.land_samples(samples, &chunk, fetch.span.range().start, fetch.is_announced)
            }
        }
    }

    fn land_samples(
        &self,
        samples: Vec<(u64, Located, Lead)>,
        chunk: &Arc<Chunk>,
        start: u64,
        is_announced: bool,
    ) -> Vec<Store> {
        let mut stores = Vec::new();
        let mut arrived = Vec::with_capacity(samples.len());
        let first = {
            let mut queue = self.prefetch.lock();
            queue.arrivals += samples.len() as u64;
            queue.arrivals - samples.len() as u64
        };
        for (order, (sample, located, lead)) in (first..).zip(samples) {
            match self.check_fetched(sample, &located, chunk, start) {
                Some(verified) => {
                    let verified = Arc::new(verified);
                    lead.land_ahead(Arc::clone(&verified), order);
                    arrived.push((order, sample));
                    if self.known.get(sample) {
                        stores.push(Store { sample, verified });
                    }
                }
                None if is_announced => add(&self.prefetch.counts.failed, 1),
                None => {}
            }
        }
        let mut queue = self.prefetch.lock();
        queue.arrived.extend(arrived);
        let room = self.options.kernel_bytes.saturating_sub(queue.stored_bytes);
        let mut bytes = 0;
        stores.retain(|store| {
            bytes += store.bytes().len() as u64;
            bytes <= room
        });
        queue.stored_bytes += bytes.min(room);
        stores
    }

    fn check_fetched(
        &self,
        sample: u64,
        located: &Located,
        chunk: &Arc<Chunk>,
        start: u64,
    ) -> Option<Verified> {
        let at = located.sample;
        let must_check = self.must_check(sample, located);
        let from = (at.offset_bytes - start) as usize;
        let range = from..from + at.length_bytes as usize;
        let verified = Verified::check_part(chunk, range, at.crc32.filter(|_| must_check));
        if must_check {
            self.stats.verified(verified.is_ok());
        }
        match verified {
            Ok(verified) => {
                if must_check {
                    self.verified.set(sample);
                }
                Some(verified)
            }
            Err(found) => {
                let expected = at.crc32.unwrap_or_default();
                let fault = Fault::Checksum { expected, found };
                let path = &self.parts[located.part].path;
                self.bad.add(sample, path, Bad { located: *located, fault });
                None
            }
        }
    }

    /// A sample was put into the kernel's page cache, or not: then it stays here.
    pub fn stored(&self, store: &Store, is_stored: bool) {
        if is_stored {
            self.cache.drop_ahead(store.sample);
            self.delivered.set(store.sample);
            add(&self.prefetch.counts.stored_bytes, store.bytes().len() as u64);
        }
    }

    /// A sample that was fetched ahead was asked for; its order of arrival if that was all of it.
    pub(super) fn used_ahead(&self, sample: u64, located: &Located, used_up: Option<u64>) {
        let prefetch = &self.prefetch;
        prefetch.demanded.store(0, Ordering::Relaxed);
        let Some(order) = used_up else { return };
        prefetch.last_used.fetch_max(order, Ordering::Relaxed);
        add(&prefetch.counts.used, 1);
        self.observe(sample, located);
        let has_room = prefetch.window.held_bytes() <= prefetch.window.cap_bytes() / 4 * 3;
        if has_room && prefetch.lacks_room.swap(false, Ordering::Relaxed) {
            prefetch.wake();
        }
    }

    /// A sample must be fetched because nobody foresaw that it would be asked for.
    pub(super) fn demanded(&self, sample: u64, located: &Located) {
        self.observe(sample, located);
        let prefetch = &self.prefetch;
        let demanded = prefetch.demanded.fetch_add(1, Ordering::Relaxed);
        if demanded > ASTRAY && prefetch.lacks_room.swap(false, Ordering::Relaxed) {
            prefetch.demanded.store(0, Ordering::Relaxed);
            let mut queue = prefetch.lock();
            let dropped = queue.announced.len() + queue.batch.len();
            queue.announced.clear();
            prefetch.is_announced.store(false, Ordering::Relaxed);
            queue.batch.clear();
            for (_, sample) in std::mem::take(&mut queue.arrived) {
                self.drop_unused(sample);
            }
            tracing::info!(dropped, "what was announced is not what is read: it is forgotten");
        }
    }

    /// Looks for a pattern in what is asked for.
    pub(super) fn observe(&self, sample: u64, located: &Located) {
        // Who waits here delays a reader: rather a number is missed.
        let Ok(mut queue) = self.prefetch.queue.try_lock() else { return };
        let at = located.sample;
        let foreseen = if self.blocks.is_worthwhile() && self.blocks.is_small(at.length_bytes) {
            let Some((part, number)) =
                self.blocks.around(located.part, &(at.offset_bytes..at.offset_bytes))
            else {
                return;
            };
            // Numbers of different containers are no neighbours.
            let base = (part as u64) << 40;
            let blocks = self.blocks.count(self.parts[part].size_bytes);
            let all = base..base + blocks;
            let next = queue.blocks.observe(base + number, AHEAD_BLOCKS, &all);
            queue.foreseen_blocks.extend(next.iter().map(|number| (part, number - base)));
            next.len()
        } else {
            let depth = (AHEAD_BYTES / at.length_bytes.max(1)).clamp(2, 1024);
            let next = queue.samples.observe(sample, depth, &(0..self.dataset.len()));
            queue.foreseen.extend(&next);
            next.len()
        };
        drop(queue);
        if foreseen > 0 {
            add(&self.prefetch.counts.foreseen, foreseen as u64);
            self.prefetch.wake();
        }
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
        self.prefetch.capacity
    }

    #[cfg(test)]
    pub(super) fn announced_order(&self) -> Vec<u64> {
        self.prefetch.lock().announced.iter().copied().collect()
    }
}

fn end_of(located: &Located) -> u64 {
    located.sample.offset_bytes + located.sample.length_bytes
}
