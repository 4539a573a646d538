//! Counts the reads of files in which holes may be punched, so that no hole appears under a read. Imports nothing of
//! ours.
//!
//! A read first counts itself, then looks whether its bytes are present. Before a hole is punched, the bytes are marked
//! absent, and then all reads that were counted before are waited for. All files of the process share the counters, so
//! that a read costs the same with many files, and a punch waits for reads of other files, too.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The number of threads that count without sharing a cache line.
const STRIPES: usize = 16;
/// The first and the longest pause between two looks at a counter.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// The counters of some threads: reads that began in an even phase, and in an odd one.
#[repr(align(128))]
struct Stripe([AtomicU64; 2]);

static COUNTS: [Stripe; STRIPES] =
    [const { Stripe([AtomicU64::new(0), AtomicU64::new(0)]) }; STRIPES];
/// New reads count in the counter of the current phase, so that the reads of the phase before come to an end.
static PHASE: AtomicUsize = AtomicUsize::new(0);
static WAITER: Mutex<()> = Mutex::new(());

/// A read that is under way until the value is dropped.
pub struct Reading(&'static AtomicU64);

impl Reading {
    /// Counts a read. Call this before looking whether the bytes are present.
    #[must_use]
    pub fn begin() -> Self {
        let count = &COUNTS[stripe()].0[PHASE.load(Ordering::Relaxed) & 1];
        // Pairs with the exchange in `is_idle`: a read that the exchange has not seen sees the bytes that were marked absent
        // before.
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Waits until all reads have ended that began before this call, at most for `timeout`; tells whether they have.
#[must_use]
pub fn wait_for_readings(timeout: Duration) -> bool {
    let _alone = WAITER.lock().unwrap_or_else(PoisonError::into_inner);
    let deadline = Instant::now() + timeout;
    // A read may count itself in a phase that has just passed, so both counters are waited for.
    (0..2).all(|_| {
        let passed = PHASE.fetch_xor(1, Ordering::AcqRel) & 1;
        COUNTS.iter().all(|stripe| wait_for(&stripe.0[passed], deadline))
    })
}

fn wait_for(count: &AtomicU64, deadline: Instant) -> bool {
    let mut pause = FIRST_PAUSE;
    while !is_idle(count) {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    true
}

/// Whether a counter is zero. An exchange and no load: it comes before or after each `begin` in the counter's order.
fn is_idle(count: &AtomicU64) -> bool {
    count.compare_exchange(0, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// The stripe of this thread.
fn stripe() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) });
    STRIPE.with(|stripe| {
        if stripe.get() == usize::MAX {
            stripe.set(THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        stripe.get()
    })
}

/// A value that is kept alive as long as a read of a file is under way.
pub enum Kept {
    /// No value.
    Nothing,
    /// The count of the read.
    Reading(Reading),
    /// Another value.
    Value(Box<dyn Send>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_wait_ends_with_the_reads_before_it_and_not_with_later_ones() {
        let (first, stop) = (Reading::begin(), Arc::new(AtomicBool::new(false)));
        assert!(!wait_for_readings(Duration::from_millis(5)));
        let later: Vec<_> = (0..4)
            .map(|_| {
                let stop = Arc::clone(&stop);
                // At any time one of two reads is under way.
                thread::spawn(move || {
                    let mut reading = Reading::begin();
                    while !stop.load(Ordering::Relaxed) {
                        let next = Reading::begin();
                        thread::sleep(Duration::from_micros(50));
                        reading = next;
                    }
                    drop(reading);
                })
            })
            .collect();
        assert!(!wait_for_readings(Duration::from_millis(20)), "the first read has not ended");
        // A read may end on another thread.
        thread::spawn(move || drop(first)).join().unwrap();
        assert!(wait_for_readings(Duration::from_secs(60)));
        stop.store(true, Ordering::Relaxed);
        later.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn no_read_that_saw_its_bytes_meets_the_hole() {
        let present: Arc<[AtomicBool; 4]> = Arc::new([const { AtomicBool::new(true) }; 4]);
        let bytes: Arc<[AtomicU64; 4]> = Arc::new([const { AtomicU64::new(7) }; 4]);
        let stop = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..4)
            .map(|reader: usize| {
                let (present, bytes, stop) = (present.clone(), bytes.clone(), stop.clone());
                thread::spawn(move || {
                    let mut at = reader;
                    while !stop.load(Ordering::Relaxed) {
                        at = (at + 1) % 4;
                        let _reading = Reading::begin();
                        if present[at].load(Ordering::Acquire) {
                            thread::yield_now();
                            assert_eq!(bytes[at].load(Ordering::Relaxed), 7, "a hole under a read");
                        }
                    }
                })
            })
            .collect();
        for round in 0..2000 {
            let at = round % 4;
            present[at].store(false, Ordering::Release);
            assert!(wait_for_readings(Duration::from_secs(60)));
            bytes[at].store(0, Ordering::Relaxed);
            bytes[at].store(7, Ordering::Relaxed);
            present[at].store(true, Ordering::Release);
        }
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
