//! Writing to control files through an ioctl: it works where the kernel refuses all writes.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The most bytes that one call carries: whole numbers of 8 bytes.
pub const MAX_ANNOUNCEMENT_BYTES: usize = 16_376;

/// `_IOC(_IOC_WRITE, 0xf1, 1, size)` without the size.
const ANNOUNCE: u32 = 1 << 30 | 0xf1 << 8 | 1;
/// `_IOC(_IOC_WRITE, 0xf1, 2, size)` without the size.
const WARM_UP: u32 = 1 << 30 | 0xf1 << 8 | 2;
/// `_IOC(_IOC_WRITE, 0xf1, 3, size)` without the size.
const BEGIN_ORDER: u32 = 1 << 30 | 0xf1 << 8 | 3;
/// `_IOC(_IOC_WRITE, 0xf1, 4, size)` without the size.
const DROP_ALL: u32 = 1 << 30 | 0xf1 << 8 | 4;
const SIZE_SHIFT: u32 = 16;
const SIZE_BITS: u32 = 0x3fff;

/// The request of an ioctl of a control file, for any number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlRequest {
    /// To take the bytes as if they were written to the file: see [`announce`].
    Write,
    /// To fetch samples: see [`warm_up`].
    WarmUp,
    /// To drop an order that was announced, and to announce it anew.
    BeginOrder,
    /// To drop all orders, and warm-ups: see [`drop_all`].
    DropAll,
}

impl ControlRequest {
    /// The request with this number; `None` for other numbers.
    #[must_use]
    pub fn of(number: u32) -> Option<Self> {
        match number & !(SIZE_BITS << SIZE_SHIFT) {
            ANNOUNCE => Some(Self::Write),
            WARM_UP => Some(Self::WarmUp),
            BEGIN_ORDER => Some(Self::BeginOrder),
            DROP_ALL => Some(Self::DropAll),
            _ => None,
        }
    }
}

/// Gives `bytes` to a control file (`prefetch`, `settings`), open for reading, as if they were written to it.
///
/// # Errors
/// As for writing to the file; ENOTTY if it is no such control file; ESTALE if it was opened at a daemon that another one has
/// followed.
///
/// # Panics
/// There are more than [`MAX_ANNOUNCEMENT_BYTES`].
pub fn announce(prefetch: &File, bytes: &[u8]) -> io::Result<()> {
    send(prefetch, ANNOUNCE, bytes)
}

/// Has a mount fetch samples, by numbers of 8 bytes (little-endian), that will be read some time in some order: into the
/// node's cache, where they come from a store and are kept, else as [`announce`] does.
///
/// # Errors
/// EINVAL if there is no such sample. ENOSPC if too many samples wait: try again later. ENOTTY if the file is another one, or
/// the daemon of the mount is older than this request. ESTALE as for [`announce`].
///
/// # Panics
/// There are more than [`MAX_ANNOUNCEMENT_BYTES`].
pub fn warm_up(prefetch: &File, samples: &[u8]) -> io::Result<()> {
    send(prefetch, WARM_UP, samples)
}

/// Drops all samples that are announced to a mount and not read yet, their fetched bytes, and the samples that warm-ups have
/// not begun to fetch; a daemon that is older than this request drops no warm-up.
///
/// # Errors
/// ENOTTY if the file is another one, or the daemon of the mount drops no orders. ESTALE as for [`announce`].
pub fn drop_all(prefetch: &File) -> io::Result<()> {
    let all = 0u64.to_le_bytes();
    match send(prefetch, DROP_ALL, &all) {
        Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => send(prefetch, BEGIN_ORDER, &all),
        sent => sent,
    }
}

fn send(prefetch: &File, request: u32, bytes: &[u8]) -> io::Result<()> {
    assert!(bytes.len() <= MAX_ANNOUNCEMENT_BYTES, "too much for one call");
    let request = request | (bytes.len() as u32) << SIZE_SHIFT;
    // SAFETY: the request says that the kernel reads as many bytes as `bytes` has, and writes none; they
    // are borrowed for the time of the call.
    let result =
        unsafe { libc::ioctl(prefetch.as_raw_fd(), request as libc::Ioctl, bytes.as_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_known_whatever_its_size() {
        for size in [0, 16 << SIZE_SHIFT] {
            assert_eq!(ControlRequest::of(ANNOUNCE | size), Some(ControlRequest::Write));
            assert_eq!(ControlRequest::of(WARM_UP | size), Some(ControlRequest::WarmUp));
            assert_eq!(ControlRequest::of(BEGIN_ORDER | size), Some(ControlRequest::BeginOrder));
            assert_eq!(ControlRequest::of(DROP_ALL | size), Some(ControlRequest::DropAll));
        }
        // TCGETS, and the same in the other direction.
        assert_eq!(
            (ControlRequest::of(0x5401), ControlRequest::of(2 << 30 | 0xf101)),
            (None, None)
        );
    }
}
