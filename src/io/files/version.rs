//! The version of a file, which tells it from another file, and from itself after a change. Imports nothing of ours.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// Identifies a file with its content: another file, or the file after a change, has another version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    /// The device that holds the file.
    pub device: u64,
    /// Its inode on that device.
    pub inode: u64,
    /// The length of the file.
    pub size_bytes: u64,
    /// When the file was modified: seconds since 1970, and nanoseconds.
    pub modified: (i64, i64),
}

/// How a file has changed since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Change {
    /// The file is shorter.
    #[error("truncated")]
    Truncated,
    /// The file is longer, or was modified later.
    #[error("rewritten")]
    Rewritten,
    /// The file has no name any more, but its bytes are as they were.
    #[error("replaced or deleted")]
    Unlinked,
    /// The file's path leads to another file or to none. The file is not open, so that its bytes may have changed.
    #[error("replaced or deleted")]
    Replaced,
}

impl Change {
    /// Whether the bytes of the file that was opened are still the same.
    #[must_use]
    pub fn spares_content(self) -> bool {
        matches!(self, Self::Unlinked)
    }
}

/// The attributes that tell whether a file is the one that was opened.
pub(super) struct Status {
    pub(super) identity: (u64, u64),
    pub(super) size: u64,
    pub(super) modified: (i64, i64),
    pub(super) has_name: bool,
}

impl From<fs::Metadata> for Status {
    fn from(now: fs::Metadata) -> Self {
        Self {
            identity: (now.dev(), now.ino()),
            size: now.len(),
            modified: (now.mtime(), now.mtime_nsec()),
            has_name: now.nlink() > 0,
        }
    }
}

impl From<nix::sys::stat::FileStat> for Status {
    fn from(now: nix::sys::stat::FileStat) -> Self {
        Self {
            identity: (now.st_dev, now.st_ino),
            size: now.st_size.unsigned_abs(),
            modified: (now.st_mtime, now.st_mtime_nsec),
            has_name: now.st_nlink > 0,
        }
    }
}
