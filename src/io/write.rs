//! Writing large files.

use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Finds room for `bytes` bytes of a file, which stays as long as it is; where the file system cannot do
/// that, room is found as the file is written.
///
/// # Errors
/// There is no room.
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

/// Has the disk begin to write a part of a file that is in memory. It is no more than a hint.
pub fn start_writing(file: &File, offset_bytes: u64, length_bytes: u64) {
    let (Ok(offset), Ok(length)) = (i64::try_from(offset_bytes), i64::try_from(length_bytes))
    else {
        return;
    };
    // SAFETY: it takes numbers only, no memory; the descriptor is open as long as `file` is.
    unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE) };
}
