//! Whether a thread that waits for events polls before it sleeps.

use std::time::{Duration, Instant};

/// For how long a thread polls before it sleeps: waking an idle CPU takes about as long, and while this
/// thread polls, the scheduler keeps the reader that it has answered on a CPU near it.
const POLL_TIME: Duration = Duration::from_micros(50);
/// After this many polls in a row without an event, the thread sleeps at once.
const MAX_FAILURES: u32 = 8;
/// After this many waits without polling, the thread polls again.
const WAITS_UNTIL_RETRY: u32 = 32;

/// Decides whether a thread polls, by whether polls have brought events lately.
#[derive(Default)]
pub struct Spin {
    /// Polls in a row without an event, and then the waits without polling.
    failures: u32,
}

impl Spin {
    /// Whether to poll before the next sleep.
    #[must_use]
    pub fn is_worthwhile(&mut self) -> bool {
        if self.failures < MAX_FAILURES {
            return true;
        }
        self.failures += 1;
        if self.failures == MAX_FAILURES + WAITS_UNTIL_RETRY {
            // After one more failure, the thread stops polling again.
            self.failures = MAX_FAILURES - 1;
        }
        false
    }

    /// Polls until `is_there` or the time is over, and lets other threads run meanwhile. Returns whether `is_there` was true.
    pub fn until(&mut self, mut is_there: impl FnMut() -> bool) -> bool {
        let start = Instant::now();
        loop {
            if is_there() {
                self.failures = 0;
                return true;
            }
            if start.elapsed() >= POLL_TIME {
                self.failures += 1;
                return false;
            }
            let _ = nix::sched::sched_yield();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_polls_without_events_stops_and_tries_again_later() {
        let mut spin = Spin::default();
        let mut polls = 0;
        for _ in 0..1000 {
            if spin.is_worthwhile() {
                polls += 1;
                spin.until(|| false);
            }
        }
        assert!((30..50).contains(&polls), "{polls} of 1000");
        while !spin.is_worthwhile() {}
        spin.until(|| true);
        assert!((0..3).all(|_| spin.is_worthwhile()));
    }
}
