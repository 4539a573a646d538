//! What each call on the mount means. No system calls: a simulated disk can drive it.
//!
//! Imports from [`crate::format`], [`crate::catalog`], [`crate::store`] and (for buffers) [`crate::io`]. All metadata is
//! resident, so everything but `read` is an ordinary function; `read` is the step machine of [`Step`],
//! which every transport drives.

mod announce;
mod bad;
mod block;
mod budget;
mod cache;
mod content;
mod control;
mod drive;
mod errno;
mod figures;
mod in_flight;
mod inode;
mod metadata;
mod pattern;
mod pieces;
mod prefetch;
mod read;
pub mod report;
mod resident;
mod settings;
mod span;
mod stats;
mod stream;
mod trace;
mod verify;

pub use block::BlockFigures;
pub use cache::CacheFigures;
pub use control::CONTROL_FOLDER;
pub use drive::{Driver, ReadRequest, begin, drive};
pub use errno::Errno;
pub use in_flight::InFlightRead;
pub use inode::{inode_of_sample, sample_of_inode};
pub use metadata::{Attr, FileKind, Listed, Lookup, Totals, XATTR_PREFIX};
pub use prefetch::{Delivery, Fetch, PrefetchFigures};
pub use read::{Reply, Step, Task};
pub use settings::Settings;
pub use span::Span;
pub use stats::{Histogram, Operation, RingFigures, Snapshot, Stage, Stats};
pub use stream::{StreamKey, StreamStore};
pub use trace::{AHEAD, Phase, TRACED_FOR, Trace, TraceEvent, TraceHead, TracePhase, Traced};
pub use verify::Verified;

use crate::catalog::{Catalog, Dataset};
use crate::io::BufferPool;
use crate::store::Store;
use budget::Budget;
use crossbeam_utils::atomic::AtomicCell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

/// How long the kernel may keep what it was told of a sample: nothing changes while it is mounted.
pub const FOREVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// When samples are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verify {
    /// Whenever bytes come from storage.
    #[default]
    Always,
    /// The first time that a sample's bytes come from storage.
    Once,
    /// Never.
    Off,
}

/// What the user decides.
#[derive(Debug, Clone)]
pub struct Options {
    /// When samples are checked.
    pub verify: Verify,
    /// Hard cap of what is held in memory, in bytes: blocks, samples, what is being fetched ahead.
    pub cache_bytes: u64,
    /// How much of what is announced may be put into the kernel's page cache, in bytes.
    pub kernel_bytes: u64,
    /// How samples are read, for `info.json`: `direct`, `buffered` or `mixed`.
    pub io: &'static str,
    /// The mount options that were given, for `info.json`.
    pub given: Vec<String>,
    /// How many reads may be under way at a time, each with memory for a whole sample.
    pub concurrency: u64,
    /// Those of them that wait for the disk for others: threads beside those that serve requests.
    pub workers: u64,
    /// Owner of everything.
    pub uid: u32,
    /// Who may change settings and trace, beside root: whose process this is, whoever owns the files.
    pub master: u32,
    /// Group of everything.
    pub gid: u32,
    /// Permission bits of files for which none are stored.
    pub file_mode: u16,
    /// Permission bits of folders for which none are stored.
    pub folder_mode: u16,
    /// Which of the stored permission bits files have.
    pub file_mask: u16,
    /// Which of the stored permission bits folders have.
    pub folder_mask: u16,
    /// Permission bits of `/.ffrfs/prefetch`; without a bit for writing it takes nothing.
    pub prefetch_mode: u16,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            verify: Verify::Always,
            cache_bytes: 256 << 20,
            kernel_bytes: 1 << 30,
            io: "buffered",
            given: Vec::new(),
            concurrency: 1,
            workers: 0,
            uid: 0,
            master: 0,
            gid: 0,
            file_mode: 0o444,
            folder_mode: 0o555,
            file_mask: 0o7777,
            folder_mask: 0o7777,
            prefetch_mode: 0o666,
        }
    }
}

/// A mounted dataset.
pub struct Vfs {
    dataset: Dataset,
    catalog: Catalog,
    /// Asked for names, times, lengths and profiles alone: drivers read.
    store: Store,
    options: Options,
    modified: SystemTime,
    total_bytes: u64,
    budget: Budget,
    blocks: Arc<block::Blocks>,
    cache: Arc<cache::SampleCache>,
    prefetch: Arc<prefetch::Prefetch>,
    buffers: BufferPool,
    verified: Bits,
    /// Samples whose inodes the kernel knows.
    known: Bits,
    /// Samples that the kernel's page cache was given ahead, and that it knows still.
    delivered: Bits,
    bad: bad::BadList,
    control: control::Control,
    streams: OnceLock<Box<dyn StreamStore>>,
    spool: OnceLock<PathBuf>,
    /// How requests come, and the memory that they take.
    transport: OnceLock<(&'static str, u64)>,
    verify: AtomicCell<Verify>,
    settings: OnceLock<Box<dyn Settings>>,
    stats: Stats,
    trace: Trace,
}

impl Vfs {
    /// Puts a dataset and its names together.
    ///
    /// # Panics
    /// `store` lacks a part that the dataset lies in.
    #[must_use]
    pub fn new(dataset: Dataset, catalog: Catalog, store: Store, options: Options) -> Self {
        assert!(dataset.files() <= store.len(), "each part that the dataset lies in");
        let budget = Budget::new(options.cache_bytes);
        let (samples, data_bytes) = (dataset.len(), dataset.data_bytes());
        let blocks = Arc::new(block::Blocks::new(budget.clone(), samples, data_bytes));
        let cache =
            cache::SampleCache::new(budget.clone(), Arc::clone(&blocks), options.concurrency);
        Self {
            modified: store.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            total_bytes: data_bytes,
            verified: Bits::new(samples),
            known: Bits::new(samples),
            delivered: Bits::new(samples),
            prefetch: Arc::new(prefetch::Prefetch::new(options.cache_bytes)),
            budget,
            blocks,
            bad: bad::BadList::new(store.len()),
            control: control::Control::default(),
            transport: OnceLock::new(),
            streams: OnceLock::new(),
            spool: OnceLock::new(),
            verify: AtomicCell::new(options.verify),
            settings: OnceLock::new(),
            stats: Stats::default(),
            trace: Trace::default(),
            buffers: BufferPool::new(16),
            cache: Arc::new(cache),
            dataset,
            catalog,
            store,
            options,
        }
    }

    /// Says how requests come, and how much memory they take for good. What was said first counts.
    pub fn set_transport(&self, name: &'static str, request_bytes: u64) {
        let _ = self.transport.set((name, request_bytes));
    }

    /// Says where restart points of large samples are kept. What was said first counts.
    pub fn keep_streams(&self, store: Box<dyn StreamStore>) {
        let _ = self.streams.set(store);
    }

    /// Where its bytes lie.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// What is mounted.
    #[must_use]
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// The names of its samples.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Who asks for what, while somebody wants to know.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The number of samples that have a name.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.catalog.samples()
    }
}

/// A bit a sample.
struct Bits(Vec<AtomicU64>);

impl Bits {
    fn new(bits: u64) -> Self {
        Self((0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn word(&self, bit: u64) -> Option<&AtomicU64> {
        usize::try_from(bit / 64).ok().and_then(|word| self.0.get(word))
    }

    fn get(&self, bit: u64) -> bool {
        self.word(bit).is_some_and(|word| word.load(Ordering::Relaxed) >> (bit % 64) & 1 == 1)
    }

    /// Sets a bit; writes only if it was not set, so that a hot word stays shared among CPUs.
    fn set(&self, bit: u64) {
        if let Some(word) = self.word(bit)
            && word.load(Ordering::Relaxed) >> (bit % 64) & 1 == 0
        {
            word.fetch_or(1 << (bit % 64), Ordering::Relaxed);
        }
    }

    fn clear(&self, bit: u64) {
        if let Some(word) = self.word(bit)
            && word.load(Ordering::Relaxed) >> (bit % 64) & 1 == 1
        {
            word.fetch_and(!(1 << (bit % 64)), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
