//! Memory for reads, in pieces of huge pages. A device that is given the bytes of one sample at thirty addresses takes much
//! longer than with one address, most of all a virtual one; and a huge page costs one fault.
//!
//! The bytes of a new piece are not zero. Freed memory stays as long as no more is held than was in use during the last second
//! or two, or than twice the memory in use: the system clears the pages that it gives, which takes longer than to fill them
//! from a fast disk, and prefetched samples come and go in waves. The rest goes back when a piece is freed or
//! [`give_back_idle`] is called; where only a part of a huge page went back, small pages come.

use super::heap;
use super::page::page_bytes;
use memmap2::{Advice, MmapMut, UncheckedAdvice};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::RangeInclusive;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The size of a slab, which the system may make one page.
const SLAB_BYTES: usize = 2 << 20;
/// Pieces are multiples of this: the slab's [`Bits`] have one for each.
const GRANULE_BYTES: usize = SLAB_BYTES / Bits::BITS as usize;
/// The sizes of pieces: smaller buffers have few pages anyway, larger ones are rare.
const SIZES: RangeInclusive<usize> = 64 << 10..=512 << 10;
/// The number of granules that may be free and hold memory in any case.
const IDLE: usize = 2 * Bits::BITS as usize;
/// How long the most granules in use count; up to twice as long. Unit tests may wait longer for a CPU.
const HOLD: Duration = Duration::from_secs(if cfg!(test) { 600 } else { 1 });
/// The longest piece, in granules.
const MOST_GRANULES: u32 = (*SIZES.end() / GRANULE_BYTES) as u32;

/// A set of a slab's granules.
type Bits = u128;

/// The slabs of this process.
static SLABS: Slabs = Slabs::new();

struct Slabs(Mutex<State>);

struct State {
    /// All slabs, by address.
    all: BTreeMap<usize, Slab>,
    /// All slabs with the longest piece that they have room for, in granules: the tightest fit is found at once, however many
    /// slabs have only a rest.
    open: BTreeSet<(u32, usize)>,
    /// The slabs without a used granule.
    empty: BTreeSet<usize>,
    /// The number of granules of all pieces.
    used: usize,
    /// The number of granules that are free and hold memory.
    idle: usize,
    peak: Peak,
}

/// The most granules that were used at a time.
struct Peak {
    /// When the current period began; `None` if no granule was used yet.
    since: Option<Instant>,
    /// The most granules since then.
    most: usize,
    /// The most granules in the second before.
    before: usize,
}

struct Slab {
    memory: Arc<MmapMut>,
    start: NonNull<u8>,
    used: Bits,
    /// The free granules whose memory the system has.
    given: Bits,
}

/// Some granules of a slab, which are this piece's alone as long as it lives.
pub(super) struct Piece {
    start: NonNull<u8>,
    granules: u32,
    slab: usize,
    first: u32,
    /// Whether its memory goes back to the system in any case.
    goes_back: bool,
    memory: Arc<MmapMut>,
    slabs: &'static Slabs,
}

// SAFETY: the slab is mapped as long as pieces of it live (`memory`), and is reached only by its pieces; these do not overlap,
// as their granules are marked as used. So a piece is the only access to its memory, whichever thread has it.
unsafe impl Send for Piece {}
// SAFETY: a shared piece only hands out shared slices.
unsafe impl Sync for Piece {}
// SAFETY: the pointer is an address from which the addresses of pieces are computed; the mapping itself is `Send`.
unsafe impl Send for Slab {}

impl Slabs {
    const fn new() -> Self {
        let state = State {
            all: BTreeMap::new(),
            open: BTreeSet::new(),
            empty: BTreeSet::new(),
            used: 0,
            idle: 0,
            peak: Peak { since: None, most: 0, before: 0 },
        };
        Self(Mutex::new(state))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&'static self, granules: u32) -> io::Result<Option<Piece>> {
        let mut state = self.lock();
        let mut piece = state.take(granules, self);
        if piece.is_none() {
            drop(state);
            if heap::is_limited()? {
                return Ok(None);
            }
            let (memory, start) = map()?;
            state = self.lock();
            let address = state.add(memory, start);
            piece = state.take_of(address, 0, granules, self);
        }
        let used = state.used;
        state.peak.note(used, Instant::now());
        Ok(piece)
    }

    /// As the function `give_back_idle` below.
    fn give_back_idle(&'static self, now: Instant) -> bool {
        let mut state = self.lock();
        let mut excess = state.idle.saturating_sub(state.idle_limit(state.used, now));
        let open = state.open.iter().rev().map(|&(_, address)| address);
        let addresses: Vec<usize> = state.empty.iter().copied().chain(open).collect();
        let mut idle = Vec::new();
        for address in addresses {
            while excess > 0
                && let Some((first, granules)) = state.first_idle(address)
                && let Some(mut piece) = state.take_of(address, first, granules, self)
            {
                excess = excess.saturating_sub(granules as usize);
                piece.goes_back = true;
                idle.push(piece);
            }
        }
        drop(state);
        drop(idle);
        let state = self.lock();
        state.peak.recent(now) > 0 || state.idle > IDLE.max(state.used)
    }
}

impl Peak {
    /// Notes how many granules are used.
    fn note(&mut self, used: usize, now: Instant) {
        let elapsed = self.since.map_or(HOLD, |since| now.saturating_duration_since(since));
        if elapsed >= HOLD {
            self.before = if elapsed < 2 * HOLD { self.most } else { used };
            (self.since, self.most) = (Some(now), used);
        }
        self.most = self.most.max(used);
    }

    /// The most granules that were used of late; 0 once no piece was taken for long.
    fn recent(&self, now: Instant) -> usize {
        match self.since.map(|since| now.saturating_duration_since(since)) {
            Some(age) if age < HOLD => self.most.max(self.before),
            Some(age) if age < 2 * HOLD => self.most,
            _ => 0,
        }
    }
}

impl State {
    fn take(&mut self, granules: u32, slabs: &'static Slabs) -> Option<Piece> {
        let &(_, address) = self.open.range((granules, 0)..).next()?;
        let first = free_run(self.all.get(&address)?.used, granules)?;
        self.take_of(address, first, granules, slabs)
    }

    /// Takes granules of a slab that are free, from number `first` on.
    fn take_of(
        &mut self,
        address: usize,
        first: u32,
        granules: u32,
        slabs: &'static Slabs,
    ) -> Option<Piece> {
        let slab = self.all.get_mut(&address)?;
        let mask = mask(first, granules);
        self.open.remove(&(room(slab.used), address));
        slab.used |= mask;
        self.open.insert((room(slab.used), address));
        self.used += granules as usize;
        self.idle -= (mask & !slab.given).count_ones() as usize;
        slab.given &= !mask;
        self.empty.remove(&address);
        // SAFETY: the granules lie in the slab, whose first byte `start` is.
        let start = unsafe { slab.start.add(first as usize * GRANULE_BYTES) };
        let memory = Arc::clone(&slab.memory);
        Some(Piece { start, granules, slab: address, first, goes_back: false, memory, slabs })
    }

    /// The first granules of a slab in a row that are free and hold memory, and their number.
    fn first_idle(&self, address: usize) -> Option<(u32, u32)> {
        let slab = self.all.get(&address)?;
        let idle = !slab.used & !slab.given;
        let first = idle.trailing_zeros();
        (idle != 0).then(|| (first, (idle >> first).trailing_ones()))
    }

    /// Adds a slab, and returns its address.
    fn add(&mut self, memory: MmapMut, start: NonNull<u8>) -> usize {
        let address = start.as_ptr() as usize;
        let slab = Slab { memory: Arc::new(memory), start, used: 0, given: 0 };
        self.all.insert(address, slab);
        self.open.insert((room(0), address));
        self.idle += Bits::BITS as usize;
        address
    }

    /// The number of granules that may be idle while `used` are used.
    fn idle_limit(&self, used: usize, now: Instant) -> usize {
        IDLE.max(used).max(self.peak.recent(now).saturating_sub(used))
    }

    /// Whether too much memory is idle once `granules` that are used now are idle, too.
    fn has_enough(&self, granules: u32) -> bool {
        let granules = granules as usize;
        self.idle + granules > self.idle_limit(self.used - granules, Instant::now())
    }

    /// Frees granules; `has`: the system has their memory. Returns the slab that is to be unmapped, if there is one.
    fn free(&mut self, address: usize, mask: Bits, has: bool) -> Option<Slab> {
        let slab = self.all.get_mut(&address)?;
        self.open.remove(&(room(slab.used), address));
        slab.used &= !mask;
        self.open.insert((room(slab.used), address));
        self.used -= mask.count_ones() as usize;
        match has {
            true => slab.given |= mask,
            false => self.idle += mask.count_ones() as usize,
        }
        let (is_empty, was_given) = (slab.used == 0, slab.given != 0);
        if is_empty {
            self.empty.insert(address);
        }
        // A slab whose memory was given back in pieces has small pages from then on.
        let address = match is_empty && was_given {
            true => address,
            false if self.has_enough(0) => *self.empty.first()?,
            false => return None,
        };
        self.empty.remove(&address);
        let slab = self.all.remove(&address)?;
        self.open.remove(&(room(slab.used), address));
        self.idle -= (!slab.given).count_ones() as usize;
        Some(slab)
    }
}

fn mask(first: u32, granules: u32) -> Bits {
    (Bits::MAX >> (Bits::BITS - granules)) << first
}

/// The longest piece that a slab has room for, in granules.
fn room(used: Bits) -> u32 {
    let (mut runs, mut length) = (!used, 0);
    while runs != 0 && length < MOST_GRANULES {
        runs &= runs >> 1;
        length += 1;
    }
    length
}

/// The first of `granules` free granules in a row.
fn free_run(used: Bits, granules: u32) -> Option<u32> {
    // A bit of `runs` says that `length` granules are free from there on.
    let (mut runs, mut length) = (!used, 1);
    while length < granules && runs != 0 {
        let step = length.min(granules - length);
        runs &= runs >> step;
        length += step;
    }
    (runs != 0).then(|| runs.trailing_zeros())
}

/// A piece of at least `bytes` bytes; `None` for other sizes than pieces have, where address space is limited, and where pages
/// are larger than granules.
///
/// # Errors
/// There is no memory.
pub(super) fn take(bytes: usize) -> io::Result<Option<Piece>> {
    // Of a larger page only all of it could go back to the system.
    if !SIZES.contains(&bytes) || page_bytes() > GRANULE_BYTES {
        return Ok(None);
    }
    SLABS.take(bytes.div_ceil(GRANULE_BYTES) as u32)
}

/// Gives back memory that was held without use lately. Returns whether a call within a second or two may give back more: later,
/// freed memory goes back at once.
pub fn give_back_idle() -> bool {
    SLABS.give_back_idle(Instant::now())
}

/// The memory of a slab, and the beginning of the slab in it.
fn map() -> io::Result<(MmapMut, NonNull<u8>)> {
    let mut memory = MmapMut::map_anon(SLAB_BYTES)?;
    if memory.as_ptr().align_offset(SLAB_BYTES) != 0 {
        // Linux before 6.7 does not align it.
        memory = MmapMut::map_anon(2 * SLAB_BYTES)?;
    }
    // A system without huge pages has small ones.
    let _ = memory.advise(Advice::HugePage);
    let begins = memory.as_ptr().align_offset(SLAB_BYTES);
    let start = NonNull::from(&mut memory[begins..]).cast();
    Ok((memory, start))
}

impl Piece {
    pub(super) fn capacity(&self) -> usize {
        self.granules as usize * GRANULE_BYTES
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        // SAFETY: the granules lie in the slab, which is mapped; see `Send` for why no other piece reaches them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.capacity()) }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; `&mut self` makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.capacity()) }
    }

    /// Gives the memory back to the system.
    fn give_back(&mut self) -> io::Result<()> {
        let from = self.start.as_ptr() as usize - self.memory.as_ptr() as usize;
        // SAFETY: the mapping is anonymous, so that the pages become zero, which any bytes may be; they are this piece's
        // alone, and nothing borrows from it.
        unsafe {
            self.memory.unchecked_advise_range(UncheckedAdvice::DontNeed, from, self.capacity())
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mask = mask(self.first, self.granules);
        let gives_back = {
            let state = self.slabs.lock();
            let is_last = state.all.get(&self.slab).is_none_or(|slab| slab.used == mask);
            self.goes_back || state.has_enough(self.granules) && !is_last
        };
        let has = gives_back && self.give_back().is_ok();
        let unmapped = self.slabs.lock().free(self.slab, mask, has);
        // Unmapped without the lock.
        drop(unmapped);
    }
}

#[cfg(test)]
mod tests;
