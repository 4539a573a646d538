//! The columns of a shard: the kinds of their values, and how they are shown.
//!
//! Imports `npy`, `ending` and `pickled`.

use super::Mds;
use crate::format::counted;
use crate::format::ending;
use crate::format::npy;
use crate::format::pickled;
use crate::format::quoted;
use crate::format::records::{Builder, Row};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::marker::PhantomData;

/// The most bytes before the elements of a dynamic array: its type, its dimensions, 63 lengths of 8 bytes.
const MAX_SHAPE_BYTES: u64 = 2 + 63 * 8;

/// The most columns of a shard: each takes memory for every sample that is looked at.
const MAX_COLUMNS: usize = 1 << 16;
/// The most bytes of a column's name or encoding: each sample passes the names.
const MAX_TEXT_BYTES: usize = 2000;
/// The most dimensions of an array that NumPy reads.
const MAX_DIMENSIONS: usize = 64;

/// The types of numbers: the package's name, NumPy's name, and the code in an array.
const DTYPES: &[(&str, &str, u8)] = &[
    ("uint8", "|u1", 8),
    ("int8", "|i1", 9),
    ("uint16", "<u2", 16),
    ("int16", "<i2", 17),
    ("float16", "<f2", 18),
    ("uint32", "<u4", 32),
    ("int32", "<i4", 33),
    ("float32", "<f4", 34),
    ("uint64", "<u8", 64),
    ("int64", "<i8", 65),
    ("float64", "<f8", 66),
];

/// The part of a shard's JSON that is used here.
#[derive(Debug, Deserialize)]
struct Config {
    #[serde(deserialize_with = "of_columns")]
    column_names: Vec<String>,
    #[serde(deserialize_with = "of_columns")]
    column_encodings: Vec<String>,
    #[serde(deserialize_with = "of_columns")]
    column_sizes: Vec<Option<u64>>,
}

/// Reads a list with one item for each column. Fails as soon as the list is too long: a text of many commas must not take
/// much memory.
fn of_columns<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(OfColumns(PhantomData))
}

struct OfColumns<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OfColumns<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a list for at most {MAX_COLUMNS} columns")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut found = Vec::new();
        while let Some(item) = list.next_element()? {
            if found.len() == MAX_COLUMNS {
                return Err(A::Error::custom(format_args!("over {MAX_COLUMNS} columns")));
            }
            found.push(item);
        }
        Ok(found)
    }
}

/// A column.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: Vec<u8>,
    /// The size of each value, if all have the same.
    pub(super) size: Option<u64>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Shown as stored, with the ending of this code.
    Stored(u8),
    /// One number of this type.
    Number(&'static str),
    /// A pickle, to be taken apart.
    Pickle,
    /// An array: its type and its lengths; those that are `None` stand before its elements.
    Array(Option<&'static str>, Option<Vec<u64>>),
}

/// How values are shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    /// Whether all values are shown as they are stored.
    pub(super) is_raw: bool,
    /// Whether pickles are taken apart.
    pub(super) is_unpickled: bool,
}

/// Reads the columns that the JSON names, and notes on columns of an unknown encoding.
///
/// # Errors
/// Why the JSON does not describe columns.
pub(super) fn read(json: &[u8], shown: Shown) -> Result<(Vec<Column>, Vec<String>), String> {
    let config: Config = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let Config { column_names, column_encodings, column_sizes } = config;
    let count = column_names.len();
    if count == 0 || column_encodings.len() != count || column_sizes.len() != count {
        let counts = (count, column_encodings.len(), column_sizes.len());
        return Err(format!("{counts:?} names, encodings and sizes of columns"));
    }
    let is_long = |text: &&String| text.len() > MAX_TEXT_BYTES;
    if let Some(long) = column_names.iter().chain(&column_encodings).find(is_long) {
        let most = format!("names and encodings of columns have up to {MAX_TEXT_BYTES} bytes");
        return Err(format!("a text of {}: {most}", counted(long.len(), "byte")));
    }
    let mut unknown = Vec::new();
    let mut columns = Vec::with_capacity(count);
    for ((name, encoding), size) in column_names.into_iter().zip(column_encodings).zip(column_sizes)
    {
        let kind = match shown.is_raw {
            true => Kind::Stored(ending::NONE),
            false if shown.is_unpickled && encoding == "pkl" && !name.is_empty() => Kind::Pickle,
            false => kind_of(&encoding).unwrap_or_else(|| {
                let (name, encoding) = (quoted(&name), quoted(&encoding));
                unknown.push(format!("{name} is of the unknown encoding {encoding}"));
                Kind::Stored(ending::BIN)
            }),
        };
        columns.push(Column { name: name.into_bytes(), size, kind });
    }
    Ok((columns, unknown))
}

fn descr_of(dtype: &str) -> Option<&'static str> {
    DTYPES.iter().find(|(name, ..)| *name == dtype).map(|(_, descr, _)| *descr)
}

/// The names of a type of NumPy: the package's, and NumPy's own.
pub(super) fn dtype_of(descr: &str) -> Option<(&'static str, &'static str)> {
    DTYPES.iter().find(|(_, known, _)| *known == descr).map(|(name, known, _)| (*name, *known))
}

/// The code of a type of NumPy in an array.
pub(super) fn code_of(descr: &str) -> Option<u8> {
    DTYPES.iter().find(|(_, known, _)| *known == descr).map(|(.., code)| *code)
}

fn kind_of(encoding: &str) -> Option<Kind> {
    let (name, arguments) = encoding.split_once(':').unwrap_or((encoding, ""));
    let stored = |ending| Some(Kind::Stored(ending::code(ending)));
    match name {
        "bytes" | "pkl" | "pil" => stored(".bin"),
        "str" | "str_int" | "str_float" | "str_decimal" => stored(".txt"),
        "json" => stored(".json"),
        "jpeg" => stored(".jpg"),
        "png" => stored(".png"),
        "int" => Some(Kind::Number("<i8")),
        "ndarray" => {
            let (dtype, shape) = arguments.split_once(':').unwrap_or((arguments, ""));
            let descr = if dtype.is_empty() { None } else { Some(descr_of(dtype)?) };
            let lengths = shape.split(',').map(|length| length.trim().parse().ok());
            let shape = match shape {
                "" => None,
                _ => Some(lengths.collect::<Option<Vec<u64>>>()?),
            };
            if shape.as_ref().is_some_and(|shape| shape.len() > MAX_DIMENSIONS) {
                return None;
            }
            Some(Kind::Array(descr, shape))
        }
        _ => descr_of(name).map(Kind::Number),
    }
}

impl Column {
    /// Whether its values are pickles that are taken apart.
    pub(super) fn is_pickle(&self) -> bool {
        matches!(self.kind, Kind::Pickle)
    }

    /// The number of bytes at the beginning of a value of `size` bytes that must be read to know how it is shown.
    pub(super) fn look_bytes(&self, size: u64) -> u64 {
        let most = match self.kind {
            Kind::Array(Some(_), Some(_)) | Kind::Stored(_) | Kind::Number(_) => 0,
            Kind::Array(None, Some(_)) => 1,
            Kind::Array(_, None) => MAX_SHAPE_BYTES,
            Kind::Pickle if size > pickled::MAX_SAMPLE_BYTES => 0,
            Kind::Pickle => size,
        };
        most.min(size)
    }

    /// The row of a value that lies at `(offset, length)` and begins with `head`. `None` if it is no value of the
    /// column's kind.
    pub(super) fn row(
        &self,
        (offset, length): (u64, u64),
        head: &[u8],
        builder: &mut Builder<Mds>,
    ) -> Option<Row<Mds>> {
        match &self.kind {
            Kind::Stored(code) => Some(Row::stored(offset, length, *code)),
            Kind::Pickle => Some(Row::stored(offset, length, ending::BIN)),
            Kind::Number(descr) if npy::item_bytes(descr) == Some(length) => {
                builder.array((offset, length), descr, &[])
            }
            Kind::Number(_) => None,
            Kind::Array(descr, shape) => {
                let mut head = Head { bytes: head, taken: 0 };
                let descr = match descr {
                    Some(descr) => *descr,
                    None => {
                        let code = head.number(1)?;
                        let row = DTYPES.iter().find(|(.., known)| u64::from(*known) == code)?;
                        row.1
                    }
                };
                let shape = match shape {
                    Some(shape) => shape.clone(),
                    None => head.shape()?,
                };
                let item = npy::item_bytes(descr)?;
                let bytes =
                    shape.iter().try_fold(item, |bytes, length| bytes.checked_mul(*length))?;
                let left = length.checked_sub(head.taken)?;
                let offset = offset.checked_add(head.taken)?;
                (bytes == left).then(|| builder.array((offset, left), descr, &shape)).flatten()
            }
        }
    }
}

/// The beginning of an array's value.
struct Head<'a> {
    bytes: &'a [u8],
    taken: u64,
}

impl Head<'_> {
    /// Takes a little-endian number of 1 to 8 bytes.
    fn number(&mut self, bytes: usize) -> Option<u64> {
        let (number, rest) = self.bytes.split_at_checked(bytes)?;
        self.bytes = rest;
        self.taken = self.taken.checked_add(bytes as u64)?;
        Some(number.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// Takes a shape: `dimensions << 2 | width of their lengths`, and the lengths.
    fn shape(&mut self) -> Option<Vec<u64>> {
        let packed = self.number(1)?;
        let width = 1_usize << (packed & 3);
        (0..packed >> 2).map(|_| self.number(width)).collect()
    }
}
