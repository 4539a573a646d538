//! The BSON document at the end of a Syrah file: finds the arrays of offsets and sizes, without reading
//! them. Only documents like those of the format are known: of documents of binaries and strings.
//!
//! ```text
//! document: i32 bytes | elements | 0        element: u8 type | name 0 | value        (bsonspec.org 1.1)
//! 0x02 string: i32 bytes | text 0           0x03 document           0x05 binary: i32 bytes | u8 0 | bytes
//! ```

use super::super::reader::Reader;
use super::Result;
use crate::format::{counted, quoted};
use std::collections::HashSet;

const STRING: u8 = 0x02;
const DOCUMENT: u8 = 0x03;
const BINARY: u8 = 0x05;
const WHAT: &str = "the metadata";
/// The longest name or type, and the most keys: others are refused, which bounds the memory of the entries.
const MAX_TEXT_BYTES: u64 = 4096;
const MAX_KEYS: usize = 65_535;
/// Bytes of a name that are read at a time.
const PIECE_BYTES: usize = 64;

/// The metadata of a key.
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    pub(super) offsets: Binary,
    pub(super) sizes: Binary,
    pub(super) dtype: Vec<u8>,
}

/// The place of a binary.
#[derive(Clone, Copy)]
pub(super) struct Binary {
    /// The offset from the start of the file.
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
}

/// Finds the entries of the document that fills `start..end` of the file.
pub(super) fn entries(reader: Reader<'_>, start: u64, end: u64) -> Result<Vec<Entry>> {
    let mut top = Document::enter(reader, start, end)?;
    if top.end != end {
        let expected = format!("a BSON document of {}", counted(end.saturating_sub(start), "byte"));
        let found = format!("one of {}", top.end.saturating_sub(start));
        return Err(reader.malformed(start, expected, found, ""));
    }
    let mut entries: Vec<Entry> = Vec::new();
    let mut keys = HashSet::new();
    while let Some(element) = top.element()? {
        top.expect(&element, DOCUMENT, "a document for each key")?;
        if entries.len() == MAX_KEYS {
            let expected = format!("at most {MAX_KEYS} keys");
            return Err(reader.malformed(element.at, expected, "more", ""));
        }
        if !keys.insert(element.name.clone()) {
            let found = format!("{} again", quoted(&element.name));
            return Err(reader.malformed(element.at, "each key once", found, ""));
        }
        entries.push(top.entry(element.name)?);
    }
    Ok(entries)
}

/// A document, and the offset up to which it was read.
struct Document<'a> {
    reader: Reader<'a>,
    /// The offset of the next element.
    at: u64,
    /// One past the last byte.
    end: u64,
}

struct Element {
    at: u64,
    kind: u8,
    name: Vec<u8>,
}

impl<'a> Document<'a> {
    /// Enters the document at `at`, which must end at or before `limit`.
    fn enter(reader: Reader<'a>, at: u64, limit: u64) -> Result<Self> {
        let room = limit.saturating_sub(at);
        if room < 5 {
            let found = counted(room, "byte");
            return Err(reader.malformed(at, "a BSON document", found, ""));
        }
        let length = i32::from_le_bytes(reader.bytes(WHAT, at)?);
        let end = u64::try_from(length).ok().filter(|length| (5..=room).contains(length));
        let Some(end) = end.and_then(|length| at.checked_add(length)) else {
            let expected = format!("a BSON document of 5 to {}", counted(room, "byte"));
            return Err(reader.malformed(at, expected, length.to_string(), ""));
        };
        Ok(Self { reader, at: at.saturating_add(4), end })
    }

    /// Reads the next element up to its value, which is then at `self.at`.
    fn element(&mut self) -> Result<Option<Element>> {
        let at = self.at;
        let [kind] = self.take(at)?;
        if kind == 0 {
            if self.at != self.end {
                let expected = format!("the end of the document, at byte {}", self.end);
                return Err(self.reader.malformed(at, expected, "it earlier", ""));
            }
            return Ok(None);
        }
        let name = self.name()?;
        Ok(Some(Element { at, kind, name }))
    }

    fn take<const N: usize>(&mut self, at: u64) -> Result<[u8; N]> {
        self.skip(N as u64)?;
        self.reader.bytes(WHAT, at)
    }

    fn skip(&mut self, bytes: u64) -> Result<()> {
        let end = self.at.checked_add(bytes).filter(|end| *end <= self.end);
        let Some(end) = end else {
            let expected =
                format!("{} in a document that ends at {}", counted(bytes, "byte"), self.end);
            let found = self.end.saturating_sub(self.at).to_string();
            return Err(self.reader.malformed(self.at, expected, found, ""));
        };
        self.at = end;
        Ok(())
    }

    /// Reads a text that ends with a NUL.
    fn name(&mut self) -> Result<Vec<u8>> {
        let start = self.at;
        let mut name = Vec::new();
        let mut piece = [0; PIECE_BYTES];
        while self.at < self.end && (name.len() as u64) < MAX_TEXT_BYTES {
            let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
            let Some(piece) = piece.get_mut(..left.min(PIECE_BYTES)) else { break };
            self.reader.read(WHAT, piece, self.at)?;
            let (text, is_end) = match piece.iter().position(|&byte| byte == 0) {
                Some(end) => (piece.get(..end).unwrap_or_default(), true),
                None => (&*piece, false),
            };
            name.extend_from_slice(text);
            self.skip((text.len() as u64).saturating_add(u64::from(is_end)))?;
            if is_end {
                return Ok(name);
            }
        }
        let expected = format!("a name of at most {MAX_TEXT_BYTES} bytes that ends with a NUL");
        Err(self.reader.malformed(start, expected, "none", ""))
    }

    fn expect(&self, element: &Element, kind: u8, what: &str) -> Result<()> {
        if element.kind == kind {
            return Ok(());
        }
        let expected = format!("{what} (BSON type {kind:#04x})");
        let found = format!("type {:#04x} for {}", element.kind, quoted(&element.name));
        Err(self.reader.malformed(element.at, expected, found, ""))
    }

    /// Reads the document of a key.
    fn entry(&mut self, key: Vec<u8>) -> Result<Entry> {
        let start = self.at;
        let mut inner = Document::enter(self.reader, start, self.end)?;
        let (mut offsets, mut sizes, mut dtype) = (None, None, None);
        while let Some(element) = inner.element()? {
            let is_first = match element.name.as_slice() {
                b"offset" => {
                    inner.expect(&element, BINARY, "an array of offsets")?;
                    offsets.replace(inner.binary()?).is_none()
                }
                b"size" => {
                    inner.expect(&element, BINARY, "an array of sizes")?;
                    sizes.replace(inner.binary()?).is_none()
                }
                b"dtype" => {
                    inner.expect(&element, STRING, "the name of a type")?;
                    dtype.replace(inner.string()?).is_none()
                }
                _ => false,
            };
            if !is_first {
                let found = quoted(&element.name);
                let expected = "offset, size and dtype, each once";
                return Err(self.reader.malformed(element.at, expected, found, ""));
            }
        }
        self.at = inner.end;
        let (Some(offsets), Some(sizes), Some(dtype)) = (offsets, sizes, dtype) else {
            let found = format!("not all of them for {}", quoted(&key));
            return Err(self.reader.malformed(start, "offset, size and dtype", found, ""));
        };
        Ok(Entry { key, offsets, sizes, dtype })
    }

    /// Reads a length, which must be at least `least`.
    fn length(&mut self, least: u64) -> Result<u64> {
        let at = self.at;
        let length = i32::from_le_bytes(self.take(at)?);
        match u64::try_from(length) {
            Ok(length) if length >= least => Ok(length),
            _ => {
                let expected = format!("a length of at least {least}");
                Err(self.reader.malformed(at, expected, length.to_string(), ""))
            }
        }
    }

    fn binary(&mut self) -> Result<Binary> {
        let length_bytes = self.length(0)?;
        let kind_at = self.at;
        let [kind] = self.take(kind_at)?;
        if kind != 0 {
            let found = format!("subtype {kind}");
            return Err(self.reader.malformed(kind_at, "generic binary (subtype 0)", found, ""));
        }
        let offset_bytes = self.at;
        self.skip(length_bytes)?;
        Ok(Binary { offset_bytes, length_bytes })
    }

    fn string(&mut self) -> Result<Vec<u8>> {
        let length = self.length(1)?;
        let start = self.at;
        self.skip(length)?;
        let wrong = |found: &str| {
            let expected = format!("a text of at most {MAX_TEXT_BYTES} bytes and a NUL");
            Err(self.reader.malformed(start, expected, found, ""))
        };
        if length > MAX_TEXT_BYTES {
            return wrong(&counted(length, "byte"));
        }
        let mut text = vec![0; usize::try_from(length).unwrap_or_default()];
        self.reader.read(WHAT, &mut text, start)?;
        if text.pop() != Some(0) {
            return wrong("another last byte");
        }
        Ok(text)
    }
}
