//! One limit for all bytes that are held in memory: blocks, fetched samples, bytes that are being fetched ahead.
use super::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// The bytes that may be held, and those that are held.
#[derive(Clone)]
pub(in crate::vfs) struct Budget(Arc<Inner>);

struct Inner {
    cap_bytes: AtomicU64,
    held_bytes: AtomicU64,
}

impl Budget {
    pub(in crate::vfs) fn new(cap_bytes: u64) -> Self {
        let (cap_bytes, held_bytes) = (AtomicU64::new(cap_bytes), AtomicU64::new(0));
        Self(Arc::new(Inner { cap_bytes, held_bytes }))
    }

    pub(in crate::vfs) fn cap_bytes(&self) -> u64 {
        self.0.cap_bytes.load(Ordering::Relaxed)
    }

    /// Moves the limit. Held bytes stay held: a caller that lowers the limit makes room.
    pub(in crate::vfs) fn set_cap_bytes(&self, cap_bytes: u64) {
        self.0.cap_bytes.store(cap_bytes, Ordering::Relaxed);
    }

    /// Whether more bytes are held than the limit allows, because it was lowered.
    pub(in crate::vfs) fn is_overdrawn(&self) -> bool {
        self.held_bytes() > self.cap_bytes()
    }

    pub(in crate::vfs) fn held_bytes(&self) -> u64 {
        self.0.held_bytes.load(Ordering::Relaxed)
    }

    /// The right to hold `bytes` bytes, as long as it lives; `None` if they do not fit.
    pub(in crate::vfs) fn reserve(&self, bytes: u64) -> Option<Reservation> {
        let cap_bytes = self.cap_bytes();
        let add = |held: u64| held.checked_add(bytes).filter(|&sum| sum <= cap_bytes);
        let held = &self.0.held_bytes;
        held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Reservation { budget: self.clone(), bytes })
    }
}

/// The right to hold bytes. Dropped, it frees the bytes for other holders.
pub(in crate::vfs) struct Reservation {
    budget: Budget,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.0.held_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_reserved_than_the_cap_and_what_is_dropped_is_free_again() {
        let budget = Budget::new(100);
        let first = budget.reserve(60).unwrap();
        assert!(budget.reserve(41).is_none() && budget.reserve(u64::MAX).is_none());
        let second = budget.reserve(40).unwrap();
        assert_eq!(budget.held_bytes(), 100);
        drop((first, second));
        assert_eq!(budget.held_bytes(), 0);
    }

    #[test]
    fn a_lowered_cap_leaves_what_is_held_and_gives_no_more() {
        let budget = Budget::new(100);
        let held = budget.reserve(60).unwrap();
        budget.set_cap_bytes(50);
        assert!(budget.is_overdrawn() && budget.reserve(0).is_none());
        drop(held);
        assert!(!budget.is_overdrawn() && budget.reserve(51).is_none());
        assert!(budget.reserve(50).is_some());
    }
}
