//! Entries to be written elsewhere: those of containers of any format, or those in a directory.
//!
//! Both are read in the order in which they lie there, many small files at a time, and checked.

mod containers;
mod directory;
mod list;
mod types;

pub(crate) use containers::ContainerEntries;
pub(crate) use directory::DirectoryEntries;
pub(crate) use types::{Entries, Entry, EntryKind, EntryMetadata, file_bytes, total_bytes};
