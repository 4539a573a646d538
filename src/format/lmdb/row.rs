//! The row that is stored of a value: 16 bytes.
//!
//! ```text
//! u64 offset, in bit 63 whether it is damaged, in bit 62 whether it is coded | u32 length | u32 header      little-endian
//! header: 0, or 1 + the place of what stands before the value's bytes
//! ```

use crate::format::pickled;
use crate::format::scanned::{self, Fields, MemberRow, Packed, SampleRow};
use crate::format::{Content, IndexChecksum, Result, Sample};

/// The index of a database.
pub(super) type Index = scanned::Index<Row>;
/// An index as it grows.
pub(super) type Builder = scanned::Builder<Row>;

const IS_DAMAGED: u64 = 1 << 63;
const IS_CODED: u64 = 1 << 62;

/// The place of a value, or of a file in a value that is a pickle.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Row {
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) is_damaged: bool,
    /// Whether its bytes are coded as characters, as pickle protocol 2 has them; the header says how many bytes they give.
    pub(super) is_coded: bool,
    /// The place of the header that is shown before its bytes.
    pub(super) header: Option<u32>,
}

impl Row {
    /// The header's place as it is stored.
    fn packed_header(&self) -> u32 {
        self.header.map_or(0, |place| place.saturating_add(1))
    }
}

impl SampleRow for Row {
    const FORMAT: &'static str = super::NAME;
    const VERSION: u32 = 3;
}

impl Packed for Row {
    const BYTES: usize = 16;

    fn pack(&self, out: &mut Vec<u8>) {
        let damaged = if self.is_damaged { IS_DAMAGED } else { 0 };
        let coded = if self.is_coded { IS_CODED } else { 0 };
        let offset = self.offset & !(IS_DAMAGED | IS_CODED);
        out.extend_from_slice(&(offset | damaged | coded).to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&self.packed_header().to_le_bytes());
    }

    fn unpack(fields: &mut Fields) -> Self {
        let (offset, length, header) = (fields.u64(), fields.u32(), fields.u32());
        Self {
            offset: offset & !(IS_DAMAGED | IS_CODED),
            length,
            is_damaged: offset & IS_DAMAGED != 0,
            is_coded: offset & IS_CODED != 0,
            header: header.checked_sub(1),
        }
    }
}

impl MemberRow for Row {
    const REPLACES: bool = false;
    const INDEX_CHECKSUM: IndexChecksum = IndexChecksum::None;

    fn sample(&self, index: &Index) -> Result<Sample> {
        let length = if self.is_damaged { self.length.max(1) } else { self.length };
        let content = match self.header {
            Some(place) if self.is_coded => Content::Encoded(index.decoded_bytes(place)?),
            Some(place) => Content::Prefixed(index.header_bytes(place)?.into()),
            None => Content::Stored,
        };
        Ok(Sample {
            offset_bytes: self.offset,
            length_bytes: length.into(),
            damaged: self.is_damaged,
            content,
            ..Sample::default()
        })
    }

    fn prefix(&self, index: &Index) -> Result<Vec<u8>> {
        let header = self.header.filter(|_| !self.is_coded);
        header.map_or(Ok(Vec::new()), |place| index.header(place))
    }

    fn decode(&self, index: &Index, stored: &[u8], out: &mut [u8]) -> Result<bool> {
        let header = self.header.map_or(Ok(Vec::new()), |place| index.header(place))?;
        let Some((head, values)) = out.split_at_mut_checked(header.len()) else { return Ok(false) };
        head.copy_from_slice(&header);
        Ok(pickled::latin1(stored, values))
    }
}
