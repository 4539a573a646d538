//! A connection to the kernel that the caller has opened and mounted: `/dev/fd/N` as the mount point, as
//! libfuse 3 has it. Container runtimes mount like this for programs that may not.

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{SFlag, fstat, major, minor};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The numbers of /dev/fuse.
const DEVICE: (u64, u64) = (10, 229);
/// `_IOR(229, 0, uint32_t)`.
const CLONE: libc::Ioctl = 0x8004_e500;

/// The descriptor that a mount point names, if it names one.
#[must_use]
pub fn number(target: &Path) -> Option<u32> {
    let digits = target.to_str()?.strip_prefix("/dev/fd/")?;
    digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A descriptor of our own for the connection that the caller has open as `number`. Reading it waits.
///
/// # Errors
/// It is not open, or no /dev/fuse.
pub fn take(number: u32) -> io::Result<OwnedFd> {
    let raw = i32::try_from(number).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: only used for the next call, which says EBADF if it is not open; nothing else is done with it.
    let asked = unsafe { BorrowedFd::borrow_raw(raw) };
    let device = nix::unistd::dup(asked)?;
    fcntl(&device, FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    let stat = fstat(&device)?;
    let is_device =
        SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFCHR;
    if !is_device || (major(stat.st_rdev), minor(stat.st_rdev)) != DEVICE {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not /dev/fuse"));
    }
    let flags = OFlag::from_bits_retain(fcntl(&device, FcntlArg::F_GETFL)?);
    if flags.contains(OFlag::O_NONBLOCK) {
        fcntl(&device, FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK))?;
    }
    Ok(device)
}

/// The device number that the files behind a mounted connection show, where the kernel tells.
#[must_use]
pub fn device(connection: &OwnedFd) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", connection.as_raw_fd())).ok()?;
    let number = text.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?;
    Some(format!("0:{}", number.trim().parse::<u32>().ok()?))
}

/// Whether each thread can have a descriptor of its own for a mounted connection: not where /dev/fuse may
/// not be opened, as in many containers.
#[must_use]
pub fn can_be_cloned(connection: &OwnedFd) -> bool {
    let Ok(clone) = File::options().read(true).write(true).open("/dev/fuse") else { return false };
    let number = connection.as_raw_fd().unsigned_abs();
    // SAFETY: the request says that the kernel reads a number through the pointer, which lives until the call
    // returns; both descriptors are open as long as their owners, who are borrowed.
    unsafe { libc::ioctl(clone.as_raw_fd(), CLONE, &raw const number) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dev_fd_and_a_number_is_a_descriptor() {
        assert_eq!(number(Path::new("/dev/fd/7")), Some(7));
        for other in ["/dev/fd/", "/dev/fd/+7", "/dev/fd/7/x", "/dev/fd/a", "/dev/fdx/7", "7"] {
            assert_eq!(number(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn what_is_not_open_or_another_file_is_refused() {
        assert_eq!(take(1_000_000).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(take(u32::MAX).unwrap_err().raw_os_error(), Some(libc::EBADF));
        let null = File::options().read(true).open("/dev/null").unwrap();
        let error = take(null.as_raw_fd().unsigned_abs()).unwrap_err();
        assert!(error.to_string().contains("/dev/fuse"), "{error}");
    }
}
