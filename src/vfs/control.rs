//! The control folder `/.ffrfs`: reachable, and not listed in the root.
//!
//! Its files change, and with `open` never sent nothing can be said per open. So each LOOKUP makes a new
//! inode, a snapshot that every opener sees whole; FORGET frees it.

use super::inode::Inode;
use super::report;
use super::{Attr, Errno, Vfs};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The control folder's name in the root. What a dataset itself has of that name there is not shown.
pub const CONTROL_FOLDER: &str = ".ffrfs";
pub(super) const FOLDER: &[u8] = CONTROL_FOLDER.as_bytes();

/// The files in it, by name; the place is the number that a listing shows as inode.
pub(super) const FILES: [&[u8]; 3] = [b"bad", b"info.json", b"stats.json"];

/// The listing's inode numbers lie above all snapshots.
const LISTED: u64 = 1 << 61;

#[derive(Default)]
pub(super) struct Control {
    next: AtomicU64,
    snapshots: Mutex<HashMap<u64, Snapshot>>,
}

struct Snapshot {
    content: Arc<[u8]>,
    /// How often the kernel was told of it; it tells as many back with FORGET.
    lookups: u64,
}

impl Control {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Snapshot>> {
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, content: Vec<u8>) -> Inode {
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.lock().insert(number, Snapshot { content: content.into(), lookups: 1 });
        Inode::Snapshot(number)
    }

    pub(super) fn content(&self, number: u64) -> Option<Arc<[u8]>> {
        self.lock().get(&number).map(|snapshot| Arc::clone(&snapshot.content))
    }

    pub(super) fn forget(&self, number: u64, lookups: u64) {
        let mut snapshots = self.lock();
        if let Some(snapshot) = snapshots.get_mut(&number) {
            snapshot.lookups = snapshot.lookups.saturating_sub(lookups);
            if snapshot.lookups == 0 {
                snapshots.remove(&number);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn snapshots(&self) -> usize {
        self.lock().len()
    }
}

impl Vfs {
    /// A new snapshot of a control file.
    pub(super) fn lookup_control(&self, name: &[u8]) -> Option<Attr> {
        let content = match name {
            b"bad" => report::bad(self).into_bytes(),
            b"info.json" => report::json(&report::mount_info(self)),
            b"stats.json" => report::json(&report::stats(self)),
            _ => return None,
        };
        let inode = self.control.add(content);
        self.attr_of(inode).ok()
    }

    /// Lists the control folder from entry `from` on: inode, name.
    pub(super) fn list_control(from: u64) -> impl Iterator<Item = (u64, &'static [u8])> {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        FILES.into_iter().enumerate().skip(from).map(|(place, name)| (LISTED + place as u64, name))
    }

    pub(super) fn control_content(&self, number: u64) -> Result<Arc<[u8]>, Errno> {
        self.control.content(number).ok_or(Errno::ESTALE)
    }
}
