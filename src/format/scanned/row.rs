//! Rows of fixed length, as bytes: those of a format's samples, and those that all formats have alike.

use crate::format::{Attributes, Piece};

/// The most bytes of a row.
pub(super) const MAX_ROW_BYTES: usize = 64;
/// The bit that is set in the node of a directory's name; the other bits are the directory's number.
pub(super) const DIRECTORY_BIT: u32 = 1 << 31;
/// The node of a name whose sample is not known yet. Never in a finished index.
pub(super) const NO_SAMPLE: u32 = DIRECTORY_BIT - 1;

const HAS_MODE: u16 = 1;
const HAS_TIME: u16 = 2;

/// A row of fixed length.
pub(in crate::format) trait Packed: Sized {
    /// The length of the row.
    const BYTES: usize;

    /// Appends the row to `out`: [`Packed::BYTES`] bytes.
    fn pack(&self, out: &mut Vec<u8>);

    /// Reads a row that [`Packed::pack`] wrote.
    fn unpack(fields: &mut Fields) -> Self;
}

/// The row that a format stores of a sample.
pub(in crate::format) trait SampleRow: Packed {
    /// The format's name: at most 16 bytes.
    const FORMAT: &'static str;
    /// The version of the row, raised when its meaning changes. Indexes of other versions are made anew.
    const VERSION: u32;
}

/// The fields of a row, in order, little-endian. A missing field is 0.
pub(in crate::format) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    fn next<const N: usize>(&mut self) -> [u8; N] {
        let Some((field, rest)) = self.0.split_first_chunk() else { return [0; N] };
        self.0 = rest;
        *field
    }

    pub(in crate::format) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.next())
    }

    pub(in crate::format) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.next())
    }

    pub(in crate::format) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.next())
    }
}

/// Permission bits and the time of last modification, if they are known, and flags of the format.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::format) struct Stamp {
    seconds: i64,
    nanoseconds: u32,
    mode: u16,
    /// The lower 8 bits say whether mode and time are known; the upper 8 are for the rows of formats.
    pub(in crate::format) flags: u16,
}

impl Stamp {
    pub(in crate::format) fn new(attributes: &Attributes) -> Self {
        let (seconds, nanoseconds) = attributes.modified.unwrap_or_default();
        let has_mode = if attributes.mode.is_some() { HAS_MODE } else { 0 };
        let has_time = if attributes.modified.is_some() { HAS_TIME } else { 0 };
        let mode = attributes.mode.unwrap_or(0);
        Self { seconds, nanoseconds, mode, flags: has_mode | has_time }
    }

    pub(in crate::format) fn attributes(&self) -> Attributes {
        Attributes {
            mode: (self.flags & HAS_MODE != 0).then_some(self.mode),
            modified: (self.flags & HAS_TIME != 0).then_some((self.seconds, self.nanoseconds)),
            ..Attributes::default()
        }
    }
}

impl Packed for Stamp {
    const BYTES: usize = 16;

    fn pack(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seconds.to_le_bytes());
        out.extend_from_slice(&self.nanoseconds.to_le_bytes());
        out.extend_from_slice(&self.mode.to_le_bytes());
        out.extend_from_slice(&self.flags.to_le_bytes());
    }

    fn unpack(fields: &mut Fields) -> Self {
        Self {
            seconds: fields.u64().cast_signed(),
            nanoseconds: fields.u32(),
            mode: fields.u16(),
            flags: fields.u16(),
        }
    }
}

/// A name: the length of its path, and its sample or directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct NameRow {
    pub(super) path_bytes: u32,
    pub(super) node: u32,
}

impl Packed for NameRow {
    const BYTES: usize = 8;

    fn pack(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.path_bytes.to_le_bytes());
        out.extend_from_slice(&self.node.to_le_bytes());
    }

    fn unpack(fields: &mut Fields) -> Self {
        Self { path_bytes: fields.u32(), node: fields.u32() }
    }
}

/// A file in pieces: its size, and its first piece. Its last piece stands before the first piece of the next file.
#[derive(Debug, Clone, Copy)]
pub(super) struct PiecedRow {
    pub(super) size_bytes: u64,
    pub(super) first_piece: u64,
}

impl Packed for PiecedRow {
    const BYTES: usize = 16;

    fn pack(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.size_bytes.to_le_bytes());
        out.extend_from_slice(&self.first_piece.to_le_bytes());
    }

    fn unpack(fields: &mut Fields) -> Self {
        Self { size_bytes: fields.u64(), first_piece: fields.u64() }
    }
}

impl Packed for Piece {
    const BYTES: usize = 24;

    fn pack(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.at_bytes.to_le_bytes());
        out.extend_from_slice(&self.length_bytes.to_le_bytes());
        out.extend_from_slice(&self.offset_bytes.to_le_bytes());
    }

    fn unpack(fields: &mut Fields) -> Self {
        Self { at_bytes: fields.u64(), length_bytes: fields.u64(), offset_bytes: fields.u64() }
    }
}
