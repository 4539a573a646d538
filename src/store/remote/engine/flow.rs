//! Limits the number of requests in flight, and decides which one is sent next: demands before prefetches. Imports
//! nothing of ours.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The initial limit.
const FIRST_LIMIT: usize = 32;
/// The smallest limit, however often the store asks for fewer requests.
const LEAST_LIMIT: usize = 4;
/// A larger limit must raise the rate by this factor to be kept.
const WORTHWHILE: f64 = 1.05;
/// The number of windows until a larger limit is tried again after one that gained nothing.
const HOLD_WINDOWS: u32 = 16;
/// The longest pause that is granted to a store.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The limit of requests in flight.
pub(in crate::store::remote) struct Flow {
    state: Mutex<State>,
}

struct State {
    limit: Limit,
    in_flight: usize,
    waiting: VecDeque<Ticket>,
    not_before: Option<Instant>,
}

struct Ticket {
    /// Set when a reader waits for the request.
    is_urgent: Arc<AtomicBool>,
    grant: oneshot::Sender<Permit>,
}

/// The right to have one request in flight, while it is held.
pub(in crate::store::remote) struct Permit(Option<Arc<Flow>>);

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(flow) = self.0.take() {
            flow.lock().in_flight -= 1;
            flow.grant();
        }
    }
}

impl Flow {
    pub(super) fn new(max: usize) -> Arc<Self> {
        let (waiting, not_before) = (VecDeque::new(), None);
        let state = State { limit: Limit::new(max), in_flight: 0, waiting, not_before };
        Arc::new(Self { state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a permit; setting `is_urgent` moves the request before those that are not urgent.
    pub(in crate::store::remote) async fn enter(
        self: &Arc<Self>,
        is_urgent: &Arc<AtomicBool>,
    ) -> Permit {
        loop {
            let (grant, granted) = oneshot::channel();
            self.lock().waiting.push_back(Ticket { is_urgent: Arc::clone(is_urgent), grant });
            self.grant();
            // Only dropping the whole flow drops the sender.
            let Ok(permit) = granted.await else { continue };
            let not_before = self.lock().not_before.filter(|then| *then > Instant::now());
            if let Some(then) = not_before {
                tokio::time::sleep_until(then).await;
            }
            return permit;
        }
    }

    /// Grants permits up to the limit.
    fn grant(self: &Arc<Self>) {
        loop {
            let ticket = {
                let mut state = self.lock();
                if state.in_flight >= state.limit.requests {
                    state.limit.is_reached = true;
                    return;
                }
                let urgent = |ticket: &Ticket| ticket.is_urgent.load(Ordering::Relaxed);
                let next = state.waiting.iter().position(urgent).unwrap_or(0);
                let Some(ticket) = state.waiting.remove(next) else { return };
                state.in_flight += 1;
                ticket
            };
            if let Err(mut permit) = ticket.grant.send(Permit(Some(Arc::clone(self)))) {
                // The requester no longer waits.
                permit.0 = None;
                self.lock().in_flight -= 1;
            }
        }
    }

    /// Notes a successful request of this many bytes, and its time to the first byte.
    pub(super) fn succeeded(self: &Arc<Self>, bytes: u64, first_byte: Duration) {
        self.lock().limit.succeeded(bytes, first_byte, Instant::now());
        self.grant();
    }

    /// Notes that the store asks for fewer requests, and perhaps for a pause.
    pub(super) fn throttled(&self, pause: Option<Duration>) {
        let mut state = self.lock();
        let now = Instant::now();
        state.limit.throttled(now);
        let until = pause.map(|pause| now + pause.min(LONGEST_PAUSE));
        state.not_before = state.not_before.max(until);
    }
}

/// The limit, and the measurements that change it.
struct Limit {
    requests: usize,
    max: usize,
    /// The limit before it was halved: up to this it grows with each response.
    before: usize,
    halved: Option<Instant>,
    round_trip: Duration,
    /// Whether a request had to wait in this window.
    is_reached: bool,
    /// Responses and bytes in this window, and its beginning.
    answers: usize,
    bytes: u64,
    since: Option<Instant>,
    /// Bytes per second in the last window.
    rate: f64,
    has_grown: bool,
    hold: u32,
}

impl Limit {
    fn new(max: usize) -> Self {
        let requests = FIRST_LIMIT.min(max).max(1);
        Self {
            requests,
            max: max.max(1),
            before: requests,
            halved: None,
            round_trip: Duration::from_millis(100),
            is_reached: false,
            answers: 0,
            bytes: 0,
            since: None,
            rate: 0.0,
            has_grown: false,
            hold: 0,
        }
    }

    fn succeeded(&mut self, bytes: u64, first_byte: Duration, now: Instant) {
        self.round_trip = (self.round_trip * 7 + first_byte) / 8;
        if self.requests < self.before {
            self.requests += 1;
            return;
        }
        let since = *self.since.get_or_insert(now);
        self.answers += 1;
        self.bytes += bytes;
        if self.answers < self.requests * 2 || now == since {
            return;
        }
        let rate = self.bytes as f64 / (now - since).as_secs_f64();
        if self.is_reached {
            self.judge(rate);
        }
        (self.answers, self.bytes, self.since, self.is_reached) = (0, 0, Some(now), false);
    }

    /// Raises the limit while that raises the rate.
    fn judge(&mut self, rate: f64) {
        if self.has_grown && rate < self.rate * WORTHWHILE {
            self.requests = (self.requests * 4 / 5).max(LEAST_LIMIT.min(self.max));
            (self.has_grown, self.hold) = (false, HOLD_WINDOWS);
        } else if self.hold > 0 {
            self.hold -= 1;
        } else {
            self.requests = (self.requests * 5 / 4 + 1).min(self.max);
            self.has_grown = true;
        }
        self.before = self.requests;
        self.rate = rate;
    }

    /// Halves the limit, once for all requests of a round trip.
    fn throttled(&mut self, now: Instant) {
        if self.halved.is_some_and(|halved| now < halved + self.round_trip) {
            return;
        }
        self.requests = (self.requests / 2).max(LEAST_LIMIT.min(self.max));
        (self.halved, self.has_grown) = (Some(now), false);
        (self.answers, self.bytes, self.since) = (0, 0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urgent(is_urgent: bool) -> Arc<AtomicBool> {
        Arc::new(AtomicBool::new(is_urgent))
    }

    #[tokio::test(start_paused = true)]
    async fn demands_go_first_and_a_prefetch_that_is_waited_for_becomes_one() {
        let flow = Flow::new(1);
        let permit = flow.enter(&urgent(false)).await;
        let (send, mut order) = tokio::sync::mpsc::unbounded_channel();
        let late = urgent(false);
        for (name, flag) in
            [("prefetch", urgent(false)), ("joined", Arc::clone(&late)), ("demand", urgent(true))]
        {
            let (flow, send) = (Arc::clone(&flow), send.clone());
            tokio::spawn(async move {
                let _permit = flow.enter(&flag).await;
                send.send(name).unwrap();
            });
            tokio::task::yield_now().await;
        }
        late.store(true, Ordering::Relaxed);
        drop(permit);
        for name in ["joined", "demand", "prefetch"] {
            assert_eq!(order.recv().await, Some(name));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_no_longer_waits_takes_no_place() {
        let flow = Flow::new(1);
        let permit = flow.enter(&urgent(true)).await;
        let flag = urgent(true);
        let given_up = tokio::time::timeout(Duration::from_secs(1), flow.enter(&flag)).await;
        assert!(given_up.is_err());
        drop(permit);
        let _permit = flow.enter(&urgent(false)).await;
        assert_eq!(flow.lock().in_flight, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_the_store_asks_for_is_kept() {
        let flow = Flow::new(256);
        flow.throttled(Some(Duration::from_secs(3)));
        let start = Instant::now();
        let _permit = flow.enter(&urgent(true)).await;
        assert_eq!(start.elapsed(), Duration::from_secs(3));
        let _permit = flow.enter(&urgent(true)).await;
        assert_eq!(start.elapsed(), Duration::from_secs(3));
    }

    #[test]
    fn the_limit_is_halved_once_a_round_trip_and_comes_back() {
        let (mut limit, start) = (Limit::new(256), Instant::now());
        limit.throttled(start);
        limit.throttled(start + Duration::from_millis(50));
        assert_eq!(limit.requests, 16);
        limit.throttled(start + Duration::from_millis(150));
        assert_eq!(limit.requests, 8);
        for _ in 0..100 {
            limit.succeeded(1, Duration::from_millis(30), start);
        }
        assert_eq!(limit.requests, 32);
        for late in 1..20 {
            limit.throttled(start + Duration::from_secs(late));
        }
        assert_eq!(limit.requests, LEAST_LIMIT);
    }

    #[test]
    fn the_limit_grows_as_long_as_that_raises_the_rate() {
        let mut limit = Limit::new(256);
        for _ in 0..40 {
            // The link carries the bytes of 100 requests.
            let rate = limit.requests.min(100) as f64;
            limit.judge(rate);
        }
        assert!((80..=130).contains(&limit.requests), "{}", limit.requests);
        let mut small = Limit::new(2);
        (0..10).for_each(|rate| small.judge(f64::from(rate * 100)));
        assert_eq!(small.requests, 2);
    }
}
