//! One thread takes all requests from /dev/fuse while a single program reads.
//!
//! The kernel wakes a thread for each request. A program that reads alone waits for each answer, and much of its time goes
//! into these wake-ups, most of all where they wake an idle CPU. So one thread, the soloist, polls for a short time before it
//! sleeps. The other threads rest meanwhile, as the kernel would wake those that wait in it. They come back as soon as
//! another program sends requests, or the soloist works on one request for long. So the soloist may read from the disk
//! itself: no program makes a request meanwhile, and another thread would have to be woken. Imports `connection` and `wire`.
//!
//! The soloist is not pinned to the program's CPU, where it would cost the least: the scheduler then moves the program to
//! the idle CPU within some thousand requests.

use super::connection::Device;
use super::wire::op;
use crate::io::spin::Spin;
use nix::poll::PollTimeout;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A thread begins a solo after this many requests of one program in a row.
const FIRST_STREAK: u32 = 32;
/// After a solo that was of no use, the next one takes this many times the requests.
const STREAK_GROWTH: u32 = 4;
const MAX_STREAK: u32 = 1 << 20;
/// A solo of this many requests was of use, however it ended.
const USEFUL: u64 = 2048;
/// A solo ends if some thread has not come to rest after this many requests.
const MAX_GATHERING: u64 = 1024;
/// The weight of a request of another program, in requests of the one that reads, and the weight at which a solo ends.
const STRANGER: u32 = 8;
const MAX_STRANGERS: u32 = 4 * STRANGER;
/// A program that sends this many requests before the answers, one after the other, is served faster by several threads.
const MAX_QUEUED: u32 = 64;
/// How long a soloist waits for a request in milliseconds, before all threads wait in the kernel.
const IDLE_MILLISECONDS: u16 = 200;
/// How long the other requests wait at most for a soloist that works on one.
const PATIENCE: Duration = Duration::from_millis(4);
/// This many times [`PATIENCE`] without a request end a solo, too.
const IDLE_LOOKS: u32 = 100;
/// If polling takes this long, other programs want the CPU, and this thread must not poll on.
const CROWDED: Duration = Duration::from_millis(1);

/// Whether one thread takes all requests of a connection.
pub(super) struct Solo {
    threads: usize,
    /// The number of the solo; 0 without a solo.
    current: AtomicU64,
    /// How many requests of one program in a row begin a solo.
    streak: AtomicU32,
    /// Another number for each request that the soloist takes; odd while it works on it.
    progress: AtomicU64,
    rest: Mutex<Rest>,
    ended: Condvar,
}

/// The threads that rest.
#[derive(Default)]
struct Rest {
    resting: usize,
    /// How many solos have begun.
    solos: u64,
    /// Whether one of them looks after the soloist.
    has_guard: bool,
}

impl Solo {
    /// The state of a connection whose requests `threads` threads take.
    pub(super) fn new(threads: usize) -> Self {
        Self {
            threads,
            current: AtomicU64::new(0),
            streak: AtomicU32::new(FIRST_STREAK),
            progress: AtomicU64::new(0),
            rest: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> u64 {
        self.current.load(Ordering::Relaxed)
    }

    /// Begins a solo, and returns its number; `None` if there is a solo, or no other thread.
    fn begin(&self) -> Option<u64> {
        let mut rest = self.lock();
        if self.threads < 2 || self.current() != 0 {
            return None;
        }
        rest.solos += 1;
        self.current.store(rest.solos, Ordering::Relaxed);
        Some(rest.solos)
    }

    /// Ends a solo, if it has not ended.
    fn end(&self, number: u64) {
        let _rest = self.lock();
        if self.current() == number {
            self.current.store(0, Ordering::Relaxed);
            self.ended.notify_all();
        }
    }

    /// Waits until there is no solo.
    fn rest(&self, is_over: &AtomicBool) {
        let mut rest = self.lock();
        rest.resting += 1;
        let mut guard = None;
        while self.current() != 0 {
            if !rest.has_guard {
                rest.has_guard = true;
                guard = Some(Guard::default());
            }
            let Some(guard) = &mut guard else {
                rest = self.ended.wait(rest).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let progress = self.progress.load(Ordering::Relaxed);
            if is_over.load(Ordering::Relaxed) || guard.ends_solo(progress) {
                self.current.store(0, Ordering::Relaxed);
                self.ended.notify_all();
                break;
            }
            let waited = self.ended.wait_timeout(rest, PATIENCE);
            rest = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        rest.resting -= 1;
        rest.has_guard &= guard.is_none();
    }

    fn all_rest(&self) -> bool {
        self.lock().resting + 1 >= self.threads
    }
}

/// Looks after the soloist, every [`PATIENCE`].
#[derive(Default)]
struct Guard {
    progress: u64,
    /// How often `progress` was the same in a row.
    looks: u32,
}

impl Guard {
    /// Whether the soloist works on one request for long, or gets no request.
    fn ends_solo(&mut self, progress: u64) -> bool {
        let is_same = self.progress == progress;
        self.looks = if is_same { self.looks + 1 } else { 0 };
        self.progress = progress;
        let works = progress % 2 == 1;
        self.looks >= if works { 1 } else { IDLE_LOOKS }
    }
}

/// A thread that takes requests.
pub(super) struct Taker<'a> {
    solo: &'a Solo,
    /// The program that has sent the last request, and how many it has sent in a row.
    program: u32,
    streak: u32,
    own: Option<Own>,
}

/// A solo of this thread.
struct Own {
    number: u64,
    /// Whether all other threads rest.
    is_alone: bool,
    requests: u64,
    /// The weight of other programs' requests.
    strangers: u32,
    /// Requests in a row that waited already when this thread had answered the one before.
    queued: u32,
    spin: Spin,
}

/// Why a soloist stops.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    /// No request comes.
    Idle,
    /// The solo is of no use.
    Useless,
}

impl<'a> Taker<'a> {
    pub(super) fn new(solo: &'a Solo) -> Self {
        Self { solo, program: 0, streak: 0, own: None }
    }

    /// Waits until this thread may read a request, at once if there is no solo. `is_over`: the thread is to take no more
    /// requests.
    pub(super) fn wait(&mut self, device: &Device, is_over: &AtomicBool) {
        if let Some(own) = &mut self.own {
            match own.wait(self.solo, device) {
                Ok(()) => return,
                Err(why) => self.stop(&why),
            }
        }
        while self.solo.current() != 0 && !is_over.load(Ordering::Relaxed) {
            self.solo.rest(is_over);
        }
    }

    /// Notes a request that this thread has taken. `program` is 0 for requests that come for no program, and for those of
    /// programs that cannot be told apart, in other PID namespaces.
    pub(super) fn took(&mut self, opcode: u32, program: u32) {
        let is_same = match program {
            0 => has_no_program(opcode),
            program => program == self.program,
        };
        if let Some(own) = &mut self.own {
            return own.took(self.solo, is_same);
        }
        (self.program, self.streak) = match is_same {
            true => (self.program, self.streak.saturating_add(1)),
            false => (program, u32::from(program != 0)),
        };
        if self.streak >= self.solo.streak.load(Ordering::Relaxed) {
            self.streak = 0;
            self.own = self.solo.begin().map(Own::new);
            if let Some(own) = &mut self.own {
                own.took(self.solo, true);
            }
        }
    }

    /// Whether the other threads rest, so that this one may wait for a disk: a solo ends if the wait takes long.
    pub(super) fn is_alone(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.is_alone)
    }

    fn stop(&mut self, why: &Stop) {
        let Some(own) = self.own.take() else { return };
        let streak = match self.solo.streak.load(Ordering::Relaxed) {
            _ if own.requests >= USEFUL => FIRST_STREAK,
            streak if *why == Stop::Idle => streak,
            streak => streak.saturating_mul(STREAK_GROWTH).min(MAX_STREAK),
        };
        self.solo.streak.store(streak, Ordering::Relaxed);
        self.solo.end(own.number);
    }
}

/// Whether the kernel sends requests of this kind for no program.
fn has_no_program(opcode: u32) -> bool {
    matches!(opcode, op::FORGET | op::BATCH_FORGET | op::INTERRUPT | op::RELEASE | op::RELEASEDIR)
}

impl Drop for Taker<'_> {
    fn drop(&mut self) {
        self.stop(&Stop::Idle);
    }
}

impl Own {
    fn new(number: u64) -> Self {
        Self {
            number,
            is_alone: false,
            requests: 0,
            strangers: 0,
            queued: 0,
            spin: Spin::default(),
        }
    }

    fn took(&mut self, solo: &Solo, is_same: bool) {
        self.requests += 1;
        self.strangers = match is_same {
            true => self.strangers.saturating_sub(1),
            false => self.strangers + STRANGER,
        };
        solo.progress.store(self.progress() | 1, Ordering::Relaxed);
    }

    /// A number that differs from request to request, and from solo to solo.
    fn progress(&self) -> u64 {
        self.number << 40 | self.requests << 1
    }

    fn wait(&mut self, solo: &Solo, device: &Device) -> Result<(), Stop> {
        if solo.current() != self.number || self.strangers >= MAX_STRANGERS {
            return Err(Stop::Useless);
        }
        solo.progress.store(self.progress(), Ordering::Relaxed);
        if !self.is_alone {
            // The kernel wakes threads in turn: each of the others will take a request, and then rest.
            self.is_alone = solo.all_rest();
            return if self.requests < MAX_GATHERING { Ok(()) } else { Err(Stop::Useless) };
        }
        self.queued = if device.has_request(PollTimeout::ZERO) { self.queued + 1 } else { 0 };
        if self.queued >= MAX_QUEUED {
            return Err(Stop::Useless);
        }
        if self.queued > 0 {
            return Ok(());
        }
        if self.spin.is_worthwhile() {
            let start = Instant::now();
            let found = self.spin.until(|| device.has_request(PollTimeout::ZERO));
            if start.elapsed() >= CROWDED {
                return Err(Stop::Useless);
            }
            if found {
                return Ok(());
            }
        }
        match device.has_request(PollTimeout::from(IDLE_MILLISECONDS)) {
            true => Ok(()),
            false => Err(Stop::Idle),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread::{JoinHandle, sleep, spawn};

    const READER: u32 = 7;
    const OTHER: u32 = 8;
    static GOES_ON: AtomicBool = AtomicBool::new(false);

    /// A thread that takes requests, none of which come.
    fn rests(solo: &Arc<Solo>) -> JoinHandle<()> {
        let resting = Arc::clone(solo);
        let thread = spawn(move || Taker::new(&resting).wait(&nothing(), &GOES_ON));
        until_all_rest(solo);
        thread
    }

    /// On a busy host the guard may have ended the solo by then, as the soloist seems to work for long.
    fn until_all_rest(solo: &Solo) {
        while !solo.all_rest() && solo.current() != 0 {
            sleep(Duration::from_millis(1));
        }
    }

    /// A descriptor from which no request comes.
    fn nothing() -> Device {
        Device::new(nix::sys::eventfd::EventFd::new().unwrap().into())
    }

    /// A descriptor on which a request waits.
    fn request() -> Device {
        let event = nix::sys::eventfd::EventFd::new().unwrap();
        event.write(1).unwrap();
        Device::new(event.into())
    }

    fn soloist(solo: &Solo) -> Taker<'_> {
        let mut taker = Taker::new(solo);
        (0..FIRST_STREAK).for_each(|_| taker.took(op::READ, READER));
        assert_ne!(solo.current(), 0);
        taker
    }

    #[test]
    fn many_requests_of_one_program_begin_a_solo_and_those_of_two_do_not() {
        let solo = Solo::new(2);
        let mut taker = Taker::new(&solo);
        for _ in 0..1000 {
            taker.took(op::READ, READER);
            taker.took(op::READ, OTHER);
        }
        assert_eq!(solo.current(), 0);
        // Requests for no program are between those of one.
        for _ in 0..FIRST_STREAK {
            taker.took(op::READ, READER);
            taker.took(op::FORGET, 0);
        }
        assert_ne!(solo.current(), 0);
        drop(taker);
        assert_eq!(solo.current(), 0);
    }

    #[test]
    fn a_soloist_is_alone_once_all_others_rest() {
        let solo = Arc::new(Solo::new(2));
        let mut taker = soloist(&solo);
        assert!(!taker.is_alone());
        let resting = rests(&solo);
        taker.wait(&request(), &GOES_ON);
        // On a busy host the guard may have ended the solo by then.
        assert!(taker.is_alone() || solo.current() == 0);
        drop(taker);
        resting.join().unwrap();
    }

    #[test]
    fn programs_of_other_namespaces_begin_no_solo() {
        let solo = Solo::new(2);
        let mut taker = Taker::new(&solo);
        (0..1000).for_each(|_| taker.took(op::READ, 0));
        assert_eq!(solo.current(), 0);
    }

    #[test]
    fn the_only_thread_has_nobody_to_rest() {
        let solo = Solo::new(1);
        let mut taker = Taker::new(&solo);
        (0..1000).for_each(|_| taker.took(op::READ, READER));
        assert_eq!(solo.current(), 0);
    }

    #[test]
    fn another_program_ends_a_solo_and_the_next_one_begins_later() {
        let solo = Arc::new(Solo::new(2));
        let mut taker = soloist(&solo);
        let resting = rests(&solo);
        let device = request();
        taker.wait(&device, &GOES_ON);
        for _ in 0..MAX_STRANGERS / STRANGER {
            taker.took(op::READ, OTHER);
        }
        taker.wait(&device, &GOES_ON);
        assert_eq!(solo.current(), 0);
        resting.join().unwrap();
        (0..FIRST_STREAK * STREAK_GROWTH - 1).for_each(|_| taker.took(op::READ, READER));
        assert_eq!(solo.current(), 0);
        (0..2).for_each(|_| taker.took(op::READ, READER));
        assert_ne!(solo.current(), 0);
    }

    #[test]
    fn a_soloist_without_requests_ends_its_solo() {
        let solo = Arc::new(Solo::new(2));
        let mut taker = soloist(&solo);
        let resting = rests(&solo);
        taker.wait(&nothing(), &GOES_ON);
        taker.wait(&nothing(), &GOES_ON);
        assert_eq!(solo.current(), 0);
        resting.join().unwrap();
    }

    #[test]
    fn the_others_come_back_while_the_soloist_works_on_one_request() {
        let solo = Arc::new(Solo::new(3));
        let mut taker = soloist(&solo);
        let threads = [(); 2].map(|()| {
            let solo = Arc::clone(&solo);
            spawn(move || Taker::new(&solo).wait(&nothing(), &GOES_ON))
        });
        // It has taken a request, and does not come back for another.
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(solo.current(), 0);
        taker.wait(&nothing(), &GOES_ON);
        assert!(taker.own.is_none());
    }

    #[test]
    fn threads_that_are_to_leave_do_not_rest() {
        let solo = Arc::new(Solo::new(2));
        let mut taker = soloist(&solo);
        let is_over = Arc::new(AtomicBool::new(false));
        let (other, over) = (Arc::clone(&solo), Arc::clone(&is_over));
        let thread = spawn(move || Taker::new(&other).wait(&nothing(), &over));
        until_all_rest(&solo);
        // The soloist waits for a request: the guard does not end the solo for its sake.
        taker.wait(&request(), &GOES_ON);
        is_over.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        assert_eq!(solo.current(), 0);
    }

    #[test]
    fn a_guard_knows_a_soloist_that_works_from_one_that_waits() {
        let mut guard = Guard::default();
        assert!(!guard.ends_solo(1));
        assert!(!guard.ends_solo(3));
        assert!(guard.ends_solo(3));
        let mut guard = Guard::default();
        assert!(!guard.ends_solo(2));
        assert!((1..IDLE_LOOKS).all(|_| !guard.ends_solo(2)));
        assert!(guard.ends_solo(2));
    }
}
