//! What becomes of what was fetched.

use super::Prefetch;
use super::fetch::{Delivery, Fetch, Target};
use super::queue::{MergedRead, add};
use crate::catalog::{Located, Node};
use crate::io::{Buffer, ReadError};
use crate::store::remote::StoreError;
use crate::vfs::inode::Inode;
use crate::vfs::memory::cache::{Arrival, Leader};
use crate::vfs::memory::chunk::Chunk;
use crate::vfs::memory::verified::{Bytes, Verified};
use crate::vfs::samples::check::Unfit;
use crate::vfs::{Errno, Phase, Stage, Traced};
use std::sync::Arc;

impl Prefetch {
    /// Takes what was fetched, or not. What it gives is to be stored in the kernel's page cache; it can be
    /// asked for meanwhile.
    pub(in crate::vfs) fn land(
        &self,
        mut fetch: Fetch,
        fetched: Result<(), ReadError>,
    ) -> Vec<Delivery> {
        let mut traced = self.trace_ahead(&fetch);
        if let Target::Cache(samples) = fetch.target {
            let outcome = fetched.as_ref().map(|()| fetch.span.length() as u64);
            self.trace.end(traced, outcome.map_err(Errno::from));
            self.filled(&fetch, samples, fetched);
            return Vec::new();
        }
        if let Err(error) = fetched {
            self.trace.end(traced, Err(Errno::from(&error)));
            self.not_fetched(fetch, &error);
            return Vec::new();
        }
        traced.enter(Phase::Verify);
        if let (Target::Samples(samples, _), true) = (&fetch.target, fetch.is_announced) {
            add(&self.counts.done, samples.len() as u64);
        }
        let bytes = fetch.span.length() as u64;
        self.samples.stats().fetched(bytes);
        self.samples.stats().stage(Stage::Ahead, fetch.since);
        add(&self.counts.reads, 1);
        add(&self.counts.fetched_bytes, bytes);
        let buffer = fetch.span.swap_buffer(Buffer::empty());
        let stores = match fetch.target {
            Target::Block(leader) => {
                leader.end_with(buffer, fetch.span.place());
                Vec::new()
            }
            Target::Cache(_) => Vec::new(),
            Target::Samples(samples, rights) => {
                let chunk = Chunk::new(buffer, fetch.span.place(), rights);
                let chunk = Arc::new(chunk.of_pool(self.samples.buffers()));
                let start = fetch.span.range().start;
                let (is_announced, is_looked_up) = (fetch.is_announced, fetch.is_looked_up);
                self.land_samples(samples, &chunk, start, is_announced, is_looked_up)
            }
        };
        self.trace.end(traced, Ok(bytes));
        stores
    }

    fn trace_ahead(&self, fetch: &Fetch) -> Traced {
        let (first, samples) = match &fetch.target {
            Target::Block(_) => (None, 0),
            Target::Cache(samples) => (None, *samples as usize),
            Target::Samples(samples, _) => {
                (samples.first().map(|(sample, ..)| *sample), samples.len())
            }
        };
        let first = first.map(|sample| Inode::Node(Node::Sample(sample)).number());
        self.trace.begin_ahead(&fetch.span, first, samples, fetch.since)
    }

    /// Of several samples those that can be read are fetched one by one; one that cannot be is listed if it
    /// was announced, and else left to its reader.
    fn not_fetched(&self, fetch: Fetch, error: &ReadError) {
        let part = fetch.span.part();
        let of_store = match error {
            ReadError::Io(error) => StoreError::of(error),
            _ => None,
        };
        let is_changed = matches!(error, ReadError::Changed(_));
        if let ReadError::Changed(change) = error {
            self.samples.add_changed_part(part, *change);
        }
        if let Some(error) = of_store.filter(|error| error.is_gone()) {
            self.samples.add_stale_part(part, error);
        }
        let Target::Samples(samples, _) = fetch.target else { return };
        let counts = &self.counts;
        // A store has been asked often enough.
        if samples.len() > 1 && !is_changed && of_store.is_none() {
            let alone = |&(sample, located, _): &(u64, Located, Leader)| MergedRead {
                part,
                range: located.sample.extent(),
                samples: vec![(sample, located)],
                is_announced: fetch.is_announced,
            };
            let reads: Vec<_> = samples.iter().map(alone).collect();
            // A follower of one of them may be served on this very thread: not with the queue locked.
            drop(samples);
            self.lock().batch.extend(reads);
        } else if fetch.is_announced {
            add(&counts.done, samples.len() as u64);
            add(&counts.failed, samples.len() as u64);
            for (sample, located, _) in &samples {
                self.samples.add_bad(*sample, *located, error.fault());
            }
        }
    }

    fn land_samples(
        &self,
        samples: Vec<(u64, Located, Leader)>,
        chunk: &Arc<Chunk>,
        start: u64,
        is_announced: bool,
        is_looked_up: bool,
    ) -> Vec<Delivery> {
        let mut stores = Vec::new();
        let mut arrived = Vec::with_capacity(samples.len());
        let first = {
            let mut queue = self.lock();
            queue.arrivals += samples.len() as u64;
            queue.arrivals - samples.len() as u64
        };
        for (number, (sample, located, leader)) in (first..).zip(samples) {
            match self.check_fetched(sample, &located, chunk, start) {
                Some(verified) => {
                    let verified = Arc::new(verified);
                    arrived.push((number, sample));
                    if !is_looked_up && self.in_kernel.get(sample) {
                        let verified = Arc::clone(&verified);
                        stores.push(Delivery { sample, verified, _in_flight: self.in_flight(1) });
                    }
                    leader.end_prefetch(verified, Arrival { number, is_announced });
                }
                None if is_announced => add(&self.counts.failed, 1),
                None => {}
            }
        }
        let mut queue = self.lock();
        let list = match is_announced || is_looked_up {
            true => &mut queue.arrived,
            false => &mut queue.arrived_foreseen,
        };
        list.extend(arrived, |sample, number| self.memory.cache().has_arrival(sample, number));
        let room = self.kernel_bytes.saturating_sub(queue.stored_bytes);
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
        match self.samples.check_whole(sample, located, Bytes::Shared(Arc::clone(chunk)), range) {
            Ok(verified) => Some(verified.with_rights(chunk)),
            // Its reader will find it where it lies.
            Err(Unfit::Moved) => None,
            Err(Unfit::Fault(_)) if self.samples.distrust(located.part, extent) => None,
            Err(Unfit::Fault(fault)) => {
                self.samples.add_bad(sample, *located, fault);
                None
            }
        }
    }

    /// Whether a sample has not been read yet. A reader may still hold its pages locked, and must not be
    /// waited for.
    pub(in crate::vfs) fn may_store(&self, delivery: &Delivery) -> bool {
        self.memory.cache().has_prefetched(delivery.sample)
    }

    /// A sample was put into the kernel's page cache, or not: then it stays here.
    pub(in crate::vfs) fn stored(&self, delivery: Delivery, is_stored: bool) {
        if is_stored {
            self.memory.cache().drop_prefetched(delivery.sample);
            self.delivered.set(delivery.sample);
            add(&self.counts.stored_bytes, delivery.bytes().len() as u64);
        }
        drop(delivery);
        self.wake_if_there_is_room();
    }
}
