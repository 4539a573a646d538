//! Threads for jobs that wait: reads of bytes that the page cache does not hold, and long decoding of one sample. They
//! start with the first such job, so that a mount of cached data has none. Imports `threads`.

use super::threads::Crew;
use crossbeam_channel::{Receiver, Sender};

type Job = Box<dyn FnOnce() + Send>;

pub(super) struct Workers {
    crew: Crew,
    jobs: Sender<Job>,
    /// The end from which the threads take jobs.
    taken: Receiver<Job>,
}

impl Workers {
    pub(super) fn new(threads: usize) -> Self {
        let (jobs, taken) = crossbeam_channel::unbounded();
        Self { crew: Crew::new("read", "reading", threads), jobs, taken }
    }

    /// Runs a job on one of the threads; on the caller's if none could be started.
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let running = self.crew.start(|| {
            let jobs = self.taken.clone();
            move || jobs.into_iter().for_each(|job| job())
        });
        if running == 0 {
            return job();
        }
        // The queue is unbounded, but the kernel bounds the requests that are under way.
        if let Err(refused) = self.jobs.send(Box::new(job)) {
            (refused.0)();
        }
    }
}
