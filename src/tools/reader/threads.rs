//! Runs work on several threads, with results in any order or in the order of the items.
//!
//! Imports nothing of this directory.

use crate::dataset::{on_threads, start};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::num::NonZeroU16;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// The number of threads: that of the CPUs, unless the user sets it.
pub(crate) fn thread_count(wanted: Option<NonZeroU16>) -> usize {
    let cpus = || thread::available_parallelism().map_or(1, usize::from);
    wanted.map_or_else(cpus, |jobs| usize::from(jobs.get()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` on all items of `next`, on `threads` threads with a state each, of which this is one, in no order.
///
/// # Errors
/// The first failure of `next` or `work`, after which no more work is begun.
pub(crate) fn for_each<T, S: Default>(
    threads: usize,
    interrupt: &Interrupt,
    next: &(dyn Fn() -> Result<Option<T>, Failure> + Sync),
    work: &(dyn Fn(T, &mut S) -> Result<(), Failure> + Sync),
) -> Result<(), Failure> {
    let failed: Mutex<Option<Failure>> = Mutex::new(None);
    let run = || {
        let mut state = S::default();
        while !interrupt.requested() && lock(&failed).is_none() {
            let done = match next() {
                Ok(Some(item)) => work(item, &mut state),
                Ok(None) => return,
                Err(failure) => Err(failure),
            };
            if let Err(failure) = done {
                lock(&failed).get_or_insert(failure);
            }
        }
    };
    on_threads(threads, &run);
    let failure = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failure.map_or(Ok(()), Err)
}

/// The work of the threads of [`in_order`].
pub(crate) struct OrderedWork<'a, T, M, S> {
    pub(crate) threads: usize,
    /// How many items may wait for the consumer. On a busy machine threads should not have to wait for each other at
    /// each item.
    pub(crate) ahead: usize,
    /// How many messages of an item may wait.
    pub(crate) messages: usize,
    /// Sends the messages of an item; returns false if the receiver is gone.
    pub(crate) work: &'a (dyn Fn(T, &mut S, &Sender<M>) -> bool + Sync),
}

/// Runs work on all items of `next`, on several threads; `consume` gets a receiver for each item, in order. When the
/// user interrupts the work, no more items come. Where there can be no more threads, those that there are do the work.
///
/// # Errors
/// Not one thread can be started.
pub(crate) fn in_order<T, M: Send, S: Default, R>(
    how: &OrderedWork<T, M, S>,
    interrupt: &Interrupt,
    next: &mut (dyn FnMut() -> Option<T> + Send),
    consume: impl FnOnce(&Receiver<Receiver<M>>) -> R,
) -> Result<R, Failure> {
    let (sender, receiver) = bounded(how.ahead);
    let queue = Mutex::new(Queue { next, sender: Some(sender), interrupt });
    let work = || {
        let _ended = Ended(&queue);
        let mut state = S::default();
        while let Some((item, messages)) = lock(&queue).take(how.messages) {
            if !(how.work)(item, &mut state, &messages) {
                return;
            }
        }
    };
    thread::scope(|scope| {
        start(scope, how.threads, &work).map_err(Failure::no_thread)?;
        let consumed = consume(&receiver);
        // Drops the remaining receivers, so that no thread waits to send to them: each ends at its next send.
        receiver.iter().for_each(drop);
        Ok(consumed)
    })
}

/// The source of the threads' items.
struct Queue<'a, T, M> {
    next: &'a mut (dyn FnMut() -> Option<T> + Send),
    /// Receivers in the order of the items; `None` when there are no more items.
    sender: Option<Sender<Receiver<M>>>,
    interrupt: &'a Interrupt,
}

impl<T, M> Queue<'_, T, M> {
    /// The next item, and the sender for its messages. The caller holds the lock, so that receivers are queued in
    /// order.
    fn take(&mut self, messages: usize) -> Option<(T, Sender<M>)> {
        if self.interrupt.requested() {
            return None;
        }
        let order = self.sender.as_ref()?;
        let item = (self.next)()?;
        let (sender, receiver) = bounded(messages);
        order.send(receiver).ok()?;
        Some((item, sender))
    }
}

/// Ends the queue when one thread ends, because no items are left or the receiver is gone.
struct Ended<'a, 'b, T, M>(&'a Mutex<Queue<'b, T, M>>);

impl<T, M> Drop for Ended<'_, '_, T, M> {
    fn drop(&mut self) {
        lock(self.0).sender = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Each number of 0..items, twice, as `consume` gets it.
    fn doubled<R>(
        threads: usize,
        items: u64,
        consume: impl FnOnce(&Receiver<Receiver<u64>>) -> R,
    ) -> R {
        let mut numbers = 0..items;
        let work = |number: u64, _: &mut (), messages: &Sender<u64>| {
            (0..2).all(|_| messages.send(number).is_ok())
        };
        let how = OrderedWork { threads, ahead: 3, messages: 1, work: &work };
        in_order(&how, &Interrupt::default(), &mut || numbers.next(), consume).unwrap()
    }

    #[test]
    fn results_come_in_order_whatever_the_number_of_threads() {
        for threads in [1, 2, 7] {
            let all: Vec<u64> =
                doubled(threads, 200, |receiver| receiver.iter().flatten().collect());
            assert!(all.iter().copied().eq((0..200).flat_map(|n| [n, n])), "{threads} threads");
        }
        assert_eq!(doubled(2, 0, |receiver| receiver.iter().count()), 0);
    }

    #[test]
    fn a_consumer_that_has_enough_ends_the_work() {
        let first = doubled(4, u64::MAX, |receiver| receiver.recv().unwrap().recv().unwrap());
        assert_eq!(first, 0);
    }

    #[test]
    fn the_first_failure_ends_the_work_and_is_given() {
        for threads in [1, 4] {
            let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
            let take = || Ok(Some(next.fetch_add(1, Ordering::Relaxed)));
            let failed = for_each(threads, &Interrupt::default(), &take, &|number, (): &mut ()| {
                done.fetch_add(1, Ordering::Relaxed);
                if number < 50 { Ok(()) } else { Err(Failure::usage("enough")) }
            });
            assert_eq!(failed.unwrap_err().to_string(), "enough");
            assert!(done.into_inner() <= 50 + threads as u64);
        }
    }
}
