//! Writes entries in order to containers.

use super::losses::Losses;
use super::ordered::{Ordered, Sink, read_ordered};
use crate::failure::Failure;
use crate::format::{Checksum, Grouping, MemberWriter, NewMember, NewNode, Outline, WriteFormat};
use crate::interrupt::Interrupt;
use crate::tools::entries::{Entries, EntryKind, EntryMetadata, is_empty, total_bytes};
use crate::tools::output::{LargeFile, Set, file_beside};
use crate::tools::reader::{Chunk, bad_file};
use indicatif::ProgressBar;
use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Smaller writes are gathered up to this size.
const WRITE_BYTES: usize = 1 << 20;

/// Writes entries as containers.
pub(crate) struct WriteContainers<'a> {
    pub(crate) entries: &'a dyn Entries,
    pub(crate) format: &'a dyn WriteFormat,
    pub(crate) is_numbered: bool,
    pub(crate) grouping: Grouping,
    /// The directory to name in errors, while the outputs are in a temporary one.
    pub(crate) shown_in: Option<&'a Path>,
    /// A file to add after all others.
    pub(crate) last: Option<Vec<u8>>,
    pub(crate) whole_seconds: bool,
    pub(crate) threads: usize,
    pub(crate) force: bool,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) progress: ProgressBar,
}

impl WriteContainers<'_> {
    /// Writes a container for each range of items; they get their names when all are whole.
    pub(crate) fn all(
        &self,
        names: &[PathBuf],
        ranges: &[Range<usize>],
    ) -> Result<Losses, Failure> {
        let is_read = |range: &Range<usize>, item: &usize| self.is_read(*item, range);
        let items = ranges.iter().flat_map(|range| range.clone().filter(|i| is_read(range, i)));
        let files: Vec<usize> = items.collect();
        let mut losses = Losses::default();
        let mut set = Set::new();
        let written = read_ordered(self.entries, &files, self.threads, self.interrupt, |ordered| {
            for (number, (name, range)) in names.iter().zip(ranges).enumerate() {
                let shown = match (self.shown_in, name.file_name()) {
                    (Some(directory), Some(file)) => directory.join(file),
                    _ => name.clone(),
                };
                let failed = |e| Failure::output(shown.display(), e);
                let temporary = file_beside(name).map_err(failed)?;
                let last = self.last.as_deref().filter(|_| number + 1 == ranges.len());
                let part = Part { shown: &shown, range, last };
                self.one(temporary.as_file(), &part, ordered, &mut losses)?;
                LargeFile::finish(temporary.as_file()).map_err(failed)?;
                set.add(temporary, name.clone());
            }
            self.interrupt.check()
        });
        self.progress.finish_and_clear();
        written?;
        set.give_names(self.force)?;
        Ok(losses)
    }

    /// Whether the bytes of an item are read: those of a hard link only if the output cannot have it as a link.
    fn is_read(&self, item: usize, range: &Range<usize>) -> bool {
        match self.entries.list()[item].kind {
            EntryKind::File => true,
            EntryKind::HardLink(first) => {
                !(self.format.holds().hard_links && range.contains(&first))
            }
            EntryKind::Directory | EntryKind::Symlink => false,
        }
    }

    fn one(
        &self,
        file: &File,
        part: &Part,
        ordered: &mut Ordered,
        losses: &mut Losses,
    ) -> Result<(), Failure> {
        let Part { shown, range, last } = *part;
        let failed = |e| Failure::output(shown.display(), e);
        let read = || range.clone().filter(|item| self.is_read(*item, range));
        let bytes = total_bytes(read().map(|item| self.entries.list()[item]));
        let files = (read().count() + usize::from(last.is_some())) as u64;
        let outline = Outline {
            files,
            is_numbered: self.is_numbered,
            grouping: self.grouping,
            records: self.count_records(read()),
            largest_bytes: read()
                .map(|item| self.entries.list()[item].size_bytes)
                .max()
                .unwrap_or(0),
        };
        let large = LargeFile::new(file, bytes).map_err(failed)?;
        let out = Box::new(BufWriter::with_capacity(WRITE_BYTES, large));
        let mut writer = self.format.begin(out, &outline).map_err(failed)?;
        for item in range.clone() {
            self.interrupt.check()?;
            self.member(item, part, writer.as_mut(), ordered, losses)?;
        }
        if let Some(last) = last {
            let node = NewNode::File { size_bytes: last.len() as u64, checksum: None };
            let member = NewMember { path: b"", node, mode: None, modified: (0, 0) };
            writer.begin(&member).and_then(|()| writer.write(last)).map_err(failed)?;
        }
        writer.finish().map_err(failed)
    }

    /// The number of samples that files are, those of a sample next to each other.
    fn count_records(&self, files: impl Iterator<Item = usize>) -> u64 {
        let (mut count, mut before) = (0, None);
        for item in files {
            let path = self.entries.path(item);
            let key = Some(self.grouping.key(&path).to_vec());
            count += u64::from(self.grouping == Grouping::Files || key != before);
            before = key;
        }
        count
    }

    fn member(
        &self,
        item: usize,
        part: &Part,
        writer: &mut dyn MemberWriter,
        ordered: &mut Ordered,
        losses: &mut Losses,
    ) -> Result<(), Failure> {
        let Part { shown, range, .. } = *part;
        let failed = |e| Failure::output(shown.display(), e);
        let (path, metadata) = (self.entries.path(item), self.entries.metadata(item)?);
        let other;
        let entry = self.entries.list()[item];
        let node = match entry.kind {
            EntryKind::Symlink if !self.format.holds().symlinks => {
                losses.symlinks += 1;
                return Ok(());
            }
            EntryKind::Directory if !self.format.holds().empty_directories => {
                losses.directories += u64::from(is_empty(self.entries, item));
                return Ok(());
            }
            EntryKind::Symlink => {
                let target = self.entries.link_target(item);
                other = target.map_err(|fault| bad_file(&path, &fault))?;
                NewNode::Symlink(&other)
            }
            EntryKind::Directory => NewNode::Directory,
            EntryKind::HardLink(of) if !self.is_read(item, range) => {
                other = self.entries.path(of);
                NewNode::HardLink(&other)
            }
            EntryKind::File | EntryKind::HardLink(_) => {
                losses.hard_links += u64::from(entry.kind != EntryKind::File);
                NewNode::File { size_bytes: entry.size_bytes, checksum: None }
            }
        };
        let member = self.describe(&path, node, &metadata, losses);
        if !matches!(node, NewNode::File { .. }) {
            return writer.begin(&member).map_err(failed);
        }
        let mut file = MemberFile { writer, member, shown, write: self, has_holes: false };
        let whole = ordered.next(metadata.checksum, &mut file)?;
        losses.holes += u64::from(file.has_holes);
        whole.map_err(|fault| bad_file(&path, &fault))
    }

    /// Describes a member for the format, and counts the properties that the format cannot hold.
    fn describe<'a>(
        &self,
        path: &'a [u8],
        node: NewNode<'a>,
        metadata: &EntryMetadata,
        losses: &mut Losses,
    ) -> NewMember<'a> {
        let (holds, (seconds, mut nanos)) = (self.format.holds(), metadata.modified);
        if self.whole_seconds {
            nanos = 0;
        }
        let unit = holds.times_nanos;
        losses.modes += u64::from(!holds.modes && metadata.mode.is_some());
        losses.times += u64::from(unit == 0 && metadata.has_time);
        losses.fine_times += u64::from(unit > 0 && metadata.has_time && nanos % unit != 0);
        losses.names += u64::from(!holds.any_names && std::str::from_utf8(path).is_err());
        NewMember { path, node, mode: metadata.mode, modified: (seconds, nanos) }
    }
}

/// A container of a set.
struct Part<'a> {
    /// The name in errors.
    shown: &'a Path,
    range: &'a Range<usize>,
    last: Option<&'a [u8]>,
}

/// A file of a container that is being written.
struct MemberFile<'a> {
    writer: &'a mut dyn MemberWriter,
    member: NewMember<'a>,
    shown: &'a Path,
    write: &'a WriteContainers<'a>,
    has_holes: bool,
}

impl Sink for MemberFile<'_> {
    fn begin(&mut self, known: Option<Checksum>) -> Result<(), Failure> {
        if let NewNode::File { checksum, .. } = &mut self.member.node {
            *checksum = known;
        }
        let begun = self.writer.begin(&self.member);
        begun.map_err(|e| Failure::output(self.shown.display(), e))
    }

    fn chunk(&mut self, chunk: &Chunk) -> Result<(), Failure> {
        self.has_holes |= matches!(chunk, Chunk::Hole(_));
        chunk.each_slice(|bytes| {
            self.write.interrupt.check()?;
            self.writer.write(bytes).map_err(|e| Failure::output(self.shown.display(), e))?;
            self.write.progress.inc(bytes.len() as u64);
            Ok(())
        })
    }
}
