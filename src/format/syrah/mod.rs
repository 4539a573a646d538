//! Syrah (`.syr`), as gsicard/syrah 0.2 writes and reads it.
//!
//! ```text
//! "GS" | u8 version[4] | i64 metadata offset | i64 metadata length | data … | BSON metadata
//! metadata: key → {"offset": i64[N], "size": i64[N], "dtype": string}                    little-endian
//! ```
//!
//! An item is a directory with an array for each key. Arrays have no shape, and there is no checksum.

mod bson;
mod writer;

pub use writer::WriteSyrah;

use super::name::FieldNames;
use super::reader::Reader;
use super::{
    Container, Content, Detected, Error, Format, IndexChecksum, Names, OpenOptions, Result, Sample,
    Source, Table, View, npy,
};
use crate::format::{counted, one_or_many, quoted};
use bson::{Binary, Entry};
use std::sync::Arc;

const NAME: &str = "Syrah";
const MAGIC: [u8; 2] = *b"GS";
/// The offset of the data.
const HEAD_BYTES: u64 = 22;
/// The number of offsets and sizes that are checked at a time.
const CHUNK_ITEMS: u64 = 1 << 16;
/// The most warnings that are given in full.
const MAX_WARNINGS: usize = 16;
const DIED: &str = ": the writer died before it finished; write the file again";

/// The types that the package knows, and NumPy's names of them. `str` is UTF-8.
const DTYPES: &[(&str, &str)] = &[
    ("bool", "|b1"),
    ("int8", "|i1"),
    ("uint8", "|u1"),
    ("int16", "<i2"),
    ("uint16", "<u2"),
    ("int32", "<i4"),
    ("uint32", "<u4"),
    ("int64", "<i8"),
    ("uint64", "<u8"),
    ("float16", "<f2"),
    ("float32", "<f4"),
    ("float64", "<f8"),
    ("float128", "<f16"),
];

/// The format Syrah.
#[derive(Debug)]
pub struct Syrah;

impl Format for Syrah {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["syr"]
    }

    /// A magic number of two bytes is short: only a header that leads to a document is sure.
    fn detect(&self, source: &dyn Source) -> Result<Detected> {
        let reader = Reader::new(source, NAME);
        if reader.len() < HEAD_BYTES {
            return Ok(Detected::No);
        }
        let head = Head::read(reader)?;
        if head.magic != MAGIC {
            return Ok(Detected::No);
        }
        let Some((start, end)) = head.metadata(reader) else { return Ok(Detected::Perhaps) };
        let length = i32::from_le_bytes(reader.bytes("the metadata", start)?);
        let is_sure =
            head.epoch == 0 && i64::from(length).cast_unsigned() == end.saturating_sub(start);
        Ok(if is_sure { Detected::Yes } else { Detected::Perhaps })
    }

    fn open(&self, source: Arc<dyn Source>, options: &OpenOptions) -> Result<Box<dyn Container>> {
        Ok(Box::new(SyrahFile::open(source, options)?))
    }
}

struct Head {
    magic: [u8; 2],
    /// The first byte of the version; the package always writes 0.
    epoch: u8,
    offset: i64,
    length: i64,
}

impl Head {
    fn read(reader: Reader<'_>) -> Result<Self> {
        let [first, second, epoch] = reader.bytes("the header", 0)?;
        Ok(Self {
            magic: [first, second],
            epoch,
            offset: i64::from_le_bytes(reader.bytes("the header", 6)?),
            length: i64::from_le_bytes(reader.bytes("the header", 14)?),
        })
    }

    /// The start and the end of the metadata, if they are possible.
    fn metadata(&self, reader: Reader<'_>) -> Option<(u64, u64)> {
        let start = u64::try_from(self.offset).ok()?;
        let length = u64::try_from(self.length).ok()?;
        let end = start.checked_add(length)?;
        (start >= HEAD_BYTES && length >= 5 && end <= reader.len()).then_some((start, end))
    }

    fn check(&self, reader: Reader<'_>) -> Result<(u64, u64)> {
        if self.magic != MAGIC {
            let [first, second] = self.magic;
            let found = format!("{first:02x} {second:02x}");
            return Err(reader.malformed(0, "the letters GS", found, ""));
        }
        if let Some(range) = self.metadata(reader) {
            return Ok(range);
        }
        if self.offset == 0 && self.length == 0 {
            return Err(reader.malformed(6, "where the metadata are", "zeros", DIED));
        }
        let bytes = reader.len();
        let is_offset = u64::try_from(self.offset).is_ok_and(|at| at >= HEAD_BYTES && at < bytes);
        let (at, expected, found) = if is_offset {
            let left = bytes.saturating_sub(self.offset.cast_unsigned());
            (14, format!("metadata of 5 to {}", counted(left, "byte")), self.length)
        } else {
            (6, format!("metadata that begin at {HEAD_BYTES} to {bytes}"), self.offset)
        };
        let hint = if found > 0 { ": the file is truncated" } else { "" };
        Err(reader.malformed(at, expected, found.to_string(), hint))
    }
}

/// An open `.syr` file. Offsets and sizes stay where they are, in the metadata.
struct SyrahFile {
    source: Arc<dyn Source>,
    /// All metadata.
    table: Box<dyn Table>,
    /// The start of the metadata, and the end of the data.
    data_end: u64,
    items: u64,
    keys: Vec<Key>,
    data_bytes: u64,
    warnings: Vec<String>,
}

struct Key {
    /// The place of its array of offsets in the table.
    offsets_at: u64,
    sizes_at: u64,
    shown: Shown,
    /// The names of its files: as `shown` says, and for bytes that are not a whole number of elements.
    names: Vec<Vec<u8>>,
}

/// How a key's arrays are shown.
#[derive(Clone, Copy)]
enum Shown {
    Stored,
    Array { descr: &'static str, item_bytes: u64, header_bytes: u32 },
}

impl Shown {
    /// How an array of `size` bytes is shown; false if not as its type says.
    fn content(self, size: u64) -> (Content, bool) {
        match self {
            Shown::Stored => (Content::Stored, true),
            Shown::Array { item_bytes, header_bytes, .. } => match size.checked_rem(item_bytes) {
                Some(0) => (Content::Prefixed(header_bytes), true),
                _ => (Content::Stored, false),
            },
        }
    }
}

/// The extent of an array as the file has it, right or wrong.
#[derive(Clone, Copy)]
struct Extent {
    offset: i64,
    size: i64,
}

impl Extent {
    /// Its first byte and its length, if it lies in the data.
    fn within(self, data_end: u64) -> Option<(u64, u64)> {
        let offset = u64::try_from(self.offset).ok().filter(|at| *at >= HEAD_BYTES)?;
        let size = u64::try_from(self.size).ok()?;
        (offset.checked_add(size)? <= data_end).then_some((offset, size))
    }
}

impl SyrahFile {
    fn open(source: Arc<dyn Source>, options: &OpenOptions) -> Result<Self> {
        let reader = Reader::new(source.as_ref(), NAME);
        let file_bytes = reader.len();
        if file_bytes < HEAD_BYTES {
            let found = format!("a file of {}", counted(file_bytes, "byte"));
            return Err(reader.malformed(file_bytes, "a header of 22 bytes", found, ""));
        }
        let (start, end) = Head::read(reader)?.check(reader)?;
        let entries = bson::entries(reader, start, end)?;
        let items = check_lengths(reader, &entries)?;
        let mut file = Self {
            table: reader.table("the metadata", start, end.saturating_sub(start))?,
            data_end: start,
            items,
            keys: Vec::with_capacity(entries.len()),
            data_bytes: 0,
            warnings: Vec::new(),
            source: source.clone(),
        };
        let behind = file_bytes.saturating_sub(end);
        if behind > 0 {
            file.warn(|| {
                format!(
                    "{} to no item",
                    one_or_many(
                        behind,
                        "byte after the metadata belongs",
                        "bytes after the metadata belong"
                    )
                )
            });
        }
        let mut names = FieldNames::default();
        for entry in &entries {
            let key = file.key(entry, options, &mut names);
            file.check_extents(reader, entry, &key, options)?;
            file.keys.push(key);
        }
        Ok(file)
    }

    fn warn(&mut self, text: impl FnOnce() -> String) {
        let path = self.source.name();
        match self.warnings.len() {
            0..MAX_WARNINGS => self.warnings.push(format!("{path}: {}", text())),
            MAX_WARNINGS => self.warnings.push(format!("{path}: and more warnings")),
            _ => {}
        }
    }

    fn key(&mut self, entry: &Entry, options: &OpenOptions, names: &mut FieldNames) -> Key {
        let known = DTYPES.iter().find(|(dtype, _)| dtype.as_bytes() == entry.dtype);
        let (shown, endings) = match known {
            _ if options.view == View::Raw => (Shown::Stored, &[""][..]),
            Some(&(_, descr)) => {
                let header_bytes = npy::header(descr, &[0]).len();
                let header_bytes = u32::try_from(header_bytes).unwrap_or(u32::MAX);
                let item_bytes = npy::item_bytes(descr).unwrap_or(1);
                (Shown::Array { descr, item_bytes, header_bytes }, &[".npy", ""][..])
            }
            None if entry.dtype == b"str" => (Shown::Stored, &[".txt"][..]),
            None => {
                self.warn(|| {
                    let (key, dtype) = (quoted(&entry.key), quoted(&entry.dtype));
                    format!("{key} is of the unknown type {dtype}: shown as it is stored")
                });
                (Shown::Stored, &[""][..])
            }
        };
        Key {
            offsets_at: entry.offsets.offset_bytes.saturating_sub(self.data_end),
            sizes_at: entry.sizes.offset_bytes.saturating_sub(self.data_end),
            shown,
            names: names.take(&entry.key, endings),
        }
    }

    /// Checks every extent of a key once, in order.
    fn check_extents(
        &mut self,
        reader: Reader<'_>,
        entry: &Entry,
        key: &Key,
        options: &OpenOptions,
    ) -> Result<()> {
        let (mut outside, mut odd) = (0u64, 0u64);
        let mut first = 0;
        while first < self.items {
            let count = self.items.saturating_sub(first).min(CHUNK_ITEMS);
            let offsets = read_chunk(reader, entry.offsets, first, count)?;
            let sizes = read_chunk(reader, entry.sizes, first, count)?;
            for (item, (offset, size)) in (first..).zip(offsets.into_iter().zip(sizes)) {
                let extent = Extent { offset, size };
                let Some((_, size)) = extent.within(self.data_end) else {
                    if !options.allow_damaged {
                        return Err(self.outside(reader, entry, item, extent));
                    }
                    outside = outside.saturating_add(1);
                    continue;
                };
                let (content, is_typed) = key.shown.content(size);
                let shown = Sample { length_bytes: size, content, ..Sample::default() };
                self.data_bytes = self.data_bytes.saturating_add(shown.size_bytes());
                odd = odd.saturating_add(u64::from(!is_typed));
            }
            first = first.saturating_add(count);
        }
        let name = quoted(&entry.key);
        if outside > 0 {
            self.warn(|| {
                format!(
                    "{name}: {} outside the data",
                    one_or_many(outside, "array lies", "arrays lie")
                )
            });
        }
        if odd > 0 {
            self.warn(|| {
                let dtype = String::from_utf8_lossy(&entry.dtype);
                format!(
                    "{name}: {} a part of an element of {dtype}: shown as stored",
                    one_or_many(odd, "array holds", "arrays hold")
                )
            });
        }
        Ok(())
    }

    fn outside(&self, reader: Reader<'_>, entry: &Entry, item: u64, extent: Extent) -> Error {
        let at = entry.offsets.offset_bytes.saturating_add(item.saturating_mul(8));
        let key = quoted(&entry.key);
        let expected = format!("{key} of item {item} within {HEAD_BYTES}..{}", self.data_end);
        let found = format!("{} at {}", counted(extent.size, "byte"), extent.offset);
        let hint = " (--allow-damaged serves the arrays that are whole)";
        reader.malformed(at, expected, found, hint)
    }

    /// The key and the extent of a sample.
    fn locate(&self, index: u64) -> Result<(&Key, Extent)> {
        let reader = Reader::new(self.source.as_ref(), NAME);
        let keys = self.keys.len() as u64;
        let place = index.checked_div(keys).zip(index.checked_rem(keys));
        let found = place
            .filter(|(item, _)| *item < self.items)
            .and_then(|(item, key)| Some((item, self.keys.get(usize::try_from(key).ok()?)?)));
        let Some((item, key)) = found else {
            let expected = format!("a sample number below {}", self.len());
            return Err(reader.malformed(0, expected, index.to_string(), ""));
        };
        let at = item.saturating_mul(8);
        let offset = self.i64_at(reader, key.offsets_at.saturating_add(at))?;
        let size = self.i64_at(reader, key.sizes_at.saturating_add(at))?;
        Ok((key, Extent { offset, size }))
    }

    fn i64_at(&self, reader: Reader<'_>, at: u64) -> Result<i64> {
        let mut bytes = [0; 8];
        self.table
            .copy_to(at, &mut bytes)
            .map_err(|e| reader.unreadable("the metadata", at.saturating_add(self.data_end), e))?;
        Ok(i64::from_le_bytes(bytes))
    }
}

/// Reads `count` numbers of an array of 64-bit numbers.
fn read_chunk(reader: Reader<'_>, array: Binary, first: u64, count: u64) -> Result<Vec<i64>> {
    let mut bytes = vec![0; usize::try_from(count.saturating_mul(8)).unwrap_or_default()];
    let at = array.offset_bytes.saturating_add(first.saturating_mul(8));
    reader.read("the metadata", &mut bytes, at)?;
    Ok(bytes.as_chunks::<8>().0.iter().map(|number| i64::from_le_bytes(*number)).collect())
}

/// Checks that all arrays of offsets and sizes have one length; returns the number of items.
fn check_lengths(reader: Reader<'_>, entries: &[Entry]) -> Result<u64> {
    let length = entries.first().map_or(0, |entry| entry.offsets.length_bytes);
    for array in entries.iter().flat_map(|entry| [entry.offsets, entry.sizes]) {
        let (at, found) = (array.offset_bytes, array.length_bytes.to_string());
        if array.length_bytes % 8 != 0 {
            let expected = "an array of 8-byte numbers";
            return Err(reader.malformed(at, expected, counted(found, "byte"), ""));
        }
        if array.length_bytes != length {
            let expected = format!("an array of {}, as the first one", counted(length, "byte"));
            return Err(reader.malformed(at, expected, found, ""));
        }
    }
    Ok(length / 8)
}

impl Container for SyrahFile {
    fn format(&self) -> &'static str {
        NAME
    }

    fn len(&self) -> u64 {
        self.items.saturating_mul(self.keys.len() as u64)
    }

    fn sample(&self, index: u64) -> Result<Sample> {
        let (key, extent) = self.locate(index)?;
        let Some((offset_bytes, length_bytes)) = extent.within(self.data_end) else {
            let length_bytes = u64::try_from(extent.size).unwrap_or(0).clamp(1, self.source.len());
            let offset_bytes = u64::try_from(extent.offset).unwrap_or(0);
            return Ok(Sample { offset_bytes, length_bytes, damaged: true, ..Sample::default() });
        };
        let (content, _) = key.shown.content(length_bytes);
        Ok(Sample { offset_bytes, length_bytes, content, ..Sample::default() })
    }

    fn check_unchanged(&self) -> std::io::Result<()> {
        self.source.check_unchanged()
    }

    fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    fn prefix(&self, index: u64) -> Result<Vec<u8>> {
        let (key, extent) = self.locate(index)?;
        let size = u64::try_from(extent.size).unwrap_or(0);
        Ok(match (key.shown, key.shown.content(size).0) {
            (Shown::Array { descr, item_bytes, .. }, Content::Prefixed(_)) => {
                npy::header(descr, &[size.checked_div(item_bytes).unwrap_or(0)])
            }
            _ => Vec::new(),
        })
    }

    fn field_name(&self, index: u64) -> Result<Vec<u8>> {
        let (key, extent) = self.locate(index)?;
        let size = extent.within(self.data_end).map_or(0, |(_, size)| size);
        let (_, is_typed) = key.shown.content(size);
        Ok(key.names.get(usize::from(!is_typed)).cloned().unwrap_or_default())
    }

    fn names(&self, _samples: u64) -> Result<Names> {
        Ok(match self.keys.len() {
            0 => Names::None,
            keys => Names::Fields(keys as u64),
        })
    }

    fn index_checksum(&self) -> IndexChecksum {
        IndexChecksum::None
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

#[cfg(test)]
mod tests;
