//! Threads of the transport.

use crate::io::memory::heap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Starts a thread whose panic ends the process, after the panic hook has logged it: a request that is never answered
/// would hold its reader, and `umount`, for ever.
///
/// # Errors
/// There is no thread left, or no memory for it.
pub(super) fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    heap::check_headroom()?;
    thread::Builder::new().name(name.into()).spawn(move || {
        let _guard = EndOfProcess;
        work()
    })
}

/// The pause before a thread that could not be started is tried again: a limit may be raised, or other threads end.
const AGAIN: Duration = Duration::from_secs(1);

/// Threads of one kind, which are started once there is work for them.
pub(super) struct Crew {
    /// The threads are called `ffrfs-NAME-0` and so on.
    name: &'static str,
    /// The work of the threads, in a word.
    does: &'static str,
    wanted: usize,
    running: AtomicUsize,
    /// When a thread could not be started.
    failed: Mutex<Option<Instant>>,
}

impl Crew {
    pub(super) fn new(name: &'static str, does: &'static str, wanted: usize) -> Self {
        Self { name, does, wanted, running: AtomicUsize::new(0), failed: Mutex::default() }
    }

    /// Starts the missing threads, each with a function that `work` returns, unless one could not be started just now. Returns
    /// how many run.
    pub(super) fn start<W: FnOnce() + Send + 'static>(&self, work: impl Fn() -> W) -> usize {
        if self.running.load(Ordering::Acquire) < self.wanted {
            self.start_lacking(work);
        }
        self.running.load(Ordering::Acquire)
    }

    fn start_lacking<W: FnOnce() + Send + 'static>(&self, work: impl Fn() -> W) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.is_some_and(|at| at.elapsed() < AGAIN) {
            return;
        }
        for number in self.running.load(Ordering::Acquire)..self.wanted {
            // Buffers need the remaining memory more than another thread does.
            let started = heap::check_room_to_read()
                .and_then(|()| spawn(format!("ffrfs-{}-{number}", self.name), work()));
            if let Err(error) = started {
                if failed.replace(Instant::now()).is_none() {
                    let (wanted, does) = (self.wanted, self.does);
                    tracing::warn!("{number} of {wanted} {does} threads run for now: {error}");
                }
                return;
            }
            self.running.store(number + 1, Ordering::Release);
        }
        if failed.take().is_some() {
            tracing::info!("all {} threads run", self.does);
        }
    }
}

/// Ends the process when it is dropped by a panic.
struct EndOfProcess;

impl Drop for EndOfProcess {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}
