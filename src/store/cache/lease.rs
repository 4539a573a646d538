//! The entries that each process has open: each process keeps a locked file with their names. The kernel releases the
//! lock when the process ends, so that the entries of a killed process count as closed. Imports `directory` and `key`.

use super::directory::{Directory, open_plain};
use super::key::EntryId;
use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind::{InvalidData, NotFound};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

const SLOT_BYTES: u64 = EntryId::BYTES as u64;
/// The most bytes of a file that are read, more than any process needs; the rest of a longer file is ignored.
const MOST_BYTES: u64 = (1 << 20) * SLOT_BYTES;

/// The entries that this process has open.
pub(super) struct Leases {
    directory: Directory,
    current: Mutex<Option<Arc<LeaseFile>>>,
}

/// The file of this process.
struct LeaseFile {
    file: File,
    path: PathBuf,
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    free: Vec<u64>,
    used: u64,
}

/// While a lease is held, its entry is not removed.
pub(super) struct Lease {
    file: Arc<LeaseFile>,
    slot: u64,
}

impl Leases {
    pub(super) fn new(directory: Directory) -> Self {
        Self { directory, current: Mutex::new(None) }
    }

    /// Notes that this process opens the entry. The caller has locked the directory.
    pub(super) fn take(&self, id: &EntryId) -> io::Result<Lease> {
        let file = self.file()?;
        let slot = {
            let mut slots = file.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.free.pop().unwrap_or_else(|| {
                slots.used += 1;
                slots.used - 1
            })
        };
        let lease = Lease { file, slot };
        lease.file.file.write_all_at(id.as_bytes(), slot * SLOT_BYTES)?;
        Ok(lease)
    }

    /// The file of this process; makes one if it is missing or was deleted.
    fn file(&self) -> io::Result<Arc<LeaseFile>> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = current.as_ref().filter(|file| file.has_its_name()) {
            return Ok(Arc::clone(file));
        }
        let name = tempfile::Builder::new()
            .prefix("user-")
            .make_in(self.directory.users(), |path| self.directory.create(path, true))?;
        let (file, path) = name.keep()?;
        file.lock()?;
        let file = Arc::new(LeaseFile { file, path, slots: Mutex::default() });
        *current = Some(Arc::clone(&file));
        Ok(file)
    }
}

impl LeaseFile {
    fn has_its_name(&self) -> bool {
        let mine = self.file.metadata().map(|found| (found.dev(), found.ino()));
        let named = fs::metadata(&self.path).map(|found| (found.dev(), found.ino()));
        matches!((mine, named), (Ok(mine), Ok(named)) if mine == named)
    }
}

impl Lease {
    /// Whether other processes can see this lease: the file may have been deleted with the directory.
    fn is_visible(&self) -> bool {
        self.file.has_its_name()
    }

    /// Whether this is the only lease of `id`. The caller has locked the directory exclusively.
    ///
    /// # Errors
    /// A lease of another process cannot be read, so that its open entries are not known.
    pub(super) fn is_alone(&self, directory: &Directory, id: &EntryId) -> io::Result<bool> {
        if !self.is_visible() {
            return Ok(false);
        }
        let name = |file: &File| file.metadata().map(|found| (found.dev(), found.ino()));
        let mine = name(&self.file.file)?;
        for found in fs::read_dir(directory.users())? {
            let Some(file) = open_lease(&found?.path())? else { continue };
            if name(&file)? == mine {
                continue;
            }
            match file.try_lock_shared() {
                // Its process has ended.
                Ok(()) => continue,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
            if entries_of(file)?.contains(id) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Drop for LeaseFile {
    fn drop(&mut self) {
        if self.has_its_name() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let empty = [0; EntryId::BYTES];
        if self.file.file.write_all_at(&empty, self.slot * SLOT_BYTES).is_ok() {
            let mut slots = self.file.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.free.push(self.slot);
        }
    }
}

/// The entries that running processes have open.
#[derive(Debug, Default)]
pub(super) struct InUse {
    /// The number of processes that use the cache.
    pub(super) processes: usize,
    /// For each open entry, the number of processes that have it open.
    pub(super) entries: HashMap<EntryId, usize>,
    /// The reason why the open entries of some process are not known: they may be any entries.
    pub(super) unknown: Option<io::Error>,
}

/// Finds the open entries. The caller has locked the directory, exclusively if `removes`: then the files of processes that have
/// ended are removed.
pub(super) fn in_use(directory: &Directory, removes: bool) -> io::Result<InUse> {
    let (mut in_use, users) = (InUse::default(), directory.open(&directory.users())?);
    for name in users.names()? {
        let path = directory.users().join(&name);
        let file = match open_lease(&path) {
            Ok(Some(file)) => file,
            Ok(None) => continue,
            Err(error) => {
                in_use.processes += 1;
                in_use.unknown = Some(error);
                continue;
            }
        };
        if file.try_lock_shared().is_ok() {
            if removes {
                let _ = users.remove(Path::new(&name));
            }
            continue;
        }
        in_use.processes += 1;
        let mut entries = entries_of(file)?;
        entries.sort_unstable();
        entries.dedup();
        for id in entries {
            *in_use.entries.entry(id).or_default() += 1;
        }
    }
    Ok(in_use)
}

/// Opens the file of a process; `None` if it is gone, or is no regular file.
///
/// # Errors
/// The file cannot be opened, for example as it is another user's: whether its process runs is not known.
fn open_lease(path: &Path) -> io::Result<Option<File>> {
    match open_plain(path, false) {
        Ok(file) => Ok(Some(file)),
        Err(error) if matches!(error.kind(), NotFound | InvalidData) => Ok(None),
        Err(error) => {
            let text = format!("{}, which names what is in use: {error}", path.display());
            Err(io::Error::new(error.kind(), text))
        }
    }
}

/// The entries that a lease file names.
fn entries_of(file: File) -> io::Result<Vec<EntryId>> {
    let mut slots = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut slots)?;
    Ok(slots.chunks_exact(EntryId::BYTES).filter_map(EntryId::from_bytes).collect())
}
