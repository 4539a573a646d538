//! Locks and atomics of the caches: those of `std`, or of `loom` where its models try their interleavings.

#[cfg(all(loom, test))]
pub(super) use loom::sync::{Mutex, MutexGuard, atomic};
#[cfg(not(all(loom, test)))]
pub(super) use std::sync::{Mutex, MutexGuard, atomic};
