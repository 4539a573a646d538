//! One bit for each sample, or container, read and written by all threads.

use std::sync::atomic::{AtomicU64, Ordering};

/// One bit for each number, such as a sample's.
pub(super) struct Bits(Vec<AtomicU64>);

impl Bits {
    pub(super) fn new(bits: u64) -> Self {
        Self((0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn word(&self, bit: u64) -> Option<&AtomicU64> {
        usize::try_from(bit / 64).ok().and_then(|word| self.0.get(word))
    }

    pub(super) fn get(&self, bit: u64) -> bool {
        self.word(bit).is_some_and(|word| word.load(Ordering::Relaxed) >> (bit % 64) & 1 == 1)
    }

    /// Sets a bit, and tells whether it was clear. Writes only if it was, so that a hot word stays shared among
    /// CPUs.
    pub(super) fn set(&self, bit: u64) -> bool {
        let mask = 1 << (bit % 64);
        let word = self.word(bit).filter(|word| word.load(Ordering::Relaxed) & mask == 0);
        word.is_some_and(|word| word.fetch_or(mask, Ordering::SeqCst) & mask == 0)
    }

    /// Clears all bits, and calls `each` with those that were set.
    pub(super) fn take_each(&self, mut each: impl FnMut(u64)) {
        for (number, word) in self.0.iter().enumerate() {
            // Most words are 0: they are only read, and stay shared among CPUs.
            if word.load(Ordering::SeqCst) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::SeqCst);
            while bits != 0 {
                each(number as u64 * 64 + u64::from(bits.trailing_zeros()));
                bits &= bits - 1;
            }
        }
    }

    pub(super) fn clear(&self, bit: u64) {
        if let Some(word) = self.word(bit)
            && word.load(Ordering::Relaxed) >> (bit % 64) & 1 == 1
        {
            word.fetch_and(!(1 << (bit % 64)), Ordering::Relaxed);
        }
    }
}
