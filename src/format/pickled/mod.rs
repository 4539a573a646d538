//! Pickled samples as files: a tuple is a directory, a dictionary a directory of its keys, an array a `.npy` file.
//!
//! Most datasets of FFRecord hold pickles of Python objects, and many of LMDB and MDS. With `--pickles` each is read once
//! and taken apart: by a decoder that knows a few types and executes no code. A pickle with other types stays one file. The
//! files that were found are an index that can be kept (`records`; LMDB's own). Bytes that lie together in a pickle are served
//! in place; those of FFRecord were checked, and each file has a checksum of its own.
//!
//! `machine` follows opcodes, `objects` knows classes, `files` makes files of values, `rows` makes rows of a record of them.
//! LMDB and MDS begin here with `take_apart`; FFRecord, whose own format does not know pickles, is opened as [`Pickled`].

mod files;
mod heap;
mod images;
mod machine;
mod objects;
mod rows;
#[cfg(test)]
mod tests;
mod value;

pub(super) use files::{Files, latin1};
pub(super) use rows::add;

use super::ffrecord::{self, FfRecord, FfRecordFile};
use super::reader::Reader;
use super::records::{Builder, Record, RecordFile, RecordFormat, Row, Shown};
use super::scanned::Index;
use super::{
    ChecksumKind, Container, Content, Detected, Format, IndexChecksum, Names, OpenOptions, Result,
    Sample, Source, View, ending,
};
use std::sync::Arc;

const NAME: &str = "FFRecord pickles";
/// The largest sample that is taken apart, for which it must fit in memory; a larger one stays one file.
pub(super) const MAX_SAMPLE_BYTES: u64 = 256 << 20;
/// The fewest bytes of the container for each file, on average.
pub(super) const BYTES_A_FILE: u64 = 16;

/// Whether the samples, or values, of a container that is opened with these options are to be taken apart.
pub(super) fn is_asked(options: &OpenOptions) -> bool {
    options.pickles && options.view != View::Raw
}

/// Whether bytes that begin with `head` may be a pickle that can be taken apart.
pub(super) fn may_be(head: &[u8]) -> bool {
    machine::begins(head)
}

/// Finds the files of a value that is a pickle. `None` if the value stays one file.
pub(super) fn take_apart(bytes: &[u8]) -> Option<Files> {
    let pickle = machine::read(bytes, 0).filter(|pickle| pickle.end == bytes.len())?;
    files::files(bytes, &pickle)
}

/// FFRecord whose samples are taken apart.
#[derive(Debug)]
pub struct Pickled;

/// The format that opens a container of `format` whose pickled samples are to be shown as files.
pub(super) fn over(
    format: &'static dyn Format,
    options: &OpenOptions,
) -> Option<&'static dyn Format> {
    (is_asked(options) && format.name() == FfRecord.name()).then_some(&Pickled)
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
        let mut container = FfRecordFile::open(Arc::clone(&source), options)?;
        let others = container.len().saturating_sub(1);
        if container.names(others)? != Names::None {
            container.warn(format!(
                "{}: --pickles has no effect on a packed directory: its files are shown as they are",
                source.name()
            ));
            return Ok(Box::new(container));
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
        index.map(|index| RecordFile::<OfSamples>::boxed(source, index)).transpose()
    }
}

/// The files of FFRecord's samples.
struct OfSamples;

impl RecordFormat for OfSamples {
    const NAME: &'static str = NAME;
    const VERSION: u32 = 3;

    /// The checksum of FFRecord's header, which was right or absent when the samples were read.
    fn index_checksum(source: &dyn Source) -> IndexChecksum {
        match ffrecord::has_header_checksum(source) {
            true => IndexChecksum::Ok,
            false => IndexChecksum::Absent,
        }
    }

    fn decode(shown: Shown, stored: &[u8], values: &mut [u8]) -> bool {
        shown == Shown::Coded && latin1(stored, values)
    }
}

/// Reads all samples, one after the other.
struct Pass<'a> {
    source: &'a dyn Source,
    build: Builder<OfSamples>,
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
            |record: &Record<OfSamples>| self.build.room(record, seen / BYTES_A_FILE, seen).is_ok();
        let record = record.filter(has_room).unwrap_or_else(|| whole(sample));
        self.build.add(&record).map_err(|_| {
            let expected = "files that an index can hold";
            reader.malformed(sample.offset_bytes, expected, "too many", "")
        })
    }

    /// Reads a sample; false if it is damaged or too large.
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

    /// Makes the record of the sample that was read. `None` if the sample stays one file.
    fn taken_apart(&mut self, offset: u64) -> Option<Record<OfSamples>> {
        let files = take_apart(&self.bytes)?;
        let mut record = Record::default();
        let checksum = Some(ChecksumKind::Crc32);
        let place = (&self.bytes[..], offset);
        add(place, &files, b"", checksum, &mut self.build, &mut record)?;
        Some(record)
    }
}

/// Makes the record of a sample that stays one file.
fn whole(sample: &Sample) -> Record<OfSamples> {
    let mut record = Record::default();
    let row = Row::stored(sample.offset_bytes, sample.length_bytes, ending::NONE);
    let row = Row { checksum: sample.checksum, is_damaged: sample.damaged, ..row };
    record.whole(row, if sample.damaged { 0 } else { sample.length_bytes });
    record
}
