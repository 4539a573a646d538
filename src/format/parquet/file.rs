//! An open Parquet file, and its kept index:
//!
//! ```text
//! "FFRPARQ\0" | u32 version | u32 CRC-32 of what follows up to the records | u64 its length
//! u64 where the footer begins | u32 units | u32 dictionaries | u32 JSON parts
//! units | dictionaries: u32 length, page | parts: u32 rows, u32 leaves, places
//! index of the records                                                              little-endian
//! ```
//! Imports units and the scan of this directory, and records of this room.

use super::super::reader::Reader;
use super::dictionaries::Dictionaries;
use super::json::JsonPart;
use super::scan::{Outline, outline};
use super::units::{UNIT_BYTES, Unit, Units};
use super::{NAME, Parquet};
use crate::format::bytes::{u32_at, u64_at};
use crate::format::records::{Builder, RecordFile, Row};
use crate::format::scanned::Index;
use crate::format::stream::{Interval, Intervals};
use crate::format::{
    Container, Content, Fault, IndexChecksum, Member, Names, PartName, Piece, Result, Sample,
    SliceSource, Source, Table,
};
use std::io;
use std::ops::Range;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"FFRPARQ\0";
const VERSION: u32 = 4;
const HEAD_BYTES: usize = 24;

/// An open file.
pub(super) struct ParquetFile {
    source: Arc<dyn Source>,
    units: Units,
    /// The files of rows, by their addresses.
    records: RecordFile<Parquet>,
}

/// A file and the bytes that are decoded from it, in one space of addresses.
struct Addresses(Arc<dyn Source>);

impl Source for Addresses {
    fn name(&self) -> &PartName {
        self.0.name()
    }

    fn len(&self) -> u64 {
        u64::MAX
    }

    fn read_exact_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, offset_bytes)
    }

    fn check_unchanged(&self) -> io::Result<()> {
        self.0.check_unchanged()
    }

    fn table(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Box<dyn Table>> {
        self.0.table(offset_bytes, length_bytes)
    }
}

impl ParquetFile {
    pub(super) fn new(
        source: Arc<dyn Source>,
        units: Units,
        builder: Builder<Parquet>,
    ) -> Result<Self> {
        let addresses = Arc::new(Addresses(Arc::clone(&source)));
        let records = builder.finish(source.name().clone(), addresses)?;
        Ok(Self { source, units, records })
    }

    /// Opens a file by its kept index. `None` if another version kept the index, or the footer has moved since.
    pub(super) fn open_kept(
        source: Arc<dyn Source>,
        kept: Arc<dyn Source>,
    ) -> Result<Option<Self>> {
        let reader = Reader::new(source.as_ref(), NAME);
        let index = Reader::new(kept.as_ref(), "kept index");
        if kept.len() < HEAD_BYTES as u64 {
            return Ok(None);
        }
        let head: [u8; HEAD_BYTES] = index.bytes("the index", 0)?;
        let (version, crc32) = (u32_at(&head, 8), u32_at(&head, 12).unwrap_or(0));
        let length = u64_at(&head, 16).unwrap_or(u64::MAX);
        if !head.starts_with(MAGIC) || version != Some(VERSION) {
            return Ok(None);
        }
        let records_at = length.saturating_add(HEAD_BYTES as u64);
        let refuse = |found: &str| {
            Err(index.malformed(HEAD_BYTES as u64, "an index that is whole", found, ""))
        };
        if records_at > kept.len() {
            return refuse("the end of the file");
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        index.read("the index", &mut bytes, HEAD_BYTES as u64)?;
        if crc32fast::hash(&bytes) != crc32 {
            return refuse("another checksum");
        }
        let Outline { mut units, .. } = outline(reader)?;
        let Some((footer_at, tables)) = unpack(&bytes) else {
            return refuse("tables that are cut");
        };
        if footer_at != units.footer.at {
            return Ok(None);
        }
        units.set(tables.units);
        units.parts = tables.parts;
        units.dictionaries = Dictionaries::new(tables.dictionaries);
        let left = kept.len().saturating_sub(records_at);
        let slice = SliceSource::new(kept.name().clone(), kept, records_at, left);
        let Some(found) = Index::<Row<Parquet>>::read(&slice)? else { return Ok(None) };
        let addresses = Arc::new(Addresses(Arc::clone(&source)));
        let records = RecordFile::new(addresses, found)?;
        Ok(Some(Self { source, units, records }))
    }

    /// Whether a sample's bytes are decoded; else they lie in the file as they are.
    fn is_decoded(&self, inner: &Sample) -> bool {
        !inner.damaged && inner.length_bytes > 0 && inner.offset_bytes >= self.source.len()
    }

    /// The first and the last interval of a sample's bytes.
    fn ends(&self, inner: &Sample) -> Option<(Interval, Interval)> {
        let last = inner.end_bytes().checked_sub(1)?;
        Some((self.units.interval(inner.offset_bytes)?, self.units.interval(last)?))
    }

    /// Decodes the bytes of a sample from the stored bytes of its intervals.
    fn fill(&self, inner: &Sample, stored: &[u8], out: &mut [u8]) -> Result<(), Fault> {
        let gone = || "it is not where it was".to_owned();
        let (first, last) = self.ends(inner).ok_or_else(gone)?;
        let mut at = inner.offset_bytes;
        for number in first.number..=last.number {
            let interval = self.units.nth(number).ok_or_else(gone)?;
            let range = within(&interval.stored, first.stored.start);
            let bytes = stored.get(range).ok_or("the stored bytes end early")?;
            let mut decoded = vec![0; within(&interval.decoded, interval.decoded.start).end];
            self.units.decode(number, bytes, &mut decoded)?;
            let end = interval.decoded.end.min(inner.end_bytes());
            let from = within(&(at..end), interval.decoded.start);
            let to = within(&(at..end), inner.offset_bytes);
            let (Some(from), Some(to)) = (decoded.get(from), out.get_mut(to)) else {
                return Err(gone().into());
            };
            to.copy_from_slice(from);
            at = end;
        }
        Ok(())
    }
}

/// Converts a range of addresses to a range of a buffer that begins at `start`.
fn within(range: &Range<u64>, start: u64) -> Range<usize> {
    let place = |at: u64| usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
    place(range.start)..place(range.end)
}

/// Tables of a kept index.
#[derive(Default)]
struct Tables {
    units: Vec<Unit>,
    dictionaries: Vec<Vec<u8>>,
    parts: Vec<JsonPart>,
}

/// Unpacks the offset of the footer and the tables of a kept index.
fn unpack(bytes: &[u8]) -> Option<(u64, Tables)> {
    let [units, dictionaries, parts] = [u32_at(bytes, 8)?, u32_at(bytes, 12)?, u32_at(bytes, 16)?];
    let (mut rest, mut tables) = (bytes.get(20..)?, Tables::default());
    for _ in 0..units {
        let (unit, behind) = rest.split_first_chunk::<UNIT_BYTES>()?;
        tables.units.push(Unit::unpack(unit)?);
        rest = behind;
    }
    for _ in 0..dictionaries {
        let (length, behind) = rest.split_first_chunk()?;
        let (page, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        tables.dictionaries.push(page.to_vec());
        rest = behind;
    }
    for _ in 0..parts {
        tables.parts.push(JsonPart::unpack(&mut rest)?);
    }
    Some((u64_at(bytes, 0)?, tables))
}

impl Container for ParquetFile {
    fn format(&self) -> &'static str {
        NAME
    }

    fn len(&self) -> u64 {
        self.records.len()
    }

    fn sample(&self, index: u64) -> Result<Sample> {
        let inner = self.records.sample(index)?;
        if inner.damaged {
            return Ok(inner);
        }
        if inner.length_bytes == 0 {
            return Ok(Sample { offset_bytes: 0, ..inner });
        }
        if !self.is_decoded(&inner) {
            return Ok(inner);
        }
        let content = Content::Encoded(inner.size_bytes());
        Ok(match self.ends(&inner) {
            Some((first, last)) => Sample {
                offset_bytes: first.stored.start,
                length_bytes: last.stored.end.saturating_sub(first.stored.start),
                content,
                ..inner
            },
            None => Sample { offset_bytes: 0, length_bytes: 1, damaged: true, content, ..inner },
        })
    }

    fn fault(&self, index: u64) -> Option<Fault> {
        self.records.fault(index)
    }

    fn check_unchanged(&self) -> io::Result<()> {
        self.source.check_unchanged()
    }

    fn index_is_fixed(&self) -> bool {
        true
    }

    fn data_bytes(&self) -> u64 {
        self.records.data_bytes()
    }

    fn prefix(&self, index: u64) -> Result<Vec<u8>> {
        self.records.prefix(index)
    }

    fn decode(&self, index: u64, stored: &[u8], out: &mut [u8]) -> Result<()> {
        let inner = self.records.sample(index)?;
        let prefix = self.records.prefix(index)?;
        let (head, rest) = out.split_at_mut_checked(prefix.len()).unwrap_or_default();
        head.copy_from_slice(prefix.get(..head.len()).unwrap_or_default());
        self.fill(&inner, stored, rest).map_err(|fault| {
            let at = self.ends(&inner).map_or(0, |(first, _)| first.stored.start);
            let reader = Reader::new(self.source.as_ref(), NAME);
            reader.faulty(at, "pages as they were when it was indexed", fault)
        })
    }

    fn has_intervals(&self) -> bool {
        true
    }

    fn intervals(&self, index: u64) -> Option<&dyn Intervals> {
        let inner = self.records.sample(index).ok()?;
        (self.is_decoded(&inner) && self.ends(&inner).is_some())
            .then_some(&self.units as &dyn Intervals)
    }

    fn checks_intervals(&self, index: u64) -> bool {
        self.records.sample(index).is_ok_and(|inner| {
            let range = inner.offset_bytes..inner.end_bytes();
            self.is_decoded(&inner) && self.units.are_checked(range)
        })
    }

    fn content_in_stream(&self, index: u64) -> Result<Content> {
        Ok(self.records.sample(index)?.content)
    }

    fn piece(&self, index: u64, offset_bytes: u64) -> Result<Option<Piece>> {
        let inner = self.records.sample(index)?;
        let at_bytes = match inner.content {
            Content::Prefixed(prefix) => u64::from(prefix),
            _ => 0,
        };
        let end = at_bytes.saturating_add(inner.length_bytes);
        Ok((offset_bytes < end && self.is_decoded(&inner)).then_some(Piece {
            at_bytes,
            length_bytes: inner.length_bytes,
            offset_bytes: inner.offset_bytes,
        }))
    }

    fn field_name(&self, index: u64) -> Result<Vec<u8>> {
        self.records.field_name(index)
    }

    fn members(&self, visit: &mut dyn FnMut(Member) -> Result<()>) -> Result<()> {
        self.records.members(visit)
    }

    fn keep(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let mut bytes = self.units.footer.at.to_le_bytes().to_vec();
        let dictionaries = &self.units.dictionaries.pages;
        for count in [self.units.units.len(), dictionaries.len(), self.units.parts.len()] {
            bytes.extend_from_slice(&(count as u32).to_le_bytes());
        }
        self.units.units.iter().for_each(|unit| unit.pack(&mut bytes));
        for page in dictionaries {
            bytes.extend_from_slice(&(page.len() as u32).to_le_bytes());
            bytes.extend_from_slice(page);
        }
        self.units.parts.iter().for_each(|part| part.pack(&mut bytes));
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&crc32fast::hash(&bytes).to_le_bytes())?;
        out.write_all(&(bytes.len() as u64).to_le_bytes())?;
        out.write_all(&bytes)?;
        self.records.keep(out)
    }

    fn names(&self, samples: u64) -> Result<Names> {
        self.records.names(samples)
    }

    fn index_checksum(&self) -> IndexChecksum {
        IndexChecksum::None
    }

    fn warnings(&self) -> &[String] {
        self.records.warnings()
    }
}
