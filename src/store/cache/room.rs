//! The bytes that this process may still write into the cache. A background thread measures the size of the cache and the free
//! space of the file system; the processes that use the cache share the result. Imports `directory`, `evict` and `lease`.

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

/// The percentage of the file system that stays free.
const FREE_PERCENT: u64 = 5;
/// The maximum that is written before the first measurement.
const FIRST_BYTES: u64 = 64 << 20;
/// The maximum that one eviction frees.
const EVICTED_BYTES: u64 = 1 << 30;
/// A measurement is out of date after this long, as other processes write too.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The minimum time between two measurements.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// After a failed write the cache is not written for this long.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Measurements take at most one part in this many of a process's time.
const LOOK_PART: u32 = 10;

/// The bytes that this process may write.
pub(super) struct Room {
    directory: Directory,
    max: Option<CacheMax>,
    state: Mutex<State>,
    is_looking: AtomicBool,
    is_told: AtomicBool,
    /// The file system cannot punch holes.
    has_no_holes: AtomicBool,
    pub(super) evicted: AtomicU64,
    pub(super) evicted_bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Bytes that may be taken.
    left: u64,
    /// Bytes that were taken, and are neither in the file nor given back.
    in_flight: u64,
    /// The total that was ever taken.
    taken: u64,
    /// This process's share by the last measurement.
    share: u64,
    /// Whether there may be more room than the last measurement found: it may have counted blocks twice that were
    /// written meanwhile, or it evicted nothing.
    is_rough: bool,
    /// When the last measurement ended, and how long it took.
    looked: Option<(Instant, Duration)>,
    /// Until when the cache is not written, and the reason.
    refused: Option<(Instant, String)>,
}

impl State {
    fn is_refused(&self, now: Instant) -> bool {
        self.refused.as_ref().is_some_and(|(until, _)| now < *until)
    }

    /// Whether the last measurement is out of date, or most of the share is used, or the last free blocks may have been
    /// missed.
    fn is_look_due(&self, now: Instant) -> bool {
        let Some((looked, took)) = self.looked else { return true };
        let is_used = self.share >= BLOCK_BYTES && self.left < self.share / 2;
        let may_have_missed = self.is_rough && self.left < BLOCK_BYTES;
        let pause = if is_used || may_have_missed { LOOK_AGAIN } else { LOOK_EVERY };
        now.saturating_duration_since(looked) >= pause.max(took * LOOK_PART)
    }
}

/// The room of evicted blocks, for the blocks that they were evicted for. Unused room is given back.
pub struct Freed {
    room: Arc<Room>,
    bytes: u64,
}

impl Freed {
    /// The room that is left, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds the room of other blocks of the same cache.
    pub fn add(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Gives up room that has not become free after all.
    pub(super) fn forget(&mut self, bytes: u64) {
        self.bytes -= bytes;
        self.room.settle(bytes, true);
    }

    /// Takes room for a block, which the caller must [`settle`](Room::settle).
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        let is_granted = self.bytes >= bytes;
        self.bytes -= if is_granted { bytes } else { 0 };
        is_granted
    }
}

impl Drop for Freed {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.room.settle(self.bytes, false);
        }
    }
}

impl Room {
    /// # Errors
    /// The file system cannot be queried.
    pub(super) fn new(directory: Directory, max: Option<CacheMax>) -> io::Result<Arc<Self>> {
        let room = Self {
            directory,
            max,
            state: Mutex::default(),
            is_looking: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
            has_no_holes: AtomicBool::new(false),
            evicted: AtomicU64::new(0),
            evicted_bytes: AtomicU64::new(0),
        };
        if room.max.is_some() {
            // The cache may be full. Evict nothing yet: the entries that are about to be opened are not marked as in
            // use.
            room.measure(false)?;
        } else {
            room.lock().left = (room.free_bytes()? / 8).min(FIRST_BYTES);
        }
        Ok(Arc::new(room))
    }

    /// Takes room for a block. The caller must [`settle`](Room::settle) it in any case.
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

    /// Starts a measurement in the background if one is due.
    fn look_if_due(self: &Arc<Self>, state: MutexGuard<'_, State>, now: Instant) {
        let is_due = !state.is_refused(now) && state.is_look_due(now);
        drop(state);
        if is_due && !self.is_looking.swap(true, Relaxed) {
            let room = Arc::clone(self);
            let thread = thread::Builder::new().name("ffrfs-cache".to_owned());
            let spawned = thread.spawn(move || {
                let looked = room.look();
                room.is_looking.store(false, Relaxed);
                match looked {
                    // A cache that was deleted meanwhile is made anew with the next entry.
                    Err(error) if error.kind() != io::ErrorKind::NotFound => room.refuse(&error),
                    _ => {}
                }
            });
            if spawned.is_err() {
                self.is_looking.store(false, Relaxed);
            }
        }
    }

    /// Takes the room of blocks that were just evicted, before other threads can.
    pub(super) fn free(self: &Arc<Self>, bytes: u64) -> Freed {
        let mut state = self.lock();
        state.in_flight += bytes;
        state.taken += bytes;
        drop(state);
        Freed { room: Arc::clone(self), bytes }
    }

    /// Whether single blocks can be evicted from a file.
    pub(super) fn can_punch(&self) -> bool {
        !self.has_no_holes.load(Relaxed)
    }

    /// Notes that the file system cannot punch holes.
    pub(super) fn note_no_holes(&self) {
        self.has_no_holes.store(true, Relaxed);
    }

    /// Settles the bytes that [`Room::take`] took: they were written, or are given back.
    pub(super) fn settle(&self, bytes: u64, is_written: bool) {
        let mut state = self.lock();
        state.in_flight = state.in_flight.saturating_sub(bytes);
        if !is_written {
            state.left += bytes;
        }
    }

    /// Whether [`Room::take`] would now grant a block.
    pub(super) fn has_room(self: &Arc<Self>) -> bool {
        let (state, now) = (self.lock(), Instant::now());
        let has_room = !state.is_refused(now) && state.left >= BLOCK_BYTES;
        // A caller that sees no room calls no `take`, and without `take` there may be no further measurement.
        self.look_if_due(state, now);
        has_room
    }

    /// Notes that the cache could not be written: nothing is written for a while.
    pub(super) fn refuse(&self, error: &io::Error) {
        self.lock().refused = Some((Instant::now() + REFUSED_FOR, error.to_string()));
        if !self.is_told.swap(true, Relaxed) {
            let entries = self.directory.entries();
            tracing::warn!("{}: nothing more is cached for now: {error}", entries.display());
        }
    }

    /// The reason why the cache takes no blocks at the moment.
    pub(super) fn refusal(&self) -> Option<String> {
        let state = self.lock();
        let (_, why) = state.refused.as_ref().filter(|_| state.is_refused(Instant::now()))?;
        Some(why.clone())
    }

    /// Measures the cache and the free space of the file system, and evicts entries if there is too little room.
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
            let held: u64 = entries.iter().map(|entry| entry.bytes).sum();
            left = self.left(Some(held))?;
            if left < wanted && may_evict {
                // The cache may hold more than its maximum, which may have been larger.
                let excess = self.excess(held)?;
                let freed = self.evict(entries, wanted - left + excess)?;
                left += freed.saturating_sub(excess);
            }
        }
        let took = began.elapsed();
        let mut state = self.lock();
        let since = in_flight + (state.taken - taken);
        // The last block is offered to every process; the first one to write it gets it.
        let share = (left / processes).max(left.min(BLOCK_BYTES));
        state.left = share.saturating_sub(since);
        state.share = state.left;
        state.is_rough = since > 0 || !may_evict;
        state.looked = Some((Instant::now(), took));
        Ok(())
    }

    /// The room that there should be: with less, entries are evicted.
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

    /// The bytes that may still be written: by the limit if the cache's size (`held_bytes`) is given, and by the file system.
    fn left(&self, held_bytes: Option<u64>) -> io::Result<u64> {
        let free = self.free_bytes()?;
        let max = self.max_bytes(&self.space()?);
        let allowed = max.zip(held_bytes).map(|(max, held)| max.saturating_sub(held));
        Ok(allowed.unwrap_or(u64::MAX).min(free))
    }

    /// The excess of `held_bytes` over the limit.
    fn excess(&self, held_bytes: u64) -> io::Result<u64> {
        let max = self.max_bytes(&self.space()?);
        Ok(max.map_or(0, |max| held_bytes.saturating_sub(max)))
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

    /// The directory of the cache.
    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_is_deleted_while_it_is_measured_still_takes_blocks() {
        let place = tempfile::tempdir().unwrap();
        let room = Room::new(Directory::prepare(place.path()).unwrap(), None).unwrap();
        room.look().unwrap();
        std::fs::remove_dir_all(room.directory.users()).unwrap();
        assert_eq!(room.look().unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(room.take(1));
        let start = Instant::now();
        while room.is_looking.load(Relaxed) {
            assert!(start.elapsed() < Duration::from_secs(60), "the look has not ended");
            thread::yield_now();
        }
        assert_eq!(room.refusal(), None);
    }

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
