//! Another name for an entry of a directory, only if no other entry has it. Imports nothing of ours.

use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};
use rustix::fs::{RenameFlags, renameat_with};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A way to rename an entry that replaces nothing.
type Way = fn(BorrowedFd<'_>, &Path, &Path) -> io::Result<()>;

/// Renames an entry; both names are relative to the directory.
///
/// # Errors
/// Another entry has the new name (`AlreadyExists`), or this one cannot be renamed.
pub fn rename_to_free(directory: impl AsFd, from: &Path, to: &Path) -> io::Result<()> {
    let directory = directory.as_fd();
    for way in [rename as Way, link] {
        match way(directory, from, to) {
            // Kernels, file systems (NFS; vfat; many of FUSE) and sandboxes each lack another way.
            Err(error) if is_lacking(&error) => {}
            done => return done,
        }
    }
    claim(directory, from, to)
}

fn is_lacking(error: &io::Error) -> bool {
    let lacking = [libc::EINVAL, libc::EPERM, libc::ENOSYS, libc::EOPNOTSUPP];
    error.raw_os_error().is_some_and(|number| lacking.contains(&number))
}

fn rename(directory: BorrowedFd<'_>, from: &Path, to: &Path) -> io::Result<()> {
    Ok(renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE)?)
}

/// A link never replaces anything.
fn link(directory: BorrowedFd<'_>, from: &Path, to: &Path) -> io::Result<()> {
    linkat(directory, from, directory, to, AtFlags::empty())?;
    // The entry has its new name, even if it keeps the old one.
    let _ = unlinkat(directory, from, UnlinkatFlags::NoRemoveDir);
    Ok(())
}

/// Makes an empty file, which other processes may see for a moment, and replaces that file.
fn claim(directory: BorrowedFd<'_>, from: &Path, to: &Path) -> io::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    let claimed = openat(directory, to, flags, Mode::from_bits_truncate(0o600))?;
    let renamed = renameat(directory, from, directory, to);
    // The rename may have been done though its answer was lost.
    if renamed.is_err() && is_at(directory, to, &claimed).unwrap_or(false) {
        let _ = unlinkat(directory, to, UnlinkatFlags::NoRemoveDir);
    }
    Ok(renamed?)
}

/// Whether an entry is this file.
fn is_at(directory: BorrowedFd<'_>, name: &Path, file: &OwnedFd) -> io::Result<bool> {
    let (entry, file) = (fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)?, fstat(file)?);
    Ok((entry.st_dev, entry.st_ino) == (file.st_dev, file.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    #[test]
    fn each_way_gives_a_free_name_and_replaces_nothing() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let directory = File::open(place.path()).unwrap();
        fs::create_dir(at("directory")).unwrap();
        symlink("nowhere", at("link")).unwrap();
        for (number, way) in [rename as Way, link, claim].into_iter().enumerate() {
            fs::write(at("new"), "new").unwrap();
            fs::write(at("file"), "old").unwrap();
            let to = |name: &str| way(directory.as_fd(), Path::new("new"), Path::new(name));
            if to("file").is_err_and(|error| is_lacking(&error)) {
                continue;
            }
            for taken in ["file", "directory", "link"] {
                let error = to(taken).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{number}: {taken}");
            }
            assert!(at("directory").is_dir() && at("link").is_symlink(), "{number}");
            assert_eq!(fs::read(at("file")).unwrap(), b"old", "{number}");
            fs::remove_file(at("file")).unwrap();
            to("file").unwrap();
            assert_eq!(fs::read(at("file")).unwrap(), b"new", "{number}");
            assert!(!at("new").exists(), "{number}");
            // What is not there leaves nothing behind.
            assert!(to("other").is_err() && !at("other").exists(), "{number}");
        }
    }

    #[test]
    fn what_a_file_system_or_a_sandbox_lacks_is_told_from_what_is_wrong() {
        let is_lacking = |number| super::is_lacking(&io::Error::from_raw_os_error(number));
        let lacking = [libc::EINVAL, libc::EPERM, libc::ENOSYS, libc::EOPNOTSUPP];
        let wrong = [libc::EEXIST, libc::ENOENT, libc::EACCES, libc::EROFS];
        assert_eq!((lacking.map(is_lacking), wrong.map(is_lacking)), ([true; 4], [false; 4]));
    }
}
