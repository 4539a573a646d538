//! Mount points that are made for one mount. That is noted in an attribute of the directory itself, so that also who ends a
//! mount whose daemon was killed can remove what nobody else has made. Imports what finds a directory without following links.

use crate::io::files::beneath::Beneath;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr, lremovexattr};
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Its value is the number of the directory's inode, which a copy does not have. Overlayfs may give a directory another number
/// later: such a one stays.
const NOTE: &str = "user.ffrfs.mountpoint";

/// Whoever may write a directory may also note something in it.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Makes a directory, and notes that it was made for a mount, if its file system has attributes.
///
/// # Errors
/// It cannot be made.
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

/// Has a directory that [`make`] has made be one like any other, which stays.
pub fn forget(path: &Path) {
    // By its path: to open a directory that waits for systemd's automount would wait for this mount.
    let _ = lremovexattr(path, NOTE);
}

/// Whether there is a directory that [`make`] has made for this user, and that nobody else may write to.
#[must_use]
pub fn is_made(path: &Path, owner: u32) -> bool {
    open_directory(path).is_ok_and(|directory| is_noted(directory.as_fd(), owner))
}

/// Removes a directory of which [`is_made`] is true, by its absolute path without links. Any other stays.
///
/// # Errors
/// It is not there, there are files in it, or it cannot be removed.
pub fn remove(path: &Path, owner: u32) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let Ok(parent) = parent.strip_prefix("/") else { return Ok(()) };
    // Held, so that no other directory is removed if somebody renames those on the way.
    let parent = Beneath::open(Path::new("/"))?.directory(parent)?;
    let name = Path::new(name);
    match is_noted(parent.directory(name)?.as_fd(), owner) {
        true => parent.remove_directory(name),
        false => Ok(()),
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

    #[test]
    fn only_a_directory_that_was_made_here_and_is_empty_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let path = |name: &str| place.join(name);
        let user = nix::unistd::geteuid().as_raw();
        fs::create_dir(path("other")).unwrap();
        remove(&path("other"), user).unwrap();
        assert!(path("other").exists() && !is_made(&path("other"), user));
        assert!(remove(&path("none"), user).is_err() && !is_made(&path("none"), user));
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
        remove(&path("made"), user).unwrap();
        assert!(!path("made").exists());
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
