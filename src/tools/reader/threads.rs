//! Work on several threads: as it comes, or with results in order.
//!
//! Imports nothing of this folder.

use crate::failure::Failure;
use crate::tools::interrupt::Interrupt;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::num::NonZeroU16;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many threads there are to be: as many as CPUs, unless the user says.
pub(crate) fn thread_count(wanted: Option<NonZeroU16>) -> usize {
    let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
    wanted.map_or_else(cpus, |jobs| usize::from(jobs.get()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does `work` on everything that `next` gives, on `threads` threads with a state each, in no order.
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
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(run);
        }
    });
    let failure = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failure.map_or(Ok(()), Err)
}

/// What the threads of [`in_order`] do.
pub(crate) struct OrderedWork<'a, T, M, S> {
    pub(crate) threads: usize,
    /// How many items may wait for the consumer. On a busy machine threads must not wait for each other at
    /// each item.
    pub(crate) ahead: usize,
    /// How many messages of an item may wait.
    pub(crate) messages: usize,
    /// Sends the messages of an item; false: nobody wants them any more.
    pub(crate) work: &'a (dyn Fn(T, &mut S, &Sender<M>) -> bool + Sync),
}

/// Does work on everything that `next` gives, on several threads; `consume` gets a receiver for each item, in
/// order. When the user interrupts the work, no more items come.
pub(crate) fn in_order<T, M: Send, S: Default, R>(
    how: &OrderedWork<T, M, S>,
    interrupt: &Interrupt,
    next: &mut (dyn FnMut() -> Option<T> + Send),
    consume: impl FnOnce(&Receiver<Receiver<M>>) -> R,
) -> R {
    let (sender, receiver) = bounded(how.ahead);
    let queue = Mutex::new(Queue { next, sender: Some(sender), interrupt });
    std::thread::scope(|scope| {
        for _ in 0..how.threads {
            scope.spawn(|| {
                let _ended = Ended(&queue);
                let mut state = S::default();
                while let Some((item, messages)) = lock(&queue).take(how.messages) {
                    if !(how.work)(item, &mut state, &messages) {
                        return;
                    }
                }
            });
        }
        let consumed = consume(&receiver);
        // Threads whose items nobody wants any more must not wait for that: each ends when it is told so.
        receiver.iter().for_each(drop);
        consumed
    })
}

/// What the threads take from.
struct Queue<'a, T, M> {
    next: &'a mut (dyn FnMut() -> Option<T> + Send),
    /// In the order of the items; `None` when there are no more.
    sender: Option<Sender<Receiver<M>>>,
    interrupt: &'a Interrupt,
}

impl<T, M> Queue<'_, T, M> {
    /// The next item, and where its messages are to be sent. The place in the order is taken under the lock.
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

/// When one thread ends, there is no more to do, or nobody wants it: then nothing more comes.
struct Ended<'a, 'b, T, M>(&'a Mutex<Queue<'b, T, M>>);

impl<T, M> Drop for Ended<'_, '_, T, M> {
    fn drop(&mut self) {
        lock(self.0).sender = None;
    }
}
