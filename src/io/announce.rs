//! Writing to control files through an ioctl: it works where the kernel lets nothing be written.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The most bytes that one call carries: whole numbers of 8 bytes.
pub const MAX_ANNOUNCEMENT_BYTES: usize = 16_376;

/// `_IOC(_IOC_WRITE, 0xf1, 1, size)` without the size.
const ANNOUNCE: u32 = 1 << 30 | 0xf1 << 8 | 1;
const SIZE_SHIFT: u32 = 16;
const SIZE_BITS: u32 = 0x3fff;

/// Whether a request with this number brings an announcement, of whatever size.
#[must_use]
pub fn is_announcement(request: u32) -> bool {
    request & !(SIZE_BITS << SIZE_SHIFT) == ANNOUNCE
}

/// Gives `bytes` to a control file (`prefetch`, `settings`), open for reading, as if they were written to it.
///
/// # Errors
/// As for writing to it; ENOTTY: it is another file.
///
/// # Panics
/// There are more than [`MAX_ANNOUNCEMENT_BYTES`].
pub fn announce(prefetch: &File, bytes: &[u8]) -> io::Result<()> {
    assert!(bytes.len() <= MAX_ANNOUNCEMENT_BYTES, "too much for one call");
    let request = ANNOUNCE | (bytes.len() as u32) << SIZE_SHIFT;
    // SAFETY: the request says that the kernel reads as many bytes as `bytes` has, and writes none; they
    // are borrowed for the time of the call.
    let result = unsafe { libc::ioctl(prefetch.as_raw_fd(), request.into(), bytes.as_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_known_whatever_its_size() {
        assert!(is_announcement(ANNOUNCE) && is_announcement(ANNOUNCE | 16 << SIZE_SHIFT));
        // TCGETS, and the same in the other direction.
        assert!(!is_announcement(0x5401) && !is_announcement(2 << 30 | 0xf101));
    }
}
