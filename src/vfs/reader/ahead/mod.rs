//! Intervals of streams that are read in order are decoded ahead of their readers, on threads that serve no reader.
//!
//! Decides which intervals to decode and holds the decoded ones; threads of the transport fetch and decode ([`Ahead::next`],
//! [`Ahead::decode`]). An interval is one in-flight read, whether it is decoded ahead or for a reader: a reader that comes late
//! follows. It is begun only with a spare turn, so that a reader that must decode never waits for one, and with room for
//! the result, a quarter of the memory at most for all intervals ahead. An interval that fails is left to its reader.

mod runs;

use super::interval_decode::{IntervalSource, Place};
use crate::catalog::Located;
use crate::io::{Buffer, ReadError};
use crate::vfs::memory::Memory;
use crate::vfs::memory::budget::Budget;
use crate::vfs::memory::cache::{CacheKey, Cached, Leader};
use crate::vfs::memory::chunk::Rights;
use crate::vfs::memory::turns::Turn;
use crate::vfs::samples::Samples;
use crate::vfs::span::Span;
use crate::vfs::{Errno, Phase, Stage, Trace};
use runs::{Most, PATIENCE, Runs};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub(super) use runs::Seen;

/// The intervals ahead of all readers may take the memory of the cache divided by this.
const SHARE: u64 = 4;
/// The time after which a run that has not gone on makes room for other runs.
const SHORT_PATIENCE: Duration = Duration::from_millis(250);
/// The foreseen intervals that may wait to be dropped though no reader will ask for them.
const FEW: usize = 64;

/// Decodes intervals ahead of their readers.
pub struct Ahead {
    samples: Arc<Samples>,
    memory: Arc<Memory>,
    trace: Arc<Trace>,
    /// The budget of the intervals ahead.
    window: Budget,
    state: Mutex<State>,
    /// The function to call when there is an interval to decode.
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct State {
    runs: Runs,
    /// The intervals that were not begun yet, in the order of being foreseen.
    foreseen: VecDeque<Foreseen>,
    /// The length of `foreseen` when intervals that no reader will ask for were dropped last.
    looked_at: usize,
}

/// An interval that will be asked for.
struct Foreseen {
    key: CacheKey,
    source: IntervalSource,
    located: Located,
}

/// An interval to decode ahead. Owned by the thread that decodes it; dropped, it ends the in-flight read that it leads.
pub struct DecodeAhead {
    key: CacheKey,
    source: IntervalSource,
    located: Located,
    span: Span,
    since: Instant,
    rights: Rights,
    // In this order: followers go on before another task has the turn.
    leader: Leader,
    turn: Turn,
}

impl DecodeAhead {
    /// The range to fetch, and the memory for it.
    pub fn span(&mut self) -> &mut Span {
        &mut self.span
    }

    /// Offers memory to fetch into. The memory is taken if it is no larger than the turn stands for.
    pub fn lend(&mut self, memory: Buffer) {
        if memory.capacity() <= 2 * self.span.length() {
            self.span.put_buffer(memory);
        }
    }
}

impl Ahead {
    pub(super) fn new(samples: Arc<Samples>, memory: Arc<Memory>, trace: Arc<Trace>) -> Self {
        let (window, state, waker) = (Budget::new(0), Mutex::default(), OnceLock::new());
        Self { samples, memory, trace, window, state, waker }
    }

    /// Calls `waker` whenever [`Ahead::next`] may have a new interval.
    pub fn when_there_is_something(&self, waker: impl Fn() + Send + Sync + 'static) {
        let _ = self.waker.set(Box::new(waker));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a read of a sample whose bytes lie together up to byte `sample_end` of the decoded stream.
    pub(super) fn observe(
        &self,
        seen: &Seen,
        source: &IntervalSource,
        located: &Located,
        sample_end: u64,
    ) {
        if !Self::is_worthwhile(source) {
            return;
        }
        let at_once = self.memory.turns().spare() as u64;
        let most = Most { at_once, bytes: self.memory.budget().cap_bytes() / SHARE };
        let mut state = self.lock();
        let next = state.runs.observe(seen, Instant::now(), most, |has_crossed| {
            self.last_interval(source, located, sample_end, has_crossed).min(seen.last)
        });
        let foreseen = next.map(|number| Foreseen {
            key: seen.key.interval(number),
            source: source.clone(),
            located: *located,
        });
        state.foreseen.extend(foreseen);
        let is_something = !state.foreseen.is_empty();
        self.unlock(state);
        self.wake(is_something);
    }

    fn wake(&self, is_something: bool) {
        if is_something && let Some(waker) = self.waker.get() {
            waker();
        }
    }

    /// Whether decoding ahead helps: spooled intervals are decoded already.
    fn is_worthwhile(source: &IntervalSource) -> bool {
        match source {
            IntervalSource::Sample(checkpoints) => checkpoints.spool().is_none(),
            IntervalSource::Container => true,
        }
    }

    /// The last interval that readers of a stream can come to: that of the sample, until they have gone into another sample.
    fn last_interval(
        &self,
        source: &IntervalSource,
        located: &Located,
        sample_end: u64,
        has_crossed: bool,
    ) -> u64 {
        let container = self.samples.container(located);
        match source {
            IntervalSource::Sample(checkpoints) => checkpoints.number_at(sample_end - 1),
            IntervalSource::Container => {
                let stream = container.stream();
                let is_nested = located.container >= self.samples.store().parts().len();
                let end = match (has_crossed, is_nested && stream.is_some()) {
                    (false, _) => sample_end,
                    (true, false) => return u64::MAX,
                    // Behind the samples of a nested container lie samples of the container that it is in.
                    (true, true) => {
                        let last = container.piece(container.len().saturating_sub(1), 0);
                        let end = last
                            .ok()
                            .flatten()
                            .map(|at| at.offset_bytes.saturating_add(at.length_bytes));
                        end.unwrap_or(0).max(sample_end)
                    }
                };
                let intervals = container.intervals(located.index);
                let last = intervals.and_then(|intervals| intervals.interval(end - 1));
                last.map_or(0, |interval| interval.number)
            }
        }
    }

    /// Unlocks the state, then drops the intervals that no reader will ask for.
    fn unlock(&self, mut state: MutexGuard<'_, State>) {
        let given_up = state.runs.take_given_up();
        let State { runs, foreseen, looked_at } = &mut *state;
        // With many columns, a look at all foreseen intervals for each page would take longer than the page.
        if !given_up.is_empty() && foreseen.len() > *looked_at * 2 + FEW {
            foreseen.retain(|foreseen| runs.awaits(foreseen.key));
            *looked_at = foreseen.len();
        }
        drop(state);
        given_up.into_iter().for_each(|key| self.memory.cache().give_up(key));
    }

    /// The next interval to decode; `None` if no interval is due, or there is no room or no spare turn for it now.
    pub fn next(&self) -> Option<DecodeAhead> {
        self.end_idle(PATIENCE, None);
        loop {
            let foreseen = self.lock().foreseen.pop_front()?;
            let place = self.place(&foreseen);
            let Some(place) = place.filter(|_| self.lock().runs.awaits(foreseen.key)) else {
                continue;
            };
            match self.begin(foreseen, place) {
                Begun::Lead(decode) => {
                    let is_more = !self.lock().foreseen.is_empty();
                    self.wake(is_more);
                    return Some(*decode);
                }
                Begun::NotNeeded => {}
                Begun::NoRoom(foreseen) => {
                    self.lock().foreseen.push_front(foreseen);
                    return None;
                }
            }
        }
    }

    fn place(&self, foreseen: &Foreseen) -> Option<Place> {
        let number = foreseen.key.in_stream().1;
        foreseen.source.place(&self.samples, &foreseen.located, number)
    }

    fn begin(&self, foreseen: Foreseen, place: Place) -> Begun {
        let decoded_bytes = (place.decoded.end - place.decoded.start).next_multiple_of(PAGE_BYTES);
        self.window.set_cap_bytes(self.memory.budget().cap_bytes() / SHARE);
        if decoded_bytes > self.window.cap_bytes() {
            return Begun::NotNeeded;
        }
        // No room is made for an interval that is there already.
        if self.memory.cache().has(foreseen.key) {
            return Begun::NotNeeded;
        }
        let Some(turn) = self.memory.turns().take_spare(place.memory_bytes()) else {
            return Begun::NoRoom(foreseen);
        };
        let window = self.window.reserve(decoded_bytes).or_else(|| {
            self.end_idle(SHORT_PATIENCE, Some(foreseen.key));
            self.window.reserve(decoded_bytes)
        });
        let Foreseen { key, source, located } = foreseen;
        let room =
            |window| Some((self.memory.cache().room_ahead(key, decoded_bytes)?, Some(window)));
        let Some(rights) = window.and_then(room) else {
            return Begun::NoRoom(Foreseen { key, source, located });
        };
        let Some(leader) = self.memory.cache().lead_ahead(key) else { return Begun::NotNeeded };
        // A reader may have come, decoded the interval and left while room was made. A reader is observed before it leads.
        if !self.lock().runs.awaits(key) {
            return Begun::NotNeeded;
        }
        let span = Span::new(located.part, place.stored, Buffer::empty());
        let since = Instant::now();
        let decode = DecodeAhead { key, source, located, span, since, rights, leader, turn };
        Begun::Lead(Box::new(decode))
    }

    fn end_idle(&self, patience: Duration, but: Option<CacheKey>) {
        let mut state = self.lock();
        state.runs.end_idle(Instant::now(), patience, but);
        self.unlock(state);
    }

    /// Decodes an interval, if it was fetched, and lets the reads go on that wait for it. Gives the memory that the interval
    /// was fetched into, for the next interval: new pages cost a fault each.
    pub fn decode(&self, decode: DecodeAhead, fetched: Result<(), ReadError>) -> Buffer {
        let DecodeAhead { key, source, located, mut span, since, rights, leader, turn } = decode;
        let mut traced = self.trace.begin_ahead(&span, None, 0, since);
        if let Err(error) = fetched {
            self.trace.end(traced, Err(Errno::from(&error)));
            drop(leader);
            drop(turn);
            return Buffer::empty();
        }
        let stats = self.samples.stats();
        let bytes = span.length() as u64;
        stats.fetched(bytes);
        stats.stage(Stage::Ahead, since);
        traced.enter(Phase::Verify);
        let decoded = source.decode(&self.samples, &located, key.in_stream().1, &span);
        stats.interval_decoded(true);
        let memory = span.swap_buffer(Buffer::empty());
        let outcome = decoded.as_ref().map(|_| bytes).map_err(|_| Errno::EIO);
        // The interval's reader finds a fault once more, and says of which sample.
        if let Ok(decoded) = decoded {
            let decoded = Arc::new(decoded);
            let state = self.lock();
            if state.runs.holds(key) {
                // While the runs are locked: the thread that ends the run of this interval then finds it.
                leader.hold(decoded, rights);
                drop(state);
                drop(leader);
            } else {
                drop(state);
                drop(rights);
                leader.end_with(Cached::Whole(decoded), 0);
            }
        } else {
            drop(leader);
        }
        self.trace.end(traced, outcome);
        drop(turn);
        memory
    }

    #[cfg(test)]
    pub(in crate::vfs) fn end_runs(&self) {
        let mut state = self.lock();
        state.runs.end_idle(Instant::now() + 2 * PATIENCE, PATIENCE, None);
        self.unlock(state);
    }

    /// The longest time that a thread without work waits before it calls [`Ahead::next`] again: intervals that are held for
    /// readers that have gone are dropped then. `None` if no interval is held.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        self.lock().runs.are_ahead().then_some(PATIENCE)
    }
}

/// The size of a page: memory is given in pages.
const PAGE_BYTES: u64 = 4096;

/// The result of an attempt to begin an interval.
enum Begun {
    Lead(Box<DecodeAhead>),
    /// The interval is there, or on its way, or too large, or its reader has passed it.
    NotNeeded,
    NoRoom(Foreseen),
}
