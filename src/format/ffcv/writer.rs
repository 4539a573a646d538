//! Writes FFCV: the fields that the first sample has. JPEG files are images, JSON and numbers are fields of those types,
//! other files are bytes.
//!
//! Records and pointers are known when all samples are written: room is left for the records, the table follows the pages.

use super::fields::{FIELD_BYTES, Kind};
use super::rows::ROW_BYTES;
use super::{HEAD_BYTES, VERSION};
use crate::format::write::{Field, Gather, RecordWriter, in_order, invalid};
use crate::format::{Holds, MemberWriter, NewMember, Outline, Output, WriteFormat};
use std::io::{self, Seek, SeekFrom, Write};

/// The size of pages that is the package's default; pages are larger if a value is.
const PAGE_BYTES: u64 = 8 << 20;
/// The largest size of pages: the header has 4 bytes for it.
const MAX_PAGE_BYTES: u64 = 1 << 31;
const NAME_BYTES: usize = 16;

/// Writes FFCV.
#[derive(Debug)]
pub struct WriteFfcv;

impl WriteFormat for WriteFfcv {
    fn name(&self) -> &'static str {
        super::NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["beton"]
    }

    fn holds(&self) -> Holds {
        Holds::FIELDS
    }

    fn member_bytes(&self, member: &NewMember) -> u64 {
        member.data_bytes().saturating_add(ROW_BYTES).saturating_add(16)
    }

    fn begin<'a>(
        &self,
        out: Box<dyn Output + 'a>,
        outline: &Outline,
    ) -> io::Result<Box<dyn MemberWriter + 'a>> {
        // JSON ends in a NUL.
        let largest = outline.largest_bytes.saturating_add(1);
        let page_bytes = largest.checked_next_power_of_two().unwrap_or(u64::MAX).max(PAGE_BYTES);
        if page_bytes > MAX_PAGE_BYTES {
            return Err(invalid("FFCV holds no file of 2 GiB or more"));
        }
        let file = Samples {
            out,
            samples: outline.records,
            page_bytes,
            columns: Vec::new(),
            record_bytes: 0,
            records: Vec::new(),
            table: Vec::new(),
            written: 0,
            end: 0,
            position: 0,
        };
        Ok(Box::new(Gather::new(file, outline.grouping)))
    }
}

struct Samples<'a> {
    out: Box<dyn Output + 'a>,
    /// The number of samples that were announced.
    samples: u64,
    page_bytes: u64,
    columns: Vec<Column>,
    record_bytes: usize,
    /// The metadata records of the samples so far.
    records: Vec<u8>,
    table: Vec<u8>,
    written: u64,
    /// The offset from which on the next value may lie.
    end: u64,
    /// The position of the output.
    position: u64,
}

/// A field of all samples.
struct Column {
    name: String,
    /// The package's number of its type.
    code: u8,
    kind: Kind,
}

impl Column {
    fn of(field: &Field) -> io::Result<Self> {
        let is_name = field.name.len() <= NAME_BYTES && field.name.is_ascii();
        if !is_name {
            return Err(field.invalid("a name in FFCV is at most 16 characters of ASCII"));
        }
        let (code, kind) = match field.ending {
            _ if field.is_jpeg() => (2, Kind::Rgb),
            ".json" => (5, Kind::Json),
            _ => match number(field) {
                Some(Number::Float(_)) => (0, Kind::Scalar),
                Some(Number::Integer(_)) => (1, Kind::Scalar),
                None => (3, Kind::Bytes),
            },
        };
        Ok(Self { name: field.name.to_owned(), code, kind })
    }
}

impl Samples<'_> {
    /// Makes the columns: the fields of the first sample.
    fn begin(&mut self, fields: &[Field]) -> io::Result<()> {
        self.columns = fields.iter().map(Column::of).collect::<io::Result<_>>()?;
        let mut end = 0_usize;
        let mut widest = 1;
        for column in &self.columns {
            widest = widest.max(column.kind.alignment());
            end = end.next_multiple_of(column.kind.alignment()).saturating_add(column.kind.bytes());
        }
        self.record_bytes = end.next_multiple_of(widest);
        let records = self.samples.saturating_mul(self.record_bytes as u64);
        // The package leaves the first page to the bytes before the values.
        self.end = self.fields_end().saturating_add(records).next_multiple_of(self.page_bytes);
        Ok(())
    }

    fn fields_end(&self) -> u64 {
        (self.columns.len() as u64).saturating_mul(FIELD_BYTES).saturating_add(HEAD_BYTES)
    }

    /// Writes a value in a page, and returns its pointer. A value lies in one page.
    fn value(&mut self, parts: [&[u8]; 2]) -> io::Result<u64> {
        let length = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.len() as u64));
        // The package finds a value's size by its pointer: an empty value must not share that of the next one.
        let room = length.max(1);
        let page_end = self.end.saturating_add(1).next_multiple_of(self.page_bytes);
        if self.end.saturating_add(room) > page_end {
            self.end = page_end;
        }
        let ptr = self.end;
        if ptr != self.position {
            self.out.seek(SeekFrom::Start(ptr))?;
        }
        parts.iter().try_for_each(|part| self.out.write_all(part))?;
        self.end = ptr.saturating_add(room);
        self.position = ptr.saturating_add(length);
        for number in [self.written, ptr, length] {
            self.table.extend_from_slice(&number.to_le_bytes());
        }
        Ok(ptr)
    }

    /// Writes a field's value, and returns its metadata.
    fn field(&mut self, place: usize, field: &Field) -> io::Result<Vec<u8>> {
        let Some(Column { code, kind, .. }) = self.columns.get(place) else {
            return Ok(Vec::new());
        };
        let (code, kind) = (*code, *kind);
        let size = (field.bytes.len() as u64).to_le_bytes();
        Ok(match kind {
            Kind::Scalar => match (code, number(field)) {
                (0, Some(Number::Float(value))) => value.to_le_bytes().to_vec(),
                (1, Some(Number::Integer(value))) => value.to_le_bytes().to_vec(),
                _ => return Err(field.invalid("it is no such number as the first sample's")),
            },
            Kind::Rgb => {
                let (width, height) = jpeg_size(field.bytes)
                    .ok_or_else(|| field.invalid("it is no JPEG image, or a damaged one"))?;
                let ptr = self.value([field.bytes, b""])?;
                [&[0][..], &width.to_le_bytes(), &height.to_le_bytes(), &ptr.to_le_bytes()].concat()
            }
            Kind::Json => {
                let ptr = self.value([field.bytes, b"\0"])?;
                let size = (field.bytes.len() as u64).saturating_add(1);
                [ptr.to_le_bytes(), size.to_le_bytes()].concat()
            }
            Kind::Bytes | Kind::Array(_) => {
                [self.value([field.bytes, b""])?.to_le_bytes(), size].concat()
            }
        })
    }
}

impl RecordWriter for Samples<'_> {
    fn record(&mut self, fields: &[Field]) -> io::Result<()> {
        if self.columns.is_empty() {
            self.begin(fields)?;
        }
        let start = self.records.len();
        let fields = in_order(fields, self.columns.iter().map(|column| column.name.as_str()))?;
        for (place, field) in fields.into_iter().enumerate() {
            let alignment = self.columns.get(place).map_or(1, |column| column.kind.alignment());
            let at = self.records.len().saturating_sub(start).next_multiple_of(alignment);
            let metadata = self.field(place, field)?;
            self.records.resize(start.saturating_add(at), 0);
            self.records.extend(metadata);
        }
        self.records.resize(start.saturating_add(self.record_bytes), 0);
        self.written = self.written.saturating_add(1);
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.written != self.samples {
            return Err(io::Error::other("fewer or more samples than announced"));
        }
        if self.columns.is_empty() {
            return Err(invalid("FFCV holds no dataset without samples"));
        }
        let table_at = self.end.next_multiple_of(self.page_bytes);
        self.out.seek(SeekFrom::Start(table_at))?;
        self.out.write_all(&self.table)?;
        let page_bytes = u32::try_from(self.page_bytes).unwrap_or(u32::MAX);
        let fields = u16::try_from(self.columns.len()).map_err(|_| invalid("too many fields"))?;
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&VERSION.to_le_bytes())?;
        self.out.write_all(&fields.to_le_bytes())?;
        self.out.write_all(&page_bytes.to_le_bytes())?;
        self.out.write_all(&self.samples.to_le_bytes())?;
        self.out.write_all(&table_at.to_le_bytes())?;
        for column in &self.columns {
            let mut descriptor = vec![column.code];
            descriptor.extend_from_slice(column.name.as_bytes());
            descriptor.resize(FIELD_BYTES as usize, 0);
            self.out.write_all(&descriptor)?;
        }
        self.out.write_all(&self.records)?;
        self.out.flush()
    }
}

/// A number that FFCV has a type for.
enum Number {
    Float(f64),
    Integer(i64),
}

/// Returns the number in a field, if it has one that FFCV has a type for.
fn number(field: &Field) -> Option<Number> {
    let array = field.array().filter(|array| array.shape.is_empty())?;
    fn of<const N: usize>(elements: &[u8]) -> Option<[u8; N]> {
        elements.first_chunk().copied()
    }
    let bytes = array.elements;
    Some(match array.descr.as_str() {
        "<f8" => Number::Float(f64::from_le_bytes(of(bytes)?)),
        "<f4" => Number::Float(f32::from_le_bytes(of(bytes)?).into()),
        "<i8" => Number::Integer(i64::from_le_bytes(of(bytes)?)),
        "<i4" => Number::Integer(i32::from_le_bytes(of(bytes)?).into()),
        "<u4" => Number::Integer(u32::from_le_bytes(of(bytes)?).into()),
        "<i2" => Number::Integer(i16::from_le_bytes(of(bytes)?).into()),
        "<u2" => Number::Integer(u16::from_le_bytes(of(bytes)?).into()),
        "|i1" => Number::Integer(i8::from_le_bytes(of(bytes)?).into()),
        "|u1" | "|b1" => Number::Integer(u8::from_le_bytes(of(bytes)?).into()),
        _ => return None,
    })
}

/// Width and height of a JPEG image, from the header of its frame.
fn jpeg_size(bytes: &[u8]) -> Option<(u16, u16)> {
    let mut rest = bytes.strip_prefix(b"\xff\xd8")?;
    loop {
        let marker = rest.strip_prefix(b"\xff")?;
        let (&kind, behind) = marker.split_first()?;
        if kind == 0xff {
            // Fill bytes before a marker.
            rest = marker;
            continue;
        }
        let length = usize::from(u16::from_be_bytes(*behind.first_chunk()?));
        let segment = behind.get(..length)?;
        // All kinds of frames; the other numbers of this range are two of tables, and one of an extension that is not a frame.
        if matches!(kind, 0xc0..=0xcf) && !matches!(kind, 0xc4 | 0xc8 | 0xcc) {
            let &[_, _, _, a, b, c, d, ..] = segment else { return None };
            return Some((u16::from_be_bytes([c, d]), u16::from_be_bytes([a, b])));
        }
        // The pixels come before any frame.
        if kind == 0xda || length < 2 {
            return None;
        }
        rest = behind.get(length..)?;
    }
}
