//! Makes and removes files below a directory, and never outside of it: no symbolic link on the way is followed, even one
//! that another process puts there meanwhile.

use super::free_name::rename_to_free;
use nix::dir::Dir;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat, renameat};
use nix::sys::stat::{FileStat, Mode, UtimensatFlags, fstatat, futimens, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, unlinkat};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path};

/// A directory in which files are made.
pub struct Beneath(OwnedFd);

/// How a directory is opened that is only on the way to others: it need not be readable.
const PASSED: OFlag = OFlag::O_PATH;

/// When a file was last modified: seconds and nanoseconds since 1970.
pub type Modified = (i64, u32);

impl Beneath {
    /// Opens the directory itself; links on the way to it are the user's business.
    ///
    /// # Errors
    /// It cannot be opened, or is not a directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        Ok(Self(nix::fcntl::open(path, flags, Mode::empty())?))
    }

    /// As [`Beneath::open`], only to reach its entries: this user, or a confined process, need not be allowed to list it.
    ///
    /// # Errors
    /// As of [`Beneath::open`].
    pub fn reach(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_DIRECTORY | PASSED | OFlag::O_CLOEXEC;
        Ok(Self(nix::fcntl::open(path, flags, Mode::empty())?))
    }

    /// Opens a directory below this one.
    ///
    /// # Errors
    /// It does not exist, or a symbolic link is on the way.
    pub fn directory(&self, path: &Path) -> io::Result<Self> {
        self.open_below(path, OFlag::O_RDONLY)
    }

    /// As [`Beneath::directory`], only to reach its entries: this user need not be allowed to list it.
    ///
    /// # Errors
    /// As of [`Beneath::directory`].
    pub fn passage(&self, path: &Path) -> io::Result<Self> {
        self.open_below(path, PASSED)
    }

    fn open_below(&self, path: &Path, access: OFlag) -> io::Result<Self> {
        let is_itself = path.as_os_str().is_empty();
        let how = OpenHow::new()
            .flags(OFlag::O_DIRECTORY | access | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        match openat2(&self.0, if is_itself { Path::new(".") } else { path }, how) {
            // Before Linux 5.6, and under some sandboxes and emulators; a confined process may not call it.
            Err(nix::Error::ENOSYS | nix::Error::EPERM) => self.walk(path, access),
            found => Ok(Self(found?)),
        }
    }

    /// As [`Beneath::open_below`], one step after the other.
    fn walk(&self, path: &Path, access: OFlag) -> io::Result<Self> {
        let mut steps = path.components().filter(|step| *step != Component::CurDir).peekable();
        let flags = |is_last: bool| {
            let access = if is_last { access } else { PASSED };
            OFlag::O_DIRECTORY | access | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
        };
        let flags_here = flags(steps.peek().is_none());
        let mut found = Self(openat(&self.0, ".", flags_here, Mode::empty())?);
        while let Some(step) = steps.next() {
            let Component::Normal(name) = step else { return Err(nix::Error::EXDEV.into()) };
            let (name, flags) = (Path::new(name), flags(steps.peek().is_none()));
            found = match openat(&found.0, name, flags, Mode::empty()) {
                Err(nix::Error::ENOTDIR) if found.is_symlink(name)? => {
                    return Err(nix::Error::ELOOP.into());
                }
                next => Self(next?),
            };
        }
        Ok(found)
    }

    fn is_symlink(&self, name: &Path) -> io::Result<bool> {
        let found = self.look(name)?;
        Ok(found.is_some_and(|found| found.st_mode & libc::S_IFMT == libc::S_IFLNK))
    }

    /// Opens a directory below this one, and makes it and the directories on the way if they are missing.
    ///
    /// # Errors
    /// As [`Beneath::directory`]; or it cannot be made.
    pub fn make_directory(&self, path: &Path) -> io::Result<Self> {
        match self.directory(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        let above = self.make_directory(path.parent().unwrap_or(Path::new("")))?;
        let name = Path::new(path.file_name().unwrap_or_default());
        match mkdirat(&above.0, name, Mode::from_bits_truncate(0o777)) {
            // Another thread was faster.
            Ok(()) | Err(nix::Error::EEXIST) => above.directory(name),
            Err(e) => Err(e.into()),
        }
    }

    /// Makes a file that does not exist yet, with the permissions `mode` less the umask.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make_file(&self, name: &Path) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
        let mode = Mode::from_bits_truncate(0o666);
        Ok(File::from(openat(&self.0, name, flags | OFlag::O_CLOEXEC, mode)?))
    }

    /// The names of the directory's entries.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let mut directory = Dir::from_fd(openat(&self.0, ".", flags, Mode::empty())?)?;
        let mut names = Vec::new();
        for entry in directory.iter() {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    /// Opens a regular file in the directory for reading, and for writing if it `may_write`.
    ///
    /// # Errors
    /// It cannot be opened, or is no regular file, such as a symbolic link.
    pub fn open_file(&self, name: &Path, may_write: bool) -> io::Result<File> {
        let access = if may_write { OFlag::O_RDWR } else { OFlag::O_RDONLY };
        let flags = access | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = File::from(openat(&self.0, name, flags, Mode::empty())?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file")),
        }
    }

    /// Moves an entry to another directory, where its new name should be free.
    ///
    /// # Errors
    /// It cannot be moved.
    pub fn move_to(&self, name: &Path, other: &Self, new_name: &Path) -> io::Result<()> {
        Ok(renameat(&self.0, name, &other.0, new_name)?)
    }

    /// Makes a symbolic link; its name must be free.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make_symlink(&self, name: &Path, target: &Path, modified: Modified) -> io::Result<()> {
        symlinkat(target, &self.0, name)?;
        let (time, how) = (spec(modified), UtimensatFlags::NoFollowSymlink);
        // Not every file system has times of links.
        let _ = utimensat(&self.0, name, &time, &time, how);
        Ok(())
    }

    /// Makes a hard link to a file; both names are relative to their directories.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make_hard_link(&self, name: &Path, of: &Self, first: &Path) -> io::Result<()> {
        Ok(linkat(&of.0, first, &self.0, name, AtFlags::empty())?)
    }

    /// Renames an entry. If `replaces`, an entry that has the new name already is replaced.
    ///
    /// # Errors
    /// An entry has the new name already, or this one cannot be renamed.
    pub fn rename(&self, from: &Path, to: &Path, replaces: bool) -> io::Result<()> {
        match replaces {
            true => Ok(renameat(&self.0, from, &self.0, to)?),
            false => rename_to_free(&self.0, from, to),
        }
    }

    /// Removes a file or a link.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, name: &Path) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Removes a directory, which must be empty.
    ///
    /// # Errors
    /// There are files in it, or it cannot be removed.
    pub fn remove_directory(&self, name: &Path) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, UnlinkatFlags::RemoveDir)?)
    }

    /// The attributes of an entry; a symbolic link is not followed. `None` if there is no such entry.
    ///
    /// # Errors
    /// Its attributes cannot be read.
    pub fn look(&self, name: &Path) -> io::Result<Option<FileStat>> {
        match fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(nix::Error::ENOENT) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// It is no link, or cannot be read.
    pub fn read_link(&self, name: &Path) -> io::Result<OsString> {
        Ok(readlinkat(&self.0, name)?)
    }

    /// As [`set`], for the directory itself.
    ///
    /// # Errors
    /// As of [`set`].
    pub fn set(&self, mode: Option<u16>, modified: Modified) -> io::Result<bool> {
        set(&self.0, mode, modified)
    }
}

impl AsFd for Beneath {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sets permissions and time of an open file. `false` if the file system does not keep these permissions, as vfat.
///
/// # Errors
/// They cannot be set.
pub fn set(file: impl AsFd, mode: Option<u16>, modified: Modified) -> io::Result<bool> {
    let set = mode.map_or(Ok(()), |mode| {
        nix::sys::stat::fchmod(&file, Mode::from_bits_truncate(mode.into()))
    });
    let keeps_mode = match set {
        Err(nix::Error::EPERM | nix::Error::EOPNOTSUPP) => false,
        set => set.map(|()| true)?,
    };
    let time = spec(modified);
    futimens(&file, &time, &time)?;
    Ok(keeps_mode)
}

/// Closes a file, and reports an error that shows only then, as on NFS.
///
/// # Errors
/// The file system could not store the written bytes.
pub fn close(file: File) -> io::Result<()> {
    Ok(nix::unistd::close(file)?)
}

fn spec((seconds, nanos): Modified) -> TimeSpec {
    TimeSpec::new(seconds, nanos.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_system_that_does_not_keep_permissions_gets_the_time_all_the_same() {
        // The kernel answers EPERM here, as vfat does, and takes the time.
        let file = File::open("/proc/self/status").unwrap();
        assert!(!set(&file, Some(0o600), (5, 0)).unwrap());
        assert!(set(&file, None, (6, 0)).unwrap(), "no permissions, none that are not kept");
        let other = tempfile::tempfile().unwrap();
        assert!(set(&other, Some(0o600), (5, 0)).unwrap());
    }

    #[test]
    fn no_directory_is_opened_through_a_link_or_above_however_the_path_is_walked() {
        let (outside, inside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(inside.path().join("a/b")).unwrap();
        fs::create_dir(outside.path().join("b")).unwrap();
        std::os::unix::fs::symlink(outside.path(), inside.path().join("link")).unwrap();
        std::os::unix::fs::symlink("a", inside.path().join("near")).unwrap();
        let top = Beneath::open(inside.path()).unwrap();
        let every_way = |path: &str| {
            let path = Path::new(path);
            let walked = [OFlag::O_RDONLY, PASSED].map(|access| top.walk(path, access));
            [top.directory(path), top.passage(path)].into_iter().chain(walked).collect::<Vec<_>>()
        };
        for path in ["", ".", "a", "a/b", "a/./b/"] {
            assert!(every_way(path).iter().all(Result::is_ok), "{path:?}");
        }
        fs::write(inside.path().join("file"), "").unwrap();
        let above = outside.path().to_str().unwrap();
        for (path, errno) in [
            ("link", libc::ELOOP),
            ("link/b", libc::ELOOP),
            ("near", libc::ELOOP),
            ("near/b", libc::ELOOP),
            ("..", libc::EXDEV),
            ("a/../..", libc::EXDEV),
            ("/", libc::EXDEV),
            (above, libc::EXDEV),
            ("file", libc::ENOTDIR),
            ("file/b", libc::ENOTDIR),
            ("a/c", libc::ENOENT),
        ] {
            for found in every_way(path) {
                let error = found.err().and_then(|error| error.raw_os_error());
                assert_eq!(error, Some(errno), "{path:?}");
            }
        }
    }
}
