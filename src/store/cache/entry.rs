//! An open entry: one version of one object in the cache. Imports `fetching`, `map`, `replace` and `state`.

use super::blocks::Turn;
use super::fetching::{Claim, lock, lock_run};
use super::map::{RECORD_BYTES, Record, block_range, record_range};
use super::open;
use super::replace::replace;
use super::room::Freed;
use super::state::State;
use crate::io::{File, Reading};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How often to look whether another daemon has fetched a block: the first and the longest pause.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(16);

/// One version of one object in the cache. As a whole it is not evicted while a process has it open.
pub struct Entry {
    pub(super) state: Arc<State>,
}

impl Entry {
    pub(super) fn new(state: Arc<State>) -> Self {
        Self { state }
    }

    /// The data file: as long as the object, with holes where blocks are absent.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.state.file
    }

    /// The object's length.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        self.state.length_bytes
    }

    /// Whether all of a range can be read from [`Entry::file`]: as long as the caller counts as a [`Reading`] since before
    /// this call. A range past the end of the object counts as present.
    ///
    /// [`Reading`]: crate::io::Reading
    #[must_use]
    pub fn is_present(&self, range: &Range<u64>) -> bool {
        let Some(blocks) = self.state.blocks_of(range) else { return true };
        self.state.blocks.are_present(blocks.clone()) || self.state.look(blocks)
    }

    /// Whether this process knows that a block is present, without a look at the map.
    #[must_use]
    pub fn is_known(&self, block: u64) -> bool {
        self.state.blocks.has(block)
    }

    /// Whether the whole object is known to be present.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.state.blocks.count() == self.state.blocks.total()
    }

    /// The number of the object's bytes that this process knows to be present.
    #[must_use]
    pub fn present_bytes(&self) -> u64 {
        (self.state.blocks.count() * super::map::BLOCK_BYTES).min(self.state.length_bytes)
    }

    /// Claims the turn to fetch a block, if it is not present. Never waits.
    #[must_use]
    pub fn claim(&self, block: u64) -> Claim {
        match self.state.blocks.take(block) {
            Turn::Present => Claim::Present,
            Turn::Taken => Claim::Elsewhere,
            Turn::Mine => lock(&self.state, block),
        }
    }

    /// Claims adjacent blocks, all or none: of several daemons that want them at once, one gets them all and fetches
    /// them with one request. They may take the room of `freed` blocks. `None` if one of them is present or being fetched.
    /// Never waits.
    #[must_use]
    pub fn claim_run(&self, blocks: Range<u64>, freed: Option<&mut Freed>) -> Option<Vec<Claim>> {
        self.state.blocks.take_run(blocks.clone()).then(|| lock_run(&self.state, blocks, freed))?
    }

    /// Evicts blocks, so that others can be cached in their place: only present ones, and only if no other process has the
    /// entry open and no user has pinned it. Bytes that are being read stay until the read has ended. Returns the room that
    /// became free; `None` if no room did. Blocks the thread.
    #[must_use]
    pub fn replace(&self, blocks: &[u64]) -> Option<Freed> {
        replace(&self.state, blocks)
    }

    /// Waits until no thread or daemon is fetching a block, at most for `timeout`. Tells whether the block is present.
    /// Blocks the thread.
    #[must_use]
    pub fn wait(&self, block: u64, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut pause = FIRST_PAUSE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            self.state.blocks.wait(block, left);
            if self.state.blocks.has(block) || self.state.look(block..=block) {
                return true;
            }
            if left.is_zero() || !self.state.is_locked_elsewhere(block) {
                return false;
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Whether another thread or daemon is fetching or evicting a block.
    #[must_use]
    pub fn is_fetched_elsewhere(&self, block: u64) -> bool {
        self.state.blocks.is_taken(block) || self.state.is_locked_elsewhere(block)
    }

    /// Marks a block with wrong bytes as absent, for all daemons that have not read its record yet.
    pub fn invalidate(&self, block: u64) {
        let removed = self.state.open_for_writing().and_then(|writing| {
            let _records = self.state.lock_records();
            self.state.distrusted.fetch_add(1, Relaxed);
            self.state.blocks.clear(block);
            match self.state.record(&writing.map, block) {
                Record::Absent => Ok(()),
                _ => {
                    writing.map.write_all_at(&[0; RECORD_BYTES as usize], record_range(block).start)
                }
            }
        });
        match removed {
            Ok(()) => {}
            // Without the map no record is read again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.state.blocks.clear(block),
            // A record that stays would mark the block present again, and its wrong bytes would be read again.
            Err(_) => self.state.lose(),
        }
    }

    /// Compares the present blocks of a range with their CRC-32C, except those that this process has fetched or compared before.
    /// Marks a block that differs as absent. Returns how many differ. Reads the blocks from the disk.
    #[must_use]
    pub fn compare(&self, range: &Range<u64>) -> u64 {
        let blocks = self.state.blocks_of(range).into_iter().flatten();
        blocks.map(|block| u64::from(self.is_changed(block))).sum()
    }

    /// Compares one block; whether its bytes have changed since they were fetched.
    fn is_changed(&self, block: u64) -> bool {
        let state = &self.state;
        if state.blocks.is_compared(block) {
            return false;
        }
        // Else a slower thread would drop a block that another one has fetched again.
        let _alone = state.lock_comparison(block);
        // Bytes that are being read stay in the file.
        let _reading = Reading::begin();
        let bytes = block_range(block, state.length_bytes);
        if state.blocks.is_compared(block) || !self.is_present(&bytes) {
            return false;
        }
        match state.is_as_recorded(block, bytes) {
            Some(true) => state.note_compared(block),
            Some(false) => {
                state.counters.rotten.fetch_add(1, Relaxed);
                self.invalidate(block);
                return true;
            }
            // Another daemon may have found it changed, and removed its record.
            None => state.blocks.clear(block),
        }
        false
    }

    /// Counts a read that found its bytes in [`Entry::file`] (`is_hit`) or did not.
    pub fn note_use(&self, is_hit: bool) {
        match is_hit {
            true => self.state.usage.note_hit(),
            false => self.state.usage.note_miss(),
        }
    }

    /// Writes the counts and the time of use to the cache, so that an entry whose week-long mount has just ended is
    /// evicted last. Processes call this if they end without dropping the entry.
    pub fn note_end(&self) {
        if !self.state.is_gone() {
            let _ = self.state.usage.save(&self.state.paths.usage);
            open::touch(&self.state.paths.meta);
        }
    }

    /// Notes that [`Entry::file`] could not be read, for example because a user has deleted the cache: no block is
    /// present from now on, and none is cached.
    pub fn lose(&self) {
        self.state.lose();
    }

    /// Whether the cache has room for another block.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.state.is_gone() && self.state.room.has_room()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.note_end();
    }
}
