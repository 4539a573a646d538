//! The control folder `/.ffrfs`: reachable, and not listed in the root.
//!
//! Its files change, and with `open` never sent nothing can be said per open. So each LOOKUP makes a new
//! inode, a snapshot that every opener sees whole; FORGET frees it. A snapshot of `prefetch` is also a
//! writer with a state of its own, and `settings` takes what is to be changed; all else refuses to be
//! written. Where the kernel lets nothing be written, an ioctl does the same.

use super::announce::{Item, Parser, Refused};
use super::inode::Inode;
use super::{Attr, Errno, Options, Vfs, report};
use crate::catalog::Node;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The control folder's name in the root. What a dataset itself has of that name there is not shown.
pub const CONTROL_FOLDER: &str = ".ffrfs";
pub(super) const FOLDER: &[u8] = CONTROL_FOLDER.as_bytes();

/// The file that takes announcements.
const PREFETCH: &[u8] = b"prefetch";
/// The file that takes changes of settings; only for who owns the process.
const SETTINGS: &[u8] = b"settings";
const SETTINGS_MODE: u16 = 0o600;

/// The file that tells who asks for what; only for who owns the process: it is nobody else's business.
/// `trace.NAME` is the same for a reader that wants all for itself.
const TRACE: &[u8] = b"trace";
const TRACE_MODE: u16 = 0o600;
const MAX_READER_BYTES: usize = 64;
/// So many pages of it are kept for readers that may still come for them.
const TRACE_PAGES: usize = 16;

/// The files in it, by name; the place is the number that a listing shows as inode.
pub(super) const FILES: [&[u8]; 6] =
    [b"bad", b"info.json", PREFETCH, SETTINGS, b"stats.json", TRACE];

/// The listing's inode numbers lie above all snapshots.
const LISTED: u64 = 1 << 61;

/// A last line without newline counts when nothing has followed it for so long. (FORGET alone would not do:
/// the kernel keeps a closed file's inode until its name is looked up again.)
const PATIENCE: Duration = Duration::from_millis(100);
/// The same behind a write that looks like a full buffer: programs and the kernel cut at multiples of this,
/// in the middle of a line, and may take their time for the rest.
const CUT_BYTES: u64 = 4096;
const PATIENCE_WHERE_CUT: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Control {
    next: AtomicU64,
    snapshots: Mutex<HashMap<u64, Snapshot>>,
    /// Snapshots of `trace`, oldest first.
    trace_pages: Mutex<VecDeque<u64>>,
    /// Whether a writer may have left a line without newline.
    has_lines: AtomicBool,
}

struct Snapshot {
    content: Arc<[u8]>,
    takes: Takes,
    /// Of `trace` only: whose page it is, and the number of its last event.
    page: Option<(Box<[u8]>, u64)>,
    /// How often the kernel was told of it; it tells as many back with FORGET.
    lookups: u64,
}

/// What can be written to a snapshot.
#[derive(Clone)]
enum Takes {
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
struct Writer {
    parser: Parser,
    /// When it has been silent for long enough.
    over: Instant,
    /// It was told once in the log what is wrong with what it writes.
    warned: bool,
}

impl Writer {
    fn new() -> Self {
        Self { parser: Parser::default(), over: Instant::now(), warned: false }
    }

    fn warn(&mut self, item: &str, errno: Errno) {
        if !std::mem::replace(&mut self.warned, true) {
            let why = match errno {
                Errno::ENOENT => "there is no such file",
                Errno::EISDIR => "that is a folder",
                Errno::EINVAL => "that is no sample",
                Errno::ENOSPC => "too many samples are waiting",
                _ => "it cannot be looked up",
            };
            tracing::warn!("{CONTROL_FOLDER}/prefetch: {item}: {why}");
        }
    }
}

impl Control {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Snapshot>> {
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, content: Vec<u8>, takes: Takes) -> Inode {
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let (content, page) = (content.into(), None);
        self.lock().insert(number, Snapshot { content, takes, page, lookups: 1 });
        Inode::Snapshot(number)
    }

    /// A page of `trace`. Anybody may look it up: what that makes must not pile up until the kernel forgets.
    fn add_page(&self, content: Vec<u8>, reader: &[u8], last: u64) -> Inode {
        let inode = self.add(content, Takes::Nothing);
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

    fn takes(&self, number: u64) -> Takes {
        self.lock().get(&number).map_or(Takes::Nothing, |snapshot| snapshot.takes.clone())
    }

    fn is_page(&self, number: u64) -> bool {
        self.lock().get(&number).is_some_and(|snapshot| snapshot.page.is_some())
    }

    /// All writers there are.
    fn writers(&self) -> Vec<Arc<Mutex<Writer>>> {
        self.lock().values().filter_map(|snapshot| snapshot.takes.clone().writer()).collect()
    }

    /// Gives the writer that is gone, if it is one.
    fn forget(&self, number: u64, lookups: u64) -> Option<Arc<Mutex<Writer>>> {
        let mut snapshots = self.lock();
        let snapshot = snapshots.get_mut(&number)?;
        snapshot.lookups = snapshot.lookups.saturating_sub(lookups);
        if snapshot.lookups > 0 {
            return None;
        }
        snapshots.remove(&number)?.takes.writer()
    }

    #[cfg(test)]
    pub(super) fn snapshots(&self) -> usize {
        self.lock().len()
    }
}

/// Who reads `trace` under this name; `None`: it is no such name.
fn reader_of_trace(name: &[u8]) -> Option<&[u8]> {
    match name.strip_prefix(TRACE)? {
        b"" => Some(b""),
        rest => {
            let reader = rest.strip_prefix(b".")?;
            (1..=MAX_READER_BYTES).contains(&reader.len()).then_some(reader)
        }
    }
}

fn lock(writer: &Mutex<Writer>) -> MutexGuard<'_, Writer> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Vfs {
    /// A new snapshot of a control file.
    pub(super) fn lookup_control(&self, name: &[u8]) -> Option<Attr> {
        // Whoever looks sees all that was written.
        self.tick_announcements();
        if let Some(reader) = reader_of_trace(name) {
            let (lines, last) = self.trace_lines(reader);
            return self.attr_of(self.control.add_page(lines, reader, last)).ok();
        }
        let content = match name {
            b"bad" => report::bad(self).into_bytes(),
            b"info.json" => report::json(&report::mount_info(self)),
            b"stats.json" => report::json(&report::stats(self)),
            PREFETCH => report::prefetch(self).into_bytes(),
            SETTINGS => self.settings.get()?.show(self),
            _ => return None,
        };
        let takes = match name {
            PREFETCH => Takes::Announcements(Arc::new(Mutex::new(Writer::new()))),
            SETTINGS => Takes::Settings,
            _ => Takes::Nothing,
        };
        let inode = self.control.add(content, takes);
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

    /// As [`Vfs::control_content`], for somebody who reads up to `end`.
    pub(super) fn read_control(&self, number: u64, end: u64) -> Result<Arc<[u8]>, Errno> {
        let snapshots = self.control.lock();
        let snapshot = snapshots.get(&number).ok_or(Errno::ESTALE)?;
        if let Some((reader, last)) = &snapshot.page {
            if snapshot.content.is_empty() {
                return Err(Errno::ESTALE);
            }
            if end >= snapshot.content.len() as u64 {
                self.trace.was_read(reader, *last);
            }
        }
        Ok(Arc::clone(&snapshot.content))
    }

    /// Owner and permission bits of a snapshot. The kernel checks them: with settings, what it lets through
    /// comes from who owns the process, or root.
    pub(super) fn control_owner(&self, number: u64) -> (u32, u16) {
        let Options { uid, master, file_mode, prefetch_mode, .. } = self.options;
        match self.control.takes(number) {
            Takes::Nothing if self.control.is_page(number) => (master, TRACE_MODE),
            Takes::Nothing => (uid, file_mode),
            Takes::Announcements(_) => (uid, prefetch_mode),
            Takes::Settings => (master, SETTINGS_MODE),
        }
    }

    fn taken_by(&self, ino: u64) -> Takes {
        match Inode::of(ino) {
            Inode::Snapshot(number) => self.control.takes(number),
            _ => Takes::Nothing,
        }
    }

    /// What can be written, not by ioctl.
    fn writable(&self, ino: u64) -> Result<Takes, Errno> {
        match self.taken_by(ino) {
            Takes::Nothing => Err(Errno::EROFS),
            Takes::Announcements(_) if self.options.prefetch_mode & 0o222 == 0 => Err(Errno::EROFS),
            takes => Ok(takes),
        }
    }

    /// Whether an inode may be opened for writing.
    ///
    /// # Errors
    /// EROFS: it is no control file that takes something.
    pub fn open_for_writing(&self, ino: u64) -> Result<(), Errno> {
        self.writable(ino).map(drop)
    }

    /// Sets a size: means nothing where something is taken, so that `>` works.
    ///
    /// # Errors
    /// EROFS: as [`Vfs::open_for_writing`].
    pub fn set_size(&self, ino: u64) -> Result<Attr, Errno> {
        self.open_for_writing(ino)?;
        self.getattr(ino)
    }

    /// Takes the next bytes of an announcement, or changes of settings. Where in the file they are written to means nothing, but that
    /// they end at a page's end is a hint that more will come.
    ///
    /// # Errors
    /// * EROFS: as [`Vfs::open_for_writing`].
    /// * EINVAL, ENOENT, EISDIR: a line or number is no sample. What was before it is announced (and is once
    ///   more if this write is tried again), what is behind it in this write is not.
    /// * ENOSPC: too many samples are waiting. Nothing of this write was taken; try it again later.
    /// * EIO: a name depends on bytes that cannot be read.
    /// * EINVAL: a setting cannot be. None of this write is changed.
    pub fn write(&self, ino: u64, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.take_written(self.writable(ino)?, offset_bytes, bytes)
    }

    /// As [`Vfs::write`], by who has the file open for reading only: on a mount that the kernel takes for
    /// read-only there is no other way.
    ///
    /// # Errors
    /// ENOTTY: it is no control file that takes something. Else as [`Vfs::write`].
    pub fn write_by_ioctl(&self, ino: u64, bytes: &[u8]) -> Result<(), Errno> {
        match self.taken_by(ino) {
            Takes::Nothing => Err(Errno::ENOTTY),
            takes => self.take_written(takes, 1, bytes),
        }
    }

    fn take_written(&self, takes: Takes, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        match takes {
            Takes::Nothing => Err(Errno::EROFS),
            Takes::Announcements(writer) => self.written(&writer, offset, bytes),
            Takes::Settings => self.settings.get().ok_or(Errno::EROFS)?.change(self, bytes),
        }
    }

    fn written(&self, writer: &Mutex<Writer>, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let mut writer = lock(writer);
        let taken = self.take(&mut writer, |parser, take| parser.write(bytes, take));
        let length = bytes.len() as u64;
        let ends = [length, offset.saturating_add(length)];
        let cut = ends.iter().any(|end| end.is_multiple_of(CUT_BYTES));
        writer.over = Instant::now() + if cut { PATIENCE_WHERE_CUT } else { PATIENCE };
        if writer.parser.has_line() {
            self.control.has_lines.store(true, Ordering::Relaxed);
            self.prefetch.wake();
        }
        taken
    }

    /// Lets a writer's parser work, and announces what it finds: all of it, or the parser stays as it was.
    fn take(
        &self,
        writer: &mut Writer,
        work: impl FnOnce(&mut Parser, &mut super::announce::Take) -> Result<(), Refused>,
    ) -> Result<(), Errno> {
        let before = writer.parser.clone();
        let mut samples = Vec::new();
        let outcome = work(&mut writer.parser, &mut |item| {
            samples.push(self.announced(item)?);
            Ok(())
        });
        if let Err(errno) = self.announce(&samples) {
            writer.parser = before;
            return Err(errno);
        }
        outcome.map_err(|refused| {
            writer.warn(&refused.item, refused.errno);
            refused.errno
        })
    }

    /// The sample that a line or number means.
    fn announced(&self, item: Item) -> Result<u64, Errno> {
        match item {
            Item::Number(number) if number < self.dataset.len() => Ok(number),
            Item::Number(_) => Err(Errno::EINVAL),
            Item::Path(path) => {
                let found = self.catalog.find(&self.dataset, path);
                match found.map_err(|e| Errno::from(&e))? {
                    Some(Node::Sample(sample)) => Ok(sample),
                    Some(Node::Folder(_)) => Err(Errno::EISDIR),
                    None => Err(Errno::ENOENT),
                }
            }
        }
    }

    /// A snapshot is gone: what its writer left without newline counts now.
    pub(super) fn forget_control(&self, number: u64, lookups: u64) {
        if let Some(writer) = self.control.forget(number, lookups) {
            let mut writer = lock(&writer);
            // Nobody hears of an error any more but the log.
            if self.take(&mut writer, Parser::end) == Err(Errno::ENOSPC) {
                writer.warn("the last line", Errno::ENOSPC);
            }
        }
    }

    /// Takes last lines without newline of writers that have been silent for a while, but keep the file
    /// open; whether there are more, so that this is to be called again in 100 ms or so.
    pub fn tick_announcements(&self) -> bool {
        self.control.has_lines.load(Ordering::Relaxed) && self.tick_announcements_at(Instant::now())
    }

    pub(super) fn tick_announcements_at(&self, now: Instant) -> bool {
        self.control.has_lines.store(false, Ordering::Relaxed);
        for writer in self.control.writers() {
            let mut writer = lock(&writer);
            if now >= writer.over && writer.parser.has_line() {
                // What finds no room now stays, and is tried again.
                let _ = self.take(&mut writer, Parser::end);
            }
            if writer.parser.has_line() {
                self.control.has_lines.store(true, Ordering::Relaxed);
            }
        }
        self.control.has_lines.load(Ordering::Relaxed)
    }
}
