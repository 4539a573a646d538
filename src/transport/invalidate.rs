//! Drops the pages that a refused write has left in the kernel's page cache. Imports `connection` and the vfs.
//!
//! Root can open a sample for writing though its permissions do not allow it. The kernel itself forgets a
//! `write` that is refused; but pages that were changed through a shared mapping keep the change when their
//! WRITE is refused, and every reader would see it. So these pages are dropped. Readers do see the change until the
//! kernel writes the pages back (msync, munmap and some seconds, unmount), because no request comes before that.

use super::connection::Device;
use super::threads;
use crate::vfs::Vfs;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Drops inodes' pages from the kernel's page cache.
#[derive(Default)]
pub(super) struct Invalidator {
    device: OnceLock<Arc<Device>>,
    /// The inodes whose pages are to be dropped; `None` if no thread is at work.
    pending: Mutex<Option<BTreeSet<u64>>>,
}

impl Invalidator {
    /// Sets the connection to the kernel.
    pub(super) fn connect(&self, device: Arc<Device>) {
        let _ = self.device.set(device);
    }

    /// Drops an inode's pages soon, after a refused write to it. A thread of its own does it: the kernel lets
    /// it wait for all requests that concern these pages, so that no thread that answers requests may do it.
    pub(super) fn drop_pages(self: &Arc<Self>, vfs: &Vfs, ino: u64) {
        // The next open of a control file drops its pages anyway.
        if vfs.is_control(ino) {
            return;
        }
        let mut pending = self.lock();
        if let Some(pending) = &mut *pending {
            pending.insert(ino);
            return;
        }
        *pending = Some(BTreeSet::from([ino]));
        let this = Arc::clone(self);
        if let Err(error) = threads::spawn("ffrfs-invalid", move || this.work()) {
            tracing::warn!("cannot start a thread to drop pages that were written to: {error}");
            *pending = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<BTreeSet<u64>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops pages until no inode is pending.
    fn work(&self) {
        while let Some(ino) = self.next() {
            let Some(device) = self.device.get() else { continue };
            if let Err(error) = device.invalidate(ino, 0) {
                tracing::warn!("inode {ino}: pages that were written to stay: {error}");
            }
        }
    }

    fn next(&self) -> Option<u64> {
        let mut pending = self.lock();
        let next = pending.as_mut().and_then(BTreeSet::pop_first);
        if next.is_none() {
            *pending = None;
        }
        next
    }
}
