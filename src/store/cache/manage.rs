//! Listing and changing the content of a cache for a user. Imports `directory`, `evict`, `key`, `lease`, `map`, `meta`,
//! `open` and `state`.

use super::directory::{Directory, open_plain};
use super::evict::{self, Stored};
use super::key::EntryId;
use super::lease::in_use;
use super::map::{self, RECORD_BYTES, Record, block_range, record_range};
use super::meta::{Meta, seconds};
use super::open;
use super::state::read_up_to;
use super::usage::Usage;
use crate::format::checksum::crc32c;
use crate::io as system;
use serde::Serialize;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A cache directory, to be listed and changed whether or not it is in use.
pub struct Contents {
    directory: Directory,
}

/// One version of an object that a cache holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CachedObject {
    /// The object's URL, without a query.
    pub url: String,
    /// The store's name of the version.
    pub version: String,
    /// The object's length.
    pub length_bytes: u64,
    /// Disk space that it occupies in the cache.
    pub cached_bytes: u64,
    /// When it was last opened or closed: seconds since 1970.
    pub last_used: u64,
    /// The number of processes that have it open.
    pub users: usize,
    /// Whether it is exempt from eviction.
    pub is_pinned: bool,
    /// Reads that found their bytes in the cache, in all mounts that have ended. `None` if they were not counted.
    pub hits: Option<u64>,
    /// Reads that did not find their bytes in the cache.
    pub misses: Option<u64>,
    #[serde(skip)]
    id: EntryId,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// Blocks that are whole.
    pub blocks: u64,
    /// Blocks whose bytes were wrong: they are fetched again when they are needed.
    pub damaged: u64,
}

impl Contents {
    /// The contents of a cache directory; `None` if nothing was ever cached there.
    ///
    /// # Errors
    /// Others may write the directory, or it cannot be read.
    pub fn open(directory: &Path) -> io::Result<Option<Self>> {
        match Directory::existing(directory) {
            Ok(directory) => Ok(Some(Self { directory })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All cached objects by URL; of each URL the most recently used version first.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn list(&self) -> io::Result<Vec<CachedObject>> {
        let used = {
            let _locked = self.directory.lock_shared()?;
            in_use(&self.directory, false)?.entries
        };
        let mut objects: Vec<_> = evict::stored(&self.directory)?
            .iter()
            .map(|stored| self.describe(stored, used.get(&stored.id).copied().unwrap_or(0)))
            .collect();
        objects.sort_by(|a, b| a.url.cmp(&b.url).then(b.last_used.cmp(&a.last_used)));
        Ok(objects)
    }

    fn describe(&self, stored: &Stored, users: usize) -> CachedObject {
        let paths = self.directory.paths(&stored.id);
        let meta = open_plain(&paths.meta, false).and_then(Meta::read).unwrap_or_else(|_| {
            let length = fs::symlink_metadata(&paths.data).map_or(0, |data| data.len());
            Meta::new(format!("unknown:{}", stored.id), "unknown".to_owned(), length)
        });
        let usage = Usage::read(&paths.usage);
        CachedObject {
            url: meta.url,
            version: meta.version,
            length_bytes: meta.length_bytes,
            cached_bytes: stored.bytes,
            last_used: seconds(stored.last_used),
            users,
            is_pinned: stored.is_pinned,
            hits: usage.map(|(hits, _)| hits),
            misses: usage.map(|(_, misses)| misses),
            id: stored.id,
        }
    }

    /// Removes these objects, except those in use. Returns the removed ones.
    ///
    /// # Errors
    /// The directory cannot be written, or it is not known which objects are in use.
    pub fn remove<'a>(&self, objects: &[&'a CachedObject]) -> io::Result<Vec<&'a CachedObject>> {
        let mut removed = Vec::new();
        let locked = self.directory.lock_exclusively()?;
        let found = in_use(&self.directory, true)?;
        if let Some(error) = found.unknown {
            return Err(error);
        }
        let used = found.entries;
        for object in objects.iter().filter(|object| !used.contains_key(&object.id)) {
            evict::discard(&self.directory, &object.id)?;
            removed.push(*object);
        }
        drop(locked);
        evict::empty_trash(&self.directory);
        Ok(removed)
    }

    /// Exempts an object from eviction, or ends the exemption.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn set_pinned(&self, object: &CachedObject, is_pinned: bool) -> io::Result<()> {
        let _locked = self.directory.lock_exclusively()?;
        let paths = self.directory.paths(&object.id);
        if is_pinned {
            // The object may have been removed since it was listed.
            fs::metadata(&paths.data)?;
            return self.directory.create(&paths.pin, false).map(drop);
        }
        match fs::remove_file(&paths.pin) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Compares all blocks of an object with their CRC-32C, and marks damaged ones as absent. Skips blocks that are
    /// being fetched. Calls `more` with the number of bytes read; `false` from it ends the check.
    ///
    /// # Errors
    /// The object was removed, or its files cannot be read.
    pub fn check(
        &self,
        object: &CachedObject,
        more: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<Checked> {
        let paths = self.directory.paths(&object.id);
        let (data, map) = (open_plain(&paths.data, false)?, open_plain(&paths.map, true)?);
        let records = open::records(&object.id, &data, &open::boot())?;
        let length_bytes = data.metadata()?.len();
        let mut checked = Checked::default();
        let mut bytes = Vec::new();
        for block in 0..map::blocks_of(length_bytes) {
            let at = record_range(block);
            let mut record = [0; RECORD_BYTES as usize];
            let found = read_up_to(&map, &mut record, at.start);
            let crc = match records.read(block, &record[..found]) {
                Record::Absent => continue,
                Record::Present(crc) | Record::Unchecked(crc) => crc,
            };
            let range = block_range(block, length_bytes);
            bytes.resize((range.end - range.start) as usize, 0);
            let mut is_whole = |crc| {
                let is_read = read_up_to(&data, &mut bytes, range.start) == bytes.len();
                is_read && crc32c(&bytes) == crc
            };
            if is_whole(crc) {
                checked.blocks += 1;
            } else if system::try_lock_range(&map, &at)? {
                // A daemon may have evicted the block, and fetched it again.
                let found = read_up_to(&map, &mut record, at.start);
                match records.read(block, &record[..found]) {
                    Record::Absent => {}
                    Record::Present(crc) | Record::Unchecked(crc) if is_whole(crc) => {
                        checked.blocks += 1;
                    }
                    _ => {
                        map.write_all_at(&[0; RECORD_BYTES as usize], at.start)?;
                        checked.damaged += 1;
                    }
                }
                system::unlock_range(&map, &at)?;
            }
            if !more(range.end - range.start) {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        Ok(checked)
    }
}
