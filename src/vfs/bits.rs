//! One bit for each sample, read and written by all threads.

use std::sync::atomic::{AtomicU64, Ordering};

/// A bit a sample.
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

    /// Sets a bit; writes only if it was not set, so that a hot word stays shared among CPUs.
    pub(super) fn set(&self, bit: u64) {
        if let Some(word) = self.word(bit)
            && word.load(Ordering::Relaxed) >> (bit % 64) & 1 == 0
        {
            word.fetch_or(1 << (bit % 64), Ordering::Relaxed);
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
