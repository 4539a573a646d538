//! The samples of the mounted dataset as bytes: where each lies, which are bad, and how stored bytes become
//! the checked bytes of a file. The other modules of the file system share [`Samples`].

pub(super) mod bad;
mod changes;
pub(super) mod check;

use super::bits::Bits;
use super::options::Verify;
use super::{Errno, Stats};
use crate::catalog::{Dataset, Located};
use crate::format::stream::Interval;
use crate::format::{Container, Error, Fault, PartName, shown};
use crate::io::{Buffer, BufferPool};
use crate::store::Store;
use bad::{Bad, BadList};
use changes::Changes;
pub use changes::ContainersChecked;
use crossbeam_utils::atomic::AtomicCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The most buffers that are kept for later use.
const POOLED_BUFFERS: usize = 16;
/// The most decoded intervals whose checksums are kept; when there would be more, all are forgotten and found anew.
const KNOWN_INTERVALS: usize = 1 << 18;
/// The most differing intervals whose samples are compared again; after that, the source is not believed any more.
const MAX_DIFFERING: u32 = 1000;

/// A dataset, and the facts that are known of its samples.
pub(super) struct Samples {
    dataset: Dataset,
    /// Only asked for names, times, lengths and profiles: drivers read its bytes.
    store: Store,
    bad: BadList,
    changes: Changes,
    /// Samples whose checksum was found right.
    verified: Bits,
    verify: AtomicCell<Verify>,
    /// Checksums of intervals that were decoded, by container and number: see [`Samples::decoded_again`].
    intervals: Mutex<HashMap<(usize, u64), u32>>,
    /// The number of times that an interval differed from its first decoding.
    differing: AtomicU32,
    /// The number of times that verified samples were forgotten; changes only under the lock of `intervals`.
    generation: AtomicU64,
    buffers: Arc<BufferPool>,
    stats: Stats,
}

impl Samples {
    /// # Panics
    /// `store` lacks a part that the dataset lies in.
    pub(super) fn new(dataset: Dataset, store: Store, verify: Verify) -> Self {
        assert!(dataset.part_count() <= store.len(), "each part that the dataset lies in");
        Self {
            bad: BadList::new(store.len()),
            changes: Changes::new(dataset.containers().len(), dataset.len()),
            verified: Bits::new(dataset.len()),
            verify: AtomicCell::new(verify),
            intervals: Mutex::default(),
            differing: AtomicU32::new(0),
            generation: AtomicU64::new(0),
            buffers: Arc::new(BufferPool::new(POOLED_BUFFERS)),
            stats: Stats::default(),
            dataset,
            store,
        }
    }

    pub(super) fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// The store where the bytes lie.
    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    pub(super) fn name_of(&self, part: usize) -> &PartName {
        self.store.part(part).name()
    }

    /// Length of a part in bytes.
    pub(super) fn bytes_of(&self, part: usize) -> u64 {
        self.store.part(part).len_bytes()
    }

    pub(super) fn bad(&self) -> &BadList {
        &self.bad
    }

    /// A buffer of at least `bytes` bytes.
    pub(super) fn buffer(&self, bytes: usize) -> Result<Buffer, Fault> {
        self.buffers.take(bytes).map_err(|_| Fault::no_memory())
    }

    pub(super) fn buffers(&self) -> &Arc<BufferPool> {
        &self.buffers
    }

    pub(super) fn stats(&self) -> &Stats {
        &self.stats
    }

    /// When samples are compared with their checksums.
    pub(super) fn verify(&self) -> Verify {
        self.verify.load()
    }

    /// Sets when samples are checked from now on; returns when they were checked until now.
    pub(super) fn set_verify(&self, verify: Verify) -> Verify {
        self.verify.swap(verify)
    }

    pub(super) fn is_verified(&self, sample: u64) -> bool {
        self.verified.get(sample)
    }

    /// Notes that a sample's checksum was found right.
    pub(super) fn set_verified(&self, sample: u64) {
        self.verified.set(sample);
    }

    /// A number that changes whenever verified samples are forgotten: for [`Samples::set_compared`], to be asked for before the
    /// first interval is read.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Notes that a sample that was made from intervals matches its checksum, unless one of the intervals was found to differ
    /// since `generation`: then the sample is compared again.
    pub(super) fn set_compared(&self, sample: u64, generation: u64) {
        let _unchanged = self.intervals.lock().unwrap_or_else(PoisonError::into_inner);
        if self.generation.load(Ordering::Relaxed) == generation {
            self.verified.set(sample);
        }
    }

    /// Whether a sample's bytes must match its checksum now.
    pub(super) fn must_check(&self, sample: u64, located: &Located) -> bool {
        let asked_for = match self.verify() {
            Verify::Always => true,
            Verify::Once => !self.verified.get(sample),
            Verify::Off => false,
        };
        asked_for && located.sample.checksum.is_some()
    }

    /// Compares a decoded interval with its first decoding. This is for samples that are compared with a sidecar when
    /// they are read first, and are decoded again later.
    pub(super) fn decoded_again(
        &self,
        located: &Located,
        interval: &Interval,
        decoded: &[u8],
    ) -> Result<(), Fault> {
        // The intervals of a compressed stream have checksums in its index.
        let is_due = self.verify() == Verify::Always
            && located.sample.checksum.is_some()
            && self.container(located).stream().is_none();
        if !is_due {
            return Ok(());
        }
        let found = crc32fast::hash(decoded);
        let mut known = self.intervals.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (located.container, interval.number);
        if known.len() >= KNOWN_INTERVALS && !known.contains_key(&key) {
            known.clear();
        }
        let expected = *known.entry(key).or_insert(found);
        if expected == found {
            return Ok(());
        }
        // Only the samples can tell which of the two decodings was wrong: their next reads compare them again.
        if self.differing.fetch_add(1, Ordering::Relaxed) < MAX_DIFFERING {
            known.remove(&key);
            self.forget_verified(located.container);
        }
        drop(known);
        let what = format!("what is decoded from byte {} on", interval.stored.start);
        Err(Fault::PartChecksum { what, expected, found })
    }

    /// Has all samples of a container compared again. The caller holds the lock of `intervals`.
    fn forget_verified(&self, container: usize) {
        self.generation.fetch_add(1, Ordering::Release);
        let first = self.dataset.number(container, 0);
        let samples = self.dataset.containers()[container].len();
        (first..first.saturating_add(samples)).for_each(|sample| self.verified.clear(sample));
    }

    /// Forgets the first decodings of intervals, because a sample with them does not match its checksum. Other samples of the
    /// container are compared again.
    pub(super) fn forget_decoded(&self, container: usize, intervals: &[u64]) {
        let mut known = self.intervals.lock().unwrap_or_else(PoisonError::into_inner);
        let forgotten = intervals.iter().filter_map(|number| known.remove(&(container, *number)));
        if forgotten.count() > 0 {
            self.forget_verified(container);
        }
    }

    /// Where a sample lies.
    pub(super) fn locate(&self, sample: u64) -> Result<Located, Errno> {
        let located = self.dataset.locate(sample);
        located.map_err(|error| self.index_failed(sample, &error))?.ok_or(Errno::ENOENT)
    }

    pub(super) fn container(&self, located: &Located) -> &dyn Container {
        self.dataset.containers()[located.container].as_ref()
    }

    /// Lists, logs and counts a bad sample, the first time: two requests may find the same sample bad at the same moment.
    pub(super) fn add_bad(&self, sample: u64, located: Located, fault: Fault) {
        let is_mismatch = fault.mismatch().is_some();
        if self.bad.add(sample, self.name_of(located.part), Bad { located, fault }) && is_mismatch {
            self.stats.checksum_failed();
        }
    }

    /// Lists a sample whose index entry shows that it cannot be read: it is damaged, or encrypted and cannot be decrypted.
    /// Returns the error for its reader.
    pub(super) fn refuse_damaged(&self, sample: u64, located: Located) -> Errno {
        // In the index of a rewritten file healthy samples look damaged.
        if let Err(errno) = self.check_unchanged(&located) {
            return errno;
        }
        let (container, at) = (self.container(&located), located.sample);
        let refused = shown::refuse_damaged(container, located.index, &at);
        self.add_bad(sample, located, refused.err().unwrap_or(Fault::Damaged));
        Errno::EIO
    }

    /// Notes that bytes of a part fail their check. Returns whether they may have come from a cache and should be fetched once
    /// more.
    pub(super) fn distrust(&self, part: usize, range: Range<u64>) -> bool {
        self.store.part(part).distrust(range)
    }

    /// Marks a part that cannot be used any more.
    pub(super) fn add_bad_part(&self, part: usize, what: String) {
        self.bad.add_part(part, self.name_of(part), what);
    }

    /// Marks the part of a sample's container as bad, because the index of the container cannot be read any more.
    pub(super) fn index_failed(&self, sample: u64, error: &Error) -> Errno {
        match self.dataset.container_of(sample) {
            Some((container, _)) => self.part_failed(self.dataset.part_of(container), error),
            None => Errno::from(error),
        }
    }

    /// Counts an error and marks a part that cannot be used any more.
    pub(super) fn part_failed(&self, part: usize, error: &dyn std::error::Error) -> Errno {
        self.stats.io_error();
        self.add_bad_part(part, error.to_string());
        Errno::EIO
    }
}
