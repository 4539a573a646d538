//! Where members come from that are written elsewhere: containers of any format, or a folder.
//!
//! Both are read in the order in which they lie there, many small files at a time, and checked.

mod containers;
mod folder;
mod list;

pub(crate) use containers::Containers;
pub(crate) use folder::FolderTree;

use crate::failure::{Exit, Failure};
use crate::format::{Checksum, Mismatch};
use crate::io::Buffer;
use std::fmt;
use std::ops::Range;

/// How much is read at a time, so that small files become large reads.
pub(crate) const SPAN_BYTES: u64 = 4 << 20;

/// Members with their names, and their bytes.
pub(crate) trait Origin: Sync {
    /// All members: those that lie first come first, folders before what lies in them.
    fn items(&self) -> &[Item];

    /// Whether every folder is one record, and what lies in it are its fields.
    fn has_records(&self) -> bool {
        false
    }

    /// The path of an item.
    fn path(&self, item: usize) -> Vec<u8>;

    /// What is known of an item beside its bytes.
    fn about(&self, item: usize) -> Result<About, Failure>;

    /// How many of `items`, which are files, are best read together; at least one.
    fn together(&self, items: &[usize]) -> usize;

    /// Reads files whole; where they lie in [`Scratch::buffer`] then.
    fn read(&self, items: &[usize], scratch: &mut Scratch) -> Vec<Result<Whole, Fault>>;

    /// Reads one file piece by piece. Whether it was the right bytes is known at its end.
    fn stream(&self, item: usize, scratch: &mut Scratch, take: &mut Take) -> Result<(), Stop>;
}

/// A name, and what has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) what: What,
    /// Length of a file in bytes.
    pub(crate) size_bytes: u64,
}

/// The bytes of these items together; sizes are what containers say, and need not be true.
pub(crate) fn total_bytes(items: impl Iterator<Item = Item>) -> u64 {
    items.fold(0, |sum, item| sum.saturating_add(item.size_bytes))
}

/// What has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    File,
    Folder,
    Symlink,
    /// Another name of the file that this item is.
    HardLink(usize),
}

/// What is known of an item beside its bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct About {
    pub(crate) mode: Option<u16>,
    pub(crate) modified: (i64, u32),
    /// Whether this time is its own, and not that of its container.
    pub(crate) has_time: bool,
    /// The checksum of a file, if it is stored.
    pub(crate) checksum: Option<Checksum>,
    /// Where a symbolic link leads.
    pub(crate) target: Vec<u8>,
}

/// A file that was read whole, and checked.
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    /// The checksum of the bytes, if it is known.
    pub(crate) checksum: Option<Checksum>,
}

/// The bytes of a file.
pub(crate) enum Bytes {
    /// They are in the buffer that was read to.
    At(Range<usize>),
    Own(Vec<u8>),
}

impl Bytes {
    pub(crate) fn of<'a>(&'a self, buffer: &'a Buffer) -> &'a [u8] {
        match self {
            Bytes::At(range) => &buffer.as_slice()[range.clone()],
            Bytes::Own(bytes) => bytes,
        }
    }
}

/// Memory that a thread reads to, again and again.
pub(crate) struct Scratch {
    pub(crate) buffer: Buffer,
    /// What was decoded last of a stream: container, interval, bytes.
    interval: Option<(usize, u64, Vec<u8>)>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self { buffer: Buffer::empty(), interval: None }
    }
}

/// A piece of a file.
pub(crate) enum Chunk<'a> {
    Data(&'a [u8]),
    /// So many zeros that are not stored.
    Hole(u64),
}

/// Takes the pieces of a file in order.
pub(crate) type Take<'a> = dyn FnMut(Chunk) -> Result<(), Failure> + 'a;

/// Why a file was not read to its end.
pub(crate) enum Stop {
    /// It is bad.
    Bad(Fault),
    /// What takes the bytes cannot, or the user wants an end.
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Failed(failure)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Stop::Bad(fault)
    }
}

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    Checksum(Mismatch),
    Damaged,
    Structure(String),
    Unreadable(String),
}

impl Fault {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Fault::Unreadable(_) => Exit::Unreadable,
            Fault::Checksum(_) | Fault::Damaged | Fault::Structure(_) => Exit::Checksum,
        }
    }

    /// As an error of the file `path`.
    pub(crate) fn of(&self, path: &[u8]) -> Failure {
        Failure::new(self.exit(), format!("{}: {self}", String::from_utf8_lossy(path)))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Checksum(mismatch) => mismatch.fmt(out),
            Fault::Damaged => out.write_str(
                "damaged: its bytes are not all there, or cannot be decrypted or decoded",
            ),
            Fault::Structure(error) => out.write_str(error),
            Fault::Unreadable(error) => write!(out, "cannot be read: {error}"),
        }
    }
}
