//! Makes a mount fetch samples before they are read.
//!
//! First each file is looked up, so that the kernel knows it: the bytes of a known file can go straight into the
//! kernel's page cache.

mod list;
mod mounted;

pub(crate) use list::List;
pub(crate) use mounted::{Figures, Mounted};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use mounted::{Order, Wait};
use std::time::{Duration, Instant};

/// The maximum pause between two looks at the statistics.
const PAUSE: Duration = Duration::from_millis(100);
/// A pause is this part of the time since the beginning, so that a short warm-up ends without delay.
const PAUSE_PART: u32 = 32;
const MIN_PAUSE: Duration = Duration::from_millis(1);
/// After this many consecutive looks without room, no reader will free any …
const MAX_FULL_LOOKS: u32 = 30;
/// … and after this many if one has read what was fetched for it, and only pauses: what is not announced now never is.
const MAX_PAUSED_LOOKS: u32 = 600;

/// How a warm-up ended.
#[derive(Debug)]
pub(crate) enum Warmup {
    /// Interrupted while samples were being looked up.
    NotBegun,
    /// Interrupted after this many of all samples were announced.
    Announcing(usize, usize),
    /// This many of all samples are announced: all that found room. The caller does not wait for the fetches.
    Announced(usize, usize),
    /// Interrupted while the mount was fetching.
    Fetching,
    /// The mount has fetched all samples that it has room for; of this many samples that many were announced.
    Done { all: usize, announced: usize, before: Figures, end: Figures },
}

/// Makes a mount fetch all samples or those of a list, and waits for the end if `waits`. Calls `show` with the number
/// of samples and the statistics before and now.
pub(crate) fn warm_up(
    mount: &Mounted,
    list: Option<&List>,
    waits: bool,
    interrupt: &Interrupt,
    show: &mut dyn FnMut(usize, &Figures, &Figures),
) -> Result<Warmup, Failure> {
    let samples = match list {
        None => mount.all(interrupt)?,
        Some(list) => mount.listed(list, interrupt)?,
    };
    let Some(samples) = samples else { return Ok(Warmup::NotBegun) };
    let before = mount.figures()?;
    let mut show = |now: &Figures| show(samples.len(), &before, now);
    let order = if list.is_some() { Order::Given } else { Order::Any };
    let (all, mut looks) = (samples.len(), Looks::new(MAX_PAUSED_LOOKS));
    let announced = mount.announce((&samples, order), interrupt, &mut |now| {
        show(now);
        if looks.is_stuck(now) {
            return Wait::NoRoom;
        }
        std::thread::sleep(PAUSE);
        Wait::More
    })?;
    if announced < all && interrupt.requested() {
        return Ok(Warmup::Announcing(announced, all));
    }
    if !waits {
        return Ok(Warmup::Announced(announced, all));
    }
    let start = Instant::now();
    let pause = |is_full: bool| match is_full {
        true => PAUSE,
        false => (start.elapsed() / PAUSE_PART).clamp(MIN_PAUSE, PAUSE),
    };
    let end = watch(|| mount.figures(), || interrupt.requested(), show, pause)?;
    Ok(end.map_or(Warmup::Fetching, |end| Warmup::Done { all, announced, before, end }))
}

/// Counts consecutive looks that found no room, and no reader that made some.
struct Looks {
    full: u32,
    /// So many are waited for where there is a reader.
    paused: u32,
    used: u64,
}

impl Looks {
    fn new(paused: u32) -> Self {
        Self { full: 0, paused, used: 0 }
    }

    /// Whether nothing is under way and no reader has made room for so long that none will.
    fn is_stuck(&mut self, now: &Figures) -> bool {
        let is_read = std::mem::replace(&mut self.used, now.prefetch.used) != now.prefetch.used;
        self.full = if has_no_room(now) && !is_read { self.full + 1 } else { 0 };
        let most = if now.prefetch.used > 0 { self.paused } else { MAX_FULL_LOOKS };
        self.full > most && now.prefetch.in_flight == 0
    }
}

fn has_no_room(now: &Figures) -> bool {
    now.prefetch.is_full || now.prefetch.cache_is_full
}

/// Polls the statistics until nothing is left to fetch; `None` if the user interrupts it. `pause` hears whether there is no
/// room.
fn watch(
    mut look: impl FnMut() -> Result<Figures, Failure>,
    interrupted: impl Fn() -> bool,
    mut show: impl FnMut(&Figures),
    pause: impl Fn(bool) -> Duration,
) -> Result<Option<Figures>, Failure> {
    // What is announced is fetched as others are read, also when nobody waits here.
    let mut looks = Looks::new(MAX_FULL_LOOKS);
    loop {
        let now = look()?;
        show(&now);
        let is_stuck = looks.is_stuck(&now);
        if is_stuck || (now.prefetch.in_flight == 0 && now.prefetch.waiting == 0) {
            return Ok(Some(now));
        }
        if interrupted() {
            return Ok(None);
        }
        std::thread::sleep(pause(has_no_room(&now)));
    }
}

#[cfg(test)]
mod tests {
    use super::mounted::PrefetchFigures;
    use super::*;
    use crate::failure::Exit;
    use std::cell::Cell;

    const NO_PAUSE: fn(bool) -> Duration = |_| Duration::ZERO;

    fn figures(waiting: u64, in_flight: u64) -> Figures {
        let done = 10 - waiting - in_flight;
        let prefetch = PrefetchFigures { waiting, in_flight, done, ..PrefetchFigures::default() };
        Figures { prefetch, ..Figures::default() }
    }

    #[test]
    fn it_is_over_when_nothing_waits_and_nothing_is_under_way() {
        let mut states = [figures(9, 1), figures(0, 2), figures(1, 0), figures(0, 0)].into_iter();
        let shown = Cell::new(0);
        let show = |now: &Figures| shown.set(shown.get().max(now.prefetch.done));
        let look = || Ok(states.next().expect("it goes on when all is done"));
        let end = watch(look, || false, show, NO_PAUSE).unwrap();
        assert_eq!((end.unwrap().prefetch.done, shown.get()), (10, 10));
        assert!(states.next().is_none(), "it has ended too early");
    }

    #[test]
    fn it_is_over_when_there_is_no_room_and_that_stays_so() {
        let mut looks = 0u32;
        let look = || {
            looks += 1;
            let mut now = figures(5, 0);
            now.prefetch.is_full = looks != 3;
            Ok(now)
        };
        let end = watch(look, || false, |_| (), NO_PAUSE).unwrap();
        assert_eq!(end.unwrap().prefetch.waiting, 5);
        assert_eq!(looks, 3 + MAX_FULL_LOOKS + 1, "from the last time that there was room");
    }

    #[test]
    fn a_reader_that_pauses_is_waited_for_longer_than_one_that_there_never_was() {
        let looks = |used: &dyn Fn(u32) -> u64| {
            let (mut looks, mut now) = (Looks::new(MAX_PAUSED_LOOKS), figures(5, 0));
            now.prefetch.is_full = true;
            let mut stuck = (1..).filter(|&look| {
                now.prefetch.used = used(look);
                looks.is_stuck(&now)
            });
            stuck.next().unwrap()
        };
        assert_eq!(looks(&|_| 0), MAX_FULL_LOOKS + 1);
        assert_eq!(looks(&|_| 7), MAX_PAUSED_LOOKS + 2, "the first look shows that there is one");
        assert_eq!(looks(&|look| look.min(100).into()), 100 + MAX_PAUSED_LOOKS + 1);
    }

    #[test]
    fn an_interrupt_ends_the_watching_unless_all_is_done() {
        let look = || Ok(figures(5, 1));
        assert!(watch(look, || true, |_| (), NO_PAUSE).unwrap().is_none());
        assert!(watch(|| Ok(figures(0, 0)), || true, |_| (), NO_PAUSE).unwrap().is_some());
    }

    #[test]
    fn a_mount_that_goes_away_ends_it_with_an_error() {
        let gone = || Err(Failure::new(Exit::Mount, "gone"));
        assert_eq!(watch(gone, || false, |_| (), NO_PAUSE).unwrap_err().exit, Exit::Mount);
    }
}
