//! The row of a member in the index: 40 bytes.
//!
//! ```text
//! u64 offset | u64 length | u32 links | u32 number among the files in pieces | 16 bytes stamp     little-endian
//! ```
//! A symbolic link's offset and length are those of its target among the targets.

use crate::format::scanned::{self, Fields, MemberRow, Packed, SampleRow, Stamp};
use crate::format::{Attributes, Content, IndexChecksum, Kind, Result, Sample};

/// The index of an archive.
pub(super) type Index = scanned::Index<Row>;

// The lower 8 bits are the stamp's.
pub(super) const IS_SYMLINK: u16 = 1 << 8;
pub(super) const IS_SPARSE: u16 = 1 << 9;
pub(super) const IS_DAMAGED: u16 = 1 << 10;

/// The row of a member.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::format) struct Row {
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) links: u32,
    pub(super) sparse: u32,
    pub(super) stamp: Stamp,
}

impl SampleRow for Row {
    const FORMAT: &'static str = super::NAME;
    const VERSION: u32 = 2;
}

impl Packed for Row {
    const BYTES: usize = 40;

    fn pack(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&self.links.to_le_bytes());
        out.extend_from_slice(&self.sparse.to_le_bytes());
        self.stamp.pack(out);
    }

    fn unpack(fields: &mut Fields) -> Self {
        Self {
            offset: fields.u64(),
            length: fields.u64(),
            links: fields.u32(),
            sparse: fields.u32(),
            stamp: Stamp::unpack(fields),
        }
    }
}

impl Row {
    pub(super) fn new(attributes: &Attributes) -> Self {
        Self { links: 1, stamp: Stamp::new(attributes), ..Self::default() }
    }

    pub(super) fn set(&mut self, flag: u16) {
        self.stamp.flags |= flag;
    }

    pub(super) fn is(&self, flag: u16) -> bool {
        self.stamp.flags & flag != 0
    }
}

impl MemberRow for Row {
    /// A member that was appended replaces an earlier one of its name.
    const REPLACES: bool = true;
    /// The checksums of headers, which were checked; the members' data has none.
    const INDEX_CHECKSUM: IndexChecksum = IndexChecksum::Ok;

    fn sample(&self, index: &Index) -> Result<Sample> {
        if self.is(IS_SYMLINK) {
            return Ok(Sample::default());
        }
        let damaged = self.is(IS_DAMAGED);
        let content = match self.is(IS_SPARSE) {
            true => Content::Sparse(index.pieced_bytes(self.sparse.into())?),
            false => Content::Stored,
        };
        Ok(Sample {
            offset_bytes: self.offset,
            length_bytes: if damaged { self.length.max(1) } else { self.length },
            damaged,
            content,
            ..Sample::default()
        })
    }

    fn attributes(&self) -> Attributes {
        let kind = if self.is(IS_SYMLINK) { Kind::Symlink } else { Kind::File };
        Attributes { kind, links: self.links, ..self.stamp.attributes() }
    }

    fn pieced(&self) -> Option<u32> {
        self.is(IS_SPARSE).then_some(self.sparse)
    }

    fn target(&self) -> Option<(u64, u64)> {
        self.is(IS_SYMLINK).then_some((self.offset, self.length))
    }
}
