//! What becomes of what was fetched, and of what is asked for.

use super::{Delivery, Extent, Fetch, What, add};
use crate::catalog::{Located, Node};
use crate::io::{Buffer, ReadError};
use crate::vfs::bad::{Bad, Fault};
use crate::vfs::block::Chunk;
use crate::vfs::cache::Lead;
use crate::vfs::content::Unfit;
use crate::vfs::inode::Inode;
use crate::vfs::verify::{Memory, Verified};
use crate::vfs::{Errno, Phase, Stage, Traced, Vfs};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How far a pattern is followed.
const AHEAD_BYTES: u64 = 16 << 20;
const AHEAD_BLOCKS: u64 = 16;
/// So many samples fetched on demand, none of them fetched ahead: the readers do something else.
const ASTRAY: u64 = 8192;
/// So many samples that arrived are listed before those that were asked for are taken off the list.
const ARRIVED: usize = 4096;

impl Vfs {
    /// Takes what was fetched, or not. What it gives is to be stored in the kernel's page cache; it can be
    /// asked for meanwhile.
    pub fn land(&self, mut fetch: Fetch, fetched: Result<(), ReadError>) -> Vec<Delivery> {
        let mut traced = self.trace_ahead(&fetch);
        if let Err(error) = fetched {
            self.trace.end(traced, Err(Errno::from(&error)));
            self.not_fetched(fetch, &error);
            return Vec::new();
        }
        traced.enter(Phase::Verify);
        if let (What::Samples(samples, _), true) = (&fetch.what, fetch.is_announced) {
            add(&self.prefetch.counts.done, samples.len() as u64);
        }
        let bytes = fetch.span.length() as u64;
        self.stats.fetched(bytes);
        self.stats.stage(Stage::Ahead, fetch.since);
        add(&self.prefetch.counts.reads, 1);
        add(&self.prefetch.counts.fetched_bytes, bytes);
        let buffer = fetch.span.swap_buffer(Buffer::empty());
        let stores = match fetch.what {
            What::Block(lead) => {
                lead.land(buffer, fetch.span.place());
                Vec::new()
            }
            What::Samples(samples, rights) => {
                let chunk = Arc::new(Chunk::new(buffer, fetch.span.place(), rights));
                self.land_samples(samples, &chunk, fetch.span.range().start, fetch.is_announced)
            }
        };
        self.trace.end(traced, Ok(bytes));
        stores
    }

    fn trace_ahead(&self, fetch: &Fetch) -> Traced {
        let (first, samples) = match &fetch.what {
            What::Block(_) => (None, 0),
            What::Samples(samples, _) => {
                (samples.first().map(|(sample, ..)| *sample), samples.len())
            }
        };
        let first = first.map(|sample| Inode::Node(Node::Sample(sample)).number());
        self.trace.begin_ahead(&fetch.span, first, samples, fetch.since)
    }

    /// Of several samples those that can be read are fetched one by one; one that cannot be is listed if it
    /// was announced, and else left to who asks for it.
    fn not_fetched(&self, fetch: Fetch, error: &ReadError) {
        let part = fetch.span.part();
        if let ReadError::Changed(_) = error {
            self.bad.add_container(part, self.store.part(part).name(), error.to_string());
        }
        let What::Samples(samples, _) = fetch.what else { return };
        let counts = &self.prefetch.counts;
        if samples.len() > 1 && !matches!(error, ReadError::Changed(_)) {
            let extent = |&(sample, located, _): &(u64, Located, Lead)| Extent {
                part,
                range: located.sample.extent(),
                samples: vec![(sample, located)],
                is_announced: fetch.is_announced,
            };
            let extents: Vec<_> = samples.iter().map(extent).collect();
            // Whoever waits for one of them may be served on this very thread: not with the queue locked.
            drop(samples);
            self.prefetch.lock().batch.extend(extents);
        } else if fetch.is_announced {
            add(&counts.done, samples.len() as u64);
            add(&counts.failed, samples.len() as u64);
            for (sample, located, _) in &samples {
                let fault = Fault::Unreadable(error.to_string());
                self.bad.add(
                    *sample,
                    self.store.part(part).name(),
                    Bad { located: *located, fault },
                );
            }
        }
    }

    fn land_samples(
        &self,
        samples: Vec<(u64, Located, Lead)>,
        chunk: &Arc<Chunk>,
        start: u64,
        is_announced: bool,
    ) -> Vec<Delivery> {
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
                        stores.push(Delivery { sample, verified, _in_flight: self.in_flight(1) });
                    }
                }
                None if is_announced => add(&self.prefetch.counts.failed, 1),
                None => {}
            }
        }
        let mut queue = self.prefetch.lock();
        queue.arrived.extend(arrived);
        // What was asked for goes now and then, or the list grows as long as there is room for all.
        if queue.arrived.len() > queue.arrived_limit.max(ARRIVED) {
            queue.arrived.retain(|&(order, sample)| self.cache.has_arrival(sample, order));
            queue.arrived_limit = queue.arrived.len() * 2;
        }
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
        let extent = located.sample.extent();
        let range = (extent.start - start) as usize..(extent.end - start) as usize;
        match self.admit(sample, located, Memory::Shared(Arc::clone(chunk)), range) {
            Ok(verified) => Some(verified.with_rights(chunk)),
            // Who asks for it finds it where it lies.
            Err(Unfit::Moved) => None,
            Err(Unfit::Fault(fault)) => {
                let path = self.store.part(located.part).name();
                self.bad.add(sample, path, Bad { located: *located, fault });
                None
            }
        }
    }

    /// Whether nobody has asked for a sample yet. Who has may still hold its pages locked, and must not be
    /// waited for.
    #[must_use]
    pub fn may_store(&self, store: &Delivery) -> bool {
        self.cache.has_ahead(store.sample)
    }

    /// A sample was put into the kernel's page cache, or not: then it stays here.
    pub fn stored(&self, store: Delivery, is_stored: bool) {
        if is_stored {
            self.cache.drop_ahead(store.sample);
            self.delivered.set(store.sample);
            add(&self.prefetch.counts.stored_bytes, store.bytes().len() as u64);
        }
        drop(store);
        self.wake_if_there_is_room();
    }

    fn wake_if_there_is_room(&self) {
        let prefetch = &self.prefetch;
        let has_room = prefetch.window.held_bytes() <= prefetch.window.cap_bytes() / 4 * 3;
        if has_room && prefetch.lacks_room.swap(false, Ordering::Relaxed) {
            prefetch.wake();
        }
    }

    /// A sample that was fetched ahead was asked for; its order of arrival if that was all of it.
    pub(in crate::vfs) fn used_ahead(&self, sample: u64, located: &Located, used_up: Option<u64>) {
        let prefetch = &self.prefetch;
        prefetch.demanded.store(0, Ordering::Relaxed);
        let Some(order) = used_up else { return };
        prefetch.last_used.fetch_max(order, Ordering::Relaxed);
        add(&prefetch.counts.used, 1);
        self.observe(sample, located);
        self.wake_if_there_is_room();
    }

    /// A sample must be fetched because nobody foresaw that it would be asked for.
    pub(in crate::vfs) fn demanded(&self, sample: u64, located: &Located) {
        self.observe(sample, located);
        let prefetch = &self.prefetch;
        prefetch.place(sample).store(sample + 1, Ordering::Relaxed);
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
    pub(in crate::vfs) fn observe(&self, sample: u64, located: &Located) {
        // Who waits here delays a reader: rather a number is missed.
        let Ok(mut queue) = self.prefetch.queue.try_lock() else { return };
        let at = located.sample;
        let foreseen = if self.blocks.is_worthwhile() && self.is_small(&at) {
            let Some((part, number)) =
                self.blocks.around(located.part, &(at.extent().start..at.extent().start))
            else {
                return;
            };
            // Numbers of different containers are no neighbours.
            let base = (part as u64) << 40;
            let blocks = self.blocks.count(self.store.part(part).len_bytes());
            let all = base..base + blocks;
            let next = queue.blocks.observe(base + number, AHEAD_BLOCKS, &all);
            queue.foreseen_blocks.extend(next.iter().map(|number| (part, number - base)));
            next.len()
        } else {
            let depth = (AHEAD_BYTES / at.length_bytes.max(at.size_bytes()).max(1)).clamp(2, 1024);
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
}
