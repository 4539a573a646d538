//! A column of numbers or bytes: in memory, or kept on disk and mapped.

use crate::format::Table;
use std::{fmt, io};

/// Little-endian numbers, or bytes, one behind the other.
pub(super) enum Column {
    Memory(Vec<u8>),
    Kept(Box<dyn Table>, u64),
}

impl Column {
    pub(super) fn of_u32(values: impl Iterator<Item = u32>) -> Self {
        Self::Memory(values.flat_map(u32::to_le_bytes).collect())
    }

    /// Length in bytes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Column::Memory(bytes) => bytes.len() as u64,
            Column::Kept(_, length) => *length,
        }
    }

    fn load<const N: usize>(&self, number: usize) -> io::Result<[u8; N]> {
        let at = number.checked_mul(N).ok_or_else(out_of_range)?;
        match self {
            Column::Memory(bytes) => bytes
                .get(at..)
                .and_then(|bytes| bytes.first_chunk())
                .copied()
                .ok_or_else(out_of_range),
            Column::Kept(table, _) => {
                let mut out = [0; N];
                table.copy_to(at as u64, &mut out)?;
                Ok(out)
            }
        }
    }

    pub(super) fn u32_at(&self, number: usize) -> io::Result<u32> {
        self.load(number).map(u32::from_le_bytes)
    }

    pub(super) fn u64_at(&self, number: usize) -> io::Result<u64> {
        self.load(number).map(u64::from_le_bytes)
    }

    /// The bytes `at .. at + length`, in `buffer` if they must be copied.
    pub(super) fn slice<'a>(
        &'a self,
        at: usize,
        length: usize,
        buffer: &'a mut [u8],
    ) -> io::Result<&'a [u8]> {
        match self {
            Column::Memory(bytes) => bytes.get(at..at + length).ok_or_else(out_of_range),
            Column::Kept(table, _) => {
                let out = buffer.get_mut(..length).ok_or_else(out_of_range)?;
                table.copy_to(at as u64, out)?;
                Ok(out)
            }
        }
    }

    pub(super) fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        match self {
            Column::Memory(bytes) => out.write_all(bytes),
            Column::Kept(table, length) => {
                let mut at = 0;
                let mut chunk = vec![0; 1 << 20];
                while at < *length {
                    let take = (length - at).min(chunk.len() as u64) as usize;
                    table.copy_to(at, &mut chunk[..take])?;
                    out.write_all(&chunk[..take])?;
                    at += take as u64;
                }
                Ok(())
            }
        }
    }
}

fn out_of_range() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "an offset in it points outside of it")
}

impl fmt::Debug for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes())
    }
}
