//! The choice of the next fetch.

use super::Prefetch;
use super::fetch::{Fetch, InFlightCount, Target};
use super::queue::{Again, LookedUp, MergedRead, Queue, STALE, add};
use crate::catalog::{Located, Node};
use crate::format::Content;
use crate::vfs::inode::Inode;
use crate::vfs::memory::blocks::BlockId;
use crate::vfs::memory::budget::Reservation;
use crate::vfs::memory::cache::CacheKey;
use crate::vfs::memory::chunk::Rights;
use crate::vfs::span::Span;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

/// Announced samples are sorted by place in batches; the first batches are small, so that a reader need not wait.
const FIRST_BATCH_BYTES: u64 = 2 << 20;
const MAX_BATCH_SAMPLES: usize = 1 << 16;

/// The reason why a sample is not fetched ahead.
enum Unfetched {
    /// There are no bytes to fetch: the kernel has the sample, or it is empty.
    Needless,
    /// The sample is damaged, or encrypted and cannot be decrypted, or known to be bad; or its place cannot be read.
    Bad(Option<Located>),
    /// The sample is decoded, or put together, as it is read.
    Decoded,
}

/// An announced sample that cannot be read, and is not listed and counted yet.
pub(super) struct Refused {
    sample: u64,
    /// The place of the sample, if it can be read.
    located: Option<Located>,
    /// A warm-up is not over before the sample is counted.
    _in_flight: InFlightCount,
}

impl Prefetch {
    /// The next fetch; `None` if no fetch is due, or there is no room for it now.
    pub(in crate::vfs) fn next_fetch(&self) -> Option<Fetch> {
        let fetch = self.planned();
        self.refuse();
        fetch
    }

    fn planned(&self) -> Option<Fetch> {
        let mut queue = self.lock();
        loop {
            while let Some(id) = queue.foreseen_blocks.pop_front() {
                if let Some(fetch) = self.fetch_of_block(id) {
                    return Some(fetch);
                }
            }
            if !queue.foreseen.is_empty() {
                let foreseen: Vec<u64> = queue.foreseen.drain(..).collect();
                for read in self.merged_reads(&foreseen, false).into_iter().rev() {
                    queue.batch.push_front(read);
                }
            }
            if queue.batch.is_empty() && !self.begin_batch(&mut queue) {
                let has_room = !queue.cache_is_full;
                return has_room.then(|| self.next_fill(&mut queue.fills)).flatten();
            }
            let Some(read) = queue.batch.pop_front() else { continue };
            if room_bytes(&read) > self.window.cap_bytes() {
                if read.samples.len() > 1 {
                    read.apart().rev().for_each(|read| queue.batch.push_front(read));
                } else if read.is_announced {
                    add(&self.counts.done, 1);
                    add(&self.counts.skipped, 1);
                }
                continue;
            }
            let Some(rights) = self.room_for(&mut queue, &read) else {
                // An announced read behind a foreseen one finds room where the foreseen one may have none.
                if !read.is_announced {
                    continue;
                }
                queue.batch.push_front(read);
                self.lacks_room.store(true, Ordering::Relaxed);
                return None;
            };
            self.lacks_room.store(false, Ordering::Relaxed);
            let (fetch, rest) = self.fetch_of_read(read, rights);
            if let Some(rest) = rest {
                queue.batch.push_front(rest);
            }
            if fetch.is_some() {
                return fetch;
            }
        }
    }

    /// The fetch for a sample that was looked up, if reads follow lookups, the sample lies in a part that
    /// `is_cold`, and it is not in flight.
    pub(in crate::vfs) fn looked_up(
        &self,
        ino: u64,
        is_cold: impl Fn(usize) -> bool,
    ) -> Option<Fetch> {
        let Inode::Node(Node::Sample(sample)) = Inode::of(ino) else {
            return None;
        };
        if !self.samples.stats().reads_follow_lookups() {
            return None;
        }
        let located = self.to_fetch(sample).ok().filter(|located| is_cold(located.part))?;
        let at = located.sample;
        let range = at.extent();
        let is_small = self.takes_blocks() && self.memory.is_small(&at);
        let block = self.memory.blocks().around(located.part, &range).filter(|_| is_small);
        // A sample that lies in two blocks mostly finds both in memory.
        let is_there = is_small && block.is_none_or(|id| self.memory.blocks().has(id));
        if is_there || !self.memory.fits_whole(&at) {
            return None;
        }
        let alone = || {
            let (part, samples) = (located.part, vec![(sample, located)]);
            let again = Again::default();
            let read = MergedRead { part, range, samples, is_announced: false, again };
            let rights = self.room_for_looked_up(room_bytes(&read))?;
            self.fetch_of_read(read, rights).0
        };
        let fetch = block.and_then(|id| self.fetch_of_block(id)).or_else(alone)?;
        add(&self.counts.looked_up, 1);
        Some(Fetch { is_looked_up: true, ..fetch })
    }

    /// Room for a sample that was looked up, if need be the room of looked-up samples that are not read any more.
    fn room_for_looked_up(&self, bytes: u64) -> Option<Rights> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        let window = self.looked_up_window.reserve(bytes).or_else(|| {
            // To wait for the lock would delay a reader.
            let mut queue = self.queue.try_lock().ok()?;
            self.drop_looked_up(&mut queue, STALE);
            self.looked_up_window.reserve(bytes)
        })?;
        Some((self.memory.budget().reserve(bytes)?, Some(window)))
    }

    /// Drops samples that were looked up `age` lookups ago or more: after [`STALE`], their readers do not want all of them.
    pub(super) fn drop_looked_up(&self, queue: &mut Queue, age: u64) {
        let lookups = self.lookups.load(Ordering::Relaxed);
        while let Some(&LookedUp { lookups: then, number, sample }) =
            queue.arrived_looked_up.front()
            && then + age <= lookups
        {
            queue.arrived_looked_up.pop_front();
            if self.memory.cache().has_arrival(sample, number) {
                self.drop_unused(sample);
            }
        }
    }

    fn fetch_of_block(&self, id: BlockId) -> Option<Fetch> {
        let leader = self.memory.blocks().lead(id)?;
        let range = self.memory.blocks().range(id, self.samples.bytes_of(id.0));
        let span = Span::new(id.0, range, self.samples.buffers().take_any());
        let _in_flight = self.in_flight(0);
        let since = Instant::now();
        let target = Target::Block(leader);
        let (is_announced, is_looked_up, again) = (false, false, Again::default());
        Some(Fetch { span, target, is_announced, is_looked_up, again, since, _in_flight })
    }

    pub(super) fn in_flight(&self, samples: u64) -> InFlightCount {
        InFlightCount::new(&self.counts, samples)
    }

    /// The fetch of a read, without the samples that are cached or in flight. Where they leave a gap that is not worth
    /// reading, the fetch ends; the samples behind the gap are a read of their own.
    fn fetch_of_read(
        &self,
        read: MergedRead,
        rights: Rights,
    ) -> (Option<Fetch>, Option<MergedRead>) {
        let MergedRead { part, range, samples: mut left, is_announced, again } = read;
        let gap_bytes = self.samples.store().part(part).profile().merge_gap_bytes;
        let (mut samples, mut span) = (Vec::with_capacity(left.len()), None::<Range<u64>>);
        let mut looked_at = 0;
        for (sample, located) in &left {
            let Range { start, end } = located.sample.extent();
            if span.as_ref().is_some_and(|span| start > span.end.saturating_add(gap_bytes)) {
                break;
            }
            looked_at += 1;
            let is_late = match is_announced {
                true => self.takes_latest_read(*sample),
                // The sample's reader may have been served by the fetch for its lookup.
                false => {
                    let demanded = self.latest_demand(*sample).load(Ordering::Relaxed);
                    demanded == sample + 1 || self.takes_latest_read(*sample)
                }
            };
            if is_late {
                continue;
            }
            if let Some(leader) = self.memory.cache().lead_prefetch(*sample) {
                let span = span.get_or_insert(start..end);
                *span = span.start.min(start)..span.end.max(end);
                samples.push((*sample, *located, leader));
            }
        }
        if is_announced {
            add(&self.counts.done, (looked_at - samples.len()) as u64);
        }
        let behind = left.split_off(looked_at);
        let rest = behind.first().map(|(_, located)| located.sample.extent().start).map(|start| {
            let range = start..range.end;
            MergedRead { part, range, samples: behind, is_announced, again }
        });
        let fetch = span.map(|range| {
            let span = Span::new(part, range, self.samples.buffers().take_any());
            let _in_flight = self.in_flight(samples.len() as u64);
            let (target, since) = (Target::Samples(samples, rights), Instant::now());
            let is_looked_up = false;
            Fetch { span, target, is_announced, is_looked_up, again, since, _in_flight }
        });
        (fetch, rest)
    }

    /// Makes room for a read: stale samples go first, then, for an announced read, samples that a pattern foresaw, then those
    /// that readers have left after a part, then blocks, and for an announced read the entries that readers have left over.
    fn room_for(&self, queue: &mut Queue, read: &MergedRead) -> Option<Rights> {
        let bytes = room_bytes(read);
        let window = self.window.reserve(bytes).or_else(|| {
            self.drop_stale(queue);
            self.window.reserve(bytes)
        });
        let window = window.or_else(|| self.in_place_of_foreseen(queue, read)).or_else(|| {
            read.is_announced.then(|| self.drop_left())?;
            self.window.reserve(bytes)
        })?;
        let memory = if read.is_announced {
            let first = read.samples.first().map_or(0, |(sample, _)| *sample);
            let room = || self.memory.cache().room_ahead(CacheKey::Sample(first), bytes);
            room().or_else(|| {
                self.drop_left();
                self.drop_looked_up(queue, STALE / 8);
                room()
            })?
        } else {
            self.in_place_of_blocks(bytes)?
        };
        Some((memory, Some(window)))
    }

    /// Memory for samples that a pattern foresaw: a guess does not push out entries that readers have left over.
    fn in_place_of_blocks(&self, bytes: u64) -> Option<Reservation> {
        loop {
            if let Some(memory) = self.memory.budget().reserve(bytes) {
                return Some(memory);
            }
            if !self.memory.blocks().evict_any() {
                return None;
            }
        }
    }

    /// Room in the window for an announced read. Samples that a pattern foresaw and that are not read yet make it: in an
    /// order that has no pattern, chance makes patterns, whose samples are not read for long.
    fn in_place_of_foreseen(&self, queue: &mut Queue, read: &MergedRead) -> Option<Reservation> {
        while read.is_announced
            && let Some((number, sample)) = queue.arrived_foreseen.pop_first()
        {
            if self.memory.cache().has_arrival(sample, number) {
                self.drop_unused(sample);
                if let Some(window) = self.window.reserve(room_bytes(read)) {
                    return Some(window);
                }
            }
        }
        None
    }

    fn drop_stale(&self, queue: &mut Queue) {
        let last_used = self.last_used.load(Ordering::Relaxed);
        let age = queue.stale_age();
        for arrived in [&mut queue.arrived, &mut queue.arrived_foreseen] {
            while let Some((number, sample)) = arrived.first() {
                if self.memory.cache().has_arrival(sample, number) {
                    if number + age > last_used {
                        break;
                    }
                    self.drop_unused(sample);
                }
                arrived.pop_first();
            }
        }
    }

    fn drop_left(&self) {
        for sample in self.memory.cache().left_in_part() {
            self.drop_unused(sample);
        }
    }

    pub(super) fn drop_unused(&self, sample: u64) {
        if let Some(unused) = self.memory.cache().drop_prefetched(sample) {
            add(&self.counts.unused_bytes, unused);
        }
    }

    /// Sorts the next announced samples by place; false if there are none.
    fn begin_batch(&self, queue: &mut Queue) -> bool {
        let most = (self.window.cap_bytes() / 4).max(1);
        let limit = queue.batch_bytes.clamp(FIRST_BATCH_BYTES.min(most), most);
        queue.batch_bytes = limit * 2;
        let count = usize::try_from(limit / self.mean_bytes()).unwrap_or(usize::MAX);
        let count = count.clamp(1, MAX_BATCH_SAMPLES).min(queue.announced.len());
        self.is_announced.store(count > 0, Ordering::Relaxed);
        let reached = queue.first_number();
        if self.has_remote_parts && reached > queue.reached {
            queue.reached = reached;
            self.samples.store().note_reached(reached);
        }
        if count == 0 {
            return false;
        }
        let mut samples = queue.announced.take(count);
        queue.batch_samples = queue.batch_samples.max(count as u64);
        if self.memory.blocks().is_worthwhile()
            && self.samples.dataset().data_bytes() < self.memory.budget().cap_bytes() / 8 * 7
        {
            queue.foreseen_blocks.extend(self.take_blocks(&mut samples));
        }
        queue.batch = self.merged_reads(&samples, true).into();
        true
    }

    /// Takes out the samples that come with a block, where all blocks fit and the samples' bytes need not be
    /// stored in the kernel's page cache; gives the blocks in the order of their places.
    fn take_blocks(&self, samples: &mut Vec<u64>) -> Vec<BlockId> {
        let mut blocks = Vec::new();
        let before = samples.len();
        samples.retain(|&sample| {
            let Some(located) = self.to_fetch(sample).ok().filter(|_| !self.in_kernel.get(sample))
            else {
                return true;
            };
            let id = self.memory.blocks().around(located.part, &located.sample.extent());
            let id = id.filter(|_| self.memory.is_small(&located.sample));
            blocks.extend(id);
            id.is_none()
        });
        add(&self.counts.done, (before - samples.len()) as u64);
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// The reads for samples, in the order of their places.
    pub(super) fn merged_reads(&self, samples: &[u64], is_announced: bool) -> Vec<MergedRead> {
        let mut located: Vec<(u64, Located)> = Vec::with_capacity(samples.len());
        for &sample in samples {
            match self.to_fetch(sample) {
                Ok(found) => located.push((sample, found)),
                Err(why) if is_announced => self.unfetched(sample, &why),
                Err(_) => {}
            }
        }
        located.sort_unstable_by_key(|(_, at)| (at.part, at.sample.offset_bytes));
        let mut reads: Vec<MergedRead> = Vec::new();
        for (sample, at) in located {
            let Range { start, end } = at.sample.extent();
            let profile = self.samples.store().part(at.part).profile();
            if let Some(last) = reads.last_mut()
                && last.part == at.part
                && start <= last.range.end.saturating_add(profile.merge_gap_bytes)
                && end.max(last.range.end) - last.range.start <= profile.max_merged_bytes
            {
                last.range.end = last.range.end.max(end);
                last.samples.push((sample, at));
                add(&self.counts.merged, 1);
                continue;
            }
            let (part, range, samples) = (at.part, start..end, vec![(sample, at)]);
            reads.push(MergedRead { part, range, samples, is_announced, again: Again::default() });
        }
        reads
    }

    /// Counts an announced sample that is not fetched.
    fn unfetched(&self, sample: u64, why: &Unfetched) {
        match *why {
            Unfetched::Needless => {}
            Unfetched::Bad(located) => {
                let _in_flight = self.in_flight(1);
                return self.refused().push(Refused { sample, located, _in_flight });
            }
            Unfetched::Decoded => add(&self.counts.skipped, 1),
        }
        add(&self.counts.done, 1);
    }

    /// Lists and counts announced samples that cannot be read. Looks at their containers, so not with the queue locked.
    pub(super) fn refuse(&self) {
        let refused = std::mem::take(&mut *self.refused());
        for Refused { sample, located, _in_flight } in refused {
            if let Some(located) = located.filter(|at| at.sample.damaged)
                && !self.samples.bad().contains(sample)
            {
                self.samples.refuse_damaged(sample, located);
            }
            add(&self.counts.failed, 1);
            add(&self.counts.done, 1);
        }
    }

    fn refused(&self) -> MutexGuard<'_, Vec<Refused>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of a sample that is worth fetching: not empty, not known to be bad, and not in the kernel's page cache.
    fn to_fetch(&self, sample: u64) -> Result<Located, Unfetched> {
        if self.delivered.get(sample) {
            return Err(Unfetched::Needless);
        }
        let located = self.samples.locate(sample).map_err(|_| Unfetched::Bad(None))?;
        let at = located.sample;
        if at.damaged || self.samples.bad().is_hopeless(sample, located.part) {
            return Err(Unfetched::Bad(Some(located)));
        }
        let can_be = match at.content {
            Content::Stored | Content::Prefixed(_) => at.length_bytes > 0,
            Content::Encoded(_) => {
                let container = self.samples.container(&located);
                self.memory.fits_whole(&at) && container.intervals(located.index).is_none()
            }
            Content::Sparse(_) => false,
        };
        match at.content {
            _ if can_be => Ok(located),
            Content::Encoded(1..) | Content::Sparse(1..) => Err(Unfetched::Decoded),
            _ => Err(Unfetched::Needless),
        }
    }
}

/// The memory that a read takes, with the bytes before and behind it that an aligned fetch may need, and with the
/// samples that are made of it.
fn room_bytes(read: &MergedRead) -> u64 {
    let made = read.samples.iter().map(|(_, located)| match located.sample.content {
        Content::Stored | Content::Sparse(_) => 0,
        Content::Prefixed(_) | Content::Encoded(_) => located.sample.size_bytes(),
    });
    read.range.end - read.range.start + 8192 + made.sum::<u64>()
}
