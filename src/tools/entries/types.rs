//! The entries of a tree that are written to another place.
//!
//! Imports no other file of this directory.

use crate::failure::Failure;
use crate::format::{Checksum, Fault};
use crate::tools::reader::{Scratch, Stop, TakeChunk, WholeFile};

/// Files, directories and links with their names, and the bytes of the files.
pub(crate) trait Entries: Sync {
    /// All entries in the order of their bytes in the source; directories precede the entries in them.
    fn list(&self) -> &[Entry];

    /// The path of an entry.
    fn path(&self, entry: usize) -> Vec<u8>;

    /// The properties of an entry other than its bytes.
    fn metadata(&self, entry: usize) -> Result<EntryMetadata, Failure>;

    /// Where a symbolic link leads; of other entries, nothing.
    fn link_target(&self, entry: usize) -> Result<Vec<u8>, Fault>;

    /// The number of leading `entries`, all files, that are best read together; at least one.
    fn batch_len(&self, entries: &[usize]) -> usize;

    /// Reads and checks whole files; their bytes are then in [`Scratch::buffer`].
    ///
    /// # Errors
    /// The user has interrupted the work.
    fn read_batch(
        &self,
        entries: &[usize],
        scratch: &mut Scratch,
    ) -> Result<Vec<Result<WholeFile, Fault>>, Failure>;

    /// Passes one file to `take` chunk by chunk. Only the final result says whether the bytes were right.
    fn stream(&self, entry: usize, scratch: &mut Scratch, take: &mut TakeChunk)
    -> Result<(), Stop>;
}

/// A file, a directory or a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: EntryKind,
    /// The length of a file in bytes.
    pub(crate) size_bytes: u64,
}

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    File,
    Directory,
    Symlink,
    /// Another name of the file with this entry number.
    HardLink(usize),
}

/// The properties of an entry other than its bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct EntryMetadata {
    pub(crate) mode: Option<u16>,
    pub(crate) modified: (i64, u32),
    /// Whether the entry has a time of its own, not that of its container.
    pub(crate) has_time: bool,
    /// The checksum of a file, if it is stored.
    pub(crate) checksum: Option<Checksum>,
}

/// The total size of entries, as their containers state it, which may be wrong.
pub(crate) fn total_bytes(entries: impl Iterator<Item = Entry>) -> u64 {
    entries.fold(0, |sum, entry| sum.saturating_add(entry.size_bytes))
}

/// The total size of all files, each counted once even if it has several names.
pub(crate) fn file_bytes(entries: &dyn Entries) -> u64 {
    let files = entries.list().iter().filter(|entry| entry.kind == EntryKind::File);
    total_bytes(files.copied())
}

/// Whether nothing lies in a directory; what lies in it stands right behind it.
pub(crate) fn is_empty(entries: &dyn Entries, directory: usize) -> bool {
    let path = [&entries.path(directory)[..], b"/"].concat();
    let next = directory + 1;
    next >= entries.list().len() || !entries.path(next).starts_with(&path)
}
