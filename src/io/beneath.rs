//! Making files below a directory, and never outside of it: no symbolic link on the way is followed, whoever put
//! it there, and whenever.

use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, renameat};
use nix::sys::stat::{FileStat, Mode, UtimensatFlags, fstatat, futimens, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, unlinkat};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// A directory in which files are made.
pub struct Beneath(OwnedFd);

/// When a file was last modified: seconds and nanoseconds since 1970.
pub type Modified = (i64, u32);

impl Beneath {
    /// Opens the directory itself; links on the way to it are the user's business.
    ///
    /// # Errors
    /// It cannot be opened, or is none.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        Ok(Self(nix::fcntl::open(path, flags, Mode::empty())?))
    }

    /// Opens a directory below it.
    ///
    /// # Errors
    /// It is not there, or a symbolic link is on the way.
    pub fn directory(&self, path: &Path) -> io::Result<Self> {
        let is_itself = path.as_os_str().is_empty();
        let how = OpenHow::new()
            .flags(OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        Ok(Self(openat2(&self.0, if is_itself { Path::new(".") } else { path }, how)?))
    }

    /// Opens a directory below it, and makes it and those on the way if they are missing.
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

    /// Makes a file that was not there; `mode` without what the umask takes.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make_file(&self, name: &Path) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
        let mode = Mode::from_bits_truncate(0o666);
        Ok(File::from(openat(&self.0, name, flags | OFlag::O_CLOEXEC, mode)?))
    }

    /// Makes a symbolic link that was not there.
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

    /// Makes another name of a file; both are relative to their directories.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make_hard_link(&self, name: &Path, of: &Self, first: &Path) -> io::Result<()> {
        Ok(linkat(&of.0, first, &self.0, name, AtFlags::empty())?)
    }

    /// Gives what was made another name, in place of what has that name if `replaces`.
    ///
    /// # Errors
    /// There is something of that name, or it cannot be renamed.
    pub fn rename(&self, from: &Path, to: &Path, replaces: bool) -> io::Result<()> {
        if replaces {
            return Ok(renameat(&self.0, from, &self.0, to)?);
        }
        // Unlike a rename, a link never replaces anything.
        match linkat(&self.0, from, &self.0, to, AtFlags::empty()) {
            Ok(()) => self.remove(from),
            // The file system has no links.
            Err(nix::Error::EPERM | nix::Error::ENOSYS) if self.look(to)?.is_none() => {
                Ok(renameat(&self.0, from, &self.0, to)?)
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Removes a file or a link.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, name: &Path) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// What has this name; a link is a link. `None`: nothing.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn look(&self, name: &Path) -> io::Result<Option<FileStat>> {
        match fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(nix::Error::ENOENT) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Sets permissions and time of the directory itself.
    ///
    /// # Errors
    /// They cannot be set.
    pub fn set(&self, mode: Option<u16>, modified: Modified) -> io::Result<()> {
        set(&self.0, mode, modified)
    }
}

/// Sets permissions and time of an open file.
///
/// # Errors
/// They cannot be set.
pub fn set(file: impl AsFd, mode: Option<u16>, modified: Modified) -> io::Result<()> {
    if let Some(mode) = mode {
        nix::sys::stat::fchmod(&file, Mode::from_bits_truncate(mode.into()))?;
    }
    let time = spec(modified);
    Ok(futimens(&file, &time, &time)?)
}

/// Closes a file, and says what only then is known to have failed, as on NFS.
///
/// # Errors
/// What was written could not be kept.
pub fn close(file: File) -> io::Result<()> {
    Ok(nix::unistd::close(file)?)
}

fn spec((seconds, nanos): Modified) -> TimeSpec {
    TimeSpec::new(seconds, nanos.into())
}
