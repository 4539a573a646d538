//! The map of an entry: which blocks of its data are whole. It has a header, then a record for each block. A torn,
//! foreign or forged record counts as an absent block. Imports `key`.

use super::key::EntryId;
use crate::format::checksum::{crc32c, crc32c_append};
use std::ops::Range;

/// The size of a block: the unit that one daemon fetches for all daemons of a node.
pub const BLOCK_BYTES: u64 = 1 << 20;

/// Where the records begin.
pub(super) const HEADER_BYTES: u64 = 4096;
pub(super) const RECORD_BYTES: u64 = 16;
/// The used part of the header: magic, block size, length, name of the entry, CRC-32C of these.
pub(super) const HEAD_BYTES: usize = 8 + 8 + 8 + EntryId::BYTES + 4;
const MAGIC: [u8; 8] = *b"FFRFSMP1";

/// The state of a block by its record in a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    Absent,
    /// Whole, and written or checked since the machine booted; with the block's CRC-32C.
    Present(u32),
    /// Whole when it was written, but the machine may have crashed since; with the block's CRC-32C.
    Unchecked(u32),
}

/// The number of blocks of an object.
pub(super) fn blocks_of(length_bytes: u64) -> u64 {
    length_bytes.div_ceil(BLOCK_BYTES)
}

/// The byte range of a block in the object.
pub(super) fn block_range(block: u64, length_bytes: u64) -> Range<u64> {
    let start = block.saturating_mul(BLOCK_BYTES).min(length_bytes);
    start..start.saturating_add(BLOCK_BYTES).min(length_bytes)
}

/// The byte range of a block's record in the map.
pub(super) fn record_range(block: u64) -> Range<u64> {
    let start = HEADER_BYTES + block * RECORD_BYTES;
    start..start + RECORD_BYTES
}

/// The header for the map of an object of `length_bytes`.
pub(super) fn header(id: &EntryId, length_bytes: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&MAGIC);
    head[8..16].copy_from_slice(&BLOCK_BYTES.to_le_bytes());
    head[16..24].copy_from_slice(&length_bytes.to_le_bytes());
    head[24..24 + EntryId::BYTES].copy_from_slice(id.as_bytes());
    let crc = crc32c(&head[..HEAD_BYTES - 4]);
    head[HEAD_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    head
}

/// Writes and reads records of one entry's map.
#[derive(Debug, Clone, Copy)]
pub(super) struct Records {
    /// CRC-32C of the entry's name, so that a record of another entry does not match.
    seed: u32,
    /// Identifies the data file and the boot of the machine.
    epoch: u64,
}

impl Records {
    pub(super) fn new(id: &EntryId, epoch: u64) -> Self {
        // 0 stands for an absent block.
        Self { seed: crc32c(id.as_bytes()), epoch: epoch | 1 }
    }

    /// Encodes the record of a whole block with this CRC-32C.
    pub(super) fn write(&self, block: u64, crc: u32) -> [u8; RECORD_BYTES as usize] {
        let mut record = [0; RECORD_BYTES as usize];
        record[..8].copy_from_slice(&self.epoch.to_le_bytes());
        record[8..12].copy_from_slice(&crc.to_le_bytes());
        let check = self.check(block, &record[..12]);
        record[12..].copy_from_slice(&check.to_le_bytes());
        record
    }

    /// Decodes a record; a short one means that the block is absent.
    pub(super) fn read(&self, block: u64, record: &[u8]) -> Record {
        let Some((record, _)) = record.split_first_chunk::<{ RECORD_BYTES as usize }>() else {
            return Record::Absent;
        };
        let [a, b, c, d, e, f, g, h, crc @ .., s, t, u, v] = *record;
        let epoch = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let check = u32::from_le_bytes([s, t, u, v]);
        if epoch == 0 || check != self.check(block, &record[..12]) {
            Record::Absent
        } else if epoch == self.epoch {
            Record::Present(u32::from_le_bytes(crc))
        } else {
            Record::Unchecked(u32::from_le_bytes(crc))
        }
    }

    fn check(&self, block: u64, bytes: &[u8]) -> u32 {
        crc32c_append(crc32c_append(self.seed, &block.to_le_bytes()), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> EntryId {
        EntryId::from_bytes(&[byte; EntryId::BYTES]).unwrap()
    }

    #[test]
    fn a_record_counts_for_its_block_of_its_entry_only_and_after_a_restart_unchecked() {
        let records = Records::new(&id(1), 6);
        let record = records.write(7, 0xfeed);
        assert_eq!(records.read(7, &record), Record::Present(0xfeed));
        assert_eq!(records.read(8, &record), Record::Absent);
        assert_eq!(Records::new(&id(2), 6).read(7, &record), Record::Absent);
        assert_eq!(Records::new(&id(1), 8).read(7, &record), Record::Unchecked(0xfeed));
        assert_eq!(records.read(7, &record[..15]), Record::Absent);
        assert_eq!(records.read(7, &[0; 16]), Record::Absent);
    }

    #[test]
    fn a_record_with_any_changed_bit_is_absent() {
        let records = Records::new(&id(1), 6);
        for bit in 0..128 {
            let mut record = records.write(7, 0xfeed);
            record[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(records.read(7, &record), Record::Absent, "bit {bit}");
        }
    }

    #[test]
    fn blocks_cover_an_object_and_end_with_it() {
        assert_eq!(blocks_of(0), 0);
        assert_eq!(blocks_of(BLOCK_BYTES), 1);
        assert_eq!(blocks_of(BLOCK_BYTES + 1), 2);
        assert_eq!(block_range(1, BLOCK_BYTES + 1), BLOCK_BYTES..BLOCK_BYTES + 1);
        assert_eq!(block_range(u64::MAX, 5), 5..5);
    }
}
