//! Threads for jobs that wait: reads of bytes that the page cache does not hold, and long decoding of one sample. They
//! start with the first such job, so that a mount of cached data has none. Imports `io` and `threads`.

use super::threads;
use crate::io::heap;
use crossbeam_channel::{Receiver, Sender};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The pause before a thread is tried again that could not be started: a limit may be raised, or others end.
const AGAIN: Duration = Duration::from_secs(1);

type Job = Box<dyn FnOnce() + Send>;

pub(super) struct Workers {
    threads: usize,
    jobs: Sender<Job>,
    /// Where the threads take them from.
    taken: Receiver<Job>,
    running: AtomicUsize,
    /// When a thread could not be started.
    failed: Mutex<Option<Instant>>,
}

impl Workers {
    pub(super) fn new(threads: usize) -> Self {
        let (jobs, taken) = crossbeam_channel::unbounded();
        Self { threads, jobs, taken, running: AtomicUsize::new(0), failed: Mutex::default() }
    }

    /// Runs a job on one of the threads; on the caller's if none could be started.
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) {
        if self.running.load(Ordering::Acquire) < self.threads {
            self.start();
        }
        if self.running.load(Ordering::Acquire) == 0 {
            return job();
        }
        // The queue is unbounded, but the kernel bounds the requests that are under way.
        if let Err(refused) = self.jobs.send(Box::new(job)) {
            (refused.0)();
        }
    }

    /// Starts the threads that are lacking, unless one could not be started just now.
    fn start(&self) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.is_some_and(|at| at.elapsed() < AGAIN) {
            return;
        }
        for number in self.running.load(Ordering::Acquire)..self.threads {
            let jobs = self.taken.clone();
            // Buffers need what is left more than another thread does.
            let started = heap::check_room_to_read().and_then(|()| {
                let work = move || jobs.into_iter().for_each(|job| job());
                threads::spawn(format!("ffrfs-read-{number}"), work)
            });
            if let Err(error) = started {
                if failed.replace(Instant::now()).is_none() {
                    let wanted = self.threads;
                    tracing::warn!("{number} of {wanted} reading threads run for now: {error}");
                }
                return;
            }
            self.running.store(number + 1, Ordering::Release);
        }
        if failed.take().is_some() {
            tracing::info!("all reading threads run");
        }
    }
}
