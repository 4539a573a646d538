//! The end of a prefetch: fetched samples are checked and cached, or fetched again, or listed as bad.

use super::Prefetch;
use super::fetch::{Delivery, Fetch, Target};
use super::queue::{Again, LookedUp, MergedRead, Queue, STALE, add};
use crate::catalog::{Located, Node};
use crate::io::{Buffer, ReadError};
use crate::store::remote::StoreError;
use crate::vfs::inode::Inode;
use crate::vfs::memory::cache::{Arrival, Leader};
use crate::vfs::memory::chunk::Chunk;
use crate::vfs::memory::verified::{Bytes, Verified};
use crate::vfs::samples::check::Unfit;
use crate::vfs::{Errno, Phase, Stage, Traced};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The reason why a sample that was fetched does not arrive.
enum Missed {
    /// The sample lies elsewhere.
    Moved,
    /// A cache has given wrong bytes, and dropped them.
    Distrusted,
    /// The sample is bad, and listed.
    Bad,
}

impl Prefetch {
    /// Takes a fetch that has ended or failed. Gives the samples to store in the kernel's page cache; readers can
    /// ask for them meanwhile.
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
                let place = (&chunk, start);
                let (is_announced, is_looked_up) = (fetch.is_announced, fetch.is_looked_up);
                self.land_samples(samples, place, is_announced, is_looked_up, fetch.again)
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

    /// Ends a fetch that failed. Several samples are fetched one by one; a sample that cannot be read is listed if it
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
        let (range, is_announced, again) = (fetch.span.range(), fetch.is_announced, fetch.again);
        let Target::Samples(samples, _) = fetch.target else { return };
        let counts = &self.counts;
        // A store has been asked often enough.
        if samples.len() > 1 && !is_changed && of_store.is_none() {
            let of = samples.iter().map(|(sample, located, _)| (*sample, *located)).collect();
            let read = MergedRead { part, range, samples: of, is_announced, again };
            // A follower of one of the samples may be served on this very thread: not with the queue locked.
            drop(samples);
            self.lock().batch.extend(read.apart());
        } else if is_announced {
            for (sample, located, _) in &samples {
                self.samples.add_bad(*sample, *located, error.fault());
            }
            add(&counts.failed, samples.len() as u64);
            add(&counts.done, samples.len() as u64);
        }
    }

    fn land_samples(
        &self,
        samples: Vec<(u64, Located, Leader)>,
        (chunk, start): (&Arc<Chunk>, u64),
        is_announced: bool,
        is_looked_up: bool,
        again: Again,
    ) -> Vec<Delivery> {
        let (mut stores, mut missed) = (Vec::new(), Vec::new());
        let mut arrived = Vec::with_capacity(samples.len());
        let count = samples.len() as u64;
        let first = {
            let mut queue = self.lock();
            queue.arrivals += count;
            queue.arrivals - count
        };
        for (number, (sample, located, leader)) in (first..).zip(samples) {
            match self.check_fetched(sample, located, (chunk, start), again) {
                Ok(verified) => {
                    let verified = Arc::new(verified);
                    arrived.push((number, sample));
                    if !is_looked_up && self.in_kernel.get(sample) {
                        let verified = Arc::clone(&verified);
                        stores.push(Delivery { sample, verified, _in_flight: self.in_flight(1) });
                    }
                    leader.end_prefetch(verified, Arrival { number, is_announced, is_looked_up });
                }
                Err(why) => missed.push((sample, why)),
            }
        }
        if is_announced {
            add(&self.counts.done, arrived.len() as u64);
            self.fetch_again(missed, again);
        }
        let mut queue = self.lock();
        if is_looked_up {
            self.list_looked_up(&mut queue, &arrived);
            return stores;
        }
        let list = match is_announced {
            true => &mut queue.arrived,
            false => &mut queue.arrived_foreseen,
        };
        list.extend(arrived, |sample, number| self.memory.cache().has_arrival(sample, number));
        self.limit_stores(&mut queue, first + count, &mut stores);
        stores
    }

    /// Has announced samples that did not arrive fetched once more, from where they are now known to lie. Samples that were
    /// fetched again in vain are done.
    fn fetch_again(&self, missed: Vec<(u64, Missed)>, again: Again) {
        let (mut moved, mut distrusted) = (Vec::new(), Vec::new());
        for (sample, why) in missed {
            let in_vain = match why {
                Missed::Moved if !again.is_moved => {
                    moved.push(sample);
                    continue;
                }
                Missed::Distrusted => {
                    distrusted.push(sample);
                    continue;
                }
                // The sample's reader will find it where it lies.
                Missed::Moved => &self.counts.skipped,
                Missed::Bad => &self.counts.failed,
            };
            add(in_vain, 1);
            add(&self.counts.done, 1);
        }
        let moved = (moved, Again { is_moved: true, ..again });
        let distrusted = (distrusted, Again { is_distrusted: true, ..again });
        for (samples, again) in [moved, distrusted] {
            let reads = self.merged_reads(&samples, true).into_iter();
            let reads: Vec<_> = reads.map(|read| MergedRead { again, ..read }).collect();
            self.refuse();
            if !reads.is_empty() {
                self.lock().batch.extend(reads);
            }
        }
    }

    fn list_looked_up(&self, queue: &mut Queue, arrived: &[(u64, u64)]) {
        let lookups = self.lookups.load(Ordering::Relaxed);
        let listed = |&(number, sample): &(u64, u64)| LookedUp { lookups, number, sample };
        queue.arrived_looked_up.extend(arrived.iter().map(listed));
        self.drop_looked_up(queue, STALE);
    }

    /// Keeps only the deliveries that still fit into the kernel's share; `number` is one past the read's last arrival.
    fn limit_stores(&self, queue: &mut Queue, number: u64, stores: &mut Vec<Delivery>) {
        let last_used = self.last_announced_used.load(Ordering::Relaxed);
        let age = queue.stale_age();
        queue.given.take_off_read(age, last_used);
        let room = self.kernel_bytes.saturating_sub(queue.given.bytes);
        let mut bytes = 0;
        stores.retain(|store| {
            let length = store.bytes().len() as u64;
            let fits = bytes + length <= room;
            bytes += if fits { length } else { 0 };
            fits
        });
        queue.given.add(number, bytes);
    }

    fn check_fetched(
        &self,
        sample: u64,
        mut located: Located,
        (chunk, start): (&Arc<Chunk>, u64),
        again: Again,
    ) -> Result<Verified, Missed> {
        let check = |at: &Located| {
            let Range { start: first, end } = at.sample.extent();
            let range = (first - start) as usize..(end - start) as usize;
            self.samples.check_whole(sample, at, Bytes::Shared(Arc::clone(chunk)), range)
        };
        let mut checked = check(&located);
        if let Err(Unfit::Moved) = checked
            && let Some(now) = self.found_in(sample, start..start + chunk.length() as u64)
        {
            located = now;
            checked = check(&located);
        }
        let (part, extent) = (located.part, located.sample.extent());
        match checked {
            Ok(verified) => Ok(verified.with_rights(chunk)),
            Err(Unfit::Moved) => Err(Missed::Moved),
            Err(Unfit::Fault(_)) if !again.is_distrusted && self.samples.distrust(part, extent) => {
                Err(Missed::Distrusted)
            }
            Err(Unfit::Fault(fault)) => {
                self.samples.add_bad(sample, located, fault);
                Err(Missed::Bad)
            }
        }
    }

    /// The place of a sample now, if it lies in the range `fetched` of its part.
    fn found_in(&self, sample: u64, fetched: Range<u64>) -> Option<Located> {
        let now = self.samples.locate(sample).ok()?;
        let Range { start, end } = now.sample.extent();
        (fetched.start <= start && end <= fetched.end).then_some(now)
    }

    /// Whether a sample has not been read yet. A reader of the sample may still hold its pages locked, and must not
    /// be waited for.
    pub(in crate::vfs) fn may_store(&self, delivery: &Delivery) -> bool {
        self.memory.cache().has_prefetched(delivery.sample)
    }

    /// Notes that a sample was put into the kernel's page cache, or was not: then it stays in the sample cache.
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
