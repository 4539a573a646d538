//! Pickled samples as files: a tuple is a directory, a dictionary its keys, an array a `.npy` file.
//!
//! Most datasets of FFRecord hold pickles of Python objects. With `--pickles` each sample is read once, checked, and
//! taken apart: by a decoder that knows a few types and executes nothing. What it does not know stays one file. What was
//! found is an index that can be kept (`records`). Bytes that lie together in a pickle are served in place, each file
//! with a checksum of its own.
//!
//! `machine` follows opcodes, `objects` knows classes, `files` makes files of values.

mod files;
mod heap;
mod machine;
mod objects;
#[cfg(test)]
mod tests;
mod value;

use super::ffrecord::{self, FfRecord};
use super::reader::Reader;
use super::records::{Builder, Record, RecordFile, RecordFormat, Row, Shown};
use super::scanned::Index;
use super::{
    ChecksumKind, Container, Content, Detected, Format, IndexChecksum, Names, OpenOptions, Result,
    Sample, Source, View, ending,
};
use files::{Files, decoded, files};
use std::sync::Arc;

const NAME: &str = "FFRecord pickles";
/// A larger sample stays one file: to be taken apart it must fit in memory.
const MAX_SAMPLE_BYTES: u64 = 256 << 20;
/// So many bytes of the container may be a file, on average.
const BYTES_A_FILE: u64 = 16;

/// FFRecord whose samples are taken apart.
#[derive(Debug)]
pub struct Pickled;

/// What a container is opened with whose pickled samples are to be shown as files.
pub(super) fn over(
    format: &'static dyn Format,
    options: &OpenOptions,
) -> Option<&'static dyn Format> {
    let is_asked = options.pickles && options.view != View::Raw;
    (is_asked && format.name() == FfRecord.name()).then_some(&Pickled)
}

impl Format for Pickled {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        FfRecord.extensions()
    }

    fn detect(&self, source: &dyn Source) -> Result<Detected> {
        FfRecord.detect(source)
    }

    fn open(&self, source: Arc<dyn Source>, options: &OpenOptions) -> Result<Box<dyn Container>> {
        let container = FfRecord.open(Arc::clone(&source), options)?;
        let others = container.len().saturating_sub(1);
        if container.names(others)? != Names::None {
            return Ok(container);
        }
        let mut pass =
            Pass { source: source.as_ref(), build: Builder::default(), bytes: Vec::new() };
        for warning in container.warnings() {
            pass.build.warn(warning.clone());
        }
        for index in 0..container.len() {
            pass.sample(&container.sample(index)?)?;
        }
        let build = pass.build;
        Ok(Box::new(build.finish(source.name().clone(), Arc::clone(&source))?))
    }

    fn is_scanned(&self) -> bool {
        true
    }

    fn open_kept(
        &self,
        source: Arc<dyn Source>,
        kept: Arc<dyn Source>,
    ) -> Result<Option<Box<dyn Container>>> {
        let index = Index::read(kept.as_ref())?;
        index.map(|index| RecordFile::<Files>::boxed(source, index)).transpose()
    }
}

impl RecordFormat for Files {
    const NAME: &'static str = NAME;
    const VERSION: u32 = 1;

    /// FFRecord's, which was right or absent when the samples were read.
    fn index_checksum(source: &dyn Source) -> IndexChecksum {
        match ffrecord::has_header_checksum(source) {
            true => IndexChecksum::Ok,
            false => IndexChecksum::Absent,
        }
    }

    fn decode(shown: Shown, stored: &[u8], values: &mut [u8]) -> bool {
        shown == Shown::Coded && files::latin1(stored, values)
    }
}

/// Reads all samples, one after the other.
struct Pass<'a> {
    source: &'a dyn Source,
    build: Builder<Files>,
    bytes: Vec<u8>,
}

impl Pass<'_> {
    fn sample(&mut self, sample: &Sample) -> Result<()> {
        let record = match self.is_read(sample)? {
            true => self.taken_apart(sample.offset_bytes),
            false => None,
        };
        let reader = Reader::new(self.source, NAME);
        let seen = sample.end_bytes();
        let has_room =
            |record: &Record<Files>| self.build.room(record, seen / BYTES_A_FILE, seen).is_ok();
        let record = record.filter(has_room).unwrap_or_else(|| whole(sample));
        self.build.add(&record).map_err(|_| {
            let expected = "files that an index can hold";
            reader.malformed(sample.offset_bytes, expected, "too many", "")
        })
    }

    /// Reads a sample. False: it is damaged, or too large.
    fn is_read(&mut self, sample: &Sample) -> Result<bool> {
        let is_plain = sample.content == Content::Stored && !sample.damaged;
        if !is_plain || sample.length_bytes > MAX_SAMPLE_BYTES {
            return Ok(false);
        }
        self.bytes.resize(usize::try_from(sample.length_bytes).unwrap_or(0), 0);
        let reader = Reader::new(self.source, NAME);
        reader.read("a sample", &mut self.bytes, sample.offset_bytes)?;
        Ok(sample.checksum.is_none_or(|checksum| checksum.check(&self.bytes).is_ok()))
    }

    /// The files of the sample that was read. `None`: it stays one.
    fn taken_apart(&mut self, offset: u64) -> Option<Record<Files>> {
        let bytes = &self.bytes;
        let pickle = machine::read(bytes, 0).filter(|pickle| pickle.end == bytes.len())?;
        let all = files(bytes, &pickle)?;
        let mut record = Record::default();
        for file in all.files {
            let shown = decoded(bytes, &file.data);
            let at = offset.saturating_add(file.data.range.start as u64);
            let length = file.data.range.len() as u64;
            let size = (file.header.len() as u64).saturating_add(shown.len() as u64);
            let (mut row, checked) = match file.data.latin1 {
                None if file.header.is_empty() => (Row::stored(at, length, file.ending), shown),
                None => (self.build.headed((at, length), &file.header, file.ending)?, shown),
                Some(_) => {
                    let row =
                        self.build.coded((at, length), &file.header, shown.len(), file.ending)?;
                    (row, [file.header, shown].concat())
                }
            };
            row.checksum = Some(ChecksumKind::Crc32.of(&checked));
            match file.path.is_empty() {
                true => record.whole(row, size),
                false => {
                    let parts: Vec<&[u8]> = file.path.iter().map(Vec::as_slice).collect();
                    record.sized(&parts, row, size);
                }
            }
        }
        for path in &all.directories {
            let parts: Vec<&[u8]> = path.iter().map(Vec::as_slice).collect();
            record.directory(&parts);
        }
        Some(record)
    }
}

/// A sample that stays one file.
fn whole(sample: &Sample) -> Record<Files> {
    let mut record = Record::default();
    let row = Row::stored(sample.offset_bytes, sample.length_bytes, ending::NONE);
    let row = Row { checksum: sample.checksum, is_damaged: sample.damaged, ..row };
    record.whole(row, if sample.damaged { 0 } else { sample.length_bytes });
    record
}
