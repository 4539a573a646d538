//! Pages: their headers, and the levels and values of decompressed pages.
//!
//! ```text
//! v1   header | compressed: u32 length, repetition levels | u32 length, definition levels | values
//! v2   header | repetition levels | definition levels | compressed: values
//! ```
//! A page has levels only if its column has some. Imports Thrift, codecs, encodings and the schema.

use super::codecs::{self, UNCOMPRESSED};
use super::encoding;
use super::schema::Leaf;
use super::thrift::{FALSE, I32, STRUCT, Thrift, Wrong};
use crate::format::{Fault, counted};
use std::borrow::Cow;

/// The longest page, stored or decompressed, that is decoded: a page is decoded as a whole, and kept in memory for the reads
/// that follow.
pub(super) const MAX_PAGE_BYTES: u32 = 256 << 20;
/// The most values of a page that is decoded, nulls included. Writers that fill a page of 1 MiB with numbers of one bit put 2²³
/// values into it.
pub(super) const MAX_VALUES: u32 = 1 << 24;
const RLE: i32 = 3;
/// The longest header that is read: a header may hold the smallest and the largest value.
pub(super) const MAX_HEADER_BYTES: u64 = 4 << 20;
/// The most pages without values that are passed behind the last value of a chunk; the pages behind them are not examined, and
/// count as values.
pub(super) const MAX_PAGES_BEHIND: usize = 16;

/// The kind of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    /// A data page of version 2: lengths of the levels, and whether the values are compressed.
    DataV2 {
        repetition: u32,
        definition: u32,
        is_compressed: bool,
    },
    Dictionary,
    /// A page without a use here.
    Other,
}

/// The header of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// Bytes of the page behind the header.
    pub(super) stored: u32,
    pub(super) decoded: u32,
    pub(super) crc32: Option<u32>,
    /// The number of values, nulls and places of empty lists included.
    pub(super) values: u32,
    pub(super) encoding: i32,
    /// Encodings of definition and repetition levels.
    pub(super) levels: [i32; 2],
}

type Read<T> = std::result::Result<T, Wrong>;

#[derive(Default)]
struct Fields {
    kind: Option<i32>,
    stored: Option<u64>,
    decoded: Option<u64>,
    crc32: Option<u32>,
    /// The number of values, their encoding, and the encodings of the definition and repetition levels.
    data: [i32; 4],
    dictionary: [i32; 2],
    second: [i32; 2],
    levels: [u64; 2],
    is_compressed: bool,
}

impl Header {
    /// Whether the page has values.
    pub(super) fn is_data(&self) -> bool {
        matches!(self.kind, Kind::Data | Kind::DataV2 { .. })
    }

    /// The reason why the page is not decoded, if it would take too much memory.
    pub(super) fn too_long(&self) -> Option<String> {
        let (bytes, values) = (self.held_bytes(), self.values);
        match (bytes > MAX_PAGE_BYTES.into(), values > MAX_VALUES) {
            (true, _) => Some(format!("it has {}, over 256 MiB", counted(bytes, "byte"))),
            (_, true) => Some(format!("it has {}, over 2²⁴", counted(values, "value"))),
            _ => None,
        }
    }

    /// Splits the bytes of a page into its header and the bytes behind it.
    pub(super) fn split(stored: &[u8]) -> Result<(Self, &[u8]), String> {
        let (header, length) = Self::read(stored)
            .map_err(|wrong| format!("the header of a page: expected {}", wrong.expected))?;
        if let Some(why) = header.too_long() {
            return Err(why);
        }
        let body = stored.get(length..).and_then(|rest| rest.get(..header.stored as usize));
        Ok((header, body.ok_or("a page that ends early")?))
    }

    /// Reads the header that `bytes` begin with, and returns it with its length.
    pub(super) fn read(bytes: &[u8]) -> Read<(Self, usize)> {
        let (data, is_compressed) = ([0, 0, RLE, RLE], true);
        let (mut thrift, mut fields) =
            (Thrift::new(bytes), Fields { data, is_compressed, ..Fields::default() });
        thrift.structure(&mut |id, kind, thrift| {
            match (id, kind) {
                (1, I32) => fields.kind = Some(thrift.i32()?),
                (2, I32) => fields.decoded = Some(thrift.size()?),
                (3, I32) => fields.stored = Some(thrift.size()?),
                (4, I32) => fields.crc32 = Some(thrift.i32()?.cast_unsigned()),
                (5, STRUCT) => numbers(thrift, [1, 2, 3, 4], &mut fields.data)?,
                (7, STRUCT) => numbers(thrift, [1, 2], &mut fields.dictionary)?,
                (8, STRUCT) => fields.second_version(thrift)?,
                _ => thrift.skip(kind)?,
            }
            Ok(())
        })?;
        let length = thrift.taken();
        Ok((fields.header(&thrift)?, length))
    }
}

/// Reads the numbers of a structure whose fields are `wanted`.
fn numbers<const N: usize>(thrift: &mut Thrift, wanted: [i16; N], out: &mut [i32; N]) -> Read<()> {
    thrift.structure(&mut |id, kind, thrift| {
        let place = wanted.iter().position(|known| *known == id && kind == I32);
        match place.and_then(|place| out.get_mut(place)) {
            Some(number) => *number = thrift.i32()?,
            None => thrift.skip(kind)?,
        }
        Ok(())
    })
}

impl Fields {
    fn second_version(&mut self, thrift: &mut Thrift) -> Read<()> {
        let [values, encoding] = &mut self.second;
        let [definition, repetition] = &mut self.levels;
        let is_compressed = &mut self.is_compressed;
        thrift.structure(&mut |id, kind, thrift| {
            match (id, kind) {
                (1, I32) => *values = thrift.i32()?,
                (4, I32) => *encoding = thrift.i32()?,
                (5, I32) => *definition = thrift.size()?,
                (6, I32) => *repetition = thrift.size()?,
                (7, FALSE) => *is_compressed = false,
                _ => thrift.skip(kind)?,
            }
            Ok(())
        })
    }

    fn header(self, thrift: &Thrift) -> Read<Header> {
        let [definition, repetition] = self.levels.map(|length| u32::try_from(length).ok());
        let size = |bytes: Option<u64>| bytes.and_then(|bytes| u32::try_from(bytes).ok());
        let levels = repetition.zip(definition);
        let [data_values, data_encoding, encodings @ ..] = self.data;
        let (kind, [values, encoding]) = match (self.kind, levels) {
            (Some(0), _) => (Kind::Data, [data_values, data_encoding]),
            (Some(2), _) => (Kind::Dictionary, self.dictionary),
            (Some(3), Some((repetition, definition))) => {
                let is_compressed = self.is_compressed;
                (Kind::DataV2 { repetition, definition, is_compressed }, self.second)
            }
            (Some(_), _) => (Kind::Other, [0, 0]),
            (None, _) => return Err(thrift.wrong("the type of a page")),
        };
        let Some((stored, decoded)) = size(self.stored).zip(size(self.decoded)) else {
            return Err(thrift.wrong("the lengths of a page"));
        };
        let values = u32::try_from(values).map_err(|_| thrift.wrong("a number of values"))?;
        let crc32 = self.crc32;
        Ok(Header { kind, stored, decoded, crc32, values, encoding, levels: encodings })
    }
}

/// A page that is decompressed.
#[derive(Debug)]
pub(super) struct Page<'a> {
    pub(super) header: Header,
    /// The whole page of version 1; only the values of a page of version 2.
    pub(super) bytes: Cow<'a, [u8]>,
    /// The start of the values in `bytes`.
    pub(super) values_at: usize,
    /// The levels of each value; empty if the column has none.
    pub(super) repetition: Vec<u8>,
    pub(super) definition: Vec<u8>,
}

/// Compares the checksum of the bytes behind a page's header.
pub(super) fn check(header: &Header, body: &[u8]) -> Result<(), Fault> {
    let Some(expected) = header.crc32 else { return Ok(()) };
    // A fuzzer would not get past a checksum.
    match crc32fast::hash(body) {
        found if found == expected || cfg!(fuzzing) => Ok(()),
        found => Err(Fault::PartChecksum { what: String::new(), expected, found }),
    }
}

impl Header {
    /// Bytes of the levels that stand before the compressed part.
    pub(super) fn levels(&self) -> u32 {
        match self.kind {
            Kind::DataV2 { repetition, definition, .. } => repetition.saturating_add(definition),
            _ => 0,
        }
    }

    /// Bytes that a page takes in memory, stored or decompressed.
    pub(super) fn held_bytes(&self) -> u64 {
        self.stored.max(self.decoded).into()
    }

    /// The codec of the page's compressed part, in a chunk with the codec `codec`.
    pub(super) fn codec(&self, codec: i32) -> i32 {
        match self.kind {
            Kind::DataV2 { is_compressed: false, .. } => UNCOMPRESSED,
            _ => codec,
        }
    }
}

/// Splits a page into the levels before its compressed part and this part, and gives the part's decompressed length.
pub(super) fn split<'a>(
    header: &Header,
    body: &'a [u8],
) -> Result<(&'a [u8], &'a [u8], u32), String> {
    let decoded = header.decoded.checked_sub(header.levels());
    let parts = body.split_at_checked(header.levels() as usize).zip(decoded);
    let ((levels, values), decoded) = parts.ok_or("levels that are longer than their page")?;
    Ok((levels, values, decoded))
}

impl<'a> Page<'a> {
    /// Decompresses a page from the bytes behind its header.
    pub(super) fn open(
        header: Header,
        body: &'a [u8],
        leaf: &Leaf,
        codec: i32,
    ) -> Result<Self, Fault> {
        check(&header, body)?;
        let (levels, compressed, decoded) = split(&header, body)?;
        let bytes = match header.codec(codec) {
            UNCOMPRESSED if compressed.len() == decoded as usize => Cow::Borrowed(compressed),
            // Without values, some writers store no bytes at all.
            _ if decoded == 0 => Cow::Borrowed(&[][..]),
            codec => {
                let mut out = vec![0; decoded as usize];
                codecs::decode(codec, compressed, &mut out)?;
                Cow::Owned(out)
            }
        };
        let mut page =
            Page { header, bytes, values_at: 0, repetition: Vec::new(), definition: Vec::new() };
        page.read_levels(levels, leaf)?;
        Ok(page)
    }

    fn read_levels(&mut self, before: &[u8], leaf: &Leaf) -> Result<(), String> {
        let count = self.header.values as usize;
        match self.header.kind {
            Kind::Data => {
                let mut at = 0_usize;
                let [definition, repetition] = self.header.levels;
                for (most, encoding, into) in [
                    (leaf.repetition, repetition, &mut self.repetition),
                    (leaf.definition, definition, &mut self.definition),
                ] {
                    if most == 0 {
                        continue;
                    }
                    if encoding != RLE {
                        return Err(format!("encoding {encoding} of its levels"));
                    }
                    let rest = self.bytes.get(at..).unwrap_or_default();
                    let (levels, taken) = encoding::prefixed(rest)?;
                    *into = encoding::levels(levels, most, count)?;
                    at = at.saturating_add(taken);
                }
                self.values_at = at;
            }
            Kind::DataV2 { repetition, .. } => {
                let parts = before.split_at_checked(repetition as usize);
                let (first, second) = parts.unwrap_or_default();
                if leaf.repetition > 0 {
                    self.repetition = encoding::levels(first, leaf.repetition, count)?;
                }
                if leaf.definition > 0 {
                    self.definition = encoding::levels(second, leaf.definition, count)?;
                }
            }
            Kind::Dictionary | Kind::Other => (),
        }
        Ok(())
    }

    /// The encoded values.
    pub(super) fn values(&self) -> &[u8] {
        self.bytes.get(self.values_at..).unwrap_or_default()
    }

    /// The number of values that are not null.
    pub(super) fn present(&self, leaf: &Leaf) -> usize {
        match leaf.definition {
            0 => self.header.values as usize,
            most => self.definition.iter().filter(|level| u32::from(**level) == most).count(),
        }
    }
}
