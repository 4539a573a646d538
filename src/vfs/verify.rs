//! Bytes that were checked. A [`Verified`] cannot be made from bytes that do not match.

use super::block::Chunk;
use crate::format::checksum::Hasher;
use crate::format::{Checksum, ChecksumKind, Mismatch, Sample};
use crate::io::Buffer;
use std::ops::Range;
use std::sync::Arc;

/// Least and greatest size of the blocks that a large sample is remembered by.
const MIN_BLOCK_BYTES: u64 = 128 << 10;
const MAX_BLOCK_BYTES: u64 = 4 << 20;
/// Above this many, blocks get larger.
const MANY_BLOCKS: u64 = 1 << 18;
/// How much of a large sample is read at a time, at least.
const SCAN_BYTES: u64 = 1 << 20;

/// A whole sample whose bytes match its checksum.
pub struct Verified {
    memory: Memory,
    range: Range<usize>,
    /// What pays for its memory, if that is not the cache.
    rights: Option<Arc<Chunk>>,
}

/// Where bytes lie.
pub(super) enum Memory {
    Own(Buffer),
    /// In memory that others use too.
    Shared(Arc<Chunk>),
}

impl Memory {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Memory::Own(buffer) => buffer.as_slice(),
            Memory::Shared(chunk) => chunk.unchecked(),
        }
    }
}

impl Verified {
    /// Checks the bytes of `range` of `memory`, if there is a checksum to check them with.
    pub(super) fn check(
        memory: Memory,
        range: Range<usize>,
        expected: Option<Checksum>,
    ) -> Result<Self, Mismatch> {
        if let Some(expected) = expected {
            expected.check(&memory.bytes()[range.clone()])?;
        }
        Ok(Self { memory, range, rights: None })
    }

    /// Bytes that were checked as parts of something else.
    pub(super) fn unchecked(buffer: Buffer, range: Range<usize>) -> Self {
        Self { memory: Memory::Own(buffer), range, rights: None }
    }

    /// Its memory is part of what was reserved for `chunk`.
    pub(super) fn with_rights(mut self, chunk: &Arc<Chunk>) -> Self {
        if matches!(self.memory, Memory::Own(_)) {
            self.rights = Some(Arc::clone(chunk));
        }
        self
    }

    /// The sample's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.memory.bytes()[self.range.clone()]
    }

    /// Bytes of memory that it alone keeps from being used otherwise.
    pub(super) fn capacity(&self) -> u64 {
        match &self.memory {
            Memory::Own(buffer) if self.rights.is_none() => buffer.capacity() as u64,
            Memory::Own(_) | Memory::Shared(_) => 0,
        }
    }

    /// Its memory if nobody else uses it, and where the sample lies in it if it is all its own.
    pub(super) fn into_buffer(self) -> (Buffer, Range<usize>) {
        match self.memory {
            Memory::Own(buffer) => (buffer, self.range),
            Memory::Shared(chunk) => {
                let buffer = Arc::into_inner(chunk).map_or_else(Buffer::empty, Chunk::into_buffer);
                (buffer, 0..0)
            }
        }
    }
}

/// The checksum of every block of a large sample, taken in the pass that verified the whole.
///
/// A sample too large to keep is read again block by block; a block that matches is one that was part of
/// the verified whole.
pub(super) struct Digests {
    block_bytes: u64,
    kind: ChecksumKind,
    values: Vec<u32>,
}

impl Digests {
    pub(super) fn memory_bytes(&self) -> u64 {
        (self.values.capacity() * size_of::<u32>()) as u64
    }

    /// The range of whole blocks (cut at the sample's end) around a range of a sample.
    pub(super) fn around(&self, start: u64, end: u64, sample_bytes: u64) -> (u64, u64) {
        let first = start - start % self.block_bytes;
        (first, end.next_multiple_of(self.block_bytes).min(sample_bytes))
    }

    /// Checks bytes read from `start`, a range as [`Digests::around`] gives it. An error names the block's
    /// first byte.
    pub(super) fn check(&self, start: u64, bytes: &[u8]) -> Result<(), (u64, Mismatch)> {
        let first = (start / self.block_bytes) as usize;
        for (number, block) in bytes.chunks(self.block_bytes as usize).enumerate() {
            let number = first + number;
            let expected = self.kind.with_value(self.values[number]);
            expected.check(block).map_err(|wrong| (number as u64 * self.block_bytes, wrong))?;
        }
        Ok(())
    }
}

/// A pass over a sample too large to keep.
pub(super) struct Scan {
    sample: Sample,
    expected: Checksum,
    digests: Digests,
    whole: Hasher,
    next: u64,
}

impl Scan {
    /// A pass over a sample that must match `expected`.
    pub(super) fn new(sample: Sample, expected: Checksum) -> Self {
        let block_bytes = (sample.length_bytes / MANY_BLOCKS)
            .next_power_of_two()
            .clamp(MIN_BLOCK_BYTES, MAX_BLOCK_BYTES);
        let digests = Digests { block_bytes, kind: expected.kind(), values: Vec::new() };
        Self { sample, expected, digests, whole: expected.hasher(), next: 0 }
    }

    /// The range of the sample to read next; `None` behind its end.
    pub(super) fn next(&self) -> Option<(u64, u64)> {
        let end = self.sample.length_bytes;
        let step = SCAN_BYTES.max(self.digests.block_bytes);
        (self.next < end).then(|| (self.next, (self.next + step).min(end)))
    }

    /// Takes the bytes of the range that [`Scan::next`] gave.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        for block in bytes.chunks(self.digests.block_bytes as usize) {
            let mut hasher = self.expected.hasher();
            hasher.update(block);
            self.whole.combine(&hasher);
            self.digests.values.push(hasher.finish().value());
        }
        self.next += bytes.len() as u64;
    }

    /// The digests, if the whole matches its checksum.
    pub(super) fn finish(mut self) -> Result<Digests, Mismatch> {
        self.expected.compare(self.whole.finish())?;
        self.digests.values.shrink_to_fit();
        Ok(self.digests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(bytes: &[u8], expected: Checksum) -> Scan {
        let sample =
            Sample { offset_bytes: 0, length_bytes: bytes.len() as u64, ..Sample::default() };
        let mut scan = Scan::new(sample, expected);
        while let Some((start, end)) = scan.next() {
            scan.update(&bytes[start as usize..end as usize]);
        }
        scan
    }

    #[test]
    fn a_scan_in_blocks_finds_the_checksum_of_the_whole() {
        let bytes: Vec<u8> =
            (0..3_000_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for kind in ChecksumKind::ALL {
            let found = kind.of(&bytes);
            let digests = scan(&bytes, found).finish().ok().unwrap();
            let (start, end) = digests.around(2_999_999, 3_000_001, 3_000_001);
            assert_eq!((start % MIN_BLOCK_BYTES, end), (0, 3_000_001));
            assert!(digests.check(start, &bytes[start as usize..end as usize]).is_ok());
            let expected = kind.with_value(1);
            let wrong = scan(&bytes, expected).finish().err();
            assert_eq!(wrong, Some(Mismatch { expected, found }));
        }
    }

    #[test]
    fn a_block_that_changed_after_the_scan_is_found() {
        let mut bytes = vec![5; 1 << 20];
        let digests = scan(&bytes, ChecksumKind::Crc32.of(&bytes)).finish().ok().unwrap();
        bytes[300_000] ^= 1;
        let (at, ..) = digests.check(0, &bytes).unwrap_err();
        assert_eq!(at, 262_144);
        assert!(digests.check(0, &bytes[..262_144]).is_ok());
    }

    #[test]
    fn bytes_that_do_not_match_are_never_verified() {
        let memory = || {
            let mut buffer = Buffer::with_capacity(10);
            buffer.as_mut_slice()[..3].copy_from_slice(b"abc");
            Memory::Own(buffer)
        };
        let wrong = Verified::check(memory(), 0..3, Some(Checksum::Crc32(0))).err().unwrap();
        assert_eq!(wrong.found, ChecksumKind::Crc32.of(b"abc"));
        let verified = Verified::check(memory(), 0..3, Some(wrong.found)).ok().unwrap();
        assert_eq!(verified.bytes(), b"abc");
    }
}
