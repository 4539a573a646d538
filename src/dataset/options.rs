//! The options for opening a dataset, and the watch of long work.

use crate::format::OpenOptions;
use crate::io::Io;
use crate::store::remote::RemoteOptions;
use std::path::PathBuf;

/// How a dataset is opened.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The options of the formats.
    pub format: OpenOptions,
    /// How many levels of stored members that are containers are shown as directories.
    pub nested: u8,
    /// Where indexes are kept.
    pub indexes: IndexOptions,
    /// How samples and containers are checked.
    pub checksums: ChecksumOptions,
    /// How stores are reached and cached on this machine.
    pub remote: RemoteOptions,
    /// How samples are read from local files; `None` for ordinary reads through the page cache.
    pub io: Option<Io>,
}

/// Where the indexes of scanned containers are kept.
#[derive(Debug, Clone, Default)]
pub struct IndexOptions {
    /// The place of each index.
    pub place: IndexPlace,
    /// A directory for all of them, instead of beside the containers.
    pub directory: Option<PathBuf>,
    /// The directory in which streams without random access are decoded, to unnamed files that are freed with the
    /// dataset.
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
    /// As `Auto`, but no index is written.
    Memory,
    /// No index is read or written.
    None,
    /// This file, for the only container.
    File(PathBuf),
}

/// How samples and containers are checked, in addition to the checksums of formats.
#[derive(Debug, Clone, Default)]
pub struct ChecksumOptions {
    /// Checksums of samples whose format has none.
    pub sidecars: SidecarPlace,
    /// Refuse containers with samples that have no checksum.
    pub require: bool,
    /// Refuse containers with another SHA-256; all of them are read to compute it.
    pub digest: Option<[u8; 32]>,
}

/// The place of a sidecar.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SidecarPlace {
    /// Beside its container, if it exists.
    #[default]
    Auto,
    /// No sidecar is used.
    None,
    /// This file, for all containers that need one.
    File(PathBuf),
}

/// The kinds of long work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// A container is read whole for its index.
    Index,
    /// A stream without random access is decoded to a file.
    Decode,
    /// All containers are read whole for their digest.
    Digest,
    /// The first bytes of all samples are read for their suffixes. Samples are counted, not bytes.
    Suffixes,
}

/// Gets the progress of long work, and may cancel it. Called on several threads.
pub trait Watch: Send + Sync {
    /// Work on this many bytes or samples begins.
    fn begin(&self, work: Work, amount: u64);

    /// The amount that is done so far.
    fn done(&self, amount: u64);

    /// The work has ended.
    fn end(&self);

    /// Whether the work is cancelled: then it fails, and leaves nothing half done.
    fn is_cancelled(&self) -> bool;
}

/// Ignores progress, and cancels nothing.
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
