//! The node's cache of remote objects: one directory for all mounts of a user, which any number of daemons use at a
//! time. One daemon fetches a block, and all read it once it is whole.
//!
//! An entry is one version of one object: a sparse file of its data, and a map with the CRC-32C of each whole block.
//! Finding a block present takes no lock: each process remembers the records that it has read in the map. A record
//! carries its own checksum, and names the boot of the machine in which the block was written, so that after a crash
//! each block is checked once, when it is first used. A cache that is full evicts whole entries that no process has open.
//! Of open entries it evicts single blocks for others whose announced reads are worth more, and only if no other process
//! has the entry open; it takes no more blocks otherwise, since an epoch is a permutation.
//!
//! Imports from [`crate::format`] and [`crate::io`], and the types of remote objects.

mod blocks;
mod directory;
mod entry;
mod evict;
mod fetching;
mod key;
mod lease;
mod manage;
mod map;
mod meta;
mod open;
mod replace;
mod room;
mod state;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod usage;

pub use directory::sharing_group;
pub use entry::Entry;
pub use fetching::{Claim, Fetching, Unchecked};
pub use manage::{CachedObject, Checked, Contents};
pub use map::BLOCK_BYTES;
pub use room::Freed;
#[cfg(test)]
pub(super) use testing::{CacheDirectory, boot_anew};

use crate::io::Pool;
use crate::store::remote::{CacheMax, Object};
use blocks::Blocks;
use directory::{Directory, Locked};
use key::EntryId;
use lease::Leases;
use meta::Meta;
use room::Room;
use state::{Counters, State};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use usage::Usage;

/// The maximum number of entries with an open data file; each takes up to three descriptors.
const MOST_OPEN: usize = 1024;
/// The most blocks of an object that is cached, 64 TiB: a store that claims more must not cost memory.
const MOST_BLOCKS: u64 = 1 << 26;

/// A cache directory, as this process uses it.
pub struct Cache {
    directory: Directory,
    room: Arc<Room>,
    leases: Leases,
    /// Identifies the current boot of the machine.
    boot: Vec<u8>,
    pool: Arc<Pool>,
    counters: Arc<Counters>,
    entries: Mutex<HashMap<EntryId, Weak<Entry>>>,
}

/// Counters of this process's use of the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// Blocks that this process fetched and cached.
    pub published: u64,
    /// Blocks that another daemon was fetching already.
    pub joined: u64,
    /// Blocks from before the last boot that passed their check.
    pub checked: u64,
    /// Blocks whose bytes had changed since they were fetched: found at their first use after a boot, or as a container was
    /// opened.
    pub damaged: u64,
    /// Blocks that the cache had no room for.
    pub refused: u64,
    /// Entries that were evicted.
    pub evicted: u64,
    /// Disk space that the evicted entries had occupied.
    pub evicted_bytes: u64,
    /// Blocks of open entries that were evicted for others.
    pub replaced: u64,
}

impl Cache {
    /// Opens a cache directory, and makes it if it does not exist. Without `max` the cache may fill its file system, up
    /// to a reserve.
    ///
    /// # Errors
    /// Others may write the directory, or it cannot be created or written.
    pub fn open(directory: &Path, max: Option<CacheMax>) -> io::Result<Arc<Self>> {
        Self::open_in_run(directory, max, open::boot())
    }

    fn open_in_run(
        directory: &Path,
        max: Option<CacheMax>,
        boot: Vec<u8>,
    ) -> io::Result<Arc<Self>> {
        let directory = Directory::prepare(directory)?;
        Ok(Arc::new(Self {
            room: Room::new(directory.clone(), max)?,
            leases: Leases::new(directory.clone()),
            pool: Pool::new(open_files()),
            boot,
            counters: Arc::default(),
            entries: Mutex::default(),
            directory,
        }))
    }

    /// Opens the entry of an object's version. `origin` distinguishes stores with the same URLs, such as two endpoints;
    /// it may be empty.
    ///
    /// # Errors
    /// The cache cannot be written.
    pub fn entry(&self, object: &Object, origin: &str) -> io::Result<Arc<Entry>> {
        let id = EntryId::of(object, origin);
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get(&id).and_then(Weak::upgrade) {
            return Ok(entry);
        }
        let entry = Arc::new(Entry::new(self.open_entry(id, object)?));
        if entries.len() == entries.capacity() {
            entries.retain(|_, entry| entry.strong_count() > 0);
        }
        entries.insert(id, Arc::downgrade(&entry));
        Ok(entry)
    }

    fn open_entry(&self, id: EntryId, object: &Object) -> io::Result<Arc<State>> {
        let paths = self.directory.paths(&id);
        let length_bytes = object.length_bytes;
        if map::blocks_of(length_bytes) > MOST_BLOCKS {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let opened = |_: &Locked| open::open(&paths, &id, length_bytes, &self.pool, &self.boot);
        let (lease, files) = {
            let locked = self.directory.lock_shared()?;
            (self.leases.take(&id)?, opened(&locked)?)
        };
        let files = match files {
            Some(files) => files,
            None => {
                let locked = self.directory.lock_exclusively()?;
                match opened(&locked)? {
                    Some(files) => files,
                    None => {
                        evict::discard(&self.directory, &id)?;
                        let url = object.location.to_string();
                        let meta = Meta::new(url, key::version_of(object), length_bytes);
                        open::make(&self.directory, &paths, &id, &meta)?;
                        let made = opened(&locked)?;
                        made.ok_or_else(|| io::Error::other("the cache does not keep its files"))?
                    }
                }
            }
        };
        open::touch(&paths.meta);
        Ok(Arc::new(State {
            length_bytes,
            file: files.file,
            map: files.map,
            paths,
            blocks: Blocks::new(map::blocks_of(length_bytes)),
            room: Arc::clone(&self.room),
            counters: Arc::clone(&self.counters),
            is_gone: AtomicBool::new(false),
            writing: Mutex::default(),
            usage: Usage::default(),
            records_lock: RwLock::default(),
            distrusted: AtomicU64::new(0),
            comparisons: Default::default(),
            id,
            lease,
        }))
    }

    /// The path of the directory.
    #[must_use]
    pub fn place(&self) -> &Path {
        self.directory.place()
    }

    /// The reason why the cache takes no blocks at the moment.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        self.room.refusal()
    }

    /// Counters of this process's use of the cache.
    #[must_use]
    pub fn figures(&self) -> CacheFigures {
        CacheFigures {
            published: self.counters.published.load(Relaxed),
            joined: self.counters.joined.load(Relaxed),
            checked: self.counters.checked.load(Relaxed),
            damaged: self.counters.rotten.load(Relaxed),
            refused: self.counters.refused.load(Relaxed),
            evicted: self.room.evicted.load(Relaxed),
            evicted_bytes: self.room.evicted_bytes.load(Relaxed),
            replaced: self.counters.replaced.load(Relaxed),
        }
    }
}

/// The number of entries that keep their data file open.
fn open_files() -> usize {
    use nix::sys::resource::{Resource, getrlimit};
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    usize::try_from(soft / 8).unwrap_or(MOST_OPEN).clamp(16, MOST_OPEN)
}
