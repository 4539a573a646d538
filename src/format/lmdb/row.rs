//! What is stored of a value: 16 bytes.
//!
//! ```text
//! u64 offset and, in bit 63, whether it is damaged | u32 length | u32 0        little-endian
//! ```

use crate::format::scanned::{self, Fields, MemberRow, Packed, SampleRow};
use crate::format::{IndexChecksum, Result, Sample};

/// The index of a database.
pub(super) type Index = scanned::Index<Row>;
/// An index as it grows.
pub(super) type Builder = scanned::Builder<Row>;

const IS_DAMAGED: u64 = 1 << 63;

/// Where a value lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) is_damaged: bool,
}

impl SampleRow for Row {
    const FORMAT: &'static str = super::NAME;
    const VERSION: u32 = 1;
}

impl Packed for Row {
    const BYTES: usize = 16;

    fn pack(&self, out: &mut Vec<u8>) {
        let damaged = if self.is_damaged { IS_DAMAGED } else { 0 };
        out.extend_from_slice(&(self.offset & !IS_DAMAGED | damaged).to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
    }

    fn unpack(fields: &mut Fields) -> Self {
        let (offset, length, _) = (fields.u64(), fields.u32(), fields.u32());
        Self { offset: offset & !IS_DAMAGED, length, is_damaged: offset & IS_DAMAGED != 0 }
    }
}

impl MemberRow for Row {
    const REPLACES: bool = false;
    const INDEX_CHECKSUM: IndexChecksum = IndexChecksum::None;

    fn sample(&self, _index: &Index) -> Result<Sample> {
        let length = if self.is_damaged { self.length.max(1) } else { self.length };
        Ok(Sample {
            offset_bytes: self.offset,
            length_bytes: length.into(),
            damaged: self.is_damaged,
            ..Sample::default()
        })
    }
}
