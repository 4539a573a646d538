//! Undoes what a refused write has left in the kernel's page cache.
//!
//! Root can open a sample for writing though its permissions do not allow it. A `write` that is refused
//! the kernel forgets by itself; but pages that were changed through a shared mapping stay as they were
//! scribbled on when their WRITE is refused, and every reader would see them. So they are dropped. Until the
//! kernel writes them back (msync, munmap and some seconds, unmount) they do show: nobody can know of them.

use crate::vfs::Vfs;
use fuser::{INodeNo, Notifier};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Which inodes' pages are to be dropped.
#[derive(Default)]
pub(super) struct Undo {
    notifier: OnceLock<Notifier>,
    /// `None`: no thread is at work.
    pending: Mutex<Option<BTreeSet<u64>>>,
}

impl Undo {
    /// Notices go this way.
    pub(super) fn connect(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    /// Drops an inode's pages soon, after a refused write to it. In a thread of its own: the kernel waits
    /// for every answer that has to do with these pages, which must not have to come from who waits.
    pub(super) fn write_to(self: &Arc<Self>, vfs: &Vfs, ino: u64) {
        // Of control files the kernel keeps nothing that the next opener would see.
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
        let thread = std::thread::Builder::new().name("ffrfs-undo".to_owned());
        if let Err(error) = thread.spawn(move || this.work()) {
            tracing::warn!("cannot start a thread that drops pages written to: {error}");
            *pending = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<BTreeSet<u64>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until nothing is left to do.
    fn work(&self) {
        while let Some(ino) = self.next() {
            let Some(notifier) = self.notifier.get() else { continue };
            // An offset below 0 would spare the pages; a length of 0 means up to the end.
            if let Err(error) = notifier.inval_inode(INodeNo(ino), 0, 0) {
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
