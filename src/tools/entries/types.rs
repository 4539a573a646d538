//! Entries of a directory tree that are written elsewhere.
//!
//! Imports no other file of this directory.

use crate::failure::Failure;
use crate::format::{Checksum, Fault};
use crate::tools::reader::{Scratch, Stop, TakeChunk, WholeFile};

/// Files, directories and links with their names, and the bytes of the files.
pub(crate) trait Entries: Sync {
    /// All entries in the order of their bytes in the source; directories stand before the entries in them.
    fn list(&self) -> &[Entry];

    /// Whether every directory is one record, and the files in it are its fields.
    fn has_records(&self) -> bool {
        false
    }

    /// The path of an entry.
    fn path(&self, entry: usize) -> Vec<u8>;

    /// What is known of an entry beside its bytes.
    fn metadata(&self, entry: usize) -> Result<EntryMetadata, Failure>;

    /// How many of `entries`, which are files, are best read together; at least one.
    fn batch_len(&self, entries: &[usize]) -> usize;

    /// Reads files whole, and checks them; where they lie in [`Scratch::buffer`] then.
    ///
    /// # Errors
    /// The user has interrupted the work.
    fn read_batch(
        &self,
        entries: &[usize],
        scratch: &mut Scratch,
    ) -> Result<Vec<Result<WholeFile, Fault>>, Failure>;

    /// Gives one file chunk by chunk. Whether these were the right bytes is known at the end.
    fn stream(&self, entry: usize, scratch: &mut Scratch, take: &mut TakeChunk)
    -> Result<(), Stop>;
}

/// A file, a directory or a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: EntryKind,
    /// Length of a file in bytes.
    pub(crate) size_bytes: u64,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    File,
    Directory,
    Symlink,
    /// Another name of the file that the entry of this number is.
    HardLink(usize),
}

/// What is known of an entry beside its bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct EntryMetadata {
    pub(crate) mode: Option<u16>,
    pub(crate) modified: (i64, u32),
    /// Whether this time is its own, and not that of its container.
    pub(crate) has_time: bool,
    /// The checksum of a file, if it is stored.
    pub(crate) checksum: Option<Checksum>,
    /// Where a symbolic link leads.
    pub(crate) target: Vec<u8>,
}

/// The sizes of entries together. Containers state them, and they need not be true.
pub(crate) fn total_bytes(entries: impl Iterator<Item = Entry>) -> u64 {
    entries.fold(0, |sum, entry| sum.saturating_add(entry.size_bytes))
}

/// The bytes of all files, without further names of the same file.
pub(crate) fn file_bytes(entries: &dyn Entries) -> u64 {
    let files = entries.list().iter().filter(|entry| entry.kind == EntryKind::File);
    total_bytes(files.copied())
}
