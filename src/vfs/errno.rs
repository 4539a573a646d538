//! The one place where errors become error numbers.

use crate::format::Error;
use crate::io::ReadError;
use crate::store::remote::{ErrorKind, StoreError};

/// An error number, positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// Bytes that cannot be read, or fail their check.
    pub const EIO: Self = Self(libc::EIO);
    /// The store denies the read, or the mount is closed to the user who asks.
    pub const EACCES: Self = Self(libc::EACCES);
    /// The read was interrupted.
    pub const EINTR: Self = Self(libc::EINTR);
    /// No such name.
    pub const ENOENT: Self = Self(libc::ENOENT);
    /// A directory where a file is needed.
    pub const EISDIR: Self = Self(libc::EISDIR);
    /// A file where a directory is needed.
    pub const ENOTDIR: Self = Self(libc::ENOTDIR);
    /// An argument, or written text, that makes no sense.
    pub const EINVAL: Self = Self(libc::EINVAL);
    /// An ioctl that this file does not have.
    pub const ENOTTY: Self = Self(libc::ENOTTY);
    /// A queue or a cache has no room at the moment.
    pub const ENOSPC: Self = Self(libc::ENOSPC);
    /// A request that the kernel can do itself.
    pub const ENOSYS: Self = Self(libc::ENOSYS);
    /// No data, or no hole, from the offset on.
    pub const ENXIO: Self = Self(libc::ENXIO);
    /// The file, or the whole mount, is read-only.
    pub const EROFS: Self = Self(libc::EROFS);
    /// No such extended attribute.
    pub const ENODATA: Self = Self(libc::ENODATA);
    /// No extended attributes of this kind.
    pub const EOPNOTSUPP: Self = Self(libc::EOPNOTSUPP);
    /// The caller's buffer is too small.
    pub const ERANGE: Self = Self(libc::ERANGE);
    /// An inode that was never given out, or is gone; an object that is gone, or not the version that was opened.
    pub const ESTALE: Self = Self(libc::ESTALE);
}

impl From<&Error> for Errno {
    fn from(error: &Error) -> Self {
        match error {
            Error::Unreadable { .. }
            | Error::Malformed { .. }
            | Error::WrongPassword { .. }
            | Error::Locked { .. }
            | Error::Encryption { .. }
            | Error::Undecodable { .. }
            | Error::Foreign { .. }
            | Error::NoCheckpoints { .. }
            | Error::Checksum { .. } => Self::EIO,
        }
    }
}

impl From<&ReadError> for Errno {
    fn from(error: &ReadError) -> Self {
        match error {
            ReadError::Io(error) => StoreError::of(error).map_or(Self::EIO, Self::from),
            // Truncated files and failing disks: the reader learns that the bytes cannot be read.
            ReadError::WouldBlock | ReadError::Absent | ReadError::Changed(_) => Self::EIO,
        }
    }
}

impl From<&StoreError> for Errno {
    fn from(error: &StoreError) -> Self {
        match error.kind {
            ErrorKind::Changed | ErrorKind::NotFound => Self::ESTALE,
            ErrorKind::Denied => Self::EACCES,
            ErrorKind::Interrupted => Self::EINTR,
            ErrorKind::NoRoom => Self::ENOSPC,
            ErrorKind::Throttled
            | ErrorKind::Unavailable
            | ErrorKind::Broken
            | ErrorKind::TimedOut
            | ErrorKind::Malformed
            | ErrorKind::Refused => Self::EIO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn errors_of_stores_have_error_numbers_of_their_own() {
        for (kind, errno) in [
            (ErrorKind::Changed, Errno::ESTALE),
            (ErrorKind::NotFound, Errno::ESTALE),
            (ErrorKind::Denied, Errno::EACCES),
            (ErrorKind::Interrupted, Errno::EINTR),
            (ErrorKind::TimedOut, Errno::EIO),
        ] {
            let error = io::Error::from(StoreError::new("s3://b/k", kind, "no"));
            assert_eq!(Errno::from(&ReadError::Io(error)), errno, "{kind:?}");
        }
        let local = io::Error::from_raw_os_error(libc::ESTALE);
        assert_eq!(Errno::from(&ReadError::Io(local)), Errno::EIO);
    }
}
