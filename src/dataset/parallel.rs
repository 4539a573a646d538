//! Runs the same work on many items, on several threads.

use crate::failure::Failure;
use crate::io::memory::heap;
use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, Scope};

/// As many threads as there are CPUs for this process.
pub(super) fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// As many threads as read files whole at a time: one where address space is limited, because each has memory of its own.
pub(super) fn readers() -> usize {
    if heap::is_limited().unwrap_or(false) { 1 } else { cpus() }
}

/// Starts so many threads with the same work. Where there can be no more threads, those that there are must do all of it.
///
/// # Errors
/// Not one can be started.
pub(crate) fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    threads: usize,
    work: &'scope (dyn Fn() + Sync),
) -> io::Result<()> {
    for number in 0..threads {
        // What is left of the address space is for buffers first, then for another thread.
        let room = if number == 0 { Ok(()) } else { heap::check_room_to_read() };
        match room.and_then(|()| Builder::new().spawn_scoped(scope, work)) {
            Ok(_) => {}
            Err(error) if number == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(())
}

/// Runs `work` on so many threads, of which this is one: if there can be no other, it does all of it.
pub(crate) fn on_threads(threads: usize, work: &(dyn Fn() + Sync)) {
    thread::scope(|scope| {
        let _ = start(scope, threads.saturating_sub(1), work);
        work();
    });
}

/// Does one thing here and the other one on a thread of its own; or after the first, where there can be no thread.
pub(super) fn both<A, B: Send>(here: impl FnOnce() -> A, there: &(dyn Fn() -> B + Sync)) -> (A, B) {
    thread::scope(|scope| {
        let other = Builder::new().spawn_scoped(scope, there);
        let done = here();
        match other {
            Ok(other) => (done, other.join().unwrap_or_else(|died| resume_unwind(died))),
            Err(_) => (done, there()),
        }
    })
}

/// The results of `work`, in the order of the items, on at most `threads` threads, of which this is one.
///
/// # Errors
/// The failure of the first item in order that fails; no more work is begun after a failure.
pub(super) fn map<T: Send, R: Send>(
    items: Vec<T>,
    threads: usize,
    work: &(dyn Fn(T) -> Result<R, Failure> + Sync),
) -> Result<Vec<R>, Failure> {
    let threads = threads.min(items.len());
    if threads <= 1 {
        return items.into_iter().map(work).collect();
    }
    let items: Vec<_> = items.into_iter().map(|item| Mutex::new((Some(item), None))).collect();
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None::<(usize, Failure)>));
    let run = || {
        while lock(&failure).is_none() {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = items.get(number) else { return };
            let Some(item) = lock(slot).0.take() else { continue };
            match work(item) {
                Ok(result) => lock(slot).1 = Some(result),
                // All items before this one are begun, and come to their end.
                Err(why) => {
                    let mut first = lock(&failure);
                    if first.as_ref().is_none_or(|(before, _)| number < *before) {
                        *first = Some((number, why));
                    }
                }
            }
        }
    };
    on_threads(threads, &run);
    match lock(&failure).take() {
        Some((_, failure)) => Err(failure),
        None => Ok(items.iter().filter_map(|slot| lock(slot).1.take()).collect()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn results_are_in_order_and_the_first_failure_ends_the_work() {
        let twice = map((0..100).collect(), 8, &|n: u32| Ok(n * 2)).unwrap();
        assert_eq!(twice, (0..200).step_by(2).collect::<Vec<_>>());
        let begun = AtomicUsize::new(0);
        let failed = map((0..100_000).collect(), 4, &|n: u32| {
            begun.fetch_add(1, Ordering::Relaxed);
            if n == 3 {
                return Err(Failure::usage("three"));
            }
            // Minutes for all the others, because the thread that fails may have to wait for a CPU before it says so.
            thread::sleep(Duration::from_millis(10));
            Ok(())
        });
        assert_eq!(failed.unwrap_err().to_string(), "three");
        assert!(begun.into_inner() < 100_000);
        assert!(map(Vec::new(), 4, &|n: u32| Ok(n)).unwrap().is_empty());
    }

    #[test]
    fn of_several_failures_the_first_in_order_counts_whichever_comes_first() {
        let both_have_begun = std::sync::Barrier::new(2);
        let failed = map(vec![1, 2], 2, &|n: u32| -> Result<(), Failure> {
            both_have_begun.wait();
            // The first item fails last.
            thread::sleep(Duration::from_millis(50 * u64::from(2 - n)));
            Err(Failure::usage(n))
        });
        assert_eq!(failed.unwrap_err().to_string(), "1");
    }
}
