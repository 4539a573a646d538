//! Reads that wait for a store when the mount has ended are given up, so that the threads that serve them end, too.
//! Imports the store.

use super::threads;
use crate::store::Store;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// The pause between two looks at the connection. The thread does not sleep on it: each request would wake it.
const PAUSE: Duration = Duration::from_millis(200);

/// The thread that looks whether the mount has ended.
pub(super) struct Ending {
    stop: Arc<AtomicBool>,
    thread: Thread,
    store: Store,
}

impl Ending {
    /// Looks at the connection to the kernel from now on, if reads may have to wait for a store.
    pub(super) fn start(store: &Store, device: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        if !store.has_objects() {
            return Ok(None);
        }
        let (watched, device) = (store.clone(), device.try_clone_to_owned()?);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let run = move || {
            while !stopped.load(Ordering::Relaxed) {
                std::thread::park_timeout(PAUSE);
                // Requests that were taken before may begin to wait only now.
                if is_closed(&device) {
                    watched.give_up();
                }
            }
        };
        let thread = threads::spawn("ffrfs-ending", run)?;
        Ok(Some(Self { stop, thread: thread.thread().clone(), store: store.clone() }))
    }

    /// Tells the store that no bytes are read any more, and ends the thread.
    pub(super) fn stop(self) {
        self.store.note_end();
        self.stop.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

/// Whether the kernel sends no more requests.
pub(super) fn is_closed(device: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(device.as_fd(), PollFlags::empty())];
    let found = poll(&mut polled, PollTimeout::ZERO);
    found.is_ok() && polled[0].revents().is_some_and(|found| found.contains(PollFlags::POLLERR))
}
