//! Announcements from the writers of `prefetch`.

use super::Control;
use super::announce::{Item, Parser, Refused, Take};
use super::snapshots::{Takes, Writer};
use crate::catalog::Node;
use crate::vfs::Errno;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time without further bytes after which a last line without newline counts. (FORGET alone would not do:
/// the kernel keeps a closed file's inode until its name is looked up again.)
const LINE_TIMEOUT: Duration = Duration::from_millis(100);
/// A write that ends at a multiple of this looks like a full buffer: programs and the kernel cut there, in the
/// middle of a line, and may take their time for the rest, hence a longer timeout.
const CUT_BYTES: u64 = 4096;
const CUT_LINE_TIMEOUT: Duration = Duration::from_secs(10);

fn lock(writer: &Mutex<Writer>) -> MutexGuard<'_, Writer> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    pub(super) fn written(
        &self,
        writer: &Mutex<Writer>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let mut writer = lock(writer);
        let length = bytes.len() as u64;
        let ends = [length, offset.saturating_add(length)];
        let cut = ends.iter().any(|end| end.is_multiple_of(CUT_BYTES));
        let may_begin = |line: &[u8]| if cut { Ok(()) } else { self.may_begin(line) };
        let taken = self.take(&mut writer, |parser, take| parser.write(bytes, take, &may_begin));
        writer.over = Instant::now() + if cut { CUT_LINE_TIMEOUT } else { LINE_TIMEOUT };
        if writer.parser.has_line() {
            self.has_lines.store(true, Ordering::Relaxed);
            self.prefetch.wake();
        }
        taken
    }

    /// Drops the rest of an order; samples that this writer announces from now on belong to that order. With [`UNNAMED`], drops
    /// the rest of all orders, and the writer's order has no name.
    pub(super) fn begin_order(&self, writer: &Mutex<Writer>, order: u64) {
        lock(writer).order = order;
        self.prefetch.drop_order(order);
    }

    /// Lets a writer's parser work, and announces the samples that it finds. If not all of them find room, none are announced,
    /// and the parser stays as it was.
    fn take(
        &self,
        writer: &mut Writer,
        work: impl FnOnce(&mut Parser, &mut Take) -> Result<(), Refused>,
    ) -> Result<(), Errno> {
        let before = writer.parser.clone();
        let mut samples = Vec::new();
        let outcome = work(&mut writer.parser, &mut |item| {
            samples.push(self.announced(item)?);
            Ok(())
        });
        let hidden = self.take_hidden(&mut samples);
        let is_all_hidden = hidden > 0 && samples.is_empty();
        if !is_all_hidden && let Err(errno) = self.prefetch.announce(writer.order, &samples) {
            writer.parser = before;
            return Err(errno);
        }
        self.prefetch.skip(hidden);
        outcome.map_err(|refused| {
            writer.warn(&refused.item, refused.errno);
            refused.errno
        })
    }

    /// Has samples fetched, by number, that will be read at some time.
    pub(super) fn warm_up(&self, mut samples: Vec<u64>) -> Result<(), Errno> {
        let hidden = self.take_hidden(&mut samples);
        if hidden == 0 || !samples.is_empty() {
            self.prefetch.warm_up(&samples)?;
        }
        self.prefetch.skip(hidden);
        Ok(())
    }

    /// Takes out the samples that have no name, as no program can read them; returns their number.
    fn take_hidden(&self, samples: &mut Vec<u64>) -> u64 {
        let dataset = self.samples.dataset();
        let named = self.namespace.catalog().named(dataset, |error| {
            tracing::warn!("{error}: announced samples that are not shown are fetched, too");
        });
        let Some(named) = named else { return 0 };
        let all = samples.len();
        // Samples that do not exist are refused later.
        samples.retain(|&sample| sample >= dataset.len() || named.has(sample));
        (all - samples.len()) as u64
    }

    /// The sample that a line or number names.
    fn announced(&self, item: Item) -> Result<u64, Errno> {
        match item {
            Item::Number(number) if number < self.samples.dataset().len() => Ok(number),
            Item::Number(_) => Err(Errno::EINVAL),
            Item::Path(path) => {
                let found = self.namespace.catalog().find(self.samples.dataset(), path);
                match found.map_err(|e| Errno::from(&e))? {
                    Some(Node::Sample(sample)) => Ok(sample),
                    Some(Node::Directory(_)) => Err(Errno::EISDIR),
                    None => Err(Errno::ENOENT),
                }
            }
        }
    }

    /// Checks that a line that begins with these bytes can name a sample.
    fn may_begin(&self, start: &[u8]) -> Result<(), Errno> {
        let start = start.strip_suffix(b"\r").unwrap_or(start);
        let is_number = start.iter().all(u8::is_ascii_digit);
        let number = str::from_utf8(start).ok().and_then(|text| text.parse().ok());
        if number.is_some_and(|number| is_number && self.announced(Item::Number(number)).is_ok()) {
            return Ok(());
        }
        let (catalog, dataset) = (self.namespace.catalog(), self.samples.dataset());
        let cut = start.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let (directory, first) = start.split_at(cut);
        let found = catalog.find(dataset, directory).map_err(|e| Errno::from(&e))?;
        let mut may = matches!(first, b"" | b".");
        if let (Some(Node::Directory(directory)), false) = (found, may) {
            let list = catalog.list(dataset, directory, 0, &mut |name, _| {
                may = name.starts_with(first);
                !may
            });
            list.map_err(|e| Errno::from(&e))?;
        }
        match found {
            Some(Node::Directory(_)) if may => Ok(()),
            _ if is_number => Err(Errno::EINVAL),
            _ => Err(Errno::ENOENT),
        }
    }

    /// Checks, when a descriptor is closed, that its writer's last line without newline names a sample if no bytes follow. The
    /// line stays as it is, since another process may have the file open and go on. See `Vfs::flush`.
    pub(in crate::vfs) fn flush(&self, ino: u64) -> Result<(), Errno> {
        let Takes::Announcements(writer) = self.taken_by(ino) else { return Ok(()) };
        let mut parser = lock(&writer).parser.clone();
        let ended = parser.end(&mut |item| self.announced(item).map(drop));
        ended.map_err(|refused| refused.errno)
    }

    /// Takes lookups off a snapshot. When it is gone, its writer's last line without newline counts.
    pub(in crate::vfs) fn forget(&self, number: u64, lookups: u64) {
        if let Some(writer) = self.snapshots.forget(number, lookups) {
            let mut writer = lock(&writer);
            // Only the log can still tell of an error.
            if self.take(&mut writer, Parser::end) == Err(Errno::ENOSPC) {
                writer.warn("the last line", Errno::ENOSPC);
            }
        }
    }

    /// Takes last lines without newline of writers that have been silent for a while, but keep the file
    /// open. True if such lines remain: call this again in 100 ms or so.
    pub(in crate::vfs) fn tick(&self) -> bool {
        self.has_lines.load(Ordering::Relaxed) && self.tick_at(Instant::now())
    }

    pub(in crate::vfs) fn tick_at(&self, now: Instant) -> bool {
        self.has_lines.store(false, Ordering::Relaxed);
        for writer in self.snapshots.writers() {
            let mut writer = lock(&writer);
            if now >= writer.over && writer.parser.has_line() {
                // Samples that find no room now stay with the parser, and are tried again.
                let _ = self.take(&mut writer, Parser::end);
            }
            if writer.parser.has_line() {
                self.has_lines.store(true, Ordering::Relaxed);
            }
        }
        self.has_lines.load(Ordering::Relaxed)
    }
}
