//! The control directory `/.ffrfs`: reachable, and not listed in the root.
//!
//! Its files change, but the kernel never sends `open`, so that no answer can differ from one open to the next. Therefore each
//! LOOKUP makes a new inode, a snapshot that every opener sees whole; FORGET frees it. `stat` shows one number for all
//! snapshots of a file. A snapshot of `prefetch` is also a writer with a state of its own, and `settings` takes changes of
//! settings; all other files refuse writes. Where the kernel allows no write, an ioctl does the same.

mod announce;
mod reports;
mod settings;
mod snapshots;
mod trace_lines;
mod writers;

pub use settings::{Settings, Tuning};
pub use trace_lines::{AHEAD, TraceEvent, TraceHead, TracePhase, TraceStore};

use super::inode::{Inode, shown_of_control_file};
use super::memory::Memory;
use super::namespace::{Attr, FileKind, Namespace};
use super::options::Options;
use super::prefetch::Prefetch;
use super::samples::Samples;
use super::{Errno, Trace, report};
use crate::io::ControlRequest;
use snapshots::{Snapshots, Takes, Writer};
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

/// The file that takes announcements.
const PREFETCH: &[u8] = b"prefetch";
/// The file that takes changes of settings; only for the owner of this process.
const SETTINGS: &[u8] = b"settings";
const SETTINGS_MODE: u16 = 0o600;

/// The file that shows requests and the processes that make them; only for the owner of this process.
/// `trace.NAME` is the same for a reader that wants all requests for itself.
const TRACE: &[u8] = b"trace";
const TRACE_MODE: u16 = 0o600;
const MAX_READER_BYTES: usize = 64;
/// The names of the control files; a file's place decides the inode number that is shown.
pub(in crate::vfs) const FILES: [&[u8]; 6] =
    [b"bad", b"info.json", PREFETCH, SETTINGS, b"stats.json", TRACE];

/// The owners and permission bits of control files.
struct Access {
    uid: u32,
    /// The user who may change settings and trace, beside root.
    master: u32,
    file_mode: u16,
    prefetch_mode: u16,
}

/// The files of the control directory, and the modules whose state they show.
pub(super) struct Control {
    samples: Arc<Samples>,
    memory: Arc<Memory>,
    namespace: Arc<Namespace>,
    prefetch: Arc<Prefetch>,
    trace: Arc<Trace>,
    snapshots: Snapshots,
    /// Whether a writer may have left a line without newline.
    has_lines: AtomicBool,
    access: Access,
    tuning: Tuning,
    settings: OnceLock<Box<dyn Settings>>,
    mounted: reports::Mounted,
}

/// The modules whose state the control directory shows.
pub(super) struct Shown {
    pub(super) samples: Arc<Samples>,
    pub(super) memory: Arc<Memory>,
    pub(super) namespace: Arc<Namespace>,
    pub(super) prefetch: Arc<Prefetch>,
    pub(super) trace: Arc<Trace>,
}

impl Control {
    pub(super) fn new(shown: Shown, options: Options) -> Self {
        let Shown { samples, memory, namespace, prefetch, trace } = shown;
        let Options { uid, master, file_mode, prefetch_mode, .. } = options;
        let parts = (Arc::clone(&samples), Arc::clone(&memory), Arc::clone(&prefetch));
        Self {
            samples,
            memory,
            namespace,
            prefetch,
            trace,
            snapshots: Snapshots::new(),
            has_lines: AtomicBool::new(false),
            access: Access { uid, master, file_mode, prefetch_mode },
            tuning: Tuning::new(parts.0, parts.1, parts.2),
            settings: OnceLock::new(),
            mounted: reports::Mounted::new(options),
        }
    }

    /// The values that can be changed while mounted.
    pub(super) fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// Makes the file `settings` work. The first call counts.
    pub(super) fn set_settings(&self, settings: Box<dyn Settings>) {
        let _ = self.settings.set(settings);
    }

    /// See `Vfs::change_settings`.
    pub(in crate::vfs) fn change_settings(&self, lines: &[u8]) -> Result<(), Errno> {
        self.settings.get().ok_or(Errno::EROFS)?.change(&self.tuning, lines)
    }

    /// Makes a new snapshot of a control file.
    pub(super) fn lookup(&self, name: &[u8]) -> Option<Attr> {
        // The snapshot also shows last lines without newline that count by now.
        self.tick();
        let reader = reader_of_trace(name);
        let file = if reader.is_some() { TRACE } else { name };
        let place = FILES.iter().position(|known| *known == file)?;
        let shown_ino = shown_of_control_file(place);
        if let Some(reader) = reader {
            let (lines, last) = self.trace_lines(reader);
            return self.attr(self.snapshots.add_page(shown_ino, lines, reader, last)).ok();
        }
        let content = match name {
            b"bad" => self.bad_list().into_bytes(),
            b"info.json" => report::json(&self.mount_info()),
            b"stats.json" => report::json(&self.mount_stats()),
            PREFETCH => self.prefetch_text().into_bytes(),
            SETTINGS => self.settings.get()?.show(&self.tuning),
            _ => return None,
        };
        let takes = match name {
            PREFETCH => Takes::Announcements(Arc::new(Mutex::new(Writer::new()))),
            SETTINGS => Takes::Settings,
            _ => Takes::Nothing,
        };
        self.attr(self.snapshots.add(shown_ino, content, takes)).ok()
    }

    /// Attributes of the control directory or of a snapshot.
    pub(super) fn attr(&self, inode: Inode) -> Result<Attr, Errno> {
        let directory = self.namespace.plain_directory(inode);
        let Inode::Snapshot(number) = inode else { return Ok(directory) };
        let size = self.snapshots.content(number).ok_or(Errno::ESTALE)?.len() as u64;
        let shown_ino = self.snapshots.shown_ino(number).ok_or(Errno::ESTALE)?;
        let ((uid, mode), modified) = (self.owner(number), SystemTime::now());
        let (kind, stored_bytes, links) = (FileKind::File, size, 1);
        Ok(Attr { shown_ino, kind, size, stored_bytes, mode, links, uid, modified, ..directory })
    }

    fn attr_of(&self, ino: u64) -> Result<Attr, Errno> {
        self.attr(Inode::of(ino))
    }

    /// Lists the control directory from entry `from` on: inode number and name.
    pub(super) fn list(from: u64) -> impl Iterator<Item = (u64, &'static [u8])> {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let listed = FILES.into_iter().enumerate().skip(from);
        listed.map(|(place, name)| (shown_of_control_file(place), name))
    }

    /// Returns the content of a snapshot, and the range of it that is read.
    pub(super) fn read(
        &self,
        number: u64,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<(Arc<[u8]>, Range<usize>), Errno> {
        let end = offset_bytes.saturating_add(length_bytes);
        let (content, page) = self.snapshots.read(number, end)?;
        if let Some((reader, last)) = page {
            self.trace.was_read(&reader, last);
        }
        let end = end.min(content.len() as u64);
        let range = offset_bytes.min(end) as usize..end as usize;
        Ok((content, range))
    }

    /// Owner and permission bits of a snapshot. The kernel checks them: settings may be changed by the owner
    /// of this process and by root.
    fn owner(&self, number: u64) -> (u32, u16) {
        let Access { uid, master, file_mode, prefetch_mode } = self.access;
        match self.snapshots.takes(number) {
            Takes::Nothing if self.snapshots.is_page(number) => (master, TRACE_MODE),
            Takes::Nothing => (uid, file_mode),
            Takes::Announcements(_) => (uid, prefetch_mode),
            Takes::Settings => (master, SETTINGS_MODE),
        }
    }

    #[cfg(test)]
    pub(super) fn snapshots(&self) -> usize {
        self.snapshots.count()
    }

    fn taken_by(&self, ino: u64) -> Takes {
        match Inode::of(ino) {
            Inode::Snapshot(number) => self.snapshots.takes(number),
            _ => Takes::Nothing,
        }
    }

    /// Whether an inode number is that of a snapshot that does not exist.
    fn is_unknown(&self, ino: u64) -> bool {
        matches!(Inode::of(ino), Inode::Snapshot(number) if self.snapshots.content(number).is_none())
    }

    /// The kind of content that can be written to a file with a write, not with an ioctl.
    fn writable(&self, ino: u64) -> Result<Takes, Errno> {
        match self.taken_by(ino) {
            // Perhaps a snapshot of a process that has died: on ESTALE the kernel looks the name up again for the opener.
            Takes::Nothing if self.is_unknown(ino) => Err(Errno::ESTALE),
            Takes::Nothing => Err(Errno::EROFS),
            Takes::Announcements(_) if self.access.prefetch_mode & 0o222 == 0 => Err(Errno::EROFS),
            takes => Ok(takes),
        }
    }

    /// See `Vfs::open_for_writing`.
    pub(in crate::vfs) fn open_for_writing(&self, ino: u64) -> Result<(), Errno> {
        self.writable(ino).map(drop)
    }

    /// See `Vfs::set_size`.
    pub(in crate::vfs) fn set_size(&self, ino: u64) -> Result<Attr, Errno> {
        self.open_for_writing(ino)?;
        self.attr_of(ino)
    }

    /// See `Vfs::write`.
    pub(in crate::vfs) fn write(
        &self,
        ino: u64,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        self.take_written(self.writable(ino)?, offset_bytes, bytes)
    }

    /// See `Vfs::take_ioctl`.
    pub(in crate::vfs) fn take_ioctl(
        &self,
        ino: u64,
        request: ControlRequest,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let (numbers, rest) = bytes.as_chunks();
        let mut numbers = numbers.iter().copied().map(u64::from_le_bytes);
        match (self.taken_by(ino), request) {
            (Takes::Nothing, _) if self.is_unknown(ino) => Err(Errno::ESTALE),
            (Takes::Nothing, _) => Err(Errno::ENOTTY),
            (takes, ControlRequest::Write) => self.take_written(takes, 1, bytes),
            (Takes::Settings, _) => Err(Errno::ENOTTY),
            (Takes::Announcements(_), _) if !rest.is_empty() => Err(Errno::EINVAL),
            (Takes::Announcements(_), ControlRequest::WarmUp) => self.warm_up(numbers.collect()),
            (Takes::Announcements(writer), ControlRequest::BeginOrder) => {
                self.begin_order(&writer, numbers.next().ok_or(Errno::EINVAL)?);
                Ok(())
            }
            (Takes::Announcements(_), ControlRequest::DropAll) => {
                self.prefetch.drop_all();
                Ok(())
            }
        }
    }

    fn take_written(&self, takes: Takes, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        match takes {
            Takes::Nothing => Err(Errno::EROFS),
            Takes::Announcements(writer) => self.written(&writer, offset, bytes),
            Takes::Settings => self.change_settings(bytes),
        }
    }
}

/// The reader's name in the name of a `trace` file; `None` if the name is another file's.
fn reader_of_trace(name: &[u8]) -> Option<&[u8]> {
    match name.strip_prefix(TRACE)? {
        b"" => Some(b""),
        rest => {
            let reader = rest.strip_prefix(b".")?;
            (1..=MAX_READER_BYTES).contains(&reader.len()).then_some(reader)
        }
    }
}
