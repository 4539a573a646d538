//! Entries to be written to another place: those of containers of any format, or of a directory.
//!
//! Both are read in the order of their bytes in the source, many small files at a time, and checked.

mod containers;
mod directory;
mod list;
mod types;

pub(crate) use containers::ContainerEntries;
pub(crate) use directory::DirectoryEntries;
pub(crate) use types::{
    Entries, Entry, EntryKind, EntryMetadata, file_bytes, is_empty, total_bytes,
};
