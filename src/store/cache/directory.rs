//! The cache's directory: which users may use it, where an entry's files are, and the lock that prevents the removal of
//! an entry that is being opened. Imports `key`.
//!
//! `objects/lock` is locked (flock) shared while an entry is opened, exclusively while one is made or removed;
//! `objects/entries` holds `ID.data`, `ID.map`, `ID.meta` and `ID.use` of each entry, and `ID.pin` of a pinned one;
//! `objects/users` holds a file for each process, with the entries that it has open; files in `objects/trash` are being
//! deleted.

use super::key::EntryId;
use crate::io::files::beneath::Beneath;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SUBDIRECTORIES: [&str; 3] = ["entries", "users", "trash"];
/// Backup programs skip a directory with this file.
const TAG: (&str, &str) = ("CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n");
const OTHERS_MAY_WRITE: u32 = 0o002;
const GROUP_MAY_WRITE: u32 = 0o020;
const SETGID: u32 = 0o2000;
/// How long the lock is waited for: a process that was stopped, or a hostile member of the group, may hold it for ever.
const PATIENCE: Duration = Duration::from_secs(30);
/// The first and the longest pause between two attempts to lock.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// The directory of a cache.
#[derive(Debug, Clone)]
pub(super) struct Directory {
    objects: PathBuf,
    /// Whether root made the directory for a group, whose members share it.
    is_shared: bool,
    /// Whether the lock was last waited for in vain. Then it is only tried, until it is free again: a mount of a thousand
    /// shards waits once.
    is_stuck: Arc<AtomicBool>,
}

/// The files of an entry.
#[derive(Debug, Clone)]
pub(super) struct Paths {
    pub(super) data: PathBuf,
    pub(super) map: PathBuf,
    pub(super) meta: PathBuf,
    pub(super) pin: PathBuf,
    pub(super) usage: PathBuf,
}

/// Holds the lock on the directory. The kernel releases it when the file is closed.
pub(super) struct Locked(#[expect(dead_code, reason = "closing it unlocks")] File);

impl Directory {
    /// Makes the directory, if it does not exist, and checks that no other user can put bytes into it.
    pub(super) fn prepare(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let directory = Self::of(path)?;
        directory.make()?;
        Ok(directory)
    }

    /// An existing directory; creates nothing in it.
    pub(super) fn existing(path: &Path) -> io::Result<Self> {
        let directory = Self::of(path)?;
        must_be_directory(&directory.objects)?;
        Ok(directory)
    }

    /// The path of the directory.
    pub(super) fn place(&self) -> &Path {
        self.objects.parent().unwrap_or(&self.objects)
    }

    fn of(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let is_shared = trust(&path, false)?;
        Ok(Self { objects: path.join("objects"), is_shared, is_stuck: Arc::default() })
    }

    /// Makes the subdirectories, which may have been deleted in the meantime.
    pub(super) fn make(&self) -> io::Result<()> {
        self.make_directory(&self.objects)?;
        trust(&self.objects, self.is_shared)?;
        for name in SUBDIRECTORIES {
            self.make_directory(&self.objects.join(name))?;
        }
        let (name, text) = TAG;
        match File::create_new(self.objects.join(name)) {
            Ok(mut file) => file.write_all(text.as_bytes()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        let mode = if self.is_shared { SETGID | 0o770 } else { 0o700 };
        match DirBuilder::new().mode(mode).create(path) {
            // Sets the bits that the umask cleared, and the setgid bit, which mkdir does not set; by a descriptor, since a
            // confined process changes no mode by a path.
            Ok(()) => {
                let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
                let made = File::options().read(true).custom_flags(flags).open(path)?;
                made.set_permissions(Permissions::from_mode(mode))
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => must_be_directory(path),
            Err(error) => Err(error),
        }
    }

    /// Opens one of its directories, to remove files. Follows no link: users who share the cache could have all files of any
    /// directory removed.
    pub(super) fn open(&self, directory: &Path) -> io::Result<Beneath> {
        let place = self.place();
        let name = directory.strip_prefix(place).map_err(io::Error::other)?;
        Beneath::reach(place)?.directory(name)
    }

    /// Opens or creates a file that this user, or the group, can write.
    pub(super) fn create(&self, path: &Path, is_new: bool) -> io::Result<File> {
        let options = self.file_options();
        match options.clone().create_new(true).open(path) {
            Ok(file) => {
                if self.is_shared {
                    file.set_permissions(Permissions::from_mode(self.file_mode()))?;
                }
                Ok(file)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !is_new => {
                options.open(path)
            }
            Err(error) => Err(error),
        }
    }

    fn file_mode(&self) -> u32 {
        if self.is_shared { 0o660 } else { 0o600 }
    }

    fn file_options(&self) -> OpenOptions {
        let mut options = File::options();
        options.read(true).write(true).mode(self.file_mode());
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        options
    }

    fn open_lock(&self) -> io::Result<File> {
        let path = self.objects.join("lock");
        // The lock is made last: who has it finds all directories, though somebody may have deleted them.
        match self.file_options().open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make()?;
                self.create(&path, false)
            }
            opened => opened,
        }
    }

    /// Locks the directory against removal of entries.
    pub(super) fn lock_shared(&self) -> io::Result<Locked> {
        self.lock(File::try_lock_shared, PATIENCE)
    }

    /// Locks the directory against opening, making and removing entries.
    pub(super) fn lock_exclusively(&self) -> io::Result<Locked> {
        self.lock(File::try_lock, PATIENCE)
    }

    /// Locks the directory, or gives up when `patience` has passed.
    fn lock(
        &self,
        try_lock: fn(&File) -> Result<(), TryLockError>,
        patience: Duration,
    ) -> io::Result<Locked> {
        let (lock, start, mut pause) = (self.open_lock()?, Instant::now(), FIRST_PAUSE);
        loop {
            match try_lock(&lock) {
                Ok(()) => {
                    self.is_stuck.store(false, Ordering::Relaxed);
                    return Ok(Locked(lock));
                }
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => {}
            }
            if self.is_stuck.load(Ordering::Relaxed) || start.elapsed() >= patience {
                self.is_stuck.store(true, Ordering::Relaxed);
                let place = self.objects.join("lock");
                let text = format!(
                    "{}: another process holds the lock and does not release it (fuser shows which)",
                    place.display()
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    pub(super) fn entries(&self) -> PathBuf {
        self.objects.join("entries")
    }

    pub(super) fn users(&self) -> PathBuf {
        self.objects.join("users")
    }

    pub(super) fn trash(&self) -> PathBuf {
        self.objects.join("trash")
    }

    pub(super) fn paths(&self, id: &EntryId) -> Paths {
        let entries = self.entries();
        let path = |extension| entries.join(format!("{id}.{extension}"));
        Paths {
            data: path("data"),
            map: path("map"),
            meta: path("meta"),
            pin: path("pin"),
            usage: path("use"),
        }
    }
}

/// Refuses a path that is no directory, such as a link to one.
fn must_be_directory(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        return Ok(());
    }
    let text =
        format!("{}: not a directory (links within a cache are not followed)", path.display());
    Err(io::Error::new(io::ErrorKind::NotADirectory, text))
}

/// The group with which root shares a cache directory. `None` if it is not shared, or would be refused.
#[must_use]
pub fn sharing_group(path: &Path) -> Option<u32> {
    let is_shared = trust(path, false).ok()?;
    fs::metadata(path).ok().filter(|_| is_shared).map(|found| found.gid())
}

/// Opens a regular file; does not follow a link or wait for a pipe.
pub(super) fn open_plain(path: &Path, may_write: bool) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().read(true).write(may_write).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file")),
    }
}

/// Refuses a directory that others may write, unless root has made it setgid for a group, and returns whether root has. Within
/// such a directory (`in_shared`) the members of the group are trusted.
fn trust(path: &Path, in_shared: bool) -> io::Result<bool> {
    let found = fs::metadata(path)?;
    let refused = |why: &str| {
        let text = format!("{}: {why}", path.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    };
    if !found.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, path.display().to_string()));
    }
    let is_of_root = found.uid() == 0;
    if !is_of_root && found.uid() != nix::unistd::geteuid().as_raw() && !in_shared {
        return refused("the cache directory belongs to another user");
    }
    if found.mode() & OTHERS_MAY_WRITE != 0 {
        return refused("all users may write the cache directory: chmod o-w");
    }
    let is_of_group = found.mode() & GROUP_MAY_WRITE != 0;
    let is_setgid = found.mode() & SETGID != 0;
    if is_of_group && !(is_setgid && (is_of_root || in_shared)) {
        return refused(
            "its group may write the cache directory: chmod g-w, or let root share it with \
             chown root:GROUP and chmod 2770",
        );
    }
    Ok(is_of_group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_somebody_keeps_is_not_waited_for_for_ever() {
        let place = tempfile::tempdir().unwrap();
        let (mine, theirs) =
            (Directory::prepare(place.path()).unwrap(), Directory::existing(place.path()).unwrap());
        let held = theirs.lock_exclusively().unwrap();
        let patience = Duration::from_millis(200);
        let start = Instant::now();
        let error = mine.lock(File::try_lock_shared, patience).err().unwrap();
        assert!(start.elapsed() >= patience);
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("objects/lock: another process holds the lock"));
        // The next one is told at once, whatever its patience: else each shard of a mount would wait.
        assert!(mine.lock(File::try_lock, Duration::from_secs(3600)).is_err());
        drop(held);
        // A process that another test has just started may have the lock until it runs its program.
        while mine.lock_exclusively().is_err() {
            assert!(start.elapsed() < Duration::from_secs(60));
        }
        let _shared = (mine.lock_shared().unwrap(), theirs.lock_shared().unwrap());
    }
}
