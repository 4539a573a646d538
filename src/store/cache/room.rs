//! How much more this process may write into the cache. What it may hold, and what the file system has left, is looked at
//! in the background; what is found is shared among the processes that use the cache. Imports `directory`, `evict` and
//! `lease`.

use super::directory::Directory;
use super::evict::{self, Stored};
use super::lease::in_use;
use super::map::BLOCK_BYTES;
use crate::io::{self as system, Space};
use crate::store::remote::CacheMax;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// So many percent of the file system stay free.
const FREE_PERCENT: u64 = 5;
/// What is written before the first look, at most.
const FIRST_BYTES: u64 = 64 << 20;
/// At most so much is made free at a time.
const EVICTED_BYTES: u64 = 1 << 30;
/// Others write, too: an older look counts no more.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The least time between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// A cache that took no bytes is tried again after this.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Of its time, a process spends at most this part on looking.
const LOOK_PART: u32 = 10;

/// What this process may write.
pub(super) struct Room {
    directory: Directory,
    max: Option<CacheMax>,
    state: Mutex<State>,
    is_looking: AtomicBool,
    is_told: AtomicBool,
    pub(super) evicted: AtomicU64,
    pub(super) evicted_bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Bytes that may be taken.
    left: u64,
    /// Taken, and neither in the file nor given back.
    in_flight: u64,
    /// All that was ever taken.
    taken: u64,
    /// What the last look has found.
    share: u64,
    /// There may be more room than the last look found: blocks that were written meanwhile may have been counted twice,
    /// or nothing was evicted.
    is_rough: bool,
    /// When the last look ended, and how long it took.
    looked: Option<(Instant, Duration)>,
    /// Until when the cache is not tried again, and why.
    refused: Option<(Instant, String)>,
}

impl State {
    fn is_refused(&self, now: Instant) -> bool {
        self.refused.as_ref().is_some_and(|(until, _)| now < *until)
    }

    /// Whether the last look is old, or most of what it has found is used, or it may have missed the last room.
    fn is_look_due(&self, now: Instant) -> bool {
        let Some((looked, took)) = self.looked else { return true };
        let is_used = self.share >= BLOCK_BYTES && self.left < self.share / 2;
        let may_have_missed = self.is_rough && self.left < BLOCK_BYTES;
        let pause = if is_used || may_have_missed { LOOK_AGAIN } else { LOOK_EVERY };
        now.saturating_duration_since(looked) >= pause.max(took * LOOK_PART)
    }
}

impl Room {
    /// # Errors
    /// The file system does not answer.
    pub(super) fn new(directory: Directory, max: Option<CacheMax>) -> io::Result<Arc<Self>> {
        let room = Self {
            directory,
            max,
            state: Mutex::default(),
            is_looking: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
            evicted: AtomicU64::new(0),
            evicted_bytes: AtomicU64::new(0),
        };
        if room.max.is_some() {
            // The cache may be full. Nothing makes room yet: what is about to be opened is not in use.
            room.measure(false)?;
        } else {
            room.lock().left = (room.free_bytes()? / 8).min(FIRST_BYTES);
        }
        Ok(Arc::new(room))
    }

    /// Takes room for a block. What was taken is [`settled`](Room::settle) in any case.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> bool {
        let now = Instant::now();
        let mut state = self.lock();
        let is_granted = !state.is_refused(now) && state.left >= bytes;
        if is_granted {
            state.left -= bytes;
            state.in_flight += bytes;
            state.taken += bytes;
        }
        self.look_if_due(state, now);
        is_granted
    }

    /// Looks in the background, if what is known is old.
    fn look_if_due(self: &Arc<Self>, state: MutexGuard<'_, State>, now: Instant) {
        let is_due = !state.is_refused(now) && state.is_look_due(now);
        drop(state);
        if is_due && !self.is_looking.swap(true, Relaxed) {
            let room = Arc::clone(self);
            let thread = thread::Builder::new().name("ffrfs-cache".to_owned());
            let spawned = thread.spawn(move || {
                let looked = room.look();
                room.is_looking.store(false, Relaxed);
                if let Err(error) = looked {
                    room.refuse(&error);
                }
            });
            if spawned.is_err() {
                self.is_looking.store(false, Relaxed);
            }
        }
    }

    /// Ends what [`Room::take`] began: the bytes were written, or are given back.
    pub(super) fn settle(&self, bytes: u64, is_written: bool) {
        let mut state = self.lock();
        state.in_flight = state.in_flight.saturating_sub(bytes);
        if !is_written {
            state.left += bytes;
        }
    }

    /// Whether a block would get room now.
    pub(super) fn has_room(self: &Arc<Self>) -> bool {
        let (state, now) = (self.lock(), Instant::now());
        let has_room = !state.is_refused(now) && state.left >= BLOCK_BYTES;
        // Who is told that there is none takes none, and nobody else might look again.
        self.look_if_due(state, now);
        has_room
    }

    /// The cache takes no bytes: nothing is written for a while.
    pub(super) fn refuse(&self, error: &io::Error) {
        self.lock().refused = Some((Instant::now() + REFUSED_FOR, error.to_string()));
        if !self.is_told.swap(true, Relaxed) {
            let entries = self.directory.entries();
            tracing::warn!("{}: nothing more is cached for now: {error}", entries.display());
        }
    }

    /// Why nothing is written for now.
    pub(super) fn refusal(&self) -> Option<String> {
        let state = self.lock();
        let (_, why) = state.refused.as_ref().filter(|_| state.is_refused(Instant::now()))?;
        Some(why.clone())
    }

    /// Looks what the cache holds and what the file system has left, and evicts what is not in use.
    pub(super) fn look(&self) -> io::Result<()> {
        self.measure(true)
    }

    fn measure(&self, may_evict: bool) -> io::Result<()> {
        let began = Instant::now();
        let (in_flight, taken) = {
            let state = self.lock();
            (state.in_flight, state.taken)
        };
        let processes = {
            let _locked = self.directory.lock_shared()?;
            in_use(&self.directory, false)?.processes.max(1) as u64
        };
        let mut left = self.left(None)?;
        let wanted = self.wanted()?;
        if left < wanted || self.max.is_some() {
            let entries = evict::stored(&self.directory)?;
            let held = entries.iter().map(|entry| entry.bytes).sum();
            left = self.left(Some(held))?;
            if left < wanted && may_evict {
                left += self.evict(entries, wanted - left)?;
            }
        }
        let took = began.elapsed();
        let mut state = self.lock();
        let since = in_flight + (state.taken - taken);
        // The last blocks go to whoever comes first.
        let share = (left / processes).max(left.min(BLOCK_BYTES));
        state.left = share.saturating_sub(since);
        state.share = state.left;
        state.is_rough = since > 0 || !may_evict;
        state.looked = Some((Instant::now(), took));
        Ok(())
    }

    /// How much should be free before something is evicted for it.
    fn wanted(&self) -> io::Result<u64> {
        let max = self.max_bytes(&self.space()?).unwrap_or(u64::MAX);
        Ok((max / 16).clamp(BLOCK_BYTES, EVICTED_BYTES))
    }

    fn evict(&self, entries: Vec<Stored>, bytes: u64) -> io::Result<u64> {
        let evicted = evict::evict(&self.directory, entries, bytes)?;
        let freed = evicted.iter().map(|entry| entry.bytes).sum();
        self.evicted.fetch_add(evicted.len() as u64, Relaxed);
        self.evicted_bytes.fetch_add(freed, Relaxed);
        Ok(freed)
    }

    /// What may still be written if the cache holds `held_bytes`, or by the file system alone.
    fn left(&self, held_bytes: Option<u64>) -> io::Result<u64> {
        let free = self.free_bytes()?;
        let max = self.max_bytes(&self.space()?);
        let allowed = max.zip(held_bytes).map(|(max, held)| max.saturating_sub(held));
        Ok(allowed.unwrap_or(u64::MAX).min(free))
    }

    fn max_bytes(&self, space: &Space) -> Option<u64> {
        self.max.map(|max| match max {
            CacheMax::Bytes(bytes) => bytes,
            CacheMax::Percent(percent) => space.total_bytes / 100 * u64::from(percent),
        })
    }

    fn space(&self) -> io::Result<Space> {
        system::space(&self.directory.entries())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let space = self.space()?;
        Ok(space.available_bytes.saturating_sub(space.total_bytes / 100 * FREE_PERCENT))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_found_no_room_while_blocks_were_written_is_soon_repeated() {
        let looked = Instant::now();
        let state = State { looked: Some((looked, Duration::ZERO)), ..State::default() };
        assert!(!state.is_look_due(looked + LOOK_AGAIN), "the cache is full");
        let rough = State { is_rough: true, ..state };
        assert!(rough.is_look_due(looked + LOOK_AGAIN));
        let with_room = State { left: BLOCK_BYTES, ..rough };
        assert!(!with_room.is_look_due(looked + LOOK_AGAIN), "what it has found is enough");
        assert!(with_room.is_look_due(looked + LOOK_EVERY));
    }
}
