//! Members in order → containers.

use super::lost::Lost;
use super::ordered::{Ordered, Sink, read_ordered};
use crate::failure::Failure;
use crate::format::{Checksum, MemberWriter, NewMember, NewNode, Outline, WriteFormat};
use crate::tools::interrupt::Interrupt;
use crate::tools::origin::{About, Origin, What, total_bytes};
use crate::tools::output::{LargeFile, Set, file_beside};
use indicatif::ProgressBar;
use std::fs::File;
use std::io::{self, BufWriter};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What is smaller is gathered, so that writes are large.
const WRITE_BYTES: usize = 1 << 20;

/// How containers are written.
pub(crate) struct Write<'a> {
    pub(crate) origin: &'a dyn Origin,
    pub(crate) format: &'a dyn WriteFormat,
    pub(crate) is_numbered: bool,
    /// The folder that errors name, while the outputs lie in a temporary one.
    pub(crate) shown_in: Option<&'a Path>,
    /// A file to be added behind all others.
    pub(crate) last: Option<Vec<u8>>,
    pub(crate) whole_seconds: bool,
    pub(crate) jobs: usize,
    pub(crate) force: bool,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) progress: ProgressBar,
}

impl Write<'_> {
    /// Writes a container for each range of items; all get their names at the end.
    pub(crate) fn all(&self, names: &[PathBuf], ranges: &[Range<usize>]) -> Result<Lost, Failure> {
        let is_read = |range: &Range<usize>, item: &usize| self.is_read(*item, range);
        let items = ranges.iter().flat_map(|range| range.clone().filter(|i| is_read(range, i)));
        let files: Vec<usize> = items.collect();
        let mut lost = Lost::default();
        let mut set = Set::new();
        let written = read_ordered(self.origin, &files, self.jobs, self.interrupt, |ordered| {
            for (number, (name, range)) in names.iter().zip(ranges).enumerate() {
                let shown = match (self.shown_in, name.file_name()) {
                    (Some(folder), Some(file)) => folder.join(file),
                    _ => name.clone(),
                };
                let failed = |e| Failure::output(shown.display(), e);
                let temporary = file_beside(name).map_err(failed)?;
                let last = self.last.as_deref().filter(|_| number + 1 == ranges.len());
                let part = Part { shown: &shown, range, last };
                self.one(temporary.as_file(), &part, ordered, &mut lost)?;
                LargeFile::finish(temporary.as_file()).map_err(failed)?;
                set.add(temporary, name.clone());
            }
            self.interrupt.check()
        });
        self.progress.finish_and_clear();
        written?;
        set.give_names(self.force)?;
        Ok(lost)
    }

    /// Whether the bytes of an item are read: those of a hard link only if it cannot be one.
    fn is_read(&self, item: usize, range: &Range<usize>) -> bool {
        match self.origin.items()[item].what {
            What::File => true,
            What::HardLink(first) => !(self.format.holds().hard_links && range.contains(&first)),
            What::Folder | What::Symlink => false,
        }
    }

    fn one(
        &self,
        file: &File,
        part: &Part,
        ordered: &mut Ordered,
        lost: &mut Lost,
    ) -> Result<(), Failure> {
        let Part { shown, range, last } = *part;
        let failed = |e| Failure::output(shown.display(), e);
        let read = || range.clone().filter(|item| self.is_read(*item, range));
        let bytes = total_bytes(read().map(|item| self.origin.items()[item]));
        let files = (read().count() + usize::from(last.is_some())) as u64;
        let outline = Outline { files, is_numbered: self.is_numbered };
        let large = LargeFile::new(file, bytes).map_err(failed)?;
        let out = Box::new(BufWriter::with_capacity(WRITE_BYTES, large));
        let mut writer = self.format.begin(out, &outline).map_err(failed)?;
        for item in range.clone() {
            self.interrupt.check()?;
            self.member(item, part, writer.as_mut(), ordered, lost)?;
        }
        if let Some(last) = last {
            let node = NewNode::File { size_bytes: last.len() as u64, checksum: None };
            let member = NewMember { path: b"", node, mode: None, modified: (0, 0) };
            writer.begin(&member).and_then(|()| writer.write(last)).map_err(failed)?;
        }
        writer.finish().map_err(failed)
    }

    fn member(
        &self,
        item: usize,
        part: &Part,
        writer: &mut dyn MemberWriter,
        ordered: &mut Ordered,
        lost: &mut Lost,
    ) -> Result<(), Failure> {
        let Part { shown, range, .. } = *part;
        let failed = |e| Failure::output(shown.display(), e);
        let (path, about) = (self.origin.path(item), self.origin.about(item)?);
        let first;
        let what = self.origin.items()[item];
        let node = match what.what {
            What::Symlink if !self.format.holds().symlinks => {
                lost.symlinks += 1;
                return Ok(());
            }
            What::Symlink => NewNode::Symlink(&about.target),
            What::Folder => NewNode::Folder,
            What::HardLink(of) if !self.is_read(item, range) => {
                first = self.origin.path(of);
                NewNode::HardLink(&first)
            }
            What::File | What::HardLink(_) => {
                lost.hard_links += u64::from(what.what != What::File);
                NewNode::File { size_bytes: what.size_bytes, checksum: None }
            }
        };
        let member = self.describe(&path, node, &about, lost);
        if !matches!(node, NewNode::File { .. }) {
            return writer.begin(&member).map_err(failed);
        }
        let mut file = MemberFile { writer, member, shown, write: self, has_holes: false };
        let whole = ordered.next(about.checksum, &mut file)?;
        lost.holes += u64::from(file.has_holes);
        whole.map_err(|fault| fault.of(&path))
    }

    /// A member as the format holds it; counts what it does not.
    fn describe<'a>(
        &self,
        path: &'a [u8],
        node: NewNode<'a>,
        about: &About,
        lost: &mut Lost,
    ) -> NewMember<'a> {
        let (holds, (seconds, mut nanos)) = (self.format.holds(), about.modified);
        if self.whole_seconds {
            nanos = 0;
        }
        let unit = holds.times_nanos;
        lost.modes += u64::from(!holds.modes && about.mode.is_some());
        lost.times += u64::from(unit == 0 && about.has_time);
        lost.fine_times += u64::from(unit > 0 && about.has_time && nanos % unit != 0);
        lost.names += u64::from(!holds.any_names && std::str::from_utf8(path).is_err());
        NewMember { path, node, mode: about.mode, modified: (seconds, nanos) }
    }
}

/// A container of a set.
struct Part<'a> {
    /// What errors call it.
    shown: &'a Path,
    range: &'a Range<usize>,
    last: Option<&'a [u8]>,
}

/// A file of a container that is being written.
struct MemberFile<'a> {
    writer: &'a mut dyn MemberWriter,
    member: NewMember<'a>,
    shown: &'a Path,
    write: &'a Write<'a>,
    has_holes: bool,
}

impl MemberFile<'_> {
    fn failed(&self, error: io::Error) -> Failure {
        Failure::output(self.shown.display(), error)
    }
}

impl Sink for MemberFile<'_> {
    fn begin(&mut self, known: Option<Checksum>) -> Result<(), Failure> {
        if let NewNode::File { checksum, .. } = &mut self.member.node {
            *checksum = known;
        }
        self.writer.begin(&self.member).map_err(|e| self.failed(e))
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.write.interrupt.check()?;
        self.writer.write(bytes).map_err(|e| self.failed(e))?;
        self.write.progress.inc(bytes.len() as u64);
        Ok(())
    }

    fn hole(&mut self, mut left: u64) -> Result<(), Failure> {
        static ZEROS: [u8; 65536] = [0; 65536];
        self.has_holes = true;
        while left > 0 {
            let length = left.min(ZEROS.len() as u64);
            self.data(&ZEROS[..length as usize])?;
            left -= length;
        }
        Ok(())
    }
}
