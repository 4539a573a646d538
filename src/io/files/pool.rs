//! Files of which only some are open: a dataset of ten thousand shards needs some hundred descriptors.

use super::direct::{Access, Io};
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, fstatat};
use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};

/// The open descriptors of a file.
#[derive(Debug)]
pub(super) struct Handles {
    pub(super) file: fs::File,
    /// The descriptor that samples are read through; the index is read through `file`.
    pub(super) access: Access,
}

/// Files that share descriptors. The file that was opened first is closed first.
#[derive(Debug)]
pub struct Pool {
    capacity: usize,
    open: Mutex<VecDeque<Arc<Slot>>>,
    /// Directories stay open: a path may lead into the mount itself, once the dataset is mounted.
    directories: Mutex<HashMap<PathBuf, Arc<OwnedFd>>>,
}

type Slot = Mutex<Option<Arc<Handles>>>;

/// A file of a pool.
#[derive(Debug)]
pub(super) struct Pooled {
    pool: Arc<Pool>,
    directory: Arc<OwnedFd>,
    name: OsString,
    io: Io,
    slot: Arc<Slot>,
}

impl Pool {
    /// A pool of which `capacity` files are open at most, beside those that are being read.
    #[must_use]
    pub fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self { capacity, open: Mutex::default(), directories: Mutex::default() })
    }

    fn directory(&self, path: &Path) -> io::Result<Arc<OwnedFd>> {
        let mut directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(directory) = directories.get(path) {
            return Ok(Arc::clone(directory));
        }
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = Arc::new(open(path, flags, Mode::empty())?);
        directories.insert(path.to_owned(), Arc::clone(&directory));
        Ok(directory)
    }

    /// Notes that a file was opened; closes another one if there are too many.
    fn opened(&self, slot: &Arc<Slot>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.push_back(Arc::clone(slot));
        let victim = if open.len() > self.capacity { open.pop_front() } else { None };
        drop(open);
        if let Some(victim) = victim {
            // A reader holds a reference of its own.
            *victim.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

impl Pooled {
    /// Puts an open file into a pool.
    pub(super) fn new(
        pool: &Arc<Pool>,
        path: &Path,
        io: Io,
        handles: Arc<Handles>,
    ) -> io::Result<Self> {
        let wrong = || io::Error::other("a path without a directory and a name");
        let directory = pool.directory(path.parent().ok_or_else(wrong)?)?;
        let name = path.file_name().ok_or_else(wrong)?.to_owned();
        let slot = Arc::new(Mutex::new(Some(handles)));
        pool.opened(&slot);
        Ok(Self { pool: Arc::clone(pool), directory, name, io, slot })
    }

    /// The file's open descriptors. The file is opened again if need be; `check` refuses another file of its name.
    pub(super) fn handles(
        &self,
        check: impl FnOnce(&fs::File) -> io::Result<()>,
    ) -> io::Result<Arc<Handles>> {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handles) = slot.as_ref() {
            return Ok(Arc::clone(handles));
        }
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let file = openat(&*self.directory, self.name.as_os_str(), flags, Mode::empty())?;
        let file = fs::File::from(file);
        check(&file)?;
        let access = Access::new(&file, self.io)?;
        let handles = Arc::new(Handles { file, access });
        *slot = Some(Arc::clone(&handles));
        drop(slot);
        self.pool.opened(&self.slot);
        Ok(handles)
    }

    #[cfg(test)]
    pub(super) fn is_open(&self) -> bool {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The attributes of the file that has this name now.
    pub(super) fn status(&self) -> io::Result<FileStat> {
        Ok(fstatat(&*self.directory, self.name.as_os_str(), AtFlags::empty())?)
    }
}
