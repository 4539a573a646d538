//! One version of one object in the cache, open. Imports `fetching`, `map` and `state`.

use super::blocks::Turn;
use super::fetching::{Claim, lock, lock_run};
use super::map::{Record, record_range};
use super::open;
use super::state::State;
use crate::io::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a block that another daemon fetches is looked at: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(16);

/// One version of one object in the cache. It is not evicted as long as somebody has it open.
pub struct Entry {
    state: Arc<State>,
}

impl Entry {
    pub(super) fn new(state: Arc<State>) -> Self {
        Self { state }
    }

    /// The data: as long as the object, with holes where blocks are absent.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.state.file
    }

    /// The object's length.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        self.state.length_bytes
    }

    /// Whether all of a range can be read from [`Entry::file`]. A range behind the end of the object is present.
    #[must_use]
    pub fn is_present(&self, range: &Range<u64>) -> bool {
        let Some(blocks) = self.state.blocks_of(range) else { return true };
        self.state.blocks.are_present(blocks.clone()) || self.state.look(blocks)
    }

    /// Whether all of the object is known to be present.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.state.blocks.count() == self.state.blocks.total()
    }

    /// Bytes of the object that this process knows to be present.
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

    /// Claims blocks that lie side by side, all or none of them: of several daemons that want them at once, one gets them
    /// all and fetches them with one request. `None` if one of them is not to be had. Never waits.
    #[must_use]
    pub fn claim_run(&self, blocks: Range<u64>) -> Option<Vec<Claim>> {
        self.state.blocks.take_run(blocks.clone()).then(|| lock_run(&self.state, blocks))?
    }

    /// Waits until nobody fetches a block any more, but no longer than `timeout`. Tells whether it is present. This blocks
    /// the thread.
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

    /// Whether another thread or daemon fetches a block.
    #[must_use]
    pub fn is_fetched_elsewhere(&self, block: u64) -> bool {
        self.state.blocks.is_taken(block) || self.state.is_locked_elsewhere(block)
    }

    /// A block has wrong bytes: it is absent from now on, for all daemons that have not read its mark yet.
    pub fn invalidate(&self, block: u64) {
        self.state.blocks.clear(block);
        if let Ok(writing) = self.state.open_for_writing()
            && self.state.record(&writing.map, block) != Record::Absent
        {
            let _ = writing.map.write_all_at(&[0; 16], record_range(block).start);
        }
    }

    /// A read found its bytes in [`Entry::file`], or did not.
    pub fn note_use(&self, is_hit: bool) {
        match is_hit {
            true => self.state.usage.note_hit(),
            false => self.state.usage.note_miss(),
        }
    }

    /// Notes in the cache how often it was used until now, and when: what was mounted for a week and has just ended is
    /// evicted last. For processes that end without dropping it.
    pub fn note_end(&self) {
        if !self.state.is_gone() {
            let _ = self.state.usage.save(&self.state.paths.usage);
            open::touch(&self.state.paths.meta);
        }
    }

    /// [`Entry::file`] could not be read, as when somebody has deleted the cache: nothing is present from now on, and
    /// nothing is cached.
    pub fn lose(&self) {
        self.state.lose();
    }

    /// Whether the cache would take another block.
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
