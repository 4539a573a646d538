//! Writing large files, and taking bytes out of them. Imports nothing of ours.

use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Reserves space for `bytes` bytes of a file, whose length does not change. Where the file system cannot reserve,
/// it allocates the space as the file is written.
///
/// # Errors
/// There is not enough space.
pub fn preallocate(file: &File, bytes: u64) -> io::Result<()> {
    let Ok(length) = i64::try_from(bytes) else { return Err(io::ErrorKind::FileTooLarge.into()) };
    if length == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, length) {
        Err(error @ (nix::Error::ENOSPC | nix::Error::EDQUOT | nix::Error::EFBIG)) => {
            Err(error.into())
        }
        _ => Ok(()),
    }
}

/// Gives the space of a range of a file back; the range reads as zeros then. The length does not change.
///
/// # Errors
/// The file system has no holes (`Unsupported`), or the disk failed, and part of the range may be zeros.
pub fn punch_hole(file: &File, range: &Range<u64>) -> io::Result<()> {
    let number = |bytes: u64| i64::try_from(bytes).map_err(io::Error::other);
    let (start, length) = (number(range.start)?, number(range.end - range.start)?);
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    loop {
        match fallocate(file, flags, start, length) {
            Err(nix::Error::EINTR) => {}
            Err(nix::Error::EOPNOTSUPP | nix::Error::ENOSYS | nix::Error::EPERM) => {
                return Err(io::ErrorKind::Unsupported.into());
            }
            punched => return Ok(punched?),
        }
    }
}

/// Hints that the kernel may begin to write this range of a file from memory to the disk.
pub fn start_writing(file: &File, offset_bytes: u64, length_bytes: u64) {
    let (Ok(offset), Ok(length)) = (i64::try_from(offset_bytes), i64::try_from(length_bytes))
    else {
        return;
    };
    // SAFETY: the call takes numbers and no pointers; the descriptor is open as long as `file` is.
    unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE) };
}
