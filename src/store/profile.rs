//! What a kind of store likes: how much at a time, and how many reads at once.

use std::time::Duration;

/// The numbers that reads are planned by. Measured once for each kind of store, and used by everything that
/// plans reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The least that takes about as long as less: small samples are fetched in blocks of at least this size.
    pub min_block_bytes: u64,
    /// Blocks are not larger than this.
    pub max_block_bytes: u64,
    /// Samples above this size are fetched alone, not with the block around them.
    pub max_small_bytes: u64,
    /// Announced samples at most this far apart are fetched with one read.
    pub merge_gap_bytes: u64,
    /// Merged reads are not longer than this.
    pub max_merged_bytes: u64,
    /// A cache is filled with ranges that cross no multiple of this.
    pub fill_bytes: u64,
    /// Reads ahead of the reader, at a time: at first.
    pub first_depth: usize,
    /// Reads ahead of the reader, at a time: at most.
    pub max_depth: usize,
    /// Reads ahead of the reader, at a time: while a reader waits.
    pub polite_depth: usize,
    /// How long bytes may take that are not on this machine, until their readers get an error.
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

    /// An object store whose bytes are kept in a cache file: read as a file is, once they are present.
    pub const CACHED: Self =
        Self { first_depth: 32, polite_depth: 16, patience: Duration::from_secs(90), ..Self::DISK };

    /// An object store of which nothing is kept. The time to the first byte is the same from 128 KiB to 2 MiB, and
    /// what was not asked for is paid for: neither blocks around samples nor wide gaps.
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
