//! FFCV (`.beton`, version 2), as libffcv/ffcv 1.0 writes and reads it.
//!
//! ```text
//! u16 version | u16 fields | u32 page size | u64 samples | u64 allocation table's offset      little-endian
//! fields × description | samples × metadata record | pages | table of u64 sample, u64 ptr, u64 size
//! ```
//!
//! A sample is a directory of a file for each field. Numbers stand in the metadata record itself, other values in pages,
//! to which the record's pointer leads; only the table has the length of an image. There is no checksum.

mod fields;
mod rows;
mod writer;

pub use writer::WriteFfcv;

use super::reader::Reader;
use super::{
    Container, Content, Detected, Format, IndexChecksum, Names, OpenOptions, Result, Sample,
    Source, Table, View, npy,
};
use crate::format::counted;
use fields::{FIELD_BYTES, Field, Image, Kind};
use rows::{ROW_BYTES, Rows};
use std::sync::Arc;

const NAME: &str = "FFCV";
const HEAD_BYTES: u64 = 24;
const VERSION: u16 = 2;
/// The smallest pages that the package writes.
const MIN_PAGE_BYTES: u64 = 1 << 21;
/// Bytes of the metadata that are read at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// The format FFCV.
#[derive(Debug)]
pub struct Ffcv;

impl Format for Ffcv {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["beton"]
    }

    /// There is no magic number: version, page size, first field and table must all be plausible.
    fn detect(&self, source: &dyn Source) -> Result<Detected> {
        let reader = Reader::new(source, NAME);
        if reader.len() < HEAD_BYTES.saturating_add(FIELD_BYTES) {
            return Ok(Detected::No);
        }
        let head = Head::read(reader)?;
        let field = reader.bytes("a field's description", HEAD_BYTES)?;
        let is_plausible = head.version == VERSION
            && head.fields > 0
            && head.page_bytes.is_power_of_two()
            && fields::is_plausible(&field);
        let is_sure = head.page_bytes >= MIN_PAGE_BYTES
            && (head.fields_end()..=reader.len()).contains(&head.table_at)
            && reader.len().saturating_sub(head.table_at) % ROW_BYTES == 0;
        Ok(match (is_plausible, is_sure) {
            (false, _) => Detected::No,
            (true, false) => Detected::Perhaps,
            (true, true) => Detected::Yes,
        })
    }

    fn open(&self, source: Arc<dyn Source>, options: &OpenOptions) -> Result<Box<dyn Container>> {
        Ok(Box::new(FfcvFile::open(source, options)?))
    }
}

struct Head {
    version: u16,
    fields: u16,
    page_bytes: u64,
    samples: u64,
    table_at: u64,
}

impl Head {
    fn read(reader: Reader<'_>) -> Result<Self> {
        const WHAT: &str = "the header";
        Ok(Self {
            version: u16::from_le_bytes(reader.bytes(WHAT, 0)?),
            fields: u16::from_le_bytes(reader.bytes(WHAT, 2)?),
            page_bytes: u32::from_le_bytes(reader.bytes(WHAT, 4)?).into(),
            samples: u64::from_le_bytes(reader.bytes(WHAT, 8)?),
            table_at: u64::from_le_bytes(reader.bytes(WHAT, 16)?),
        })
    }

    /// The offset of the metadata.
    fn fields_end(&self) -> u64 {
        HEAD_BYTES.saturating_add(u64::from(self.fields).saturating_mul(FIELD_BYTES))
    }

    fn check(&self, reader: Reader<'_>) -> Result<()> {
        let file_bytes = reader.len();
        if self.version != VERSION {
            return Err(reader.malformed(0, "version 2", format!("version {}", self.version), ""));
        }
        if self.fields == 0 {
            return Err(reader.malformed(2, "fields", "none", ""));
        }
        if !self.page_bytes.is_power_of_two() {
            let found = self.page_bytes.to_string();
            return Err(reader.malformed(4, "a page size that is a power of 2", found, ""));
        }
        if self.fields_end() > file_bytes {
            let expected = format!("descriptions of {}", counted(self.fields, "field"));
            let found = format!("a file of {}", counted(file_bytes, "byte"));
            return Err(reader.malformed(2, expected, found, ": the file is truncated"));
        }
        Ok(())
    }

    /// Checks the offset of the table, given the size of a metadata record; returns the end of the metadata.
    fn check_table(&self, reader: Reader<'_>, record_bytes: u64) -> Result<u64> {
        let file_bytes = reader.len();
        let records_end = self.samples.checked_mul(record_bytes);
        let records_end = records_end.and_then(|bytes| bytes.checked_add(self.fields_end()));
        let Some(records_end) = records_end.filter(|end| *end <= file_bytes) else {
            let expected = format!(
                "metadata of {}, {} each",
                counted(self.samples, "sample"),
                counted(record_bytes, "byte")
            );
            let found = format!("a file of {}", counted(file_bytes, "byte"));
            return Err(reader.malformed(8, expected, found, ": the file is truncated"));
        };
        let expected = format!("an allocation table at {records_end} to {file_bytes}");
        let hint = match self.table_at {
            0 => ": the writer died before it finished; write the file again",
            at if at > file_bytes => ": the file is truncated",
            _ => "",
        };
        if !(records_end..=file_bytes).contains(&self.table_at) {
            return Err(reader.malformed(16, expected, self.table_at.to_string(), hint));
        }
        let table_bytes = file_bytes.saturating_sub(self.table_at);
        if !table_bytes.is_multiple_of(ROW_BYTES) {
            let found = counted(table_bytes, "byte");
            let hint = ": the file is truncated, or something was appended";
            return Err(reader.malformed(self.table_at, "rows of 24 bytes", found, hint));
        }
        Ok(records_end)
    }
}

/// An open `.beton` file. The metadata and the allocation table stay where they are.
struct FfcvFile {
    source: Arc<dyn Source>,
    fields: Vec<Field>,
    samples: u64,
    view: View,
    records: Box<dyn Table>,
    /// The offset of the metadata records.
    records_at: u64,
    record_bytes: u64,
    rows: Rows,
    /// The range in which pages may lie: behind the metadata, before the table.
    data: std::ops::Range<u64>,
    page_bytes: u64,
    data_bytes: u64,
}

/// A field of a sample, and the place that its metadata give.
struct Value<'a> {
    field: &'a Field,
    /// The offset of its metadata in the file.
    at: u64,
    place: Place,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    /// In the metadata.
    Here,
    At {
        ptr: u64,
        size: u64,
    },
    Picture {
        image: Image,
        width: u16,
        height: u16,
        ptr: u64,
    },
}

impl FfcvFile {
    fn open(source: Arc<dyn Source>, options: &OpenOptions) -> Result<Self> {
        let reader = Reader::new(source.as_ref(), NAME);
        if reader.len() < HEAD_BYTES {
            let found = format!("a file of {}", counted(reader.len(), "byte"));
            return Err(reader.malformed(reader.len(), "a header of 24 bytes", found, ""));
        }
        let head = Head::read(reader)?;
        head.check(reader)?;
        let (fields, record_bytes) = fields::read(reader, HEAD_BYTES, head.fields, options.view)?;
        let records_end = head.check_table(reader, record_bytes)?;
        let records_at = head.fields_end();
        let records_bytes = records_end.saturating_sub(records_at);
        let rows = reader.len().saturating_sub(head.table_at) / ROW_BYTES;
        let rows = Rows::read(reader, head.table_at, rows, head.page_bytes)?;
        let records = reader.table("the metadata", records_at, records_bytes)?;
        let mut file = Self {
            source: source.clone(),
            fields,
            samples: head.samples,
            view: options.view,
            records,
            records_at,
            record_bytes,
            rows,
            data: records_end..head.table_at,
            page_bytes: head.page_bytes,
            data_bytes: 0,
        };
        file.data_bytes = file.count_bytes(reader)?;
        Ok(file)
    }

    /// Counts the bytes that are shown: those that the table allocates, with numbers and headers, without the NULs of JSON.
    fn count_bytes(&self, reader: Reader<'_>) -> Result<u64> {
        let same = self.fields.iter().fold(0, |sum: u64, field| {
            let stored = if field.kind == Kind::Scalar { 8 } else { 0 };
            sum.saturating_add(stored).saturating_add(field.header.len() as u64)
        });
        let same = same.saturating_mul(self.samples);
        let mut sum = self.rows.allocated_bytes.saturating_add(same);
        let varies = |field: &&Field| matches!(field.kind, Kind::Rgb | Kind::Json);
        let varying: Vec<_> = self.fields.iter().filter(varies).collect();
        if varying.is_empty() || self.view == View::Raw {
            return Ok(sum);
        }
        let at_a_time = CHUNK_BYTES.checked_div(self.record_bytes).unwrap_or(1).max(1);
        let mut first = 0;
        while first < self.samples {
            let count = self.samples.saturating_sub(first).min(at_a_time);
            let bytes =
                usize::try_from(count.saturating_mul(self.record_bytes)).unwrap_or_default();
            let mut chunk = vec![0; bytes];
            let at = self.records_at.saturating_add(first.saturating_mul(self.record_bytes));
            reader.read("the metadata", &mut chunk, at)?;
            let record_bytes = usize::try_from(self.record_bytes).unwrap_or(usize::MAX).max(1);
            for record in chunk.chunks_exact(record_bytes) {
                for field in &varying {
                    let start = usize::try_from(field.at).unwrap_or(usize::MAX);
                    match place(field.kind, record.get(start..).unwrap_or_default()) {
                        Place::At { size, .. } => sum = sum.saturating_sub(u64::from(size > 0)),
                        picture => {
                            sum = sum.saturating_add(self.picture_header(picture).len() as u64)
                        }
                    }
                }
            }
            first = first.saturating_add(count);
        }
        Ok(sum)
    }

    fn value(&self, index: u64) -> Result<Value<'_>> {
        let reader = Reader::new(self.source.as_ref(), NAME);
        let fields = self.fields.len() as u64;
        let place_of = index.checked_div(fields).zip(index.checked_rem(fields));
        let found =
            place_of.filter(|(sample, _)| *sample < self.samples).and_then(|(sample, field)| {
                Some((sample, self.fields.get(usize::try_from(field).ok()?)?))
            });
        let Some((sample, field)) = found else {
            let expected = format!("a file number below {}", self.len());
            return Err(reader.malformed(0, expected, index.to_string(), ""));
        };
        let within = sample.saturating_mul(self.record_bytes).saturating_add(field.at);
        let at = self.records_at.saturating_add(within);
        let (mut bytes, length) = ([0; 16], field.kind.bytes());
        let stored = bytes.get_mut(..length).unwrap_or_default();
        self.records
            .copy_to(within, stored)
            .map_err(|e| reader.unreadable("the metadata", at, e))?;
        Ok(Value { field, at, place: place(field.kind, &bytes) })
    }

    /// The offset of the stored bytes, if it is a possible one, and their length in any case.
    fn locate(&self, value: &Value<'_>) -> Result<(Option<u64>, u64)> {
        let (ptr, size) = match value.place {
            Place::Here => return Ok((Some(value.at), 8)),
            Place::At { ptr, size } => (ptr, Some(size)),
            Place::Picture { image: Image::Raw, width, height, ptr } => {
                let pixels = u64::from(width).saturating_mul(height.into());
                (ptr, Some(pixels.saturating_mul(3)))
            }
            Place::Picture { image: Image::Jpeg, ptr, .. } => (ptr, None),
            Place::Picture { image: Image::Unknown, .. } => return Ok((None, 1)),
        };
        if size == Some(0) {
            return Ok((Some(ptr.min(self.data.end)), 0));
        }
        let reader = Reader::new(self.source.as_ref(), NAME);
        let found = self
            .rows
            .size(ptr)
            .map_err(|e| reader.unreadable("the allocation table", self.data.end, e))?;
        let length = size.or(found).unwrap_or(1);
        let in_page = ptr & self.page_bytes.saturating_sub(1);
        let is_in_page = in_page.checked_add(length).is_some_and(|end| end <= self.page_bytes);
        let is_in_data = ptr >= self.data.start
            && ptr.checked_add(length).is_some_and(|end| end <= self.data.end);
        let is_good = found == Some(length) && is_in_page && is_in_data;
        Ok((is_good.then_some(ptr), length))
    }

    /// The header before the pixels of a raw image; empty for all other values.
    fn picture_header(&self, place: Place) -> Vec<u8> {
        match place {
            Place::Picture { image: Image::Raw, width, height, .. } => match self.view {
                View::Raw => Vec::new(),
                View::Typed => format!("P6\n{width} {height}\n255\n").into_bytes(),
                View::Npy => npy::header("|u1", &[height.into(), width.into(), 3]),
            },
            _ => Vec::new(),
        }
    }
}

/// Reads the place that a field's metadata give; missing bytes are zeros.
fn place(kind: Kind, bytes: &[u8]) -> Place {
    let number = |at: usize| {
        let stored = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>);
        u64::from_le_bytes(stored.copied().unwrap_or_default())
    };
    match kind {
        Kind::Scalar => Place::Here,
        Kind::Array(size) => Place::At { ptr: number(0), size },
        Kind::Bytes | Kind::Json => Place::At { ptr: number(0), size: number(8) },
        Kind::Rgb => {
            let [mode, w0, w1, h0, h1] = bytes.first_chunk().copied().unwrap_or([u8::MAX; 5]);
            let image = match mode {
                0 => Image::Jpeg,
                1 => Image::Raw,
                _ => Image::Unknown,
            };
            let (width, height) = (u16::from_le_bytes([w0, w1]), u16::from_le_bytes([h0, h1]));
            Place::Picture { image, width, height, ptr: number(5) }
        }
    }
}

impl Container for FfcvFile {
    fn format(&self) -> &'static str {
        NAME
    }

    fn len(&self) -> u64 {
        self.samples.saturating_mul(self.fields.len() as u64)
    }

    fn sample(&self, index: u64) -> Result<Sample> {
        let value = self.value(index)?;
        let (offset_bytes, stored) = self.locate(&value)?;
        let Some(offset_bytes) = offset_bytes else {
            let length_bytes = stored.clamp(1, self.page_bytes);
            return Ok(Sample { length_bytes, damaged: true, ..Sample::default() });
        };
        let is_text = value.field.kind == Kind::Json && self.view != View::Raw;
        let length_bytes = stored.saturating_sub(u64::from(is_text));
        let header_bytes = match value.place {
            Place::Picture { .. } => self.picture_header(value.place).len(),
            _ => value.field.header.len(),
        };
        let content = match u32::try_from(header_bytes) {
            Ok(0) | Err(_) => Content::Stored,
            Ok(bytes) => Content::Prefixed(bytes),
        };
        Ok(Sample { offset_bytes, length_bytes, content, ..Sample::default() })
    }

    fn check_unchanged(&self) -> std::io::Result<()> {
        self.source.check_unchanged()
    }

    fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    fn prefix(&self, index: u64) -> Result<Vec<u8>> {
        let value = self.value(index)?;
        Ok(match value.place {
            Place::Picture { .. } => self.picture_header(value.place),
            _ => value.field.header.clone(),
        })
    }

    fn field_name(&self, index: u64) -> Result<Vec<u8>> {
        let value = self.value(index)?;
        let number = match value.place {
            Place::Picture { image, .. } if self.view != View::Raw => image as usize,
            _ => 0,
        };
        Ok(value.field.names.get(number).cloned().unwrap_or_default())
    }

    fn names(&self, _samples: u64) -> Result<Names> {
        Ok(Names::Fields(self.fields.len() as u64))
    }

    fn index_checksum(&self) -> IndexChecksum {
        IndexChecksum::None
    }

    fn warnings(&self) -> &[String] {
        &[]
    }
}

#[cfg(test)]
mod tests;
