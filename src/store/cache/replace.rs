//! Evicting single blocks of an open entry, for others. Imports `fetching`, `lease`, `map`, `room` and `state`.
//!
//! Each process remembers the blocks that it has found present, so a block can be evicted only if no other process has
//! the entry open. The order of the steps makes sure that no byte of a hole is ever read, and that a crash at any point
//! leaves each block whole or absent:
//!
//! 1. With the directory locked, so that no process can open the entry: no other process has it open.
//! 2. The block's turn in this process and its lock among the processes: no other thread or process fetches it.
//! 3. Its record and its mark are removed. New reads find it absent; a process that opens the entry from now on, too, and
//!    waits for the lock. The directory is unlocked.
//! 4. Reads that saw the mark come to an end. If they do not, the record and the mark are put back.
//! 5. The hole is punched, and the lock and the turn are given up.

use super::fetching::Held;
use super::map::{BLOCK_BYTES, Record, block_range, record_range};
use super::room::Freed;
use super::state::{State, Writing};
use crate::io as system;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How long reads are waited for, until the blocks stay after all. In unit tests, readers may wait longer for a CPU.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 2_000 } else { 100 });

/// A block whose record and mark were removed, with its CRC-32C.
struct Removed {
    held: Held,
    crc: u32,
    /// [`State::distrusted`] at that time.
    distrusted: u64,
}

/// Evicts these blocks, as far as that is possible now. Returns the room that they occupied; `None` if no block was evicted.
pub(super) fn replace(state: &Arc<State>, blocks: &[u64]) -> Option<Freed> {
    // A cache that cannot be written would lose the blocks for nothing.
    // On a file system of several nodes, the others do not see this node's locks.
    if state.is_gone()
        || state.file.may_hang()
        || !state.room.can_punch()
        || state.room.refusal().is_some()
    {
        return None;
    }
    let removed = remove(state, blocks).unwrap_or_else(|error| {
        tracing::debug!("{}: no block is evicted: {error}", state.paths.data.display());
        Vec::new()
    });
    if removed.is_empty() {
        return None;
    }
    if !system::wait_for_readings(PATIENCE) {
        removed.iter().for_each(Removed::put_back);
        return None;
    }
    // Before the holes appear: a measurement that saw them would give their room to any process.
    let mut freed = state.room.free(removed.iter().map(Removed::bytes).sum());
    let punched: u64 = removed.iter().map(Removed::punch).sum();
    freed.forget(freed.bytes() - punched);
    // Now other threads can fetch the blocks again.
    drop(removed);
    (punched > 0).then_some(freed)
}

/// Removes the records and the marks of those blocks that can be evicted.
fn remove(state: &Arc<State>, blocks: &[u64]) -> io::Result<Vec<Removed>> {
    let directory = state.room.directory();
    let locked = directory.lock_exclusively()?;
    if !state.lease.is_alone(directory, &state.id)?
        || fs::symlink_metadata(&state.paths.pin).is_ok()
    {
        return Ok(Vec::new());
    }
    let writing = state.open_for_writing()?;
    let removed = blocks.iter().filter_map(|block| remove_one(state, &writing, *block)).collect();
    drop(locked);
    Ok(removed)
}

fn remove_one(state: &Arc<State>, writing: &Arc<Writing>, block: u64) -> Option<Removed> {
    if !state.blocks.take_present(block) {
        return None;
    }
    let at = record_range(block);
    if !matches!(system::try_lock_range(&writing.map, &at), Ok(true)) {
        state.blocks.end(block);
        return None;
    }
    let held = Held { state: Arc::clone(state), writing: Arc::clone(writing), block };
    let _records = state.lock_records();
    // The record of a block that failed its check was removed already; an unchecked one is another boot's.
    let Record::Present(crc) = state.record(&writing.map, block) else { return None };
    held.note_absent().ok()?;
    state.blocks.clear(block);
    let distrusted = state.distrusted.load(Relaxed);
    Some(Removed { held, crc, distrusted })
}

impl Removed {
    /// Makes the block present again, unless a reader that still saw its mark has found wrong bytes since.
    fn put_back(&self) {
        let state = &self.held.state;
        let _records = state.lock_records_shared();
        let is_trusted = state.distrusted.load(Relaxed) == self.distrusted;
        if is_trusted && self.held.note(self.crc).is_ok() {
            state.mark(self.held.block);
        }
    }

    fn bytes(&self) -> u64 {
        let range = block_range(self.held.block, self.held.state.length_bytes);
        range.end - range.start
    }

    /// Punches the hole; returns the bytes that became free.
    fn punch(&self) -> u64 {
        let Held { state, writing, block } = &self.held;
        let range = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
        match system::punch_hole(&writing.data, &range) {
            Ok(()) => {
                state.counters.replaced.fetch_add(1, Relaxed);
                self.bytes()
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                state.room.note_no_holes();
                self.put_back();
                0
            }
            Err(error) => {
                // Some of the bytes may be gone: the block stays absent.
                tracing::debug!("{}: {error}", state.paths.data.display());
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{CacheDirectory, bytes, object};
    use super::super::{Cache, Claim};
    use super::*;

    #[test]
    fn a_block_that_a_reader_distrusts_while_it_is_being_evicted_is_not_put_back() {
        let directory = CacheDirectory::make();
        let cache = Cache::open(directory.path(), None).unwrap();
        let entry = cache.entry(&object("s3://b/k", "\"1\"", BLOCK_BYTES), "").unwrap();
        for is_distrusted in [false, true] {
            let Claim::Fetch(mut fetching) = entry.claim(0) else { panic!() };
            fetching.write(0, &bytes(0..BLOCK_BYTES)).unwrap();
            fetching.publish().unwrap();
            let removed = remove(&entry.state, &[0]).unwrap();
            assert!(removed.len() == 1 && !entry.is_known(0));
            if is_distrusted {
                entry.invalidate(0);
            }
            removed.iter().for_each(Removed::put_back);
            drop(removed);
            assert_eq!(entry.is_present(&(0..1)), !is_distrusted);
            entry.invalidate(0);
        }
    }
}
