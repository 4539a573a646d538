//! Runs the same work on many items, on several threads.

use crate::failure::Failure;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The results of `work`, in the order of the items, on at most `threads` threads.
///
/// # Errors
/// The first failure, after which no more work is begun.
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
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    let run = || {
        while lock(&failure).is_none()
            && let Some(slot) = items.get(next.fetch_add(1, Ordering::Relaxed))
        {
            let Some(item) = lock(slot).0.take() else { continue };
            match work(item) {
                Ok(result) => lock(slot).1 = Some(result),
                Err(why) => drop(lock(&failure).get_or_insert(why)),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(run);
        }
    });
    match lock(&failure).take() {
        Some(failure) => Err(failure),
        None => Ok(items.iter().filter_map(|slot| lock(slot).1.take()).collect()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_and_the_first_failure_ends_the_work() {
        let twice = map((0..100).collect(), 8, &|n: u32| Ok(n * 2)).unwrap();
        assert_eq!(twice, (0..200).step_by(2).collect::<Vec<_>>());
        let begun = AtomicUsize::new(0);
        let failed = map((0..100_000).collect(), 4, &|n: u32| {
            begun.fetch_add(1, Ordering::Relaxed);
            if n == 3 { Err(Failure::usage("three")) } else { Ok(()) }
        });
        assert_eq!(failed.unwrap_err().to_string(), "three");
        assert!(begun.into_inner() < 100_000);
        assert!(map(Vec::new(), 4, &|n: u32| Ok(n)).unwrap().is_empty());
    }
}
