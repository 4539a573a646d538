//! The header of a safetensors file: JSON with each tensor's type, its shape, and the place of its data.
//!
//! ```text
//! {"__metadata__": {string: string, …}, NAME: {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …}
//! ```
//!
//! Each tensor is checked as it is read, so that a header takes no more memory than its valid tensors.
//! Imports the reader and the errors of this room.

use super::super::reader::Reader;
use super::super::{Error, Result, quoted};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// The name under which a header keeps its writer's own metadata.
const METADATA: &str = "__metadata__";
/// The most dimensions of an array that NumPy reads.
const MAX_DIMENSIONS: usize = 64;

/// The content of a header.
#[derive(Default)]
pub(super) struct Header {
    /// The range of the value of `__metadata__` in the file.
    pub(super) metadata: Option<Range<u64>>,
    /// The tensors, in the order of the header.
    pub(super) tensors: Vec<Tensor>,
}

/// A tensor as the header describes it.
pub(super) struct Tensor {
    pub(super) name: Box<str>,
    pub(super) dtype: Dtype,
    pub(super) shape: Box<[u64]>,
    /// The start and the end of its data, from the first byte behind the header.
    pub(super) data: (u64, u64),
    /// The offset of its description in the file.
    pub(super) described_at: u64,
}

impl Tensor {
    /// The bytes that its type and shape ask for. `None` if they are not whole bytes, too many for a number, or the
    /// type is not known.
    pub(super) fn bytes(&self) -> Option<u64> {
        let bits = self.dtype.row()?.bits;
        // Without the zeros: a product that overflows is not a size, also if a further 0 would make it one.
        let factors = self.shape.iter().filter(|length| **length != 0);
        let all = factors.clone().try_fold(bits, |bits, length| bits.checked_mul(*length))?;
        let bits = if factors.count() < self.shape.len() { 0 } else { all };
        bits.is_multiple_of(8).then_some(bits / 8)
    }
}

/// The type of a tensor: a row of [`DTYPES`], or one that is not known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dtype(u8);

/// A known type.
pub(super) struct DtypeRow {
    pub(super) name: &'static str,
    /// NumPy's name of the type; empty if NumPy does not have it.
    pub(super) descr: &'static str,
    bits: u64,
}

const fn row(name: &'static str, descr: &'static str, bits: u64) -> DtypeRow {
    DtypeRow { name, descr, bits }
}

/// The types that the reference package (safetensors 0.7) knows.
static DTYPES: &[DtypeRow] = &[
    row("BOOL", "|b1", 8),
    row("U8", "|u1", 8),
    row("I8", "|i1", 8),
    row("U16", "<u2", 16),
    row("I16", "<i2", 16),
    row("F16", "<f2", 16),
    row("U32", "<u4", 32),
    row("I32", "<i4", 32),
    row("F32", "<f4", 32),
    row("U64", "<u8", 64),
    row("I64", "<i8", 64),
    row("F64", "<f8", 64),
    row("C64", "<c8", 64),
    row("BF16", "", 16),
    row("F8_E5M2", "", 8),
    row("F8_E4M3", "", 8),
    row("F8_E5M2FNUZ", "", 8),
    row("F8_E4M3FNUZ", "", 8),
    row("F8_E8M0", "", 8),
    row("F6_E2M3", "", 6),
    row("F6_E3M2", "", 6),
    row("F4", "", 4),
];

impl Dtype {
    fn named(name: &str) -> Self {
        let place = DTYPES.iter().position(|row| row.name == name);
        Self(place.and_then(|place| u8::try_from(place).ok()).unwrap_or(u8::MAX))
    }

    /// The row of the type; `None` if it is not known.
    pub(super) fn row(self) -> Option<&'static DtypeRow> {
        DTYPES.get(usize::from(self.0))
    }
}

/// A description as it stands in the header. Other keys are passed over, as the reference package does.
#[derive(Deserialize)]
struct Description<'a> {
    #[serde(borrow)]
    dtype: Cow<'a, str>,
    shape: Shape,
    data_offsets: (u64, u64),
}

/// The lengths of a tensor's dimensions, at most [`MAX_DIMENSIONS`] of them.
struct Shape(Vec<u64>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Shape;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, "a list of up to {MAX_DIMENSIONS} lengths")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Shape, A::Error> {
                let mut shape = Vec::new();
                while let Some(length) = list.next_element()? {
                    if shape.len() >= MAX_DIMENSIONS {
                        let count = shape.len().saturating_add(1);
                        return Err(serde::de::Error::invalid_length(count, &self));
                    }
                    shape.push(length);
                }
                Ok(Shape(shape))
            }
        }
        deserializer.deserialize_seq(Collect)
    }
}

/// Reads a header: `text` stands at `start` in the file.
///
/// # Errors
/// The header is not JSON, or not of descriptions of tensors; or a name stands twice in it.
pub(super) fn read(reader: Reader<'_>, text: &[u8], start: u64) -> Result<Header> {
    let text = std::str::from_utf8(text).map_err(|error| {
        let at = start.saturating_add(error.valid_up_to() as u64);
        reader.malformed(at, "a header of UTF-8", "other bytes", "")
    })?;
    let mut wrong = None;
    let collect = Collect { reader, text, start, wrong: &mut wrong };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = deserializer.deserialize_map(collect).and_then(|header| {
        deserializer.end()?;
        Ok(header)
    });
    let header = read.map_err(|error| {
        wrong.take().unwrap_or_else(|| {
            let at = start.saturating_add(place_of(text, &error));
            reader.malformed(at, "a header of JSON", without_place(&error), "")
        })
    })?;
    check_names(reader, &header.tensors)?;
    Ok(header)
}

/// The offset in the text at which an error was found.
fn place_of(text: &str, error: &serde_json::Error) -> u64 {
    let before = error.line().saturating_sub(1);
    let lines: usize = text.split_inclusive('\n').take(before).map(str::len).sum();
    lines.saturating_add(error.column().saturating_sub(1)).min(text.len()) as u64
}

/// The text of an error, without the line and the column: the byte is named in their place.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

/// Refuses a name that stands twice: readers would differ in the tensor that they take.
fn check_names(reader: Reader<'_>, tensors: &[Tensor]) -> Result<()> {
    let mut sorted: Vec<&Tensor> = tensors.iter().collect();
    sorted.sort_unstable_by(|a, b| (&a.name, a.described_at).cmp(&(&b.name, b.described_at)));
    for (tensor, next) in sorted.iter().zip(sorted.iter().skip(1)) {
        if tensor.name == next.name {
            let found = format!("a second {}", quoted(next.name.as_bytes()));
            let expected = "each tensor once";
            return Err(reader.malformed(next.described_at, expected, found, ""));
        }
    }
    Ok(())
}

/// Takes the entries of the header one by one.
struct Collect<'a, 'de> {
    reader: Reader<'a>,
    text: &'de str,
    start: u64,
    /// The error of an entry that is wrong.
    wrong: &'a mut Option<Error>,
}

impl<'de> Visitor<'de> for Collect<'_, 'de> {
    type Value = Header;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object that describes tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let mut header = Header::default();
        while let Some(name) = map.next_key::<String>()? {
            let value: &'de RawValue = map.next_value()?;
            let added = self.entry(&mut header, name, value.get());
            if let Err(error) = added {
                *self.wrong = Some(error);
                return Err(serde::de::Error::custom("a wrong entry"));
            }
        }
        Ok(header)
    }
}

impl<'de> Collect<'_, 'de> {
    fn entry(&self, header: &mut Header, name: String, value: &'de str) -> Result<()> {
        // The value lies within the text.
        let within = value.as_ptr().addr().saturating_sub(self.text.as_ptr().addr()) as u64;
        let at = self.start.saturating_add(within);
        let wrong = |expected: &str, error: serde_json::Error| {
            let inside = at.saturating_add(place_of(value, &error));
            self.reader.malformed(inside, expected, without_place(&error), "")
        };
        if name == METADATA {
            if header.metadata.is_some() {
                return Err(self.reader.malformed(at, "one __metadata__", "a second one", ""));
            }
            // The reference package reads `null` as no metadata.
            if value == "null" {
                return Ok(());
            }
            let expected = "__metadata__ as an object of strings";
            Texts::check(value).map_err(|error| wrong(expected, error))?;
            header.metadata = Some(at..at.saturating_add(value.len() as u64));
            return Ok(());
        }
        let expected = "a tensor's dtype, shape and data_offsets";
        let read = serde_json::from_str::<Description<'_>>(value);
        let Description { dtype, shape, data_offsets } =
            read.map_err(|error| wrong(expected, error))?;
        header.tensors.push(Tensor {
            name: name.into(),
            dtype: Dtype::named(&dtype),
            shape: shape.0.into(),
            data: data_offsets,
            described_at: at,
        });
        Ok(())
    }
}

/// An object of strings, which is checked and not kept.
struct Texts;

impl Texts {
    fn check(text: &str) -> serde_json::Result<()> {
        serde_json::Deserializer::from_str(text).deserialize_map(Texts)
    }
}

impl<'de> Visitor<'de> for Texts {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry::<String, String>()?.is_some() {}
        Ok(())
    }
}
