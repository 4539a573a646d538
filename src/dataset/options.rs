//! How a dataset is opened, and who hears of it while that takes long.

use crate::format::OpenOptions;
use crate::io::Io;
use crate::store::remote::RemoteOptions;
use std::path::PathBuf;

/// How a dataset is opened.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// What the formats are told.
    pub format: OpenOptions,
    /// Stored members that are containers themselves are directories: so many levels deep.
    pub nested: u8,
    /// Where indexes are kept.
    pub indexes: IndexOptions,
    /// What samples and containers are checked by.
    pub checksums: ChecksumOptions,
    /// How stores are reached, and cached on this machine.
    pub remote: RemoteOptions,
    /// How samples are read from local files; `None`: through the page cache as any program reads.
    pub io: Option<Io>,
}

/// Where the indexes of containers that must be read whole are kept.
#[derive(Debug, Clone, Default)]
pub struct IndexOptions {
    /// The place of each.
    pub place: IndexPlace,
    /// A directory for all of them, instead of beside the containers.
    pub directory: Option<PathBuf>,
    /// The directory that is decoded to where an encoding cannot be read in the middle: to files without a
    /// name, which go with the dataset.
    pub spool: Option<PathBuf>,
    /// Whether new indexes are written.
    pub writes: bool,
}

/// The place of an index.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum IndexPlace {
    /// Beside its container, else in the user's cache.
    #[default]
    Auto,
    /// Likewise, but none is written.
    Memory,
    /// None is used or written.
    None,
    /// This file, of the only container.
    File(PathBuf),
}

/// What samples and containers are checked by, beside the checksums that formats have.
#[derive(Debug, Clone, Default)]
pub struct ChecksumOptions {
    /// Checksums of samples whose format has none.
    pub sidecars: SidecarPlace,
    /// Refuse containers with samples that have no checksum.
    pub require: bool,
    /// Refuse all containers but those with this SHA-256, which are read whole for that.
    pub digest: Option<[u8; 32]>,
}

/// The place of a sidecar.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SidecarPlace {
    /// Beside its container, if it has one.
    #[default]
    Auto,
    /// None is used.
    None,
    /// This file, of all containers that need one.
    File(PathBuf),
}

/// Work that takes long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// A container is read whole for its index.
    Index,
    /// A stream that cannot be read in the middle is decoded to a file.
    Decode,
    /// All containers are read whole for their digest.
    Digest,
    /// The first bytes of all samples are read for their suffixes. Samples are counted, not bytes.
    Suffixes,
}

/// Hears how far long work is, and may end it. It is told so from several threads.
pub trait Watch: Send + Sync {
    /// Work over so many bytes, or samples, begins.
    fn begin(&self, work: Work, amount: u64);

    /// So much is done, from the first on.
    fn done(&self, amount: u64);

    /// The work has ended.
    fn end(&self);

    /// Whether it is to end before that: then it fails, and leaves nothing half done.
    fn is_cancelled(&self) -> bool;
}

/// Nobody hears, and nothing is cancelled.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn begin(&self, _: Work, _: u64) {}

    fn done(&self, _: u64) {}

    fn end(&self) {}

    fn is_cancelled(&self) -> bool {
        false
    }
}
