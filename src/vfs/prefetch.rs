//! The queue of announced samples, in the order in which they will be read.

use super::{Errno, Vfs};
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What may be announced beside two epochs: more than one write can hold, so that each fits some time.
const SLACK: u64 = 1 << 20;

/// What is announced and not fetched yet.
pub(super) struct Prefetch {
    queue: Mutex<VecDeque<u64>>,
    capacity: u64,
    announced: AtomicU64,
}

/// `prefetch` in `stats.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PrefetchFigures {
    /// Samples announced since the mount.
    pub announced: u64,
    /// Samples announced and not begun.
    pub waiting: u64,
    /// Samples that are being fetched.
    pub in_flight: u64,
    /// Samples finished, good or bad.
    pub done: u64,
    /// Those of them that could not be had.
    pub failed: u64,
}

impl Prefetch {
    pub(super) fn new(samples: u64) -> Self {
        let capacity = samples.saturating_mul(2).saturating_add(SLACK);
        Self { queue: Mutex::default(), capacity, announced: AtomicU64::new(0) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<u64>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Vfs {
    /// Queues samples, by number, to be fetched in this order: all of them or none.
    ///
    /// # Errors
    /// ENOSPC: too many are waiting. Try again later.
    pub fn announce(&self, samples: &[u64]) -> Result<(), Errno> {
        let mut queue = self.prefetch.lock();
        if (queue.len() + samples.len()) as u64 > self.prefetch.capacity {
            return Err(Errno::ENOSPC);
        }
        queue.extend(samples);
        self.prefetch.announced.fetch_add(samples.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// What became of the announced samples.
    #[must_use]
    pub fn prefetch_figures(&self) -> PrefetchFigures {
        PrefetchFigures {
            announced: self.prefetch.announced.load(Ordering::Relaxed),
            waiting: self.prefetch.lock().len() as u64,
            ..PrefetchFigures::default()
        }
    }

    #[cfg(test)]
    pub(super) fn announced_order(&self) -> Vec<u64> {
        self.prefetch.lock().iter().copied().collect()
    }
}
