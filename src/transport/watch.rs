//! A thread that checks whether containers have changed, soon after requests have used them. Imports the vfs.

use crate::vfs::Vfs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// The pause between two checks while requests come: a change must be noticed within a second.
const PAUSE: Duration = Duration::from_millis(250);

/// The thread, which sleeps while no request comes.
pub(super) struct Watch {
    stop: Arc<AtomicBool>,
    thread: Thread,
}

impl Watch {
    pub(super) fn start(vfs: &Arc<Vfs>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (watched, stopped) = (Arc::downgrade(vfs), Arc::clone(&stop));
        let run = move || {
            while !stopped.load(Ordering::Relaxed) {
                let Some(vfs) = watched.upgrade() else { return };
                let has_looked = vfs.check_containers();
                drop(vfs);
                match has_looked {
                    true => std::thread::park_timeout(PAUSE),
                    false => std::thread::park(),
                }
            }
        };
        let thread = std::thread::Builder::new().name("ffrfs-watch".to_owned()).spawn(run)?;
        let thread = thread.thread().clone();
        let watching = thread.clone();
        vfs.when_containers_are_noted(move || watching.unpark());
        // A request that came before could not wake the thread.
        thread.unpark();
        Ok(Self { stop, thread })
    }

    /// Lets the thread end; it may be waiting for a file server that does not answer, so nobody waits for it.
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}
