//! The one place where errors become error numbers.

use crate::format::Error;
use crate::io::ReadError;

/// An error number, positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// Bytes that cannot be read, or fail their check.
    pub const EIO: Self = Self(libc::EIO);
    /// No such name.
    pub const ENOENT: Self = Self(libc::ENOENT);
    /// A directory where a file is needed.
    pub const EISDIR: Self = Self(libc::EISDIR);
    /// A file where a directory is needed.
    pub const ENOTDIR: Self = Self(libc::ENOTDIR);
    /// What was written makes no sense.
    pub const EINVAL: Self = Self(libc::EINVAL);
    /// No such request for this file.
    pub const ENOTTY: Self = Self(libc::ENOTTY);
    /// No room at the moment.
    pub const ENOSPC: Self = Self(libc::ENOSPC);
    /// The kernel can do this itself.
    pub const ENOSYS: Self = Self(libc::ENOSYS);
    /// No data, or no hole, from there on.
    pub const ENXIO: Self = Self(libc::ENXIO);
    /// Everything is read-only.
    pub const EROFS: Self = Self(libc::EROFS);
    /// No such extended attribute.
    pub const ENODATA: Self = Self(libc::ENODATA);
    /// No such kind of extended attributes.
    pub const EOPNOTSUPP: Self = Self(libc::EOPNOTSUPP);
    /// The caller's buffer is too small.
    pub const ERANGE: Self = Self(libc::ERANGE);
    /// An inode that was never handed out, or is gone.
    pub const ESTALE: Self = Self(libc::ESTALE);
}

impl From<&Error> for Errno {
    fn from(error: &Error) -> Self {
        match error {
            Error::Unreadable { .. }
            | Error::Malformed { .. }
            | Error::Foreign { .. }
            | Error::NoCheckpoints { .. }
            | Error::Checksum { .. } => Self::EIO,
        }
    }
}

impl From<&ReadError> for Errno {
    fn from(error: &ReadError) -> Self {
        match error {
            // Truncated files and failing disks: whoever reads is told that the bytes are not to be had.
            ReadError::WouldBlock
            | ReadError::Absent
            | ReadError::Changed(_)
            | ReadError::Io(_) => Self::EIO,
        }
    }
}
