//! The blocks of an entry that this process knows to be present, and those that it is fetching. Imports nothing of
//! ours.

use std::collections::HashSet;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;
use sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering};

/// Locks and atomics: from `std`, or from `loom` when its models explore the interleavings.
mod sync {
    #[cfg(all(loom, test))]
    pub(super) use loom::sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    };
    #[cfg(not(all(loom, test)))]
    pub(super) use std::sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    };
}

/// The answer to a thread that wants the turn to fetch a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The block is present.
    Present,
    /// The calling thread alone may fetch the block, until it calls [`Blocks::end`].
    Mine,
    /// Another thread has the turn.
    Taken,
}

/// The blocks of an entry.
pub(super) struct Blocks {
    total: u64,
    present: Box<[AtomicU64]>,
    /// The number of present blocks. Never too large: counted after a mark is set, and before one is removed.
    count: AtomicU64,
    /// The blocks whose bytes this process has fetched, or compared with their checksums.
    compared: Box<[AtomicU64]>,
    taken: Mutex<HashSet<u64>>,
    /// Notified when a turn has ended.
    ended: Condvar,
}

impl Blocks {
    pub(super) fn new(total: u64) -> Self {
        Self {
            total,
            present: no_marks(total),
            compared: no_marks(total),
            count: AtomicU64::new(0),
            taken: Mutex::new(HashSet::new()),
            ended: Condvar::new(),
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The number of blocks known to be present.
    pub(super) fn count(&self) -> u64 {
        let count = self.count.load(Ordering::Relaxed);
        // Below zero for the moment in which a mark is set by one thread and removed by another.
        if count <= self.total { count } else { 0 }
    }

    /// Whether all of these blocks are known to be present. One load decides if the whole object is.
    pub(super) fn are_present(&self, mut blocks: RangeInclusive<u64>) -> bool {
        self.count.load(Ordering::Acquire) == self.total || blocks.all(|block| self.has(block))
    }

    /// Whether a block is known to be present.
    pub(super) fn has(&self, block: u64) -> bool {
        self.has_mark(&self.present, block)
    }

    /// Whether this process knows that the bytes of a present block are those that were fetched.
    pub(super) fn is_compared(&self, block: u64) -> bool {
        self.has_mark(&self.compared, block)
    }

    /// Notes that the bytes of a block are those that were fetched, until its mark is removed.
    pub(super) fn note_compared(&self, block: u64) {
        if let Some(word) = self.word(&self.compared, block) {
            word.fetch_or(bit(block), Ordering::AcqRel);
        }
    }

    /// Marks a block whose bytes are in the file: a thread that sees the mark can read them.
    pub(super) fn set(&self, block: u64) {
        let Some(word) = self.word(&self.present, block) else { return };
        if word.fetch_or(bit(block), Ordering::AcqRel) & bit(block) == 0 {
            self.count.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Removes the mark of a block whose bytes must not be used.
    pub(super) fn clear(&self, block: u64) {
        let Some(word) = self.word(&self.present, block) else { return };
        self.count.fetch_sub(1, Ordering::AcqRel);
        if word.fetch_and(!bit(block), Ordering::AcqRel) & bit(block) == 0 {
            self.count.fetch_add(1, Ordering::AcqRel);
        }
        if let Some(word) = self.word(&self.compared, block) {
            word.fetch_and(!bit(block), Ordering::AcqRel);
        }
    }

    pub(super) fn clear_all(&self) {
        (0..self.total).for_each(|block| self.clear(block));
    }

    /// Takes the turn to fetch a block.
    pub(super) fn take(&self, block: u64) -> Turn {
        let mut taken = self.lock();
        if self.has(block) {
            Turn::Present
        } else if taken.insert(block) {
            Turn::Mine
        } else {
            Turn::Taken
        }
    }

    /// Takes the turn to evict a block, if it is present and no thread has its turn.
    pub(super) fn take_present(&self, block: u64) -> bool {
        let mut taken = self.lock();
        self.has(block) && taken.insert(block)
    }

    /// Takes the turns to fetch all of these blocks, if none of them is present or taken.
    pub(super) fn take_run(&self, blocks: Range<u64>) -> bool {
        let mut taken = self.lock();
        if blocks.clone().any(|block| self.has(block) || taken.contains(&block)) {
            return false;
        }
        taken.extend(blocks);
        true
    }

    /// Whether some thread has the turn to fetch or to evict a block.
    pub(super) fn is_taken(&self, block: u64) -> bool {
        self.lock().contains(&block)
    }

    /// Ends a turn. The caller has called [`Blocks::set`] before if it fetched the block.
    pub(super) fn end(&self, block: u64) {
        self.lock().remove(&block);
        self.ended.notify_all();
    }

    /// Waits until no thread of this process has the turn of the block, at most for `timeout`.
    pub(super) fn wait(&self, block: u64, timeout: Duration) {
        let taken = self.lock();
        #[cfg(not(all(loom, test)))]
        drop(self.ended.wait_timeout_while(taken, timeout, |taken| taken.contains(&block)));
        #[cfg(all(loom, test))]
        {
            let _ = timeout;
            let mut taken = taken;
            while taken.contains(&block) {
                taken = self.ended.wait(taken).unwrap();
            }
        }
    }

    fn has_mark(&self, marks: &[AtomicU64], block: u64) -> bool {
        let word = self.word(marks, block).map(|word| word.load(Ordering::Acquire));
        word.is_some_and(|word| word & bit(block) != 0)
    }

    fn word<'a>(&self, marks: &'a [AtomicU64], block: u64) -> Option<&'a AtomicU64> {
        (block < self.total).then(|| &marks[(block / 64) as usize])
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.taken.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn no_marks(blocks: u64) -> Box<[AtomicU64]> {
    (0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect()
}

fn bit(block: u64) -> u64 {
    1 << (block % 64)
}

#[cfg(all(loom, test))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    /// Fetches block 1 if this thread gets the turn, and tells whether it did. The written value is not synchronized
    /// itself.
    fn fetch(blocks: &Blocks, written: &AtomicUsize, publishes: bool) -> bool {
        match blocks.take(1) {
            Turn::Mine => {
                assert_eq!(written.load(Ordering::Relaxed), 0, "fetched twice");
                if publishes {
                    written.store(7, Ordering::Relaxed);
                    blocks.set(1);
                }
                blocks.end(1);
                publishes
            }
            Turn::Taken => {
                blocks.wait(1, Duration::ZERO);
                false
            }
            Turn::Present => false,
        }
    }

    #[test]
    fn loom_a_block_is_fetched_once_and_who_sees_it_sees_its_bytes() {
        loom::model(|| {
            let blocks = Arc::new(Blocks::new(2));
            let written = Arc::new(AtomicUsize::new(0));
            let (others, theirs) = (Arc::clone(&blocks), Arc::clone(&written));
            let other = thread::spawn(move || fetch(&others, &theirs, true));
            if blocks.are_present(1..=1) {
                assert_eq!(written.load(Ordering::Relaxed), 7);
            }
            let mine = fetch(&blocks, &written, true);
            assert!(mine != other.join().unwrap());
            assert!(blocks.has(1) && !blocks.is_taken(1) && blocks.count() == 1);
        });
    }

    #[test]
    fn loom_a_turn_that_is_given_up_lets_the_waiter_go() {
        loom::model(|| {
            let blocks = Arc::new(Blocks::new(2));
            let written = Arc::new(AtomicUsize::new(0));
            let (others, theirs) = (Arc::clone(&blocks), Arc::clone(&written));
            let other = thread::spawn(move || fetch(&others, &theirs, false));
            fetch(&blocks, &written, false);
            other.join().unwrap();
            assert!(!blocks.is_taken(1) && !blocks.has(1));
        });
    }
}
