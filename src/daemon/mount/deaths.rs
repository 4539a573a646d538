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
/// The pause after a worker that lacked processes, memory or files: other programs may give some back within seconds.
const PAUSE_OF_LACK: Duration = Duration::from_millis(500);
const MAX_PAUSE_OF_LACK: Duration = Duration::from_secs(8);

/// The deaths of workers.
#[derive(Default)]
pub(super) struct Deaths {
    /// The deaths within a minute.
    last: VecDeque<Instant>,
    /// How many workers in a row have died at once.
    at_once: u32,
    /// How many workers in a row have lacked a resource.
    lacking: u32,
}

impl Deaths {
    /// Counts the death of a worker that was started, or has begun to serve, at this time; returns the pause before the next is
    /// started.
    pub(super) fn add(&mut self, started: Instant) -> Duration {
        self.note();
        self.lacking = 0;
        self.at_once = if started.elapsed() < AT_ONCE { self.at_once + 1 } else { 0 };
        match self.at_once {
            0 | 1 => Duration::ZERO,
            many => (PAUSE * (1 << (many - 2).min(10))).min(MAX_PAUSE),
        }
    }

    /// As [`Deaths::add`], for a worker that could not be started, or could not serve, for lack of a resource.
    pub(super) fn add_lacking(&mut self) -> Duration {
        self.note();
        self.lacking += 1;
        (PAUSE_OF_LACK * (1 << (self.lacking - 1).min(10))).min(MAX_PAUSE_OF_LACK)
    }

    fn note(&mut self) {
        self.last.push_back(Instant::now());
        self.last.retain(|death| death.elapsed() < WITHIN);
    }

    /// The number of deaths within a minute.
    pub(super) fn count(&self) -> usize {
        self.last.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_those_for_what_is_lacking_last_for_seconds_before_too_many_have_failed() {
        let mut deaths = Deaths::default();
        // However long this test waits for a CPU, it counts as at once.
        let started = Instant::now() + WITHIN;
        let pauses = |deaths: &mut Deaths| [(); 4].map(|()| deaths.add(started).as_millis());
        assert_eq!(pauses(&mut deaths), [0, 100, 200, 400]);
        let lacking = [(); 5].map(|()| deaths.add_lacking().as_millis());
        assert_eq!(lacking, [500, 1000, 2000, 4000, 8000]);
        assert!(deaths.add_lacking() == MAX_PAUSE_OF_LACK && MAX_PAUSE_OF_LACK * 5 < WITHIN);
        assert_eq!(deaths.count(), 10);
        deaths.add(Instant::now());
        assert_eq!(deaths.add_lacking(), PAUSE_OF_LACK);
    }
}
