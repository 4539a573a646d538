//! Reads that wait, and whose reader may be killed meanwhile: they end with EINTR, whatever they wait for.
//!
//! The kernel tells of a signal by INTERRUPT, which comes over /dev/fuse with either transport. A read that ended
//! with EINTR would surprise a program that only handles a signal (`SIGALRM`, `SIGPROF`), as reads of a disk do not end
//! so: the answer waits until the reader is about to die. INTERRUPT comes at most once for a request, and never for
//! `O_DIRECT`, so that readers of these two kinds are looked at now and then.
//!
//! Imports `threads` and `io`.

use super::threads;
use crate::io::process::procfs;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// The pause between two looks at the readers. A read is looked at from the second pause on.
const PAUSE: Duration = Duration::from_millis(40);
/// After this many pauses without a reader to look at, the thread sleeps.
const IDLE_PAUSES: u32 = 25;
/// How many interrupts of requests that do not wait, or do not wait yet, are remembered.
const MAX_EARLY: usize = 64;

/// A request that waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader {
    /// The thread that reads; 0 if it is not known.
    pub(super) pid: u32,
    /// The slot of the request, for the thread that answers it.
    pub(super) slot: usize,
    /// Whether the file was opened with O_DIRECT.
    pub(super) is_direct: bool,
}

/// The requests of one thread that wait, by the `unique` of their header.
pub(super) struct Waiting {
    table: Mutex<Table>,
    alarm: Arc<Alarm>,
}

#[derive(Default)]
struct Table {
    readers: HashMap<u64, Entry>,
    /// Interrupts that came before their request began to wait; most are of requests that were answered.
    early: VecDeque<u64>,
}

struct Entry {
    reader: Reader,
    was_interrupted: bool,
    /// Whether it waited already when the readers were last looked at.
    is_old: bool,
}

/// Wakes the thread that looks at readers.
#[derive(Default)]
struct Alarm {
    /// Whether the thread sleeps without a limit.
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Alarm {
    fn ring(&self) {
        if self.asleep.swap(false, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }
}

impl Waiting {
    /// Adds a request that waits from now on.
    pub(super) fn add(&self, unique: u64, reader: Reader) {
        let was_interrupted = {
            let mut table = self.lock();
            let was_interrupted = table.early.contains(&unique);
            table.readers.insert(unique, Entry { reader, was_interrupted, is_old: false });
            was_interrupted
        };
        if was_interrupted || reader.is_direct {
            self.alarm.ring();
        }
    }

    /// Removes a request. Returns whether it waited: only then it is still to be answered.
    pub(super) fn remove(&self, unique: u64) -> bool {
        self.lock().readers.remove(&unique).is_some()
    }

    /// Whether a request still waits.
    pub(super) fn has(&self, unique: u64) -> bool {
        self.lock().readers.contains_key(&unique)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an interrupt; returns the reader if the request waits.
    fn note_interrupt(&self, unique: u64) -> Option<Reader> {
        let mut table = self.lock();
        if let Some(entry) = table.readers.get_mut(&unique) {
            entry.was_interrupted = true;
            return Some(entry.reader);
        }
        if table.early.len() == MAX_EARLY {
            table.early.pop_front();
        }
        table.early.push_back(unique);
        None
    }

    /// Adds the requests whose readers are to be looked at now, or `all` requests, each with whether it was interrupted.
    /// Returns how many are to be looked at sooner or later: most reads are answered before the next look.
    fn suspects(&self, all: bool, suspects: &mut Vec<(u64, Reader, bool)>) -> usize {
        let mut count = 0;
        for (unique, entry) in &mut self.lock().readers {
            if all || entry.was_interrupted || entry.reader.is_direct {
                count += 1;
                if std::mem::replace(&mut entry.is_old, true) || entry.was_interrupted || all {
                    suspects.push((*unique, entry.reader, entry.was_interrupted));
                }
            }
        }
        count
    }
}

/// Answers the requests that wait in one place.
pub(super) trait Interruptible: Send + Sync {
    /// The requests that wait.
    fn waiting(&self) -> &Waiting;

    /// Answers a request that waits with EINTR; if that is not possible yet, it is called again.
    fn interrupt(&self, unique: u64, reader: &Reader);
}

/// All requests of a mount that wait.
pub(super) struct Interrupts {
    places: Mutex<Vec<Arc<dyn Interruptible>>>,
    alarm: Arc<Alarm>,
    /// Whether the mount has ended: no reader waits for an answer any more.
    is_over: AtomicBool,
    has_ended: AtomicBool,
}

/// Ends the thread that looks at readers when it is dropped, with the mount.
pub(super) struct Lookout(Arc<Interrupts>);

impl Lookout {
    /// How many requests wait.
    pub(super) fn waiting(&self) -> usize {
        self.0.lock().iter().map(|place| place.waiting().lock().readers.len()).sum()
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Interrupts {
    /// Starts the thread that looks at readers.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start() -> io::Result<(Arc<Self>, Lookout)> {
        let alarm = Arc::new(Alarm::default());
        let (places, is_over, has_ended) =
            (Mutex::default(), AtomicBool::new(false), AtomicBool::new(false));
        let this = Arc::new(Self { places, alarm, is_over, has_ended });
        let looking = Arc::clone(&this);
        let thread = threads::spawn("ffrfs-killed", move || looking.look())?;
        let _ = this.alarm.thread.set(thread.thread().clone());
        let lookout = Lookout(Arc::clone(&this));
        Ok((this, lookout))
    }

    /// A table for the requests of one thread.
    pub(super) fn table(&self) -> Waiting {
        Waiting { table: Mutex::default(), alarm: Arc::clone(&self.alarm) }
    }

    /// Has requests that wait in `place` be interrupted from now on.
    pub(super) fn watch(&self, place: Arc<dyn Interruptible>) {
        self.lock().push(place);
    }

    /// Handles an INTERRUPT for a request.
    pub(super) fn interrupt(&self, unique: u64) {
        for place in &*self.lock() {
            if let Some(reader) = place.waiting().note_interrupt(unique) {
                self.alarm.ring();
                // A reader that cannot be looked at, such as a process of another container, is believed to be dying.
                if procfs::is_dying(reader.pid) != Some(false) {
                    place.interrupt(unique, &reader);
                }
            }
        }
    }

    /// Interrupts all requests, as the mount has ended, also requests that begin to wait from now on. Their bytes may never
    /// come, and the threads that serve the requests wait for them.
    pub(super) fn interrupt_all(&self) {
        {
            // As in `add`: the thread that looks sees the flag, or is awake.
            let _places = self.lock();
            self.is_over.store(true, Ordering::Relaxed);
        }
        self.alarm.ring();
    }

    fn stop(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.alarm.asleep.store(true, Ordering::Release);
        self.alarm.ring();
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<dyn Interruptible>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self) {
        let mut suspects = Vec::new();
        let mut idle = 0;
        while !self.has_ended.load(Ordering::Relaxed) {
            idle = if self.look_once(&mut suspects) == 0 { idle + 1 } else { 0 };
            if idle < IDLE_PAUSES || self.is_over.load(Ordering::Relaxed) {
                std::thread::park_timeout(PAUSE);
                continue;
            }
            self.alarm.asleep.store(true, Ordering::Release);
            // A request that was added before has not rung the alarm.
            if self.look_once(&mut suspects) == 0 && !self.has_ended.load(Ordering::Relaxed) {
                std::thread::park();
            }
            self.alarm.asleep.store(false, Ordering::Release);
            idle = 0;
        }
    }

    /// Answers the requests whose readers are dying, or all once the mount has ended; returns how many readers are to be looked
    /// at.
    fn look_once(&self, suspects: &mut Vec<(u64, Reader, bool)>) -> usize {
        let mut count = 0;
        let places = self.lock();
        let is_over = self.is_over.load(Ordering::Relaxed);
        for place in &*places {
            count += place.waiting().suspects(is_over, suspects);
            for (unique, reader, was_interrupted) in suspects.drain(..) {
                if is_over || procfs::is_dying(reader.pid).unwrap_or(was_interrupted) {
                    place.interrupt(unique, &reader);
                }
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc;

    /// Where requests wait; those that are interrupted are sent.
    struct Place {
        waiting: Waiting,
        interrupted: mpsc::SyncSender<u64>,
    }

    impl Interruptible for Place {
        fn waiting(&self) -> &Waiting {
            &self.waiting
        }

        fn interrupt(&self, unique: u64, _: &Reader) {
            if self.waiting.remove(unique) {
                self.interrupted.send(unique).unwrap();
            }
        }
    }

    fn place() -> (Arc<Interrupts>, Lookout, Arc<Place>, mpsc::Receiver<u64>) {
        let (interrupts, lookout) = Interrupts::start().unwrap();
        let (interrupted, receive) = mpsc::sync_channel(10);
        let place = Arc::new(Place { waiting: interrupts.table(), interrupted });
        interrupts.watch(Arc::clone(&place) as Arc<dyn Interruptible>);
        (interrupts, lookout, place, receive)
    }

    fn sleeper() -> Child {
        Command::new("sleep").arg("100").stdin(Stdio::null()).spawn().unwrap()
    }

    /// A process that has died, but is not gone yet, has no memory: it counts as dying.
    fn kill(sleeper: &mut Child) {
        sleeper.kill().unwrap();
    }

    fn reader(pid: u32, is_direct: bool) -> Reader {
        Reader { pid, slot: 0, is_direct }
    }

    const AT_ONCE: Duration = Duration::from_millis(300);
    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn a_direct_reader_is_looked_at_until_it_dies() {
        let (_interrupts, _lookout, place, interrupted) = place();
        let mut dying = sleeper();
        place.waiting.add(1, reader(dying.id(), true));
        place.waiting.add(2, reader(std::process::id(), true));
        place.waiting.add(3, reader(dying.id(), false));
        assert!(interrupted.recv_timeout(AT_ONCE).is_err(), "nobody dies");
        kill(&mut dying);
        assert_eq!(interrupted.recv_timeout(LIMIT), Ok(1));
        assert!(interrupted.recv_timeout(AT_ONCE).is_err(), "the others are not interrupted");
        assert!(place.waiting.remove(2) && place.waiting.remove(3) && !place.waiting.remove(1));
        dying.wait().unwrap();
    }

    #[test]
    fn an_interrupted_reader_is_left_alone_until_it_dies() {
        let (interrupts, _lookout, place, interrupted) = place();
        let mut dying = sleeper();
        place.waiting.add(1, reader(dying.id(), false));
        interrupts.interrupt(1);
        // This one comes before its request begins to wait.
        interrupts.interrupt(2);
        place.waiting.add(2, reader(dying.id(), false));
        assert!(interrupted.recv_timeout(AT_ONCE).is_err(), "it may handle the signal");
        kill(&mut dying);
        let mut both = [0; 2].map(|_| interrupted.recv_timeout(LIMIT).unwrap());
        both.sort_unstable();
        assert_eq!(both, [1, 2]);
        dying.wait().unwrap();
    }

    #[test]
    fn an_interrupted_reader_that_cannot_be_seen_is_believed_to_die() {
        let (interrupts, _lookout, place, interrupted) = place();
        place.waiting.add(1, reader(0, true));
        assert!(interrupted.recv_timeout(AT_ONCE).is_err(), "it was not interrupted");
        interrupts.interrupt(1);
        assert_eq!(interrupted.recv_timeout(LIMIT), Ok(1));
    }

    #[test]
    fn once_the_mount_has_ended_all_requests_are_interrupted_and_those_that_wait_then() {
        let (interrupts, _lookout, place, interrupted) = place();
        // The thread that looks at readers sleeps.
        std::thread::sleep(PAUSE * (IDLE_PAUSES + 5));
        place.waiting.add(1, reader(std::process::id(), false));
        assert!(interrupted.recv_timeout(AT_ONCE).is_err(), "nobody dies");
        interrupts.interrupt_all();
        assert_eq!(interrupted.recv_timeout(LIMIT), Ok(1));
        place.waiting.add(2, reader(std::process::id(), false));
        assert_eq!(interrupted.recv_timeout(LIMIT), Ok(2));
    }

    #[test]
    fn interrupts_of_requests_that_never_wait_are_forgotten() {
        let (interrupts, _lookout, place, interrupted) = place();
        for unique in 0..1000 {
            interrupts.interrupt(unique);
        }
        assert!(place.waiting.lock().early.len() <= MAX_EARLY);
        place.waiting.add(999, reader(0, false));
        assert_eq!(interrupted.recv_timeout(LIMIT), Ok(999));
    }
}
