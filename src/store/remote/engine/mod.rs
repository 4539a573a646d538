//! Sends requests by the rules that all clients share: the order of requests, retries, and hedges (second requests).
//! Imports the client and the rules.

mod flow;
mod hedge;
mod joined;
mod listing;
mod retry;

pub(super) use flow::{Flow, Permit};
pub(super) use joined::Joined;

use super::client::{Body, Client, Object};
use super::counters::{Counters, add};
use super::error::{ErrorKind, StoreError};
use super::location::Location;
use super::options::RemoteOptions;
use super::requests::{Request, RequestKind, Steps};
use crate::store::Cause;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, Either, select};
use hedge::Hedging;
use retry::{Retries, random};
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// The pause between two questions whether a slow request may be hedged.
const HEDGE_PAUSE: Duration = Duration::from_millis(1);
/// The least bytes that a body must bring while it is waited for as long as the timeout: another connection is likely to be
/// faster.
const LEAST_BYTES: u64 = 1 << 10;

/// Sends requests.
pub(super) struct Engine {
    pub(super) flow: Arc<Flow>,
    pub(super) counters: Arc<Counters>,
    hedging: Hedging,
    /// How long a response may make no progress.
    pub(super) timeout: Duration,
}

/// Takes the bytes of a response, in order and each once.
pub(super) trait Sink: Send {
    /// Takes the next bytes. Returns whether a reader or the cache needs the bytes after them.
    fn push(&mut self, piece: Bytes) -> impl Future<Output = bool> + Send;
}

/// A request for a range of an object.
pub(super) struct Get<'a> {
    pub(super) client: &'a dyn Client,
    pub(super) object: &'a Object,
    pub(super) range: Range<u64>,
    /// Whether a reader waits for the range; may be set later.
    pub(super) is_urgent: &'a Arc<AtomicBool>,
    /// The reason why the range is fetched.
    pub(super) cause: Cause,
}

impl Get<'_> {
    fn error(&self, kind: ErrorKind, message: &str) -> StoreError {
        StoreError::new(self.object.location.to_string(), kind, message)
    }
}

/// Counts a request as in flight.
struct UnderWay<'a>(&'a AtomicU64);

impl<'a> UnderWay<'a> {
    fn new(counter: &'a AtomicU64) -> Self {
        add(counter, 1);
        Self(counter)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The bytes that a body has brought since its pace was judged last, and how long it was waited for.
#[derive(Default)]
struct Pace {
    bytes: u64,
    waited: Duration,
}

impl Pace {
    /// Notes the next bytes of a body, which were waited for this long; each `window` must bring some bytes.
    fn is_too_slow(&mut self, bytes: u64, waited: Duration, window: Duration) -> bool {
        self.bytes += bytes;
        self.waited += waited;
        if self.waited < window {
            return false;
        }
        std::mem::take(self).bytes < LEAST_BYTES
    }
}

impl Engine {
    pub(super) fn new(options: &RemoteOptions, counters: Arc<Counters>) -> Self {
        Self {
            flow: Flow::new(options.max_in_flight),
            counters,
            hedging: Hedging::new(options.hedge),
            timeout: options.timeout,
        }
    }

    /// Fetches a range. The first attempt uses `permit` if there is one.
    pub(super) async fn get(
        &self,
        get: Get<'_>,
        mut permit: Option<Permit>,
        sink: &mut impl Sink,
    ) -> Result<(), StoreError> {
        let (start, mut retries) = (Instant::now(), Retries::default());
        let (mut left, mut counter) = (get.range.clone(), self.counters.gets_for(get.cause));
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut steps = Steps::new();
            let turn = match permit.take() {
                Some(permit) => permit,
                None => self.flow.enter(get.is_urgent).await,
            };
            add(counter, 1);
            steps.note_sent();
            let before = left.clone();
            let ended = self.attempt(&get, &mut left, &mut steps, sink).await;
            drop(turn);
            self.counters.watch.ended(|| Request {
                kind: RequestKind::Get,
                url: get.object.location.to_string(),
                cause: Some(get.cause),
                attempt,
                range: before.clone(),
                bytes: left.start - before.start,
                steps,
                error: ended.as_ref().err().cloned(),
            });
            let Err(error) = ended else { return Ok(()) };
            if left.start > before.start {
                retries.progressed();
            }
            counter = self.again(&error, &mut retries, start.elapsed()).await?;
        }
    }

    /// Makes one attempt at the rest of the range.
    async fn attempt(
        &self,
        get: &Get<'_>,
        left: &mut Range<u64>,
        steps: &mut Steps,
        sink: &mut impl Sink,
    ) -> Result<(), StoreError> {
        let _under_way = UnderWay::new(&self.counters.in_flight);
        let (start, range) = (Instant::now(), left.clone());
        let (mut body, mut piece, first_byte) = self.first_bytes(get, &range, steps).await?;
        let (mut pace, mut is_slow) = (Pace::default(), false);
        loop {
            let length = piece.len() as u64;
            add(&self.counters.fetched_bytes, length);
            if length > left.end - left.start {
                return Err(get.error(ErrorKind::Malformed, "the answer is too long"));
            }
            left.start += length;
            let is_needed = sink.push(piece).await;
            if left.is_empty() || !is_needed {
                break;
            }
            if is_slow {
                return Err(get.error(ErrorKind::TimedOut, "the bytes come too slowly"));
            }
            let asked = Instant::now();
            piece = match timeout(self.timeout, body.next()).await {
                Ok(Some(next)) => next?,
                Ok(None) => return Err(get.error(ErrorKind::Broken, "the answer ends early")),
                Err(_) => return Err(self.silence(get)),
            };
            is_slow = pace.is_too_slow(piece.len() as u64, asked.elapsed(), self.timeout);
        }
        self.counters.total.add(start.elapsed());
        self.flow.succeeded(left.start - range.start, first_byte);
        Ok(())
    }

    fn silence(&self, get: &Get<'_>) -> StoreError {
        let message = format!("no byte came for {} s", self.timeout.as_secs_f64());
        get.error(ErrorKind::TimedOut, &message)
    }

    /// The first bytes of the fastest response, and how long its request took.
    async fn first_bytes(
        &self,
        get: &Get<'_>,
        range: &Range<u64>,
        steps: &mut Steps,
    ) -> Result<(Body, Bytes, Duration), StoreError> {
        let answer = timeout(self.timeout, self.hedged(get, range, steps)).await;
        let (body, piece, time) = answer.unwrap_or_else(|_| Err(self.silence(get)))?;
        steps.note_first_byte();
        self.counters.first_byte.add(time);
        self.hedging.answered(time);
        Ok((body, piece, time))
    }

    async fn hedged(
        &self,
        get: &Get<'_>,
        range: &Range<u64>,
        steps: &mut Steps,
    ) -> Result<(Body, Bytes, Duration), StoreError> {
        let delay = self.hedging.requested();
        let mut first = pin!(one_answer(get, range.clone()));
        let Some(delay) = delay else { return first.await };
        let (start, mut pause) = (Instant::now(), delay);
        loop {
            if let Ok(answer) = timeout(pause, &mut first).await {
                return answer;
            }
            if self.hedging.take(Instant::now(), start.elapsed()) {
                break;
            }
            pause = HEDGE_PAUSE;
        }
        add(&self.counters.gets_hedge, 1);
        steps.note_hedged();
        let second = pin!(one_answer(get, range.clone()));
        match select(first, second).await {
            Either::Left((Ok(answer), _)) => Ok(answer),
            Either::Left((Err(_), second)) => second.await.inspect(|_| self.hedge_won(steps)),
            Either::Right((Ok(answer), _)) => {
                self.hedge_won(steps);
                Ok(answer)
            }
            Either::Right((Err(error), first)) => {
                self.note_throttling(&error);
                first.await
            }
        }
    }

    fn hedge_won(&self, steps: &mut Steps) {
        steps.hedge_won = true;
        add(&self.counters.hedges_won, 1);
    }

    fn note_throttling(&self, error: &StoreError) {
        if error.kind == ErrorKind::Throttled {
            self.flow.throttled(error.retry_after);
            self.hedging.throttled(Instant::now());
        }
    }

    /// Notes a failed attempt, and waits until the request can be retried; returns the counter for that kind of retry.
    async fn again(
        &self,
        error: &StoreError,
        retries: &mut Retries,
        elapsed: Duration,
    ) -> Result<&AtomicU64, StoreError> {
        self.note_throttling(error);
        let Some(pause) = retries.pause(error, elapsed, random()) else {
            // A missing object is no failure: most containers have no sidecar.
            add(&self.counters.failures, u64::from(error.kind != ErrorKind::NotFound));
            return Err(match error.is_passing() {
                true => error.clone().given_up(retries.attempts(), elapsed),
                false => error.clone(),
            });
        };
        tracing::debug!("{error}: again in {} ms", pause.as_millis());
        sleep(pause).await;
        Ok(match error.kind {
            ErrorKind::Throttled => &self.counters.retries_throttled,
            ErrorKind::Unavailable => &self.counters.retries_unavailable,
            ErrorKind::Broken => &self.counters.retries_broken,
            ErrorKind::TimedOut => &self.counters.retries_timed_out,
            _ => &self.counters.retries_other,
        })
    }

    /// The current version of an object.
    pub(super) async fn head(
        &self,
        client: &dyn Client,
        location: &Location,
    ) -> Result<Object, StoreError> {
        self.retrying(location, &self.counters.heads, || client.head(location)).await
    }

    /// Reports the end of a request without a body.
    fn note_plain(
        &self,
        (kind, location): (RequestKind, &Location),
        attempt: u32,
        steps: Steps,
        error: Option<&StoreError>,
    ) {
        self.counters.watch.ended(|| Request {
            kind,
            url: location.to_string(),
            cause: None,
            attempt,
            range: 0..0,
            bytes: 0,
            steps,
            error: error.cloned(),
        });
    }

    fn silence_of(&self, location: &Location) -> StoreError {
        let message = format!("no answer came for {} s", self.timeout.as_secs_f64());
        StoreError::new(location.to_string(), ErrorKind::TimedOut, message)
    }

    async fn retrying<'a, T>(
        &'a self,
        location: &Location,
        mut counter: &'a AtomicU64,
        request: impl Fn() -> BoxFuture<'a, Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let (start, mut retries) = (Instant::now(), Retries::default());
        let is_urgent = Arc::new(AtomicBool::new(true));
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut steps = Steps::new();
            let turn = self.flow.enter(&is_urgent).await;
            let under_way = UnderWay::new(&self.counters.in_flight);
            add(counter, 1);
            steps.note_sent();
            let answer = timeout(self.timeout, request()).await;
            drop((turn, under_way));
            let answer = answer.unwrap_or_else(|_| Err(self.silence_of(location)));
            self.note_plain((RequestKind::Head, location), attempt, steps, answer.as_ref().err());
            match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => counter = self.again(&error, &mut retries, start.elapsed()).await?,
            }
        }
    }
}

/// The first bytes of one request's response, and how long they took.
async fn one_answer(
    get: &Get<'_>,
    range: Range<u64>,
) -> Result<(Body, Bytes, Duration), StoreError> {
    let start = Instant::now();
    let mut body = get.client.get(get.object, range).await?;
    loop {
        match body.next().await {
            Some(Ok(piece)) if piece.is_empty() => {}
            Some(Ok(piece)) => return Ok((body, piece, start.elapsed())),
            Some(Err(error)) => return Err(error),
            None => return Err(get.error(ErrorKind::Broken, "the answer is empty")),
        }
    }
}
