//! Threads for jobs that wait: reads of bytes that the page cache does not hold, and long decoding of one sample. They
//! start with the first such job, so that a mount of cached data has none. Imports `io` and `threads`.

use super::threads;
use crate::io::heap;
use crossbeam_channel::Sender;
use std::sync::OnceLock;

type Job = Box<dyn FnOnce() + Send>;

pub(super) struct Workers {
    threads: usize,
    jobs: OnceLock<Sender<Job>>,
}

impl Workers {
    pub(super) fn new(threads: usize) -> Self {
        Self { threads, jobs: OnceLock::new() }
    }

    /// Runs a job on one of the threads; on the caller's if no thread could be started.
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) {
        // The queue is unbounded, but the kernel bounds the requests that are under way.
        if let Err(refused) = self.jobs.get_or_init(|| self.start()).send(Box::new(job)) {
            (refused.0)();
        }
    }

    fn start(&self) -> Sender<Job> {
        let (send, receive) = crossbeam_channel::unbounded::<Job>();
        for number in 0..self.threads {
            let receive = receive.clone();
            let name = format!("ffrfs-read-{number}");
            // Buffers need what is left more than another thread does.
            let started = heap::check_room_to_read().and_then(|()| {
                threads::spawn(name, move || receive.into_iter().for_each(|job| job()))
            });
            if let Err(error) = started {
                tracing::warn!("cannot start a reading thread: {error}");
            }
        }
        send
    }
}
