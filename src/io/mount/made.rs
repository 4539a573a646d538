//! Mount points that are made for one mount. An attribute of the directory itself notes this, so that a command that ends a
//! mount whose daemon was killed can remove the directory, too, and no other one. Imports `beneath`.

use crate::io::files::beneath::Beneath;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{FileStat, Mode, fstat};
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr, lremovexattr};
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// The attribute's value is the number of the directory's inode, which a copy does not have. Overlayfs may give a directory
/// another number later: such a directory stays.
const NOTE: &str = "user.ffrfs.mountpoint";

/// The permissions of other users to write a directory, and thereby also to set its attributes.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Makes a directory, and notes that it was made for a mount, if its file system has attributes.
///
/// # Errors
/// The directory cannot be made.
pub fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o777 & !WRITABLE_BY_OTHERS).create(path)?;
    let _ = note(path);
    Ok(())
}

fn note(path: &Path) -> io::Result<()> {
    let directory = open_directory(path)?;
    let value = fstat(&directory)?.st_ino.to_le_bytes();
    Ok(fsetxattr(&directory, NOTE, &value, XattrFlags::empty())?)
}

/// Turns a directory that [`make`] has made into one like any other, which stays.
pub fn forget(path: &Path) {
    // By its path: to open a directory that waits for systemd's automount would wait for this mount.
    let _ = lremovexattr(path, NOTE);
}

/// Whether there is a directory that [`make`] has made for this user, and that no other user may write to.
#[must_use]
pub fn is_made(path: &Path, owner: u32) -> bool {
    MadeDirectory::at(path, owner).is_some()
}

/// A directory of which [`is_made`] is true. It is open, so that no other directory gets its number.
pub struct MadeDirectory {
    directory: OwnedFd,
    owner: u32,
}

impl MadeDirectory {
    /// The directory that is at `path` now; `None` if [`is_made`] is false for it.
    #[must_use]
    pub fn at(path: &Path, owner: u32) -> Option<Self> {
        let directory = open_directory(path).ok()?;
        is_noted(directory.as_fd(), owner).then_some(Self { directory, owner })
    }

    /// Removes the directory, by its absolute path without links. Any other directory that is there meanwhile stays.
    ///
    /// # Errors
    /// No directory is there, there are files in it, or it cannot be removed.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        let Ok(parent) = parent.strip_prefix("/") else { return Ok(()) };
        // Held, so that no other directory is removed if directories on the way are renamed.
        let parent = Beneath::reach(Path::new("/"))?.passage(parent)?;
        let name = Path::new(name);
        let there = parent.directory(name)?;
        let number = |found: FileStat| (found.st_dev, found.st_ino);
        let is_same = number(fstat(&there)?) == number(fstat(&self.directory)?);
        match is_same && is_noted(there.as_fd(), self.owner) {
            true => parent.remove_directory(name),
            false => Ok(()),
        }
    }
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

fn is_noted(directory: BorrowedFd<'_>, owner: u32) -> bool {
    let mut value = [0; size_of::<u64>()];
    let length = fgetxattr(directory, NOTE, &mut value[..]);
    let is_whole = length.is_ok_and(|length| length == value.len());
    is_whole
        && fstat(directory).is_ok_and(|found| {
            let is_owners = found.st_uid == owner && found.st_mode & WRITABLE_BY_OTHERS == 0;
            is_owners && found.st_ino == u64::from_le_bytes(value)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::testing::skip;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    const NO_NOTES: &str =
        "the file system has no attributes, or other numbers meanwhile (overlayfs)";

    fn remove(path: &Path, owner: u32) -> io::Result<()> {
        MadeDirectory::at(path, owner).map_or(Ok(()), |made| made.remove(path))
    }

    #[test]
    fn only_a_directory_that_was_made_here_and_is_empty_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let path = |name: &str| place.join(name);
        let user = nix::unistd::geteuid().as_raw();
        fs::create_dir(path("other")).unwrap();
        remove(&path("other"), user).unwrap();
        assert!(path("other").exists() && !is_made(&path("other"), user));
        assert!(!is_made(&path("none"), user));
        make(&path("made")).unwrap();
        assert!(make(&path("made")).is_err(), "it is there");
        if !is_made(&path("made"), user) {
            return skip(NO_NOTES);
        }
        // A copy has the attribute of what it was copied from.
        let copy = open_directory(&path("other")).unwrap();
        let value = fs::metadata(path("made")).unwrap().ino().to_le_bytes();
        fsetxattr(&copy, NOTE, &value, XattrFlags::empty()).unwrap();
        assert!(!is_made(&path("other"), user));
        fs::write(path("made/file"), "").unwrap();
        assert!(remove(&path("made"), user).is_err());
        fs::remove_file(path("made/file")).unwrap();
        std::os::unix::fs::symlink(&place, path("link")).unwrap();
        assert!(remove(&path("link/made"), user).is_err(), "a link is on the way");
        // This user may reach what is in the directory above it, but not list that; root may do both.
        fs::set_permissions(&place, Permissions::from_mode(0o311)).unwrap();
        let removed = remove(&path("made"), user);
        fs::set_permissions(&place, Permissions::from_mode(0o700)).unwrap();
        removed.unwrap();
        assert!(!path("made").exists());
    }

    #[test]
    fn a_directory_that_was_made_anew_meanwhile_is_another_one() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().canonicalize().unwrap().join("made");
        let user = nix::unistd::geteuid().as_raw();
        make(&path).unwrap();
        let Some(made) = MadeDirectory::at(&path, user) else { return skip(NO_NOTES) };
        fs::remove_dir(&path).unwrap();
        let nothing = made.remove(&path).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::NotFound);
        make(&path).unwrap();
        made.remove(&path).unwrap();
        assert!(is_made(&path, user), "it is still there");
    }

    #[test]
    fn a_note_is_believed_only_where_nobody_but_the_one_who_mounted_can_have_made_it() {
        let place = tempfile::tempdir().unwrap();
        let made = place.path().canonicalize().unwrap().join("made");
        let user = nix::unistd::geteuid().as_raw();
        make(&made).unwrap();
        let mode = fs::metadata(&made).unwrap().permissions().mode();
        assert_eq!(mode & WRITABLE_BY_OTHERS, 0, "{mode:o}");
        if !is_made(&made, user) {
            return skip(NO_NOTES);
        }
        assert!(!is_made(&made, user + 1), "it is somebody else's");
        remove(&made, user + 1).unwrap();
        for mode in [0o777, 0o775, 0o757] {
            fs::set_permissions(&made, Permissions::from_mode(mode)).unwrap();
            assert!(!is_made(&made, user), "{mode:o}");
            remove(&made, user).unwrap();
        }
        fs::set_permissions(&made, Permissions::from_mode(0o755)).unwrap();
        assert!(is_made(&made, user), "and it is still there");
        forget(&made);
        assert!(!is_made(&made, user));
        remove(&made, user).unwrap();
        assert!(made.exists());
    }
}
