//! A process that leaves its mount to another one: its threads take no more requests, and answer those that they have taken.
//! Imports `io`.

use crate::io::process;
use nix::unistd::Pid;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The pause between two attempts to wake threads that wait for requests: one may have been about to wait.
const PAUSE: Duration = Duration::from_millis(2);
/// How long a thread is waited for: the kernel can send the request of a slower one to the next process.
const LIMIT: Duration = Duration::from_secs(5);

/// Whether this process leaves, and the threads that take requests.
#[derive(Default)]
pub(super) struct Leaving {
    has_begun: AtomicBool,
    threads: Mutex<Vec<Pid>>,
}

/// A thread that takes requests, until the value is dropped.
pub(super) struct Taking<'a>(&'a Leaving, Pid);

impl Leaving {
    /// Whether requests are to be taken no more.
    pub(super) fn has_begun(&self) -> &AtomicBool {
        &self.has_begun
    }

    /// Notes that this thread takes requests from now on.
    pub(super) fn taking(&self) -> Taking<'_> {
        let thread = process::this_thread();
        self.lock().push(thread);
        Taking(self, thread)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Pid>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.0.lock().retain(|&thread| thread != self.1);
    }
}

/// Has a process leave its mount to another one.
#[derive(Clone)]
pub struct Leaver(pub(super) Arc<Leaving>);

impl Leaver {
    /// Has the process take no more requests, and answer those that it has taken; then [`super::Mounted::serve`] returns. The
    /// mount stays.
    pub fn leave(&self) {
        let start = Instant::now();
        process::allow_wakes();
        self.0.has_begun.store(true, Ordering::SeqCst);
        while start.elapsed() < LIMIT {
            {
                // Threads that are listed have not ended.
                let threads = self.0.lock();
                if threads.is_empty() {
                    return;
                }
                threads.iter().for_each(|&thread| process::wake(thread));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Whether this process has left.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.0.has_begun.load(Ordering::SeqCst)
    }
}
