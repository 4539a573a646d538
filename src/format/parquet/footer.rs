//! The footer: the schema as it is written, row groups, and the places of the chunks of their columns.
//!
//! ```text
//! "PAR1" | pages | indexes | FileMetaData | u32 its length | "PAR1"
//! ```
//! Imports Thrift, and the reader and the errors of this room.

use super::super::reader::Reader;
use super::super::{Error, Result};
use super::thrift::{BINARY, BYTE, I32, I64, LIST, STRUCT, TRUE, Thrift, Wrong};
use crate::format::counted;

pub(super) const MARK: &[u8; 4] = b"PAR1";
/// The mark of a file whose footer is encrypted.
pub(super) const ENCRYPTED: &[u8; 4] = b"PARE";
/// Bytes of the footer's length and of the mark behind it.
const TAIL_BYTES: u64 = 8;
/// Bytes that are read at once from the end: mostly they include the footer.
const FIRST_READ_BYTES: u64 = 64 << 10;
/// The longest footer that is read: it is read into memory as a whole.
const MAX_FOOTER_BYTES: u64 = 256 << 20;
/// The key of the metadata of Hugging Face's `datasets` about the columns.
const HUGGING_FACE: &[u8] = b"huggingface";
/// The most elements of a schema, row groups, and chunks of all row groups: far more than any writer makes.
const MAX_ELEMENTS: usize = 1 << 18;
const MAX_GROUPS: usize = 1 << 21;
const MAX_CHUNKS: u64 = 1 << 21;
/// The fewest bytes of a row group and of a chunk, whose required fields take no less: shorter ones would take many times their
/// length in memory.
const MIN_GROUP_BYTES: usize = 7;
const MIN_CHUNK_BYTES: usize = 12;
const TRUNCATED: &str = ": the file is truncated, or was not finished";

/// The content of the footer.
#[derive(Debug, Default)]
pub(super) struct Footer {
    pub(super) schema: Vec<Element>,
    pub(super) rows: u64,
    pub(super) groups: Vec<Group>,
    /// The JSON of Hugging Face's `datasets`.
    pub(super) hugging_face: Option<Vec<u8>>,
    /// The offset of the footer: pages lie before it.
    pub(super) at: u64,
    is_encrypted: bool,
}

/// An element of the schema, which is a tree: each element stands before its children.
#[derive(Debug, Clone, Default)]
pub(super) struct Element {
    pub(super) name: Vec<u8>,
    /// The physical type of a leaf; `None` for a group.
    pub(super) physical: Option<i32>,
    /// Bytes of a value of fixed length.
    pub(super) length: u32,
    /// 0: required, 1: optional, 2: repeated.
    pub(super) repetition: i32,
    pub(super) children: u64,
    pub(super) converted: Option<i32>,
    pub(super) scale: i32,
    pub(super) logical: Logical,
}

/// The logical types that decide how values are shown; old writers give `converted` instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Logical {
    #[default]
    None,
    String,
    Map,
    List,
    Decimal,
    Date,
    /// A unit: 1 milliseconds, 2 microseconds, 3 nanoseconds.
    Time(i16),
    /// A unit, and whether the time is in UTC.
    Timestamp(i16, bool),
    /// A number of bits, and whether the integer has a sign.
    Integer(u8, bool),
    Float16,
}

/// A row group.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) rows: u64,
    /// One chunk for each leaf.
    pub(super) chunks: Vec<Chunk>,
}

/// The place of the values of a leaf in a row group.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Chunk {
    pub(super) at: u64,
    pub(super) length: u64,
    /// The number of values, nulls and places of empty lists included.
    pub(super) values: u64,
    pub(super) codec: i32,
    pub(super) physical: i32,
    /// The offset and the length of its page index; the length is 0 if it has none.
    pub(super) offset_index: (u64, u32),
    pub(super) column_index: (u64, u32),
    has_metadata: bool,
    is_elsewhere: bool,
}

/// Reads the footer.
pub(super) fn read(reader: Reader<'_>) -> Result<Footer> {
    let length = reader.len();
    let refuse =
        |at, expected: &str, found: String| Err(reader.malformed(at, expected, found, TRUNCATED));
    let first_bytes = FIRST_READ_BYTES.min(length);
    let first_at = length.saturating_sub(first_bytes);
    let mut last = vec![0; usize::try_from(first_bytes).unwrap_or(0)];
    reader.read("the end of the file", &mut last, first_at)?;
    let tail_at = length.saturating_sub(TAIL_BYTES);
    let Some((rest, tail)) = last.split_last_chunk::<8>() else {
        return refuse(0, "12 bytes or more", format!("a file of {}", counted(length, "byte")));
    };
    let [a, b, c, d, mark @ ..] = tail;
    if mark == ENCRYPTED {
        let found = "one that is encrypted".to_owned();
        return Err(reader.malformed(tail_at, "a footer that can be read", found, ""));
    }
    if mark != MARK {
        let found = format!("\"{}\"", mark.escape_ascii());
        return refuse(tail_at.saturating_add(4), "\"PAR1\" at the end of the file", found);
    }
    let footer_bytes = u64::from(u32::from_le_bytes([*a, *b, *c, *d]));
    let place = tail_at.checked_sub(footer_bytes).filter(|at| *at >= MARK.len() as u64);
    let Some(at) = place.filter(|_| footer_bytes <= MAX_FOOTER_BYTES) else {
        let found = counted(footer_bytes, "byte");
        let expected = "the length of a footer that is within the file";
        return Err(reader.malformed(tail_at, expected, found, ""));
    };
    let size = usize::try_from(footer_bytes).unwrap_or(0);
    let whole;
    let bytes = match rest.len().checked_sub(size) {
        Some(start) => rest.get(start..).unwrap_or_default(),
        None => {
            let mut bytes = vec![0; size];
            reader.read("the footer", &mut bytes, at)?;
            whole = bytes;
            &whole
        }
    };
    let mut thrift = Thrift::new(bytes);
    let footer = file(&mut thrift).map_err(|wrong| wrong_at(reader, at, &wrong))?;
    checked(Footer { at, ..footer }, reader)
}

/// The error for a structure that begins at `at`.
pub(super) fn wrong_at(reader: Reader<'_>, at: u64, wrong: &Wrong) -> Error {
    let at = at.saturating_add(wrong.at as u64);
    reader.malformed(at, wrong.expected, "other bytes", "")
}

/// Refuses chunks that cannot be where the footer says.
fn checked(footer: Footer, reader: Reader<'_>) -> Result<Footer> {
    let at = footer.at;
    let refuse = |expected: String, found: String| Err(reader.malformed(at, expected, found, ""));
    if footer.is_encrypted {
        return refuse("columns that can be read".to_owned(), "encrypted ones".to_owned());
    }
    let leaves = footer.schema.iter().filter(|element| element.physical.is_some()).count();
    let (mut rows, mut bytes) = (0_u64, 0_u64);
    for (number, group) in footer.groups.iter().enumerate() {
        rows = rows.saturating_add(group.rows);
        if group.chunks.len() != leaves {
            let found = format!("{} in row group {number}", group.chunks.len());
            return refuse(format!("chunks of {}", counted(leaves, "column")), found);
        }
        for (column, chunk) in group.chunks.iter().enumerate() {
            let named = format!("the chunk of column {column} of row group {number}");
            let end = chunk.at.checked_add(chunk.length);
            let is_within = chunk.at >= MARK.len() as u64 && end.is_some_and(|end| end <= at);
            if chunk.is_elsewhere || !chunk.has_metadata {
                return refuse(format!("{named} in this file"), "none".to_owned());
            }
            if !is_within && chunk.values > 0 {
                let found = format!("{} at byte {}", counted(chunk.length, "byte"), chunk.at);
                return refuse(format!("{named} before the footer"), found);
            }
            if chunk.values > 0 {
                bytes = bytes.saturating_add(chunk.length);
            }
        }
    }
    // So the length of the file bounds the memory that all chunks may take.
    let room = at.saturating_sub(MARK.len() as u64);
    if bytes > room {
        let found = format!("{} of chunks in {room}", counted(bytes, "byte"));
        return refuse("chunks that do not overlap".to_owned(), found);
    }
    match rows == footer.rows {
        true => Ok(footer),
        false => refuse(format!("row groups of {}", counted(footer.rows, "row")), rows.to_string()),
    }
}

type Read<T> = std::result::Result<T, Wrong>;

fn file(thrift: &mut Thrift) -> Read<Footer> {
    let (mut footer, mut chunks) = (Footer::default(), MAX_CHUNKS);
    thrift.structure(&mut |id, kind, thrift| {
        match (id, kind) {
            (2, LIST) => thrift.list(&mut |kind, thrift| {
                if footer.schema.len() >= MAX_ELEMENTS {
                    return Err(thrift.wrong("a schema of 2¹⁸ elements at most"));
                }
                footer.schema.push(element(kind, thrift)?);
                Ok(())
            }),
            (3, I64) => thrift.size().map(|rows| footer.rows = rows),
            (4, LIST) => thrift.list(&mut |kind, thrift| {
                if footer.groups.len() >= MAX_GROUPS {
                    return Err(thrift.wrong("2²¹ row groups at most"));
                }
                let before = thrift.clone();
                footer.groups.push(group(kind, thrift, &mut chunks)?);
                long_enough(&before, thrift, MIN_GROUP_BYTES, "a row group of 7 bytes or more")
            }),
            (5, LIST) => thrift.list(&mut |kind, thrift| {
                if let Some(json) = hugging_face(kind, thrift)? {
                    footer.hugging_face = Some(json);
                }
                Ok(())
            }),
            // The columns are encrypted, or some of them, and the footer is signed.
            (8, kind) => {
                footer.is_encrypted = true;
                thrift.skip(kind)
            }
            (_, kind) => thrift.skip(kind),
        }
    })?;
    Ok(footer)
}

fn structure<'a>(
    kind: u8,
    thrift: &mut Thrift<'a>,
    each: &mut dyn FnMut(i16, u8, &mut Thrift<'a>) -> Read<()>,
) -> Read<()> {
    match kind {
        STRUCT => thrift.structure(each),
        _ => Err(thrift.wrong("a structure")),
    }
}

fn element(kind: u8, thrift: &mut Thrift) -> Read<Element> {
    let mut element = Element::default();
    structure(kind, thrift, &mut |id, kind, thrift| {
        match (id, kind) {
            (1, I32) => element.physical = Some(thrift.i32()?),
            (2, I32) => element.length = u32::try_from(thrift.i32()?).unwrap_or(u32::MAX),
            (3, I32) => element.repetition = thrift.i32()?,
            (4, BINARY) => element.name = thrift.binary()?.to_vec(),
            (5, I32) => element.children = thrift.size()?,
            (6, I32) => element.converted = Some(thrift.i32()?),
            (7, I32) => element.scale = thrift.i32()?,
            (10, STRUCT) => (element.logical, element.scale) = logical(thrift, element.scale)?,
            _ => thrift.skip(kind)?,
        }
        Ok(())
    })?;
    // A group has children; old writers give it a type of no meaning.
    if element.children > 0 {
        element.physical = None;
    }
    Ok(element)
}

/// Reads a logical type, and the scale of a decimal.
fn logical(thrift: &mut Thrift, mut scale: i32) -> Read<(Logical, i32)> {
    let mut found = Logical::None;
    thrift.structure(&mut |id, kind, thrift| {
        let (mut first, mut second, mut unit) = (0_i64, false, 0);
        if kind != STRUCT {
            return thrift.skip(kind);
        }
        let which = id;
        thrift.structure(&mut |id, kind, thrift| {
            match (id, kind) {
                (1 | 2, TRUE) => second = true,
                (1, I32) => first = thrift.number()?,
                (1, BYTE) => first = thrift.byte()?.into(),
                (2, STRUCT) => thrift.structure(&mut |id, kind, thrift| {
                    unit = id;
                    thrift.skip(kind)
                })?,
                _ => thrift.skip(kind)?,
            }
            Ok(())
        })?;
        if which == 5 {
            scale = i32::try_from(first).unwrap_or(i32::MAX);
        }
        found = match which {
            1 | 4 | 12 => Logical::String,
            2 => Logical::Map,
            3 => Logical::List,
            5 => Logical::Decimal,
            6 => Logical::Date,
            7 => Logical::Time(unit),
            8 => Logical::Timestamp(unit, second),
            10 => Logical::Integer(u8::try_from(first).unwrap_or(0), second),
            15 => Logical::Float16,
            _ => Logical::None,
        };
        Ok(())
    })?;
    Ok((found, scale))
}

/// Reads a row group; `left` is the number of chunks that may still follow in the file.
fn group(kind: u8, thrift: &mut Thrift, left: &mut u64) -> Read<Group> {
    let mut group = Group::default();
    structure(kind, thrift, &mut |id, kind, thrift| match (id, kind) {
        (1, LIST) => thrift.list(&mut |kind, thrift| {
            let fewer = left.checked_sub(1);
            *left = fewer.ok_or_else(|| thrift.wrong("2²¹ chunks of columns at most"))?;
            let before = thrift.clone();
            group.chunks.push(chunk(kind, thrift)?);
            let expected = "a chunk of a column of 12 bytes or more";
            long_enough(&before, thrift, MIN_CHUNK_BYTES, expected)
        }),
        (3, I64) => thrift.size().map(|rows| group.rows = rows),
        (_, kind) => thrift.skip(kind),
    })?;
    // A `Vec` has room for four elements at first: with many groups of one chunk, that is most of their memory.
    group.chunks.shrink_to_fit();
    Ok(group)
}

/// Refuses a structure, from `before` to `behind`, that is too short for its required fields.
fn long_enough(before: &Thrift, behind: &Thrift, least: usize, expected: &'static str) -> Read<()> {
    match behind.taken().saturating_sub(before.taken()) {
        length if length < least => Err(before.wrong(expected)),
        _ => Ok(()),
    }
}

fn chunk(kind: u8, thrift: &mut Thrift) -> Read<Chunk> {
    let mut chunk = Chunk::default();
    structure(kind, thrift, &mut |id, kind, thrift| match (id, kind) {
        (1, BINARY) => thrift.binary().map(|path| chunk.is_elsewhere = !path.is_empty()),
        (3, STRUCT) => place(thrift, &mut chunk),
        (4, I64) => thrift.size().map(|at| chunk.offset_index.0 = at),
        (5, I32) => length(thrift).map(|length| chunk.offset_index.1 = length),
        (6, I64) => thrift.size().map(|at| chunk.column_index.0 = at),
        (7, I32) => length(thrift).map(|length| chunk.column_index.1 = length),
        (_, kind) => thrift.skip(kind),
    })?;
    Ok(chunk)
}

fn length(thrift: &mut Thrift) -> Read<u32> {
    Ok(u32::try_from(thrift.size()?).unwrap_or(u32::MAX))
}

fn place(thrift: &mut Thrift, chunk: &mut Chunk) -> Read<()> {
    let (mut data, mut dictionary) = (0, None);
    thrift.structure(&mut |id, kind, thrift| {
        match (id, kind) {
            (1, I32) => chunk.physical = thrift.i32()?,
            (4, I32) => chunk.codec = thrift.i32()?,
            (5, I64) => chunk.values = thrift.size()?,
            (7, I64) => chunk.length = thrift.size()?,
            (9, I64) => data = thrift.size()?,
            (11, I64) => dictionary = Some(thrift.size()?),
            _ => thrift.skip(kind)?,
        }
        Ok(())
    })?;
    // Old writers set 0 if the chunk has no dictionary.
    let dictionary = dictionary.filter(|at| *at > 0);
    chunk.at = dictionary.map_or(data, |at| at.min(data));
    chunk.has_metadata = true;
    Ok(())
}

/// Returns the value of a pair if its key is [`HUGGING_FACE`].
fn hugging_face(kind: u8, thrift: &mut Thrift) -> Read<Option<Vec<u8>>> {
    let (mut key, mut value) = (&[][..], None);
    structure(kind, thrift, &mut |id, kind, thrift| {
        match (id, kind) {
            (1, BINARY) => key = thrift.binary()?,
            (2, BINARY) => value = Some(thrift.binary()?),
            _ => thrift.skip(kind)?,
        }
        Ok(())
    })?;
    Ok(value.filter(|_| key == HUGGING_FACE).map(<[u8]>::to_vec))
}
