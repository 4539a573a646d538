//! The operands of opcodes: integers, memo entries, and names as the bytes a file system has.

use super::opcode::*;
use super::{MAX_NAME_BYTES, Reason, check_name};

pub(super) type Name = Box<[u8]>;

/// The pickle, and the offset up to which it has been read.
pub(in crate::format) struct Input<'a> {
    pub(in crate::format) bytes: &'a [u8],
    pub(in crate::format) at: usize,
}

impl<'a> Input<'a> {
    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    pub(in crate::format) fn take(&mut self, len: u64) -> Result<&'a [u8], Reason> {
        let len = usize::try_from(len).map_err(|_| Reason::Truncated)?;
        let taken = self.rest().get(..len).ok_or(Reason::Truncated)?;
        self.at = self.at.saturating_add(len);
        Ok(taken)
    }

    pub(in crate::format) fn array<const N: usize>(&mut self) -> Result<[u8; N], Reason> {
        let taken = self.take(N as u64)?;
        taken.first_chunk().copied().ok_or(Reason::Truncated)
    }

    pub(in crate::format) fn byte(&mut self) -> Result<u8, Reason> {
        self.array().map(|[byte]| byte)
    }

    /// Reads a line, without its line feed.
    pub(in crate::format) fn line(&mut self) -> Result<&'a [u8], Reason> {
        let len = self.rest().iter().position(|&byte| byte == b'\n').ok_or(Reason::Truncated)?;
        let line = self.take(len as u64)?;
        self.take(1)?;
        Ok(line)
    }

    pub(super) fn decimal_line(&mut self) -> Result<u64, Reason> {
        decimal(self.line()?)
    }

    /// A frame is a hint for reading ahead; it has to lie inside the pickle, no more.
    pub(in crate::format) fn frame(&mut self) -> Result<(), Reason> {
        let len = u64::from_le_bytes(self.array()?);
        if len > self.rest().len() as u64 {
            return Err(Reason::Truncated);
        }
        Ok(())
    }

    /// The operand of an opcode that pushes an int, if it can be an index at all.
    pub(super) fn integer(&mut self, opcode: u8) -> Result<u64, Reason> {
        match opcode {
            BININT1 => Ok(self.byte()?.into()),
            BININT2 => Ok(u16::from_le_bytes(self.array()?).into()),
            BININT => twos_complement(self.take(4)?),
            LONG1 => {
                let len = self.byte()?;
                twos_complement(self.take(len.into())?)
            }
            LONG4 => {
                let len = u32::from_le_bytes(self.array()?);
                twos_complement(self.take(len.into())?)
            }
            INT => self.decimal_line(),
            LONG => {
                let line = self.line()?;
                decimal(line.strip_suffix(b"L").unwrap_or(line))
            }
            _ => Err(Reason::Opcode(opcode)),
        }
    }

    /// The operand of an opcode that pushes a str (or Python 2's byte string), as the bytes of a
    /// file's name; None for other opcodes.
    pub(super) fn name(&mut self, opcode: u8) -> Result<Option<Name>, Reason> {
        let mut name = NameBuffer::new();
        match opcode {
            SHORT_BINUNICODE => {
                let len = self.byte()?;
                name.push_utf8(self.take(len.into())?)?;
            }
            BINUNICODE => {
                let len = u32::from_le_bytes(self.array()?);
                name.push_utf8(self.take(len.into())?)?;
            }
            BINUNICODE8 => {
                let len = u64::from_le_bytes(self.array()?);
                name.push_utf8(self.take(len)?)?;
            }
            UNICODE => name.push_raw_unicode_escape(self.line()?)?,
            SHORT_BINSTRING => {
                let len = self.byte()?;
                name.push(self.take(len.into())?)?;
            }
            BINSTRING => {
                let len = u32::from_le_bytes(self.array()?);
                name.push(self.take(len.into())?)?;
            }
            STRING => name.push_string_literal(self.line()?)?,
            _ => return Ok(None),
        }
        check_name(name.as_slice()).map_err(Reason::Name)?;
        Ok(Some(name.as_slice().into()))
    }
}

/// Reads digits as Python writes them: no sign, no leading zero (`01` is a bool).
fn decimal(digits: &[u8]) -> Result<u64, Reason> {
    match digits {
        [b'0'] => Ok(0),
        [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => {
            let text = str::from_utf8(digits).map_err(|_| Reason::Integer)?;
            text.parse().map_err(|_| Reason::Integer)
        }
        _ => Err(Reason::Integer),
    }
}

/// Reads a little-endian integer; Python writes no more bytes than the number needs.
fn twos_complement(bytes: &[u8]) -> Result<u64, Reason> {
    if bytes.len() > 8 || bytes.last().is_some_and(|&top| top >= 0x80) {
        return Err(Reason::Integer);
    }
    Ok(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
}

/// The value of hexadecimal digits.
fn hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0_u32, |value, &digit| {
        let digit = char::from(digit).to_digit(16)?;
        value.checked_mul(16)?.checked_add(digit)
    })
}

/// A name that is being decoded; it stops when the name is too long for a file.
struct NameBuffer {
    bytes: [u8; MAX_NAME_BYTES],
    len: usize,
}

impl NameBuffer {
    fn new() -> Self {
        Self { bytes: [0; MAX_NAME_BYTES], len: 0 }
    }

    fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), Reason> {
        let end = self.len.saturating_add(bytes.len());
        let room = self.bytes.get_mut(self.len..end).ok_or(Reason::Name("has over 255 bytes"))?;
        room.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    /// Appends UTF-8 in which a byte that was not UTF-8 is U+DC00 + byte (`surrogateescape`, `surrogatepass`).
    fn push_utf8(&mut self, mut text: &[u8]) -> Result<(), Reason> {
        loop {
            let error = match str::from_utf8(text) {
                Ok(_) => return self.push(text),
                Err(error) => error,
            };
            let (valid, rest) = text.split_at_checked(error.valid_up_to()).unwrap_or_default();
            self.push(valid)?;
            let [0xed, high @ 0xb2..=0xb3, low @ 0x80..=0xbf, rest @ ..] = rest else {
                return Err(Reason::Malformed("UTF-8"));
            };
            self.push(&[high << 6 | low & 0x3f])?;
            text = rest;
        }
    }

    fn push_char(&mut self, code: u32) -> Result<(), Reason> {
        if let 0xdc80..=0xdcff = code {
            let [byte, ..] = code.to_le_bytes();
            return self.push(&[byte]);
        }
        let char = char::from_u32(code).ok_or(Reason::Malformed("character"))?;
        self.push(char.encode_utf8(&mut [0; 4]).as_bytes())
    }

    /// Appends Latin-1 with `\uXXXX` and `\UXXXXXXXX`.
    fn push_raw_unicode_escape(&mut self, mut text: &[u8]) -> Result<(), Reason> {
        while let [first, rest @ ..] = text {
            let digits = match text {
                [b'\\', b'u', ..] => 4,
                [b'\\', b'U', ..] => 8,
                // Picklers write a backslash as \u005c, and no other escapes.
                [b'\\', ..] => return Err(Reason::Malformed("escape")),
                _ => {
                    self.push_char((*first).into())?;
                    text = rest;
                    continue;
                }
            };
            let operand = rest.get(1..).and_then(|rest| rest.split_at_checked(digits));
            let (code, rest) = operand.ok_or(Reason::Malformed("escape"))?;
            self.push_char(hex(code).ok_or(Reason::Malformed("escape"))?)?;
            text = rest;
        }
        Ok(())
    }

    /// Appends the `repr()` of a byte string in Python 2.
    fn push_string_literal(&mut self, literal: &[u8]) -> Result<(), Reason> {
        let malformed = || Reason::Malformed("string");
        let (quote, inner) = match literal {
            [quote @ (b'\'' | b'"'), inner @ .., end] if quote == end => (quote, inner),
            _ => return Err(malformed()),
        };
        let mut text: &[u8] = inner;
        while let [first, ..] = text {
            let (byte, rest): (u8, &[u8]) = match text {
                [b'\\', b'x', high, low, rest @ ..] => {
                    let code = hex(&[*high, *low]).and_then(|code| u8::try_from(code).ok());
                    (code.ok_or_else(malformed)?, rest)
                }
                [b'\\', b'n', rest @ ..] => (b'\n', rest),
                [b'\\', b'r', rest @ ..] => (b'\r', rest),
                [b'\\', b't', rest @ ..] => (b'\t', rest),
                [b'\\', byte @ (b'\\' | b'\'' | b'"'), rest @ ..] => (*byte, rest),
                [_, rest @ ..] if *first != b'\\' && first != quote => (*first, rest),
                _ => return Err(malformed()),
            };
            self.push(&[byte])?;
            text = rest;
        }
        Ok(())
    }
}
