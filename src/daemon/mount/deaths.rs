//! Counts the deaths of workers: how long to wait before another is started, and when to give up.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The deaths of workers within this time are counted.
const WITHIN: Duration = Duration::from_secs(60);
/// A worker that dies within this time of its start, or after it has begun to serve, has died at once.
const AT_ONCE: Duration = Duration::from_millis(250);
/// The pause before another worker is started if some have died at once, one after another; it doubles with each.
const PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// The deaths of workers.
#[derive(Default)]
pub(super) struct Deaths {
    /// Those within a minute.
    last: VecDeque<Instant>,
    /// How many in a row have died at once.
    at_once: u32,
}

impl Deaths {
    /// Counts the death of a worker that was started, or has begun to serve, at this time; gives the pause before the next is started.
    pub(super) fn add(&mut self, started: Instant) -> Duration {
        self.last.push_back(Instant::now());
        self.last.retain(|death| death.elapsed() < WITHIN);
        self.at_once = if started.elapsed() < AT_ONCE { self.at_once + 1 } else { 0 };
        match self.at_once {
            0 | 1 => Duration::ZERO,
            many => (PAUSE * (1 << (many - 2).min(10))).min(MAX_PAUSE),
        }
    }

    /// How many there were within a minute.
    pub(super) fn count(&self) -> usize {
        self.last.len()
    }
}
