//! Decides when a failed request is sent again; the caller sleeps. Imports the errors.

use crate::store::remote::error::StoreError;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A request has failed for good after this many retries without a byte in between.
const MAX_RETRIES: u32 = 8;
/// The maximum of the first pause; it doubles for each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The maximum of any pause, unless the store asks for more.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// The time after which a request is not retried, but once if it has not failed since bytes last came: a machine that was
/// suspended, or stood still, finds the time over when it goes on.
const TOTAL: Duration = Duration::from_secs(60);

/// The failures of one request.
#[derive(Debug, Default)]
pub(super) struct Retries {
    /// Failures since bytes last came.
    failures: u32,
    attempts: u32,
    /// Whether the request was sent again although its time was over.
    was_late: bool,
}

impl Retries {
    /// The pause before the request is sent again, `elapsed` after its beginning; `None` if it has failed for good.
    /// `random` is between 0 and 1.
    pub(super) fn pause(
        &mut self,
        error: &StoreError,
        elapsed: Duration,
        random: f64,
    ) -> Option<Duration> {
        self.attempts += 1;
        if !error.is_passing() || self.failures >= MAX_RETRIES {
            return None;
        }
        let longest = MAX_PAUSE.min(FIRST_PAUSE * 2_u32.pow(self.failures.min(10)));
        self.failures += 1;
        let pause =
            longest.mul_f64(random.clamp(0.0, 1.0)).max(error.retry_after.unwrap_or_default());
        if elapsed.saturating_add(pause) < TOTAL {
            return Some(pause);
        }
        let stood_still = self.failures == 1 && error.retry_after.is_none();
        (stood_still && !std::mem::replace(&mut self.was_late, true)).then_some(pause)
    }

    /// The number of failed attempts.
    pub(super) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Notes that bytes have come: the count of failures starts again.
    pub(super) fn progressed(&mut self) {
        self.failures = 0;
    }
}

/// A number between 0 and 1.
pub(super) fn random() -> f64 {
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::remote::ErrorKind;

    fn error(kind: ErrorKind) -> StoreError {
        StoreError::new("s3://bucket/key", kind, "no")
    }

    #[test]
    fn pauses_grow_from_50_ms_to_5_s_and_end_after_8() {
        let (mut retries, error) = (Retries::default(), error(ErrorKind::Unavailable));
        for millis in [50, 100, 200, 400, 800, 1600, 3200, 5000] {
            let pause = retries.pause(&error, Duration::ZERO, 1.0);
            assert_eq!(pause, Some(Duration::from_millis(millis)));
        }
        assert_eq!(retries.pause(&error, Duration::ZERO, 1.0), None);
        retries.progressed();
        assert_eq!(retries.pause(&error, Duration::ZERO, 0.5), Some(Duration::from_millis(25)));
        assert!((0..100).map(|_| random()).all(|random| (0.0..=1.0).contains(&random)));
    }

    #[test]
    fn nothing_is_sent_again_after_a_minute_but_once_or_if_it_cannot_succeed() {
        let late = Duration::from_secs(60);
        let (mut retries, timed_out) = (Retries::default(), error(ErrorKind::TimedOut));
        assert!(retries.pause(&timed_out, late, 0.0).is_some(), "the machine stood still");
        assert_eq!(retries.pause(&timed_out, late, 0.0), None);
        retries.progressed();
        assert_eq!(retries.pause(&timed_out, late, 0.0), None, "once");
        for kind in [ErrorKind::NotFound, ErrorKind::Denied, ErrorKind::Changed] {
            assert_eq!(Retries::default().pause(&error(kind), Duration::ZERO, 0.0), None);
        }
    }

    #[test]
    fn the_pause_that_a_store_asks_for_is_kept() {
        let asked = Duration::from_secs(7);
        let error = StoreError { retry_after: Some(asked), ..error(ErrorKind::Throttled) };
        assert_eq!(Retries::default().pause(&error, Duration::ZERO, 0.3), Some(asked));
        let late = Duration::from_secs(55);
        assert_eq!(Retries::default().pause(&error, late, 0.3), None);
        let never = StoreError { retry_after: Some(Duration::MAX), ..error };
        assert_eq!(Retries::default().pause(&never, late, 0.3), None);
    }
}
