//! Whether a request that takes long is sent a second time. Imports nothing of ours.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// No second request is sent earlier.
const LEAST_DELAY: Duration = Duration::from_millis(50);
/// Until enough answers have come to know what is usual.
const FIRST_DELAY: Duration = Duration::from_millis(200);
/// So many second requests a first one.
const SHARE: f64 = 0.05;
/// So many second requests at once, at most.
const MOST_AT_ONCE: f64 = 10.0;
/// So many more for requests that hang rather than take long: if they had to wait until others pay for them, and all
/// readers waited for such requests, nothing would go on.
const DEBT: f64 = 16.0;
/// What takes this many times as long as usual hangs.
const HANGS: f64 = 1.4;
/// No second requests for so long after the store has asked for fewer.
const QUIET: Duration = Duration::from_secs(5);
/// The times of so many answers are remembered.
const REMEMBERED: usize = 128;
/// The usual time is computed anew after so many answers.
const JUDGED: usize = 16;

/// Decides on second requests.
pub(super) struct Hedging {
    is_on: bool,
    state: Mutex<State>,
}

struct State {
    /// Second requests that may be sent.
    budget: f64,
    times: Vec<Duration>,
    answers: usize,
    delay: Duration,
    quiet_until: Option<Instant>,
}

impl Hedging {
    pub(super) fn new(is_on: bool) -> Self {
        let (times, delay) = (Vec::new(), FIRST_DELAY);
        let state = State { budget: MOST_AT_ONCE, times, answers: 0, delay, quiet_until: None };
        Self { is_on, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A first request is sent. Gives how long to wait until it may be sent again, if it may.
    pub(super) fn requested(&self) -> Option<Duration> {
        let mut state = self.lock();
        state.budget = (state.budget + SHARE).min(MOST_AT_ONCE);
        self.is_on.then_some(state.delay)
    }

    /// Takes a second request, for one that has been `waiting`, out of the budget. If there is none left, the caller
    /// asks again later: of the requests that wait for it, those that are only a little slow end meanwhile.
    pub(super) fn take(&self, now: Instant, waiting: Duration) -> bool {
        let mut state = self.lock();
        let least = if waiting >= state.delay.mul_f64(HANGS) { 1.0 - DEBT } else { 1.0 };
        if state.budget < least || state.quiet_until.is_some_and(|until| now < until) {
            return false;
        }
        state.budget -= 1.0;
        true
    }

    /// A request, by itself, took this long to its first byte.
    pub(super) fn answered(&self, time: Duration) {
        let mut state = self.lock();
        let place = state.answers % REMEMBERED;
        state.answers += 1;
        match state.times.get_mut(place) {
            Some(old) => *old = time,
            None => state.times.push(time),
        }
        if state.answers.is_multiple_of(JUDGED) {
            let mut sorted = state.times.clone();
            sorted.sort_unstable();
            state.delay = sorted[sorted.len() * 95 / 100].max(LEAST_DELAY);
        }
    }

    /// The store asks for fewer requests.
    pub(super) fn throttled(&self, now: Instant) {
        self.lock().quiet_until = Some(now + QUIET);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_request_waits_until_95_of_100_would_have_been_answered() {
        let hedging = Hedging::new(true);
        assert_eq!(hedging.requested(), Some(FIRST_DELAY));
        for answer in 0..200 {
            hedging.answered(Duration::from_millis(if answer % 50 == 0 { 900 } else { 70 }));
        }
        assert_eq!(hedging.requested(), Some(Duration::from_millis(70)));
        (0..200).for_each(|_| hedging.answered(Duration::from_millis(3)));
        assert_eq!(hedging.requested(), Some(LEAST_DELAY));
        assert_eq!(Hedging::new(false).requested(), None);
    }

    #[test]
    fn there_are_at_most_5_in_100_second_requests_and_none_after_a_503() {
        let (hedging, now) = (Hedging::new(true), Instant::now());
        let take = |now| hedging.take(now, Duration::ZERO);
        while take(now) {}
        for _ in 0..1000 {
            hedging.requested();
        }
        let taken = (0..1000).filter(|_| take(now)).count();
        assert!((1..=MOST_AT_ONCE as usize).contains(&taken), "not all at once: {taken}");
        let mut taken = 0;
        for _ in 0..1000 {
            hedging.requested();
            taken += usize::from(take(now));
        }
        assert!((49..=51).contains(&taken), "{taken}");
        (0..100).for_each(|_| assert!(hedging.requested().is_some()));
        hedging.throttled(now);
        assert!(!take(now) && take(now + QUIET));
    }

    #[test]
    fn requests_that_hang_are_sent_again_on_credit_but_not_without_end() {
        let (hedging, now) = (Hedging::new(true), Instant::now());
        while hedging.take(now, FIRST_DELAY) {}
        let hanging = (0..1000).filter(|_| hedging.take(now, FIRST_DELAY * 2)).count();
        assert_eq!(hanging, DEBT as usize);
        (0..100).for_each(|_| assert!(hedging.requested().is_some()));
        assert!(!hedging.take(now, FIRST_DELAY), "the credit is paid back first");
    }
}
