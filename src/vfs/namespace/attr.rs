//! The answers to the kernel about names and inodes.

use std::time::SystemTime;

/// The kind of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// Attributes of a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// The inode number that the kernel uses in requests.
    pub ino: u64,
    /// The inode number that `stat` shows; all snapshots of a control file show the same.
    pub shown_ino: u64,
    /// The kind of the inode.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Bytes that the file takes, as `du` counts them: less than its size if it has holes.
    pub stored_bytes: u64,
    /// Permission bits.
    pub mode: u16,
    /// Hard links, as `stat` counts them.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The time of the last modification.
    pub modified: SystemTime,
}

/// The answer to a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// The name exists, with this inode until the unmount.
    Found(Attr),
    /// The name exists, with another inode at the next lookup.
    Passing(Attr),
    /// The name does not exist, and never will.
    Absent,
}

impl Lookup {
    /// The inode number, if the name exists.
    #[must_use]
    pub fn ino(&self) -> Option<u64> {
        match self {
            Lookup::Found(attr) | Lookup::Passing(attr) => Some(attr.ino),
            Lookup::Absent => None,
        }
    }
}

/// An entry of a directory.
#[derive(Debug, Clone, Copy)]
pub struct Listed<'a> {
    /// The inode number that is shown.
    pub ino: u64,
    /// The cursor from which the listing goes on behind this entry.
    pub next: u64,
    /// The name.
    pub name: &'a [u8],
    /// The kind of the entry.
    pub kind: FileKind,
    /// Whether the entry is one of the dataset, so that its attributes may be kept.
    pub lasting: bool,
}

/// Sizes and counts of the whole mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of all samples.
    pub bytes: u64,
    /// Files and directories.
    pub files: u64,
}
