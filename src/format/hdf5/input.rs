//! Reads the structure of an HDF5 file: blocks by their address, and the fields in them. All bytes that are read are
//! charged to one budget, so that reading ends even if structures point at each other.
//!
//! Imports the reader and the errors of this room.

use super::super::reader::Reader;
use super::super::{Error, Result};
use super::NAME;
use crate::format::{counted, stream};
use std::cell::Cell;

/// The bytes that may be read of a file's structure, and stored in its chunks, beyond twice the file's length.
const FREE_BYTES: u64 = 16 << 20;
/// The least cost of a block, however short it is.
const BLOCK_COST: u64 = 16;
/// The most bytes of a structure, which is read into memory as a whole.
const MAX_BLOCK_BYTES: u64 = 1 << 30;
/// The most chunks of all datasets of a file: a table of chunks takes 24 bytes of memory for each, and a chunk of a
/// sparse file may take no space.
const MAX_CHUNKS: u64 = 1 << 26;
const TRUNCATED: &str = ": the file is truncated (--allow-damaged serves what is whole)";

/// A file whose superblock was read.
pub(super) struct Input<'a> {
    pub(super) reader: Reader<'a>,
    /// The offset of address 0 in the file.
    pub(super) base: u64,
    /// Length of an address, in bytes.
    pub(super) address_bytes: usize,
    /// Length of a length, in bytes.
    pub(super) length_bytes: usize,
    budget: Cell<u64>,
    /// The stored bytes that the chunks of all datasets may still have.
    chunk_bytes_left: Cell<u64>,
    /// The number of chunks that all datasets may still have.
    chunks_left: Cell<u64>,
}

/// A range of the file's bytes.
pub(super) struct Block {
    /// The offset in the file.
    pub(super) at: u64,
    pub(super) bytes: Vec<u8>,
}

impl<'a> Input<'a> {
    pub(super) fn new(reader: Reader<'a>, base: u64) -> Self {
        let twice = reader.len().saturating_mul(2).saturating_add(FREE_BYTES);
        let (budget, chunk_bytes_left) = (Cell::new(twice), Cell::new(twice));
        let chunks_left = Cell::new(MAX_CHUNKS);
        Self {
            reader,
            base,
            address_bytes: 8,
            length_bytes: 8,
            budget,
            chunk_bytes_left,
            chunks_left,
        }
    }

    /// Reads the bytes at an address, all of which must lie in the file.
    pub(super) fn block(&self, what: &'static str, address: u64, length: u64) -> Result<Block> {
        let at = self.place(what, address, length)?;
        if length > MAX_BLOCK_BYTES {
            let expected = format!("{what} of {MAX_BLOCK_BYTES} bytes at most");
            return Err(self.reader.malformed(at, expected, counted(length, "byte"), ""));
        }
        self.charge(at, length.max(BLOCK_COST))?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.reader.read(what, &mut bytes, at)?;
        Ok(Block { at, bytes })
    }

    /// Takes the cost, in bytes, of a read or copy at byte `at` of the file from the budget.
    pub(super) fn charge(&self, at: u64, cost: u64) -> Result<()> {
        let left = self.budget.get().checked_sub(cost).ok_or_else(|| {
            let expected = "structures that are each referred to once";
            self.reader.malformed(at, expected, "more than twice the file's length", "")
        })?;
        self.budget.set(left);
        Ok(())
    }

    /// Takes a chunk that lies at byte `at` of the file from the bytes and the number that all chunks may have: no two
    /// chunks lie in one place, and decoding many small ones from one place takes long.
    pub(super) fn take_chunk(&self, at: u64, bytes: u64) -> Result<()> {
        let left = self.chunk_bytes_left.get().checked_sub(bytes).ok_or_else(|| {
            let found = "chunks of more than twice the file's length";
            self.reader.malformed(at, "chunks that do not overlap", found, "")
        })?;
        self.chunk_bytes_left.set(left);
        let left = self.chunks_left.get().checked_sub(1).ok_or_else(|| {
            let expected = format!("a file of {MAX_CHUNKS} chunks at most");
            self.reader.malformed(at, expected, "more", "")
        })?;
        self.chunks_left.set(left);
        Ok(())
    }

    /// The most bytes that the chunks of a dataset may decode to, and those of all texts together.
    pub(super) fn most_decoded(&self) -> u64 {
        self.reader.len().saturating_mul(stream::MAX_RATIO).saturating_add(stream::FREE_BYTES)
    }

    /// The offset in the file of a range of addresses, all of which must lie in the file.
    pub(super) fn place(&self, what: &'static str, address: u64, length: u64) -> Result<u64> {
        let at = self.base.checked_add(address);
        let end = at.and_then(|at| at.checked_add(length));
        match (at, end) {
            (Some(at), Some(end)) if end <= self.reader.len() => Ok(at),
            _ => {
                let at = self.base.saturating_add(address).min(self.reader.len());
                let found = format!("a file of {}", counted(self.reader.len(), "byte"));
                let expected =
                    format!("{what} of {} at address {address}", counted(length, "byte"));
                Err(self.reader.malformed(at, expected, found, TRUNCATED))
            }
        }
    }

    /// The fields of a block.
    pub(super) fn fields<'b>(&'b self, block: &'b Block) -> Fields<'b>
    where
        'a: 'b,
    {
        self.fields_at(&block.bytes, block.at)
    }

    /// The fields in bytes that stand at byte `at` of the file.
    pub(super) fn fields_at<'b>(&'b self, bytes: &'b [u8], at: u64) -> Fields<'b> {
        Fields { input: self, bytes, at, next: 0 }
    }

    /// Compares the lookup3 checksum at the end of a block.
    pub(super) fn check(&self, what: &'static str, block: &Block) -> Result<()> {
        let (content, stored) = block.bytes.split_last_chunk::<4>().unwrap_or((&[], &[0; 4]));
        let (stored, found) = (u32::from_le_bytes(*stored), lookup3(content));
        // A fuzzer would not get past a checksum.
        if stored == found || cfg!(fuzzing) {
            return Ok(());
        }
        let expected = format!("{what} with checksum {stored:#010x}");
        Err(self.reader.malformed(block.at, expected, format!("{found:#010x}"), ""))
    }
}

/// The fields of a block, one after the other; little-endian.
#[derive(Clone)]
pub(super) struct Fields<'b> {
    pub(super) input: &'b Input<'b>,
    bytes: &'b [u8],
    at: u64,
    next: usize,
}

impl<'b> Fields<'b> {
    /// The offset of the next field in the file.
    pub(super) fn at(&self) -> u64 {
        self.at.saturating_add(self.next as u64)
    }

    /// The number of bytes that were taken.
    pub(super) fn taken(&self) -> usize {
        self.next
    }

    /// The number of bytes that were not taken yet.
    pub(super) fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.next)
    }

    /// Takes the next `length` bytes.
    pub(super) fn take(&mut self, length: usize) -> Result<&'b [u8]> {
        let end = self.next.checked_add(length);
        let Some(taken) = end.and_then(|end| self.bytes.get(self.next..end)) else {
            let found = format!("{}", self.left());
            return Err(self.wrong(&counted(length, "more byte"), found));
        };
        self.next = end.unwrap_or(self.next);
        Ok(taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?.first().copied().unwrap_or(0))
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        Ok(self.number(2)? as u16)
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(self.number(4)? as u32)
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        self.number(8)
    }

    /// Takes a number of `length` bytes, 8 at most.
    pub(super) fn number(&mut self, length: usize) -> Result<u64> {
        if length > 8 {
            return Err(self.wrong("a number of up to 8 bytes", length.to_string()));
        }
        Ok(number(self.take(length)?))
    }

    /// Takes a length, of the size that the file's lengths have.
    pub(super) fn length(&mut self) -> Result<u64> {
        self.number(self.input.length_bytes)
    }

    /// Takes an address; `None` if it is undefined.
    pub(super) fn address(&mut self) -> Result<Option<u64>> {
        let stored = self.take(self.input.address_bytes)?;
        Ok((!stored.iter().all(|byte| *byte == 0xff)).then(|| number(stored)))
    }

    /// Takes the mark of a structure, which must be `mark`, and its version, which must be `version`.
    pub(super) fn mark(&mut self, mark: &'static [u8; 4], version: u8) -> Result<()> {
        let before = self.clone();
        let found = self.take(4)?;
        if found != mark {
            let expected = format!("{:?}", mark.escape_ascii().to_string());
            return Err(before.wrong(&expected, format!("{:?}", found.escape_ascii().to_string())));
        }
        let before = self.clone();
        match self.u8()? {
            found if found == version => Ok(()),
            found => Err(before.wrong(&format!("version {version}"), found.to_string())),
        }
    }

    /// Passes over the padding that makes `length` bytes a multiple of 8.
    pub(super) fn pad(&mut self, length: usize) -> Result<()> {
        let over = length & 7;
        if over > 0 {
            self.take(8_usize.saturating_sub(over))?;
        }
        Ok(())
    }

    /// Takes text up to a NUL, and the NUL; returns the text.
    pub(super) fn text(&mut self) -> Result<&'b [u8]> {
        let rest = self.bytes.get(self.next..).unwrap_or_default();
        let Some(length) = rest.iter().position(|byte| *byte == 0) else {
            return Err(self.wrong("text that ends in a NUL", "none".to_owned()));
        };
        let text = self.take(length)?;
        self.take(1)?;
        Ok(text)
    }

    /// The error for a structure that is wrong at the next field.
    pub(super) fn wrong(&self, expected: &str, found: String) -> Error {
        self.input.reader.malformed(self.at(), expected, found, "")
    }
}

/// A little-endian number of up to 8 bytes.
pub(super) fn number(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    u64::from_le_bytes(all)
}

/// The number of bytes that numbers up to `limit` take.
pub(super) fn bytes_for(limit: u64) -> usize {
    (limit.max(1).ilog2() as usize / 8).saturating_add(1)
}

/// Bob Jenkins's lookup3, `hashlittle` with 0 as its initial value.
pub(super) fn lookup3(bytes: &[u8]) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(bytes.len() as u32);
    let (mut a, mut b, mut c) = (start, start, start);
    let mut rest = bytes;
    while rest.len() > 12 {
        let (block, behind) = rest.split_at(12);
        add(block, &mut a, &mut b, &mut c);
        mix(&mut a, &mut b, &mut c);
        rest = behind;
    }
    if rest.is_empty() {
        return c;
    }
    add(rest, &mut a, &mut b, &mut c);
    for (x, y, turn) in
        [(2, 1, 14), (0, 2, 11), (1, 0, 25), (2, 1, 16), (0, 2, 4), (1, 0, 14), (2, 1, 24)]
    {
        let values = [a, b, c];
        let from = values.get(y).copied().unwrap_or(0);
        let target = match x {
            0 => &mut a,
            1 => &mut b,
            _ => &mut c,
        };
        *target = (*target ^ from).wrapping_sub(from.rotate_left(turn));
    }
    c
}

fn add(block: &[u8], a: &mut u32, b: &mut u32, c: &mut u32) {
    let mut words = block.chunks(4).map(|word| number(word) as u32);
    for target in [a, b, c] {
        *target = target.wrapping_add(words.next().unwrap_or(0));
    }
}

fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    for turns in [[4, 6, 8], [16, 19, 4]] {
        let [first, second, third] = turns;
        *a = a.wrapping_sub(*c) ^ c.rotate_left(first);
        *c = c.wrapping_add(*b);
        *b = b.wrapping_sub(*a) ^ a.rotate_left(second);
        *a = a.wrapping_add(*c);
        *c = c.wrapping_sub(*b) ^ b.rotate_left(third);
        *b = b.wrapping_add(*a);
    }
}

/// A reader of `source` whose errors name the format.
pub(super) fn reader(source: &dyn super::super::Source) -> Reader<'_> {
    Reader::new(source, NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of Bob Jenkins's own test driver.
    #[test]
    fn lookup3_is_that_of_its_author() {
        assert_eq!(lookup3(b""), 0xdead_beef);
        assert_eq!(lookup3(b"Four score and seven years ago"), 0x1777_0551);
    }

    #[test]
    fn numbers_have_as_many_bytes_as_their_limit_needs() {
        for (limit, bytes) in [(0, 1), (1, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 3)] {
            assert_eq!(bytes_for(limit), bytes, "{limit}");
        }
    }
}
