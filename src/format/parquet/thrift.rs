//! Thrift's compact protocol, in which Parquet's structures are written. Fields without a use here are passed over.
//!
//! ```text
//! field   id's difference << 4 | type, or type and zigzag id; a byte 0 ends a structure
//! list    count << 4 | type, or 15 << 4 | type and count
//! ```
//! Imports nothing.

/// The most structures, lists and maps within each other.
const MAX_DEPTH: u32 = 64;

pub(super) const TRUE: u8 = 1;
pub(super) const FALSE: u8 = 2;
pub(super) const BYTE: u8 = 3;
const I16: u8 = 4;
pub(super) const I32: u8 = 5;
pub(super) const I64: u8 = 6;
const DOUBLE: u8 = 7;
pub(super) const BINARY: u8 = 8;
pub(super) const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
pub(super) const STRUCT: u8 = 12;

/// An error: the byte at which it was found, and the bytes that were expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) at: usize,
    pub(super) expected: &'static str,
}

type Result<T> = std::result::Result<T, Wrong>;

/// Reads values one after the other.
#[derive(Debug, Clone)]
pub(super) struct Thrift<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: u32,
}

impl<'a> Thrift<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, depth: 0 }
    }

    /// The number of bytes that were read.
    pub(super) fn taken(&self) -> usize {
        self.at
    }

    pub(super) fn wrong(&self, expected: &'static str) -> Wrong {
        Wrong { at: self.at, expected }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(length);
        let found = end.and_then(|end| self.bytes.get(self.at..end));
        let found = found.ok_or_else(|| self.wrong("more bytes"))?;
        self.at = self.at.saturating_add(length);
        Ok(found)
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?.first().copied().unwrap_or(0))
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).wrapping_shl(shift);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.wrong("a number of 64 bits"))
    }

    /// Reads a number of 16, 32 or 64 bits.
    pub(super) fn number(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ (value & 1).cast_signed().wrapping_neg())
    }

    /// Reads a number that must not be negative.
    pub(super) fn size(&mut self) -> Result<u64> {
        let before = self.clone();
        u64::try_from(self.number()?).map_err(|_| before.wrong("a number that is not negative"))
    }

    /// Reads a number of 32 bits.
    pub(super) fn i32(&mut self) -> Result<i32> {
        let before = self.clone();
        i32::try_from(self.number()?).map_err(|_| before.wrong("a number of 32 bits"))
    }

    pub(super) fn binary(&mut self) -> Result<&'a [u8]> {
        let before = self.clone();
        let length = usize::try_from(self.varint()?).map_err(|_| before.wrong("a length"))?;
        self.take(length)
    }

    /// Visits the fields of a structure, with their numbers and types. `each` reads a field's value or passes over it.
    pub(super) fn structure(
        &mut self,
        each: &mut dyn FnMut(i16, u8, &mut Self) -> Result<()>,
    ) -> Result<()> {
        self.deeper()?;
        let mut id = 0_i16;
        loop {
            let head = self.byte()?;
            let (difference, kind) = (head >> 4, head & 15);
            if kind == 0 {
                self.depth = self.depth.saturating_sub(1);
                return Ok(());
            }
            id = match difference {
                0 => {
                    let number = self.number()?;
                    i16::try_from(number).map_err(|_| self.wrong("the number of a field"))?
                }
                difference => id.saturating_add(difference.into()),
            };
            each(id, kind, self)?;
        }
    }

    /// Visits the elements of a list, with their type.
    pub(super) fn list(&mut self, each: &mut dyn FnMut(u8, &mut Self) -> Result<()>) -> Result<()> {
        self.deeper()?;
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            count => count.into(),
        };
        // Each element takes a byte at least.
        if count > self.bytes.len().saturating_sub(self.at) as u64 {
            return Err(self.wrong("as many elements as there are bytes"));
        }
        for _ in 0..count {
            each(head & 15, self)?;
        }
        self.depth = self.depth.saturating_sub(1);
        Ok(())
    }

    fn deeper(&mut self) -> Result<()> {
        self.depth = self.depth.saturating_add(1);
        if self.depth > MAX_DEPTH { Err(self.wrong("64 levels at most")) } else { Ok(()) }
    }

    /// Passes over the value of a field.
    pub(super) fn skip(&mut self, kind: u8) -> Result<()> {
        match kind {
            TRUE | FALSE => Ok(()),
            BYTE => self.byte().map(drop),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.take(8).map(drop),
            BINARY => self.binary().map(drop),
            LIST | SET => self.list(&mut |kind, thrift| thrift.skip_element(kind)),
            MAP => self.skip_map(),
            STRUCT => self.structure(&mut |_, kind, thrift| thrift.skip(kind)),
            _ => Err(self.wrong("a type of 1 to 12")),
        }
    }

    /// Passes over an element of a list or map, where a boolean is a byte.
    fn skip_element(&mut self, kind: u8) -> Result<()> {
        match kind {
            TRUE | FALSE => self.byte().map(drop),
            kind => self.skip(kind),
        }
    }

    fn skip_map(&mut self) -> Result<()> {
        self.deeper()?;
        let count = self.varint()?;
        if count > self.bytes.len().saturating_sub(self.at) as u64 {
            return Err(self.wrong("as many entries as there are bytes"));
        }
        if count > 0 {
            let kinds = self.byte()?;
            for _ in 0..count {
                self.skip_element(kinds >> 4)?;
                self.skip_element(kinds & 15)?;
            }
        }
        self.depth = self.depth.saturating_sub(1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_read_and_unknown_fields_passed_over() {
        // 1: i32 -3, 2: "ab", 20 (long form): list of 2 booleans, 21: map, 22: true.
        let bytes = b"\x15\x05\x18\x02ab\x09\x28\x21\x01\x02\x1b\x01\x58\x02\x01x\x11\x00rest";
        let (mut thrift, mut found) = (Thrift::new(bytes), Vec::new());
        let read = thrift.structure(&mut |id, kind, thrift| {
            found.push((id, kind));
            match (id, kind) {
                (1, I32) => assert_eq!(thrift.i32()?, -3),
                (2, BINARY) => assert_eq!(thrift.binary()?, b"ab"),
                _ => thrift.skip(kind)?,
            }
            Ok(())
        });
        read.unwrap();
        assert_eq!(found, [(1, I32), (2, BINARY), (20, LIST), (21, MAP), (22, TRUE)]);
        assert_eq!(thrift.taken(), bytes.len() - 4);
    }

    #[test]
    fn what_never_ends_is_refused() {
        let skip = |bytes: &[u8]| Thrift::new(bytes).skip(STRUCT).is_err();
        // Deep structures, a list of more elements than bytes, an endless number, an unknown type.
        assert!(skip(&[0x1c; 100_000]));
        assert!(skip(b"\x19\xf5\xff\xff\xff\xff\x0f"));
        assert!(skip(&[&b"\x16"[..], &[0xff; 11]].concat()));
        assert!(skip(b"\x1d"));
        assert!(skip(b""));
    }
}
