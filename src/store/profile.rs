//! The tuning of reads for one kind of store: block sizes, merging, and the number of concurrent reads.

use std::time::Duration;

/// Tuning constants, measured once for each kind of store and used by all code that plans reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The minimum size of the blocks in which small samples are fetched: a shorter read takes about as long.
    pub min_block_bytes: u64,
    /// The maximum size of such blocks.
    pub max_block_bytes: u64,
    /// Samples above this size are fetched alone, not with the block around them.
    pub max_small_bytes: u64,
    /// Announced samples are fetched with one read if the gap between them is at most this long.
    pub merge_gap_bytes: u64,
    /// The maximum length of a merged read.
    pub max_merged_bytes: u64,
    /// Fills of a cache are split at multiples of this.
    pub fill_bytes: u64,
    /// The number of concurrent prefetch reads to begin with.
    pub first_depth: usize,
    /// The maximum number of concurrent prefetch reads.
    pub max_depth: usize,
    /// The maximum number of concurrent prefetch reads while a reader waits.
    pub polite_depth: usize,
    /// How long a fetch of absent bytes may take before its readers get an error.
    pub patience: Duration,
}

impl Profile {
    /// A local disk, or a file system that behaves like one.
    pub const DISK: Self = Self {
        min_block_bytes: 256 << 10,
        max_block_bytes: 4 << 20,
        max_small_bytes: 32 << 10,
        merge_gap_bytes: 16 << 10,
        max_merged_bytes: 1 << 20,
        fill_bytes: 8 << 20,
        first_depth: 8,
        max_depth: 64,
        polite_depth: 2,
        patience: Duration::from_secs(60),
    };

    /// An object store with a cache file: present bytes are read like those of any file.
    pub const CACHED: Self =
        Self { first_depth: 32, polite_depth: 16, patience: Duration::from_secs(90), ..Self::DISK };

    /// An object store without a cache. The time to the first byte is the same from 128 KiB to 2 MiB, and bytes that no
    /// reader needs cost transfer time and money: no blocks around samples, no wide gaps.
    pub const OBJECT: Self = Self {
        min_block_bytes: 64 << 10,
        max_block_bytes: 1 << 20,
        max_small_bytes: 0,
        merge_gap_bytes: 64 << 10,
        max_merged_bytes: 8 << 20,
        fill_bytes: 8 << 20,
        first_depth: 32,
        max_depth: 256,
        polite_depth: 16,
        patience: Duration::from_secs(90),
    };
}
