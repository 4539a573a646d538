//! The control folder `/.ffrfs`: reachable, and not listed in the root.
//!
//! Its files change, and with `open` never sent nothing can be said per open. So each LOOKUP makes a new
//! inode, a snapshot that every opener sees whole; FORGET frees it. A snapshot of `prefetch` is also a
//! writer with a state of its own; all else refuses to be written. Where the kernel lets nothing be written,
//! an ioctl does the same.

use super::announce::{Item, Parser, Refused};
use super::inode::Inode;
use super::report;
use super::{Attr, Errno, Vfs};
use crate::catalog::Node;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The control folder's name in the root. What a dataset itself has of that name there is not shown.
pub const CONTROL_FOLDER: &str = ".ffrfs";
pub(super) const FOLDER: &[u8] = CONTROL_FOLDER.as_bytes();

/// The file that takes announcements.
const PREFETCH: &[u8] = b"prefetch";

/// The files in it, by name; the place is the number that a listing shows as inode.
pub(super) const FILES: [&[u8]; 4] = [b"bad", b"info.json", PREFETCH, b"stats.json"];

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
    /// Whether a writer may have left a line without newline.
    has_lines: AtomicBool,
}

struct Snapshot {
    content: Arc<[u8]>,
    /// Of `prefetch` only.
    writer: Option<Arc<Mutex<Writer>>>,
    /// How often the kernel was told of it; it tells as many back with FORGET.
    lookups: u64,
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

    fn add(&self, content: Vec<u8>, writer: Option<Writer>) -> Inode {
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let writer = writer.map(|writer| Arc::new(Mutex::new(writer)));
        self.lock().insert(number, Snapshot { content: content.into(), writer, lookups: 1 });
        Inode::Snapshot(number)
    }

    pub(super) fn content(&self, number: u64) -> Option<Arc<[u8]>> {
        self.lock().get(&number).map(|snapshot| Arc::clone(&snapshot.content))
    }

    fn writer(&self, number: u64) -> Option<Arc<Mutex<Writer>>> {
        self.lock().get(&number).and_then(|snapshot| snapshot.writer.clone())
    }

    /// All writers there are.
    fn writers(&self) -> Vec<Arc<Mutex<Writer>>> {
        self.lock().values().filter_map(|snapshot| snapshot.writer.clone()).collect()
    }

    /// Gives the writer that is gone, if it is one.
    fn forget(&self, number: u64, lookups: u64) -> Option<Arc<Mutex<Writer>>> {
        let mut snapshots = self.lock();
        let snapshot = snapshots.get_mut(&number)?;
        snapshot.lookups = snapshot.lookups.saturating_sub(lookups);
        if snapshot.lookups > 0 {
            return None;
        }
        snapshots.remove(&number)?.writer
    }

    #[cfg(test)]
    pub(super) fn snapshots(&self) -> usize {
        self.lock().len()
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
        let content = match name {
            b"bad" => report::bad(self).into_bytes(),
            b"info.json" => report::json(&report::mount_info(self)),
            b"stats.json" => report::json(&report::stats(self)),
            PREFETCH => report::prefetch(self).into_bytes(),
            _ => return None,
        };
        let writer = (name == PREFETCH).then(Writer::new);
        let inode = self.control.add(content, writer);
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

    /// Permission bits of a snapshot.
    pub(super) fn control_mode(&self, number: u64) -> u16 {
        match self.control.writer(number) {
            Some(_) => self.options.prefetch_mode,
            None => self.options.file_mode,
        }
    }

    fn writer(&self, ino: u64) -> Result<Arc<Mutex<Writer>>, Errno> {
        match Inode::of(ino) {
            Inode::Snapshot(number) if self.options.prefetch_mode & 0o222 != 0 => {
                self.control.writer(number).ok_or(Errno::EROFS)
            }
            _ => Err(Errno::EROFS),
        }
    }

    /// Whether an inode may be opened for writing.
    ///
    /// # Errors
    /// EROFS: it is not the control file that takes announcements.
    pub fn open_for_writing(&self, ino: u64) -> Result<(), Errno> {
        self.writer(ino).map(drop)
    }

    /// Sets a size: means nothing where announcements are taken, so that `>` works.
    ///
    /// # Errors
    /// EROFS: as [`Vfs::open_for_writing`].
    pub fn set_size(&self, ino: u64) -> Result<Attr, Errno> {
        self.open_for_writing(ino)?;
        self.getattr(ino)
    }

    /// Takes the next bytes of an announcement. Where in the file they are written to means nothing, but that
    /// they end at a page's end is a hint that more will come.
    ///
    /// # Errors
    /// * EROFS: as [`Vfs::open_for_writing`].
    /// * EINVAL, ENOENT, EISDIR: a line or number is no sample. What was before it is announced (and is once
    ///   more if this write is tried again), what is behind it in this write is not.
    /// * ENOSPC: too many samples are waiting. Nothing of this write was taken; try it again later.
    /// * EIO: a name depends on bytes that cannot be read.
    pub fn write(&self, ino: u64, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
        let writer = self.writer(ino)?;
        self.written(&writer, offset_bytes, bytes)
    }

    /// As [`Vfs::write`], by who has the file open for reading only: on a mount that the kernel takes for
    /// read-only there is no other way.
    ///
    /// # Errors
    /// ENOTTY: it is not the control file that takes announcements. Else as [`Vfs::write`].
    pub fn announce_by_ioctl(&self, ino: u64, bytes: &[u8]) -> Result<(), Errno> {
        let Inode::Snapshot(number) = Inode::of(ino) else { return Err(Errno::ENOTTY) };
        let writer = self.control.writer(number).ok_or(Errno::ENOTTY)?;
        self.written(&writer, 1, bytes)
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
