//! Checksums of the blocks of a large sample: they let a part of it be checked without reading all of it.

use crate::format::checksum::Hasher;
use crate::format::{Checksum, ChecksumKind, Mismatch, Sample};

/// The least and the greatest size of the blocks that a large sample has checksums of.
const MIN_BLOCK_BYTES: u64 = 128 << 10;
const MAX_BLOCK_BYTES: u64 = 4 << 20;
/// The number of blocks above which blocks get larger.
const MANY_BLOCKS: u64 = 1 << 18;
/// The fewest bytes of a large sample that are read at a time.
const STEP_BYTES: u64 = 1 << 20;

/// The checksum of every block of a large sample, taken while the whole was verified.
///
/// A sample too large to keep is read again block by block; a block that matches its checksum was part of the
/// verified whole.
pub(in crate::vfs) struct BlockChecksums {
    block_bytes: u64,
    kind: ChecksumKind,
    values: Vec<u32>,
}

impl BlockChecksums {
    pub(in crate::vfs) fn memory_bytes(&self) -> u64 {
        (self.values.capacity() * size_of::<u32>()) as u64
    }

    /// The range of whole blocks (cut at the sample's end) around a range of a sample.
    pub(in crate::vfs) fn around(&self, start: u64, end: u64, sample_bytes: u64) -> (u64, u64) {
        let first = start - start % self.block_bytes;
        (first, end.next_multiple_of(self.block_bytes).min(sample_bytes))
    }

    /// Checks bytes read from `start`, a range as [`BlockChecksums::around`] gives it. An error names the block's
    /// first byte.
    pub(in crate::vfs) fn check(&self, start: u64, bytes: &[u8]) -> Result<(), (u64, Mismatch)> {
        let first = (start / self.block_bytes) as usize;
        for (number, block) in bytes.chunks(self.block_bytes as usize).enumerate() {
            let number = first + number;
            let expected = self.kind.with_value(self.values[number]);
            expected.check(block).map_err(|wrong| (number as u64 * self.block_bytes, wrong))?;
        }
        Ok(())
    }
}

/// Takes the checksums of a sample too large to keep, a step of it at a time.
pub(in crate::vfs) struct BlockChecksumBuilder {
    sample: Sample,
    expected: Checksum,
    checksums: BlockChecksums,
    whole: Hasher,
    next: u64,
}

impl BlockChecksumBuilder {
    /// Begins a pass over a sample that must match `expected`.
    pub(in crate::vfs) fn new(sample: Sample, expected: Checksum) -> Self {
        let block_bytes = (sample.length_bytes / MANY_BLOCKS)
            .next_power_of_two()
            .clamp(MIN_BLOCK_BYTES, MAX_BLOCK_BYTES);
        let checksums = BlockChecksums { block_bytes, kind: expected.kind(), values: Vec::new() };
        Self { sample, expected, checksums, whole: expected.hasher(), next: 0 }
    }

    /// The range of the sample to read next; `None` behind its end.
    pub(in crate::vfs) fn next(&self) -> Option<(u64, u64)> {
        let end = self.sample.length_bytes;
        let step = STEP_BYTES.max(self.checksums.block_bytes);
        (self.next < end).then(|| (self.next, (self.next + step).min(end)))
    }

    /// Takes the bytes of the range that [`BlockChecksumBuilder::next`] gave.
    pub(in crate::vfs) fn update(&mut self, bytes: &[u8]) {
        for block in bytes.chunks(self.checksums.block_bytes as usize) {
            let mut hasher = self.expected.hasher();
            hasher.update(block);
            self.whole.combine(&hasher);
            self.checksums.values.push(hasher.finish().value());
        }
        self.next += bytes.len() as u64;
    }

    /// The checksums, if the whole matches its checksum.
    pub(in crate::vfs) fn finish(mut self) -> Result<BlockChecksums, Mismatch> {
        self.expected.compare(self.whole.finish())?;
        self.checksums.values.shrink_to_fit();
        Ok(self.checksums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_through(bytes: &[u8], expected: Checksum) -> BlockChecksumBuilder {
        let sample =
            Sample { offset_bytes: 0, length_bytes: bytes.len() as u64, ..Sample::default() };
        let mut builder = BlockChecksumBuilder::new(sample, expected);
        while let Some((start, end)) = builder.next() {
            builder.update(&bytes[start as usize..end as usize]);
        }
        builder
    }

    #[test]
    fn checksums_of_blocks_combine_to_that_of_the_whole() {
        let bytes: Vec<u8> =
            (0..3_000_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for kind in ChecksumKind::ALL {
            let found = kind.of(&bytes);
            let checksums = read_through(&bytes, found).finish().ok().unwrap();
            let (start, end) = checksums.around(2_999_999, 3_000_001, 3_000_001);
            assert_eq!((start % MIN_BLOCK_BYTES, end), (0, 3_000_001));
            assert!(checksums.check(start, &bytes[start as usize..end as usize]).is_ok());
            let expected = kind.with_value(1);
            let wrong = read_through(&bytes, expected).finish().err();
            assert_eq!(wrong, Some(Mismatch { expected, found }));
        }
    }

    #[test]
    fn a_block_that_changed_after_the_whole_was_verified_is_found() {
        let mut bytes = vec![5; 1 << 20];
        let checksums = read_through(&bytes, ChecksumKind::Crc32.of(&bytes)).finish().ok().unwrap();
        bytes[300_000] ^= 1;
        let (at, ..) = checksums.check(0, &bytes).unwrap_err();
        assert_eq!(at, 262_144);
        assert!(checksums.check(0, &bytes[..262_144]).is_ok());
    }
}
