//! What the kernel is told of names and inodes.

use std::time::SystemTime;

/// What an inode is.
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
    /// Inode number, by which the kernel asks.
    pub ino: u64,
    /// The inode number that `stat` shows; all snapshots of a control file show the same.
    pub shown_ino: u64,
    /// What it is.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Bytes that it takes where it is stored, as `du` counts them: less than its size if it has holes.
    pub stored_bytes: u64,
    /// Permission bits.
    pub mode: u16,
    /// Hard links, as `stat` counts them.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// When it was last modified.
    pub modified: SystemTime,
}

/// The answer to a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// It is there, for as long as the mount.
    Found(Attr),
    /// It is there, with another inode at the next lookup.
    Passing(Attr),
    /// It is not there, and never will be.
    Absent,
}

impl Lookup {
    /// The inode, if there is one.
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
    /// Where the listing goes on behind this entry.
    pub next: u64,
    /// The name.
    pub name: &'a [u8],
    /// What it is.
    pub kind: FileKind,
    /// Whether it is an entry of the dataset: its attributes may be kept.
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
