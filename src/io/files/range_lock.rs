//! Locks on ranges of a file that belong to the open file (OFD locks): the kernel drops them with their holder,
//! however that ends. They exclude other openings of the file, not threads that use the same one. Imports nothing of
//! ours.

use nix::fcntl::{FcntlArg, fcntl};
use std::fs::File;
use std::io;
use std::ops::Range;

/// Locks a range exclusively through a file that is open for writing. `false` if another opening of the file has locked some of
/// the range.
///
/// # Errors
/// The file system has no locks, or no memory is left for them.
pub fn try_lock_range(file: &File, range: &Range<u64>) -> io::Result<bool> {
    set(file, range, libc::F_WRLCK)
}

fn set(file: &File, range: &Range<u64>, kind: libc::c_int) -> io::Result<bool> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&lock(range, kind))) {
        Ok(_) => Ok(true),
        Err(nix::Error::EAGAIN | nix::Error::EACCES) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Locks a range of a file that is open for reading, as other openings may at the same time. A lock of the same opening becomes
/// this one. `false` if another opening of the file has locked some of the range exclusively.
///
/// # Errors
/// As for [`try_lock_range`].
pub fn share_range(file: &File, range: &Range<u64>) -> io::Result<bool> {
    set(file, range, libc::F_RDLCK)
}

/// Unlocks a range.
///
/// # Errors
/// The kernel has no memory to split a lock.
pub fn unlock_range(file: &File, range: &Range<u64>) -> io::Result<()> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&lock(range, libc::F_UNLCK)))?;
    Ok(())
}

/// Whether another opening of the file has locked some of a range.
///
/// # Errors
/// The file system has no locks.
pub fn is_range_locked(file: &File, range: &Range<u64>) -> io::Result<bool> {
    let mut found = lock(range, libc::F_WRLCK);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut found))?;
    Ok(i32::from(found.l_type) != libc::F_UNLCK)
}

fn lock(range: &Range<u64>, kind: libc::c_int) -> libc::flock {
    let at = |offset: u64| i64::try_from(offset).unwrap_or(i64::MAX);
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: at(range.start),
        l_len: at(range.end) - at(range.start),
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_locked_for_one_opening_until_it_unlocks_or_goes_away() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(named.path()).unwrap();
        let (one, other) = (open(), open());
        assert!(try_lock_range(&one, &(16..32)).unwrap());
        assert!(!try_lock_range(&other, &(0..17)).unwrap());
        assert!(is_range_locked(&other, &(31..32)).unwrap());
        assert!(try_lock_range(&other, &(32..48)).unwrap());
        unlock_range(&one, &(16..32)).unwrap();
        assert!(try_lock_range(&other, &(0..17)).unwrap());
        drop(other);
        assert!(try_lock_range(&one, &(0..1000)).unwrap());
    }

    #[test]
    fn a_range_is_shared_by_openings_and_locked_exclusively_by_none_meanwhile() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let reading = || File::open(named.path()).unwrap();
        let writing = || File::options().read(true).write(true).open(named.path()).unwrap();
        let (one, other, writer) = (reading(), reading(), writing());
        let whole = 0..u64::MAX;
        assert!(try_lock_range(&writer, &whole).unwrap());
        assert!(!share_range(&one, &whole).unwrap());
        assert!(share_range(&writer, &whole).unwrap(), "its lock becomes a shared one");
        assert!(share_range(&one, &whole).unwrap() && share_range(&other, &(5..6)).unwrap());
        drop((one, writer));
        assert!(!try_lock_range(&writing(), &whole).unwrap());
        assert!(is_range_locked(&reading(), &whole).unwrap());
        drop(other);
        assert!(!is_range_locked(&reading(), &whole).unwrap());
    }
}
