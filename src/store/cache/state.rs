//! An open entry: its files, and its present blocks. Imports `blocks`, `directory`, `key`, `lease`, `map` and `room`.

use super::blocks::Blocks;
use super::directory::{Paths, open_plain};
use super::key::EntryId;
use super::lease::Lease;
use super::map::{BLOCK_BYTES, RECORD_BYTES, Record, Records, record_range};
use super::room::Room;
use super::usage::Usage;
use crate::format::Source;
use crate::format::checksum::crc32c_append;
use crate::io::{self as system, File};
use std::fs;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};
use std::time::SystemTime;

/// The number of records that are read at a time: a page of the map.
const PAGE_RECORDS: u64 = 4096 / RECORD_BYTES;
/// How many blocks are compared at a time.
const COMPARISONS: usize = 16;
/// The size of the pieces in which a block is compared: they fit into a CPU's cache.
const COMPARED_BYTES: usize = 64 << 10;

/// Counters for all entries of a cache.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Blocks that another daemon was already fetching.
    pub(super) joined: AtomicU64,
    pub(super) published: AtomicU64,
    pub(super) checked: AtomicU64,
    pub(super) rotten: AtomicU64,
    pub(super) refused: AtomicU64,
    /// Blocks of open entries that were evicted for others.
    pub(super) replaced: AtomicU64,
}

/// An open entry.
pub(super) struct State {
    pub(super) length_bytes: u64,
    pub(super) file: File,
    pub(super) paths: Paths,
    pub(super) map: MapFile,
    pub(super) blocks: Blocks,
    pub(super) room: Arc<Room>,
    pub(super) counters: Arc<Counters>,
    /// Whether the entry's files were deleted: then no more bytes are written.
    pub(super) is_gone: AtomicBool,
    pub(super) writing: Mutex<Weak<Writing>>,
    pub(super) usage: Usage,
    /// Locked shared while records are read or written to mark blocks present, exclusively while a record and its mark are
    /// removed: a mark never comes from a record that was removed meanwhile.
    pub(super) records_lock: RwLock<()>,
    /// How often a reader has found wrong bytes in a block. Raised while the records are locked exclusively.
    pub(super) distrusted: AtomicU64,
    /// Locks by which only one of the threads that want to compare a block does so.
    pub(super) comparisons: [Mutex<()>; COMPARISONS],
    pub(super) id: EntryId,
    pub(super) lease: Lease,
}

/// The map that was opened, and the codec for its records. The file is not kept open.
pub(super) struct MapFile {
    pub(super) records: Records,
    pub(super) version: MapVersion,
}

/// Tells a map from another one of the same name, by inode and creation time.
#[derive(PartialEq, Eq)]
pub(super) struct MapVersion(u64, Option<SystemTime>);

impl From<&fs::Metadata> for MapVersion {
    fn from(found: &fs::Metadata) -> Self {
        Self(found.ino(), found.created().ok())
    }
}

/// The files of an entry, open while one of its blocks is being fetched.
pub(super) struct Writing {
    pub(super) data: fs::File,
    pub(super) map: fs::File,
}

impl State {
    /// The blocks that a range touches; `None` if the range is empty.
    pub(super) fn blocks_of(&self, range: &Range<u64>) -> Option<RangeInclusive<u64>> {
        let end = range.end.min(self.length_bytes);
        (range.start < end).then(|| range.start / BLOCK_BYTES..=(end - 1) / BLOCK_BYTES)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }

    /// Notes that the entry's files were deleted or cannot be used.
    pub(super) fn lose(&self) {
        let _records = self.lock_records();
        self.is_gone.store(true, Relaxed);
        self.blocks.clear_all();
    }

    /// Marks a block present, as its record says, unless the entry is lost. The caller has locked the records.
    pub(super) fn mark(&self, block: u64) {
        if !self.is_gone() {
            self.blocks.set(block);
        }
    }

    /// Reads the map, where other processes record the blocks that they have fetched. Tells whether all of these blocks
    /// are present.
    #[cold]
    pub(super) fn look(&self, blocks: RangeInclusive<u64>) -> bool {
        if self.is_gone() {
            return false;
        }
        let looked = self.with_map(|map| {
            for block in blocks {
                if !self.blocks.has(block) {
                    self.look_at_page(map, block / PAGE_RECORDS);
                }
                if !self.blocks.has(block) {
                    return false;
                }
            }
            true
        });
        looked.unwrap_or(false)
    }

    fn look_at_page(&self, map: &fs::File, page: u64) {
        let first = page * PAGE_RECORDS;
        let count = PAGE_RECORDS.min(self.blocks.total().saturating_sub(first));
        let mut records = [0; (PAGE_RECORDS * RECORD_BYTES) as usize];
        let records = &mut records[..(count * RECORD_BYTES) as usize];
        let _records = self.lock_records_shared();
        let bytes = read_up_to(map, records, record_range(first).start);
        for (block, record) in (first..).zip(records[..bytes].chunks_exact(RECORD_BYTES as usize)) {
            if matches!(self.map.records.read(block, record), Record::Present(_)) {
                self.mark(block);
            }
        }
    }

    /// Keeps other threads from removing records.
    pub(super) fn lock_records_shared(&self) -> RwLockReadGuard<'_, ()> {
        self.records_lock.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps other threads from marking blocks present as the map says.
    pub(super) fn lock_records(&self) -> RwLockWriteGuard<'_, ()> {
        self.records_lock.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_map<T>(&self, then: impl FnOnce(&fs::File) -> T) -> io::Result<T> {
        if let Some(writing) = self.writing().upgrade() {
            return Ok(then(&writing.map));
        }
        Ok(then(&self.open_map(false)?))
    }

    fn open_map(&self, may_write: bool) -> io::Result<fs::File> {
        let map = open_plain(&self.paths.map, may_write)?;
        match MapVersion::from(&map.metadata()?) == self.map.version {
            true => Ok(map),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Opens the files for writing, unless they are open.
    pub(super) fn open_for_writing(&self) -> io::Result<Arc<Writing>> {
        let mut slot = self.writing();
        if let Some(writing) = slot.upgrade() {
            return Ok(writing);
        }
        let map = self.open_map(true)?;
        let data = open_plain(&self.paths.data, true)?;
        // The entry may have been deleted, and made anew by another daemon.
        let is_other = |_| io::Error::from(io::ErrorKind::NotFound);
        self.file.check_identity(&data.metadata()?).map_err(is_other)?;
        let writing = Arc::new(Writing { data, map });
        *slot = Arc::downgrade(&writing);
        Ok(writing)
    }

    fn writing(&self) -> MutexGuard<'_, Weak<Writing>> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another daemon is fetching or evicting a block.
    pub(super) fn is_locked_elsewhere(&self, block: u64) -> bool {
        let locked = self.with_map(|map| system::is_range_locked(map, &record_range(block)));
        matches!(locked, Ok(Ok(true)))
    }

    /// The lock that is held while a block is compared.
    pub(super) fn lock_comparison(&self, block: u64) -> MutexGuard<'_, ()> {
        let lock = &self.comparisons[block as usize % COMPARISONS];
        lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the bytes of a present block match its record.
    pub(super) fn note_compared(&self, block: u64) {
        let _records = self.lock_records_shared();
        if self.blocks.has(block) {
            self.blocks.note_compared(block);
        }
    }

    /// Reads a block's record from the map.
    pub(super) fn record(&self, map: &fs::File, block: u64) -> Record {
        let mut record = [0; RECORD_BYTES as usize];
        let bytes = read_up_to(map, &mut record, record_range(block).start);
        self.map.records.read(block, &record[..bytes])
    }

    /// Whether the bytes of a block, which are in `range`, match its record; `None` if it has no record, or either cannot be read.
    pub(super) fn is_as_recorded(&self, block: u64, range: Range<u64>) -> Option<bool> {
        let record = self.with_map(|map| self.record(map, block)).ok()?;
        let Record::Present(crc) = record else { return None };
        let (mut found, mut bytes) = (0, vec![0; COMPARED_BYTES]);
        for start in range.clone().step_by(COMPARED_BYTES) {
            let length = (range.end - start).min(COMPARED_BYTES as u64) as usize;
            let bytes = &mut bytes[..length];
            self.file.read_exact_at(bytes, start).ok()?;
            found = crc32c_append(found, bytes);
        }
        Some(found == crc)
    }
}

/// Reads as much of `buf` as the file has, up to the first error; returns the number of bytes read.
pub(super) fn read_up_to(file: &fs::File, buf: &mut [u8], offset_bytes: u64) -> usize {
    let mut done = 0;
    while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset_bytes + done as u64) {
            Ok(0) => break,
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    done
}
