//! Mount points that are made for one mount. That is noted in an attribute of the directory itself, so that also who ends a
//! mount whose daemon was killed can remove what nobody else has made. Imports nothing of ours.

use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Its value is the number of the directory's inode, which a copy does not have.
const NOTE: &str = "user.ffrfs.mountpoint";

/// Makes a directory, and notes that it was made for a mount, if its file system has attributes.
///
/// # Errors
/// It cannot be made.
pub fn make(path: &Path) -> io::Result<()> {
    fs::create_dir(path)?;
    let _ = note(path);
    Ok(())
}

fn note(path: &Path) -> io::Result<()> {
    let directory = open(path, directory_flags(), Mode::empty())?;
    let value = inode(&directory)?.to_le_bytes();
    Ok(fsetxattr(&directory, NOTE, &value, XattrFlags::empty())?)
}

/// Whether there is a directory that [`make`] has made.
#[must_use]
pub fn is_made(path: &Path) -> bool {
    open(path, directory_flags(), Mode::empty()).is_ok_and(|directory| is_noted(&directory))
}

/// Removes a directory that [`make`] has made. Any other stays.
///
/// # Errors
/// It is not empty, or cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    // Held, so that no other directory is removed if somebody renames those on the way.
    let parent =
        open(parent, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let directory = openat(&parent, name, directory_flags(), Mode::empty())?;
    match is_noted(&directory) {
        true => Ok(unlinkat(&parent, name, UnlinkatFlags::RemoveDir)?),
        false => Ok(()),
    }
}

fn directory_flags() -> OFlag {
    OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

fn is_noted(directory: &OwnedFd) -> bool {
    let mut value = [0; size_of::<u64>()];
    let length = fgetxattr(directory, NOTE, &mut value[..]);
    let is_whole = length.is_ok_and(|length| length == value.len());
    is_whole && inode(directory).is_ok_and(|inode| inode == u64::from_le_bytes(value))
}

fn inode(directory: &OwnedFd) -> io::Result<u64> {
    Ok(fstat(directory)?.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn only_a_directory_that_was_made_here_and_is_empty_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::create_dir(path("other")).unwrap();
        remove(&path("other")).unwrap();
        assert!(path("other").exists() && !is_made(&path("other")));
        assert!(remove(&path("none")).is_err() && !is_made(&path("none")));
        make(&path("made")).unwrap();
        assert!(make(&path("made")).is_err(), "it is there");
        if !is_made(&path("made")) {
            // This file system has no attributes.
            return;
        }
        // A copy has the attribute of what it was copied from.
        let copy = open(&path("other"), directory_flags(), Mode::empty()).unwrap();
        let value = fs::metadata(path("made")).unwrap().ino().to_le_bytes();
        fsetxattr(&copy, NOTE, &value, XattrFlags::empty()).unwrap();
        assert!(!is_made(&path("other")));
        fs::write(path("made/file"), "").unwrap();
        assert!(remove(&path("made")).is_err());
        fs::remove_file(path("made/file")).unwrap();
        remove(&path("made")).unwrap();
        assert!(!path("made").exists());
    }
}
