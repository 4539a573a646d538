//! A thread that checks whether containers have changed, soon after requests have used them, and has the kernel drop
//! attributes that it was told of meanwhile. It gives idle memory back to the system once no requests come. Imports
//! `connection`, the vfs and `io`.

use super::connection::Device;
use super::threads;
use crate::io::give_back_idle;
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
    pub(super) fn start(vfs: &Arc<Vfs>, device: Arc<Device>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (watched, stopped) = (Arc::downgrade(vfs), Arc::clone(&stop));
        let run = move || {
            let mut outdated = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let Some(vfs) = watched.upgrade() else { return };
                let checked = vfs.check_containers();
                drop(vfs);
                // Attributes that were dropped after the last check are dropped again: an answer may have been on its way then.
                drop_attributes(&device, &outdated);
                outdated = checked.outdated_inodes;
                drop_attributes(&device, &outdated);
                let may_give_more = give_back_idle();
                match checked.any || may_give_more {
                    true => std::thread::park_timeout(PAUSE),
                    false => std::thread::park(),
                }
            }
        };
        let thread = threads::spawn("ffrfs-watch", run)?;
        let thread = thread.thread().clone();
        let watching = thread.clone();
        vfs.when_containers_are_noted(move || watching.unpark());
        // A request that came before could not wake the thread.
        thread.unpark();
        Ok(Self { stop, thread })
    }

    /// Lets the thread end; it may be waiting for a file server that does not answer, so it is not waited for.
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

/// Has the kernel ask again for the attributes of inodes that it knows.
fn drop_attributes(device: &Device, inodes: &[u64]) {
    for &ino in inodes {
        // An offset below 0 spares the pages: they hold bytes of the file that was mounted. An error says that the
        // kernel does not know the inode, or that there is no mount any more.
        let _ = device.invalidate(ino, -1);
    }
}
