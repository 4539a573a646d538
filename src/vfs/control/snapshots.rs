//! Snapshots of control files: each lookup makes one, FORGET frees it.

use super::announce::Parser;
use crate::vfs::Errno;
use crate::vfs::inode::{CONTROL_DIRECTORY, Inode};
use crate::vfs::prefetch::UNNAMED;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The most pages of `trace` that are kept for readers that may still read them.
const TRACE_PAGES: usize = 16;

/// The reader that a page of `trace` is for, and the number of the page's last event.
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
    /// `Some` only for a page of `trace`.
    page: Option<PageOf>,
    /// How often the kernel was told of the snapshot; it returns as many with FORGET.
    lookups: u64,
}

/// The kind of content that can be written to a snapshot.
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

/// The writer of a snapshot of `prefetch`.
pub(super) struct Writer {
    pub(super) parser: Parser,
    /// The time from which a last line without newline counts, if no further bytes are written.
    pub(super) over: Instant,
    /// Whether the log has already said why bytes of this writer were refused.
    warned: bool,
    /// The name of the order that the writer announces.
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
    /// Starts the snapshot numbers at the current time: a process that served the mount before this one and died has used
    /// lower numbers, and the kernel may still know them.
    pub(super) fn new() -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // No process makes 256 snapshots in a microsecond.
        let next = AtomicU64::new((time.as_micros() as u64 & (u64::MAX >> 12)) << 8);
        Self { next, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Snapshot>> {
        self.by_number.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a new snapshot, which the kernel is told of once.
    pub(super) fn add(&self, shown_ino: u64, content: Vec<u8>, takes: Takes) -> Inode {
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let (content, page) = (content.into(), None);
        self.lock().insert(number, Snapshot { shown_ino, content, takes, page, lookups: 1 });
        Inode::Snapshot(number)
    }

    /// Adds a page of `trace`, and drops the content of the oldest beyond the limit. Any user may look `trace` up: pages must
    /// not pile up until the kernel forgets them.
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

    /// The writers of all snapshots.
    pub(super) fn writers(&self) -> Vec<Arc<Mutex<Writer>>> {
        self.lock().values().filter_map(|snapshot| snapshot.takes.clone().writer()).collect()
    }

    /// Takes lookups off a snapshot. If none remain, the snapshot is removed; returns the writer that it had, if it had one.
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

    /// Returns the content for a read up to `end`; and the reader and the last event of a page of `trace` that is now read
    /// to its end.
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
