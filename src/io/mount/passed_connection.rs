//! A connection to the kernel that the caller has opened and mounted, and passes in as a descriptor: the mount point
//! is `/dev/fd/N`, as with libfuse 3. Container runtimes mount like this for programs that must not mount themselves.
//! Imports nothing of ours.

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{SFlag, fstat, major, minor};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The major and the minor number of /dev/fuse.
const DEVICE: (u64, u64) = (10, 229);
/// `_IOR(229, 0, uint32_t)`.
const CLONE: libc::Ioctl = 0x8004_e500_u32 as libc::Ioctl;

/// The number of the descriptor that a mount point names: N of `/dev/fd/N`.
#[must_use]
pub fn descriptor_number(target: &Path) -> Option<u32> {
    let digits = target.to_str()?.strip_prefix("/dev/fd/")?;
    digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Duplicates the descriptor `number`, which the caller has opened. Reads of the duplicate block.
///
/// # Errors
/// The descriptor is not open, or is of another file than /dev/fuse.
pub fn duplicate(number: u32) -> io::Result<OwnedFd> {
    let raw = i32::try_from(number).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: only dup(2) uses the descriptor, which fails with EBADF if it is not open.
    let named = unsafe { BorrowedFd::borrow_raw(raw) };
    let device = nix::unistd::dup(named)?;
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

/// The device number (`MAJOR:MINOR`) that the files of a mounted connection show; `None` where the kernel does not show it.
#[must_use]
pub fn device_number(connection: &OwnedFd) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", connection.as_raw_fd())).ok()?;
    let number = text.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?;
    Some(format!("0:{}", number.trim().parse::<u32>().ok()?))
}

/// Another descriptor of a mounted connection: requests that are read through it are answered through it. In many containers
/// this fails: they must not open /dev/fuse.
///
/// # Errors
/// /dev/fuse cannot be opened, or the connection is not mounted.
pub fn clone_device(connection: &OwnedFd) -> io::Result<OwnedFd> {
    let clone = File::options().read(true).write(true).open("/dev/fuse")?;
    let number = connection.as_raw_fd().unsigned_abs();
    // SAFETY: this request makes the kernel read a `u32` through the pointer; the number outlives the call. Both
    // descriptors are open as long as their owners, which are borrowed.
    match unsafe { libc::ioctl(clone.as_raw_fd(), CLONE, &raw const number) } {
        0 => Ok(clone.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dev_fd_and_a_number_is_a_descriptor() {
        assert_eq!(descriptor_number(Path::new("/dev/fd/7")), Some(7));
        for other in ["/dev/fd/", "/dev/fd/+7", "/dev/fd/7/x", "/dev/fd/a", "/dev/fdx/7", "7"] {
            assert_eq!(descriptor_number(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn what_is_not_open_or_another_file_is_refused() {
        assert_eq!(duplicate(1_000_000).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(duplicate(u32::MAX).unwrap_err().raw_os_error(), Some(libc::EBADF));
        let null = File::options().read(true).open("/dev/null").unwrap();
        let error = duplicate(null.as_raw_fd().unsigned_abs()).unwrap_err();
        assert!(error.to_string().contains("/dev/fuse"), "{error}");
    }
}
