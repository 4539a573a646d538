//! The turn to fetch a block: of all daemons on the node, only its holder writes the block. Imports `map`,
//! `room` and `state`.

use super::map::{BLOCK_BYTES, RECORD_BYTES, Record, block_range, record_range};
use super::room::Freed;
use super::state::{State, Writing, read_up_to};
use crate::format::checksum::{crc32c, crc32c_append};
use crate::io as system;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The result of [`Entry::claim`](super::Entry::claim) for a block.
pub enum Claim {
    /// The caller is to fetch the block.
    Fetch(Fetching),
    /// The block can be read.
    Present,
    /// Another thread or daemon is fetching the block: call [`Entry::wait`](super::Entry::wait), or claim it again
    /// later.
    Elsewhere,
    /// The block was cached before the machine last booted: check it before reading it.
    Unchecked(Unchecked),
    /// The cache is full, or cannot be written.
    NoRoom,
}

/// A block's lock among the daemons, and its turn in this process.
pub(super) struct Held {
    pub(super) state: Arc<State>,
    pub(super) writing: Arc<Writing>,
    pub(super) block: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = system::unlock_range(&self.writing.map, &record_range(self.block));
        self.state.blocks.end(self.block);
    }
}

impl Held {
    /// Records that the block is whole.
    pub(super) fn note(&self, crc: u32) -> io::Result<()> {
        self.write_record(&self.state.map.records.write(self.block, crc))
    }

    /// The block's record. If it says that the block is present, marks it so before the record can be removed.
    fn look(&self) -> Record {
        let _records = self.state.lock_records_shared();
        let record = self.state.record(&self.writing.map, self.block);
        if matches!(record, Record::Present(_)) {
            self.state.mark(self.block);
        }
        record
    }

    /// Records that the block is absent.
    pub(super) fn note_absent(&self) -> io::Result<()> {
        self.write_record(&[0; RECORD_BYTES as usize])
    }

    fn write_record(&self, record: &[u8; RECORD_BYTES as usize]) -> io::Result<()> {
        self.writing.map.write_all_at(record, record_range(self.block).start)
    }

    fn range(&self) -> Range<u64> {
        block_range(self.block, self.state.length_bytes)
    }

    /// Decides about the block, which may have been published before this process got the lock. It may take the room of
    /// `freed` blocks.
    fn claim(self, freed: Option<&mut Freed>) -> Claim {
        match self.look() {
            Record::Present(_) => Claim::Present,
            Record::Unchecked(crc) => Claim::Unchecked(Unchecked { held: self, crc }),
            Record::Absent => self.fetch(freed),
        }
    }

    /// Takes room for a block that has to be fetched.
    fn fetch(self, freed: Option<&mut Freed>) -> Claim {
        let range = self.range();
        let bytes = range.end - range.start;
        let has_freed = freed.is_some_and(|freed| freed.take(bytes));
        if !has_freed && !self.state.room.take(bytes) {
            self.state.counters.refused.fetch_add(1, Relaxed);
            return Claim::NoRoom;
        }
        Claim::Fetch(Fetching { next: range.start, range, crc: 0, is_published: false, held: self })
    }
}

/// Ends this process's turns for blocks that it could not lock.
struct Turns<'a>(&'a State, Range<u64>);

impl Drop for Turns<'_> {
    fn drop(&mut self) {
        self.1.clone().for_each(|block| self.0.blocks.end(block));
    }
}

/// Locks a block whose turn this process has, unless another process has fetched it or is fetching it.
pub(super) fn lock(state: &Arc<State>, block: u64) -> Claim {
    let turn = Turns(state, block..block + 1);
    if state.look(block..=block) {
        return Claim::Present;
    }
    match lock_all(state, turn) {
        Ok(mut held) => held.pop().map_or(Claim::Elsewhere, |held| held.claim(None)),
        Err(claim) => claim,
    }
}

/// Locks adjacent blocks whose turns this process has, in one step. `None` if another daemon has locked one.
pub(super) fn lock_run(
    state: &Arc<State>,
    blocks: Range<u64>,
    mut freed: Option<&mut Freed>,
) -> Option<Vec<Claim>> {
    let held = lock_all(state, Turns(state, blocks)).ok()?;
    Some(held.into_iter().map(|held| held.claim(freed.as_deref_mut())).collect())
}

/// Locks blocks for this process. An error is the claim for all of them.
fn lock_all(state: &Arc<State>, mut turns: Turns<'_>) -> Result<Vec<Held>, Claim> {
    if state.is_gone() {
        return Err(Claim::NoRoom);
    }
    let blocks = turns.1.clone();
    let records = record_range(blocks.start).start..record_range(blocks.end).start;
    let opened = state.open_for_writing();
    let locked = opened.and_then(|writing| {
        let is_mine = system::try_lock_range(&writing.map, &records)?;
        Ok(is_mine.then_some(writing))
    });
    match locked {
        Ok(Some(writing)) => {
            turns.1 = 0..0;
            let held =
                |block| Held { state: Arc::clone(state), writing: Arc::clone(&writing), block };
            Ok(blocks.map(held).collect())
        }
        Ok(None) => {
            state.counters.joined.fetch_add(1, Relaxed);
            Err(Claim::Elsewhere)
        }
        Err(error) => {
            // The files were deleted, but the open data file can still be read.
            match error.kind() {
                io::ErrorKind::NotFound => state.is_gone.store(true, Relaxed),
                _ => state.room.refuse(&error),
            }
            Err(Claim::NoRoom)
        }
    }
}

/// A block that was whole when it was written, before the machine last booted.
pub struct Unchecked {
    held: Held,
    crc: u32,
}

impl Unchecked {
    /// Compares the block with its CRC-32C. Reads the block from the disk. The next claim of the block finds the result.
    #[must_use]
    pub fn check(self) -> Claim {
        let Self { held, crc } = self;
        let range = held.range();
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let is_read = read_up_to(&held.writing.data, &mut bytes, range.start) == bytes.len();
        let is_whole = is_read && crc32c(&bytes) == crc;
        let records = held.state.lock_records_shared();
        let noted = if is_whole { held.note(crc) } else { held.note_absent() };
        // A cache that cannot be written is not asked for a while, so that no thread checks the block again and again.
        if let Err(error) = &noted {
            held.state.room.refuse(error);
        }
        let counters = &held.state.counters;
        match is_whole {
            true => {
                counters.checked.fetch_add(1, Relaxed);
                held.state.blocks.note_compared(held.block);
                held.state.mark(held.block);
                Claim::Present
            }
            false => {
                counters.rotten.fetch_add(1, Relaxed);
                drop(records);
                held.fetch(None)
            }
        }
    }
}

/// The turn to fetch a block. If it is dropped before [`Fetching::publish`], the block stays absent.
pub struct Fetching {
    held: Held,
    range: Range<u64>,
    /// The end of the written bytes.
    next: u64,
    /// CRC-32C of the written bytes.
    crc: u32,
    is_published: bool,
}

impl Fetching {
    /// The block's byte range in the object.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// The number of the block.
    #[must_use]
    pub fn block(&self) -> u64 {
        self.held.block
    }

    /// The end of the written bytes: where to resume after a broken response body.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Writes bytes of the object from `offset_bytes`, which is at most [`Fetching::next`]: bytes that were written
    /// before and bytes past the block are skipped.
    ///
    /// # Errors
    /// The cache cannot take the bytes (no space, quota, disk error): drop the turn, and serve the bytes without it. Or there
    /// is a gap before these bytes.
    pub fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        if offset_bytes > self.next {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "bytes of the block are missing",
            ));
        }
        let written = (self.next - offset_bytes) as usize;
        let room = (self.range.end - self.next).min(BLOCK_BYTES) as usize;
        let bytes = bytes.get(written..).unwrap_or_default();
        let bytes = &bytes[..bytes.len().min(room)];
        self.held.writing.data.write_all_at(bytes, self.next).inspect_err(|error| {
            self.held.state.room.refuse(error);
        })?;
        self.crc = crc32c_append(self.crc, bytes);
        self.next += bytes.len() as u64;
        Ok(())
    }

    /// Makes the block readable for all daemons.
    ///
    /// # Errors
    /// The block is incomplete, or the cache cannot be written: the block stays absent.
    pub fn publish(mut self) -> io::Result<()> {
        if self.next != self.range.end {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the block is not whole"));
        }
        // Else another thread could remove the record before the block is marked, and the mark would stay.
        let _records = self.held.state.lock_records_shared();
        self.held.note(self.crc).inspect_err(|error| self.held.state.room.refuse(error))?;
        self.is_published = true;
        self.held.state.blocks.note_compared(self.held.block);
        self.held.state.mark(self.held.block);
        self.held.state.counters.published.fetch_add(1, Relaxed);
        Ok(())
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.held.state.room.settle(self.range.end - self.range.start, self.is_published);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{CacheDirectory, bytes, object};
    use super::super::{Cache, Entry};
    use super::*;
    use std::thread;
    use std::time::Duration;

    fn entry(directory: &CacheDirectory) -> Arc<Entry> {
        let cache = Cache::open(directory.path(), None).unwrap();
        cache.entry(&object("s3://bucket/key", "\"1\"", BLOCK_BYTES), "").unwrap()
    }

    /// A whole block that is not published yet.
    fn written(entry: &Entry) -> Fetching {
        let Claim::Fetch(mut fetching) = entry.claim(0) else { panic!("nobody fetches the block") };
        fetching.write(0, &bytes(0..BLOCK_BYTES)).unwrap();
        fetching
    }

    /// Does `mark` in another thread while records are being removed. Returns whether the block counted as present before the
    /// removal had ended.
    fn is_marked_during_a_removal(
        entry: &Entry,
        state: &Arc<State>,
        mark: impl FnOnce() + Send,
    ) -> bool {
        thread::scope(|scope| {
            let removal = state.lock_records();
            let marking = scope.spawn(mark);
            thread::sleep(Duration::from_millis(100));
            let is_marked = entry.is_known(0);
            drop(removal);
            marking.join().unwrap();
            is_marked
        })
    }

    #[test]
    fn no_block_is_marked_present_while_records_are_removed() {
        let directory = CacheDirectory::make();
        let (mine, theirs) = (entry(&directory), entry(&directory));
        let fetching = written(&mine);
        let state = Arc::clone(&fetching.held.state);
        let publish = || fetching.publish().unwrap();
        assert!(!is_marked_during_a_removal(&mine, &state, publish) && mine.is_known(0));

        mine.invalidate(0);
        written(&theirs).publish().unwrap();
        let claim = || assert!(matches!(mine.claim(0), Claim::Present));
        assert!(!is_marked_during_a_removal(&mine, &state, claim) && mine.is_known(0));
    }
}
