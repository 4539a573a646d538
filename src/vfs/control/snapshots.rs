//! Snapshots of control files: each lookup makes one, FORGET frees it.

use super::announce::Parser;
use crate::vfs::Errno;
use crate::vfs::inode::{CONTROL_DIRECTORY, Inode};
use crate::vfs::prefetch::UNNAMED;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// So many pages of `trace` are kept for readers that may still come for them.
const TRACE_PAGES: usize = 16;

/// Whose page of `trace` it is, and the number of its last event.
type PageOf = (Box<[u8]>, u64);

/// The snapshots that the kernel knows.
#[derive(Default)]
pub(super) struct Snapshots {
    next: AtomicU64,
    by_number: Mutex<HashMap<u64, Snapshot>>,
    /// Snapshots of `trace`, oldest first.
    trace_pages: Mutex<VecDeque<u64>>,
}

/// One state of a control file.
struct Snapshot {
    /// The inode number that the file shows.
    shown_ino: u64,
    content: Arc<[u8]>,
    takes: Takes,
    /// Of `trace` only: whose page it is, and the number of its last event.
    page: Option<PageOf>,
    /// How often the kernel was told of it; it tells as many back with FORGET.
    lookups: u64,
}

/// What can be written to a snapshot.
#[derive(Clone)]
pub(super) enum Takes {
    Nothing,
    Announcements(Arc<Mutex<Writer>>),
    Settings,
}

impl Takes {
    fn writer(self) -> Option<Arc<Mutex<Writer>>> {
        match self {
            Takes::Announcements(writer) => Some(writer),
            Takes::Nothing | Takes::Settings => None,
        }
    }
}

/// Who writes to a snapshot of `prefetch`.
pub(super) struct Writer {
    pub(super) parser: Parser,
    /// When it has been silent for long enough.
    pub(super) over: Instant,
    /// It was told once in the log what is wrong with what it writes.
    warned: bool,
    /// The name of the order that it announces.
    pub(super) order: u64,
}

impl Writer {
    pub(super) fn new() -> Self {
        Self { parser: Parser::default(), over: Instant::now(), warned: false, order: UNNAMED }
    }

    pub(super) fn warn(&mut self, item: &str, errno: Errno) {
        if !std::mem::replace(&mut self.warned, true) {
            let why = match errno {
                Errno::ENOENT => "there is no such file",
                Errno::EISDIR => "that is a directory",
                Errno::EINVAL => "that is no sample",
                Errno::ENOSPC => "too many samples are waiting",
                _ => "it cannot be looked up",
            };
            tracing::warn!("{CONTROL_DIRECTORY}/prefetch: {item}: {why}");
        }
    }
}

impl Snapshots {
    /// The numbers begin at the time: the process that served the mount before this one, and died, has used lower ones, and
    /// the kernel may know them still.
    pub(super) fn new() -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Nobody makes 256 snapshots in a microsecond.
        let next = AtomicU64::new((time.as_micros() as u64 & (u64::MAX >> 12)) << 8);
        Self { next, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Snapshot>> {
        self.by_number.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new snapshot, which the kernel is told of once.
    pub(super) fn add(&self, shown_ino: u64, content: Vec<u8>, takes: Takes) -> Inode {
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let (content, page) = (content.into(), None);
        self.lock().insert(number, Snapshot { shown_ino, content, takes, page, lookups: 1 });
        Inode::Snapshot(number)
    }

    /// A page of `trace`. Anybody may look it up: what that makes must not pile up until the kernel forgets.
    pub(super) fn add_page(
        &self,
        shown_ino: u64,
        content: Vec<u8>,
        reader: &[u8],
        last: u64,
    ) -> Inode {
        let inode = self.add(shown_ino, content, Takes::Nothing);
        let Inode::Snapshot(number) = inode else { return inode };
        let mut pages = self.trace_pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.push_back(number);
        let oldest = if pages.len() > TRACE_PAGES { pages.pop_front() } else { None };
        let mut snapshots = self.lock();
        if let Some(snapshot) = snapshots.get_mut(&number) {
            snapshot.page = Some((reader.into(), last));
        }
        if let Some(snapshot) = oldest.and_then(|oldest| snapshots.get_mut(&oldest)) {
            snapshot.content = Arc::default();
        }
        inode
    }

    pub(super) fn content(&self, number: u64) -> Option<Arc<[u8]>> {
        self.lock().get(&number).map(|snapshot| Arc::clone(&snapshot.content))
    }

    pub(super) fn shown_ino(&self, number: u64) -> Option<u64> {
        self.lock().get(&number).map(|snapshot| snapshot.shown_ino)
    }

    pub(super) fn takes(&self, number: u64) -> Takes {
        self.lock().get(&number).map_or(Takes::Nothing, |snapshot| snapshot.takes.clone())
    }

    pub(super) fn is_page(&self, number: u64) -> bool {
        self.lock().get(&number).is_some_and(|snapshot| snapshot.page.is_some())
    }

    /// All writers there are.
    pub(super) fn writers(&self) -> Vec<Arc<Mutex<Writer>>> {
        self.lock().values().filter_map(|snapshot| snapshot.takes.clone().writer()).collect()
    }

    /// Gives the writer that is gone, if it is one.
    pub(super) fn forget(&self, number: u64, lookups: u64) -> Option<Arc<Mutex<Writer>>> {
        let mut snapshots = self.lock();
        let snapshot = snapshots.get_mut(&number)?;
        snapshot.lookups = snapshot.lookups.saturating_sub(lookups);
        if snapshot.lookups > 0 {
            return None;
        }
        snapshots.remove(&number)?.takes.writer()
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// The content for somebody who reads up to `end`; and of a page of `trace` that is now read to its end,
    /// whose it is and its last event.
    pub(super) fn read(&self, number: u64, end: u64) -> Result<(Arc<[u8]>, Option<PageOf>), Errno> {
        let snapshots = self.lock();
        let snapshot = snapshots.get(&number).ok_or(Errno::ESTALE)?;
        if snapshot.page.is_some() && snapshot.content.is_empty() {
            return Err(Errno::ESTALE);
        }
        let is_end = end >= snapshot.content.len() as u64;
        let page = snapshot.page.as_ref().filter(|_| is_end).cloned();
        Ok((Arc::clone(&snapshot.content), page))
    }
}
