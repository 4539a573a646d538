//! Decides whether a slow request is hedged, that is, sent a second time. Imports nothing of ours.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The shortest delay before a hedge.
const LEAST_DELAY: Duration = Duration::from_millis(50);
/// The delay until enough responses have come to know the usual time.
const FIRST_DELAY: Duration = Duration::from_millis(200);
/// How many hedges each first request earns.
const SHARE: f64 = 0.05;
/// The most hedges that earlier first requests can have earned.
const MOST_AT_ONCE: f64 = 10.0;
/// How many more hedges are granted on credit. Without credit, once every reader waits for a hanging request, no first
/// request would be sent to earn another hedge.
const DEBT: f64 = 24.0;
/// How long a request must have waited for its hedge, as multiples of the usual time: with a full budget and with an
/// empty one. Between them it grows with a power of the used part: a burst hardly waits longer, and slightly slow
/// requests do not use up the hedges that hanging ones will need.
const LEAST_WAIT: f64 = 1.0;
const LONGEST_WAIT: f64 = 1.5;
const WAIT_POWER: i32 = 6;
/// After the store has asked for fewer requests, no request is hedged for this long.
const QUIET: Duration = Duration::from_secs(5);
/// The number of response times that are remembered.
const REMEMBERED: usize = 512;
/// The usual time is recomputed after this many responses.
const JUDGED: usize = 16;

/// Decides on hedges.
pub(super) struct Hedging {
    is_on: bool,
    state: Mutex<State>,
}

struct State {
    /// The hedges that may be sent; less than zero on credit.
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

    /// Notes a first request. Returns the delay after which it may be hedged, if hedging is on.
    pub(super) fn requested(&self) -> Option<Duration> {
        let mut state = self.lock();
        state.budget = (state.budget + SHARE).min(MOST_AT_ONCE);
        self.is_on.then_some(state.delay)
    }

    /// Takes a hedge from the budget for a request that has waited for `waiting`. If that is too short for the rest of
    /// the budget, the caller asks again later: by then most slightly slow requests have ended.
    pub(super) fn take(&self, now: Instant, waiting: Duration) -> bool {
        let mut state = self.lock();
        let used = (MOST_AT_ONCE - state.budget) / (MOST_AT_ONCE + DEBT);
        let least =
            LEAST_WAIT + (LONGEST_WAIT - LEAST_WAIT) * used.clamp(0.0, 1.0).powi(WAIT_POWER);
        let is_paid = state.budget >= 1.0 - DEBT && waiting >= state.delay.mul_f64(least);
        if !is_paid || state.quiet_until.is_some_and(|until| now < until) {
            return false;
        }
        state.budget -= 1.0;
        true
    }

    /// Notes the time from one request to its first byte.
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

    /// Notes that the store asks for fewer requests.
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
        (0..REMEMBERED).for_each(|_| hedging.answered(Duration::from_millis(3)));
        assert_eq!(hedging.requested(), Some(LEAST_DELAY));
        assert_eq!(Hedging::new(false).requested(), None);
    }

    #[test]
    fn there_are_at_most_5_in_100_second_requests_and_none_after_a_503() {
        let (hedging, now) = (Hedging::new(true), Instant::now());
        let take = |now| hedging.take(now, FIRST_DELAY * 2);
        let at_once = (0..1000).filter(|_| take(now)).count();
        assert_eq!(at_once, (MOST_AT_ONCE + DEBT) as usize, "not without end, if all hang");
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
    fn the_less_is_left_the_longer_a_request_waits_for_a_second_one() {
        let (hedging, now) = (Hedging::new(true), Instant::now());
        let shortest = || {
            let waits = (50..=200).map(|percent| FIRST_DELAY * percent / 100);
            waits.into_iter().find(|wait| hedging.take(now, *wait))
        };
        let waits: Vec<_> = std::iter::from_fn(shortest).collect();
        assert_eq!(waits.len(), (MOST_AT_ONCE + DEBT) as usize);
        assert_eq!(waits[0], FIRST_DELAY);
        assert!(waits.is_sorted() && waits[waits.len() - 1] > FIRST_DELAY.mul_f64(1.4));
        (0..2000).for_each(|_| assert!(hedging.requested().is_some()));
        assert!(hedging.take(now, FIRST_DELAY), "what was paid back can be used again");
    }
}
