//! Protocol buffers as they are on the wire: the fields of a message, which lie in the bytes of a record.
//! Imports nothing.

/// A message, or a value of bytes, and its place in its record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

/// The value of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Varint(u64),
    Fixed64,
    Bytes(Message<'a>),
    /// The four bytes of a number.
    Fixed32([u8; 4]),
}

/// The error of bytes that are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoMessage;

impl<'a> Message<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next field's number and value; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, NoMessage> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => {
                self.take(8)?;
                Value::Fixed64
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| NoMessage)?;
                let at = self.at;
                Value::Bytes(Message { bytes: self.take(length)?, at })
            }
            5 => Value::Fixed32(*self.take(4)?.first_chunk().ok_or(NoMessage)?),
            _ => return Err(NoMessage),
        };
        Ok(Some((tag >> 3, value)))
    }

    /// Reads the next number; an error at the end.
    pub(super) fn varint(&mut self) -> Result<u64, NoMessage> {
        let mut number = 0_u64;
        for (place, byte) in (0_u32..10).zip(self.bytes) {
            // Only one bit of the tenth byte counts, as in all readers.
            number |= u64::from(byte & 0x7f).wrapping_shl(place.saturating_mul(7));
            if byte & 0x80 == 0 {
                self.take(place.saturating_add(1) as usize)?;
                return Ok(number);
            }
        }
        Err(NoMessage)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], NoMessage> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(NoMessage)?;
        self.bytes = rest;
        self.at = self.at.saturating_add(length);
        Ok(taken)
    }
}
