//! The row of a file in an index: 24 bytes.
//!
//! ```text
//! u64 offset | u48 length | u8 what it is | u8 ending, or 64-byte blocks of a header | u32 number
//! u32 checksum; of what is damaged its reason
//! what it is: 0 stored, 1 array behind a header, 2 integers, 3 floats, 4 in pieces, 5 behind any header, 6 coded; 8 damaged; 16 × kind of checksum
//! ```

use crate::format::checksum::ChecksumKind;
use crate::format::ending;
use crate::format::scanned::{Fields, Packed, SampleRow};
use crate::format::{Checksum, IndexChecksum, Source, npy};
use std::marker::PhantomData;

/// A flag in the first byte of a stored name: the file, or directory, is the first of its record.
pub(super) const IS_FIRST: u8 = 1;
/// A flag: the file is the whole record.
pub(super) const IS_RECORD: u8 = 2;
/// A flag: every record has a file of this name.
pub(super) const IS_OF_ALL: u8 = 4;
/// The most files of a record whose names are stored once. Records with more files have names of their own, since the stored
/// ones are looked up one after the other.
pub(super) const MAX_FIELDS: usize = 256;
/// The longest length: no file is longer.
const MAX_LENGTH_BYTES: u64 = (1 << 48) - 1;
const KIND: u8 = 7;
const IS_DAMAGED: u8 = 8;
const CHECKSUM_SHIFT: u32 = 4;
/// The header of an array has whole blocks of this many bytes.
pub(super) const HEADER_BLOCK_BYTES: u32 = 64;
/// In place of a number of elements: an array without dimensions, which has one element.
pub(in crate::format) const SCALAR: u32 = u32::MAX;

/// A format of records.
pub(in crate::format) trait RecordFormat: Send + Sync + 'static {
    /// The name of the format: at most 16 bytes.
    const NAME: &'static str;
    /// The version of its rows, raised when their meaning changes.
    const VERSION: u32;
    /// Whether names are `STEM\0ENDING`: the file has that ending, or, if it is empty, that of its row.
    const ENDS_NAMES: bool = false;

    /// Whether the bytes that say where records lie have a checksum.
    fn index_checksum(source: &dyn Source) -> IndexChecksum;

    /// Fills `values` with the little-endian elements that `stored` encodes ([`Shown::Integers`] and
    /// [`Shown::Floats`]) or with the bytes that it encodes ([`Shown::Coded`]): as many as the pass found. False if `stored`
    /// does not encode them.
    fn decode(shown: Shown, stored: &[u8], values: &mut [u8]) -> bool {
        let _ = (shown, stored, values);
        false
    }
}

/// The way in which a file comes from its stored bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::format) enum Shown {
    /// The file is the stored bytes.
    Stored,
    /// The file is the header of an array and the stored bytes: the number is that of its type and shape.
    Array,
    /// The stored bytes encode integers, `<i8`: the number counts them.
    Integers,
    /// The stored bytes encode floats, `<f4`: the number counts them.
    Floats,
    /// The stored bytes are pieces: the number is that of the file in pieces.
    Pieced,
    /// The file is a header and the stored bytes: the number is the header's place.
    Headed,
    /// The file is a header and the bytes that the stored bytes encode: the number is the place of the header and of their
    /// length.
    Coded,
}

/// The row of a file of a format's record.
#[derive(Debug)]
pub(in crate::format) struct Row<F> {
    /// The offset and the length of the stored bytes.
    pub(in crate::format) offset: u64,
    pub(in crate::format) length: u64,
    pub(in crate::format) shown: Shown,
    /// The code of its name's ending; of an array behind a header, the header's length in blocks.
    pub(in crate::format) ending: u8,
    /// A number whose meaning [`Shown`] says.
    pub(in crate::format) number: u32,
    pub(in crate::format) checksum: Option<Checksum>,
    pub(in crate::format) is_damaged: bool,
    /// Of a damaged file, the number that [`super::Builder::reason`] gave; 0 without a reason.
    pub(in crate::format) reason: u32,
    pub(in crate::format) format: PhantomData<fn() -> F>,
}

impl<F> Clone for Row<F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for Row<F> {}

impl<F> Row<F> {
    /// Makes the row of a file that is its stored bytes.
    pub(in crate::format) fn stored(offset: u64, length: u64, ending: u8) -> Self {
        Self {
            offset,
            length,
            shown: Shown::Stored,
            ending,
            number: 0,
            checksum: None,
            is_damaged: false,
            reason: 0,
            format: PhantomData,
        }
    }

    /// Makes the row of a file whose stored bytes encode `number` elements.
    pub(in crate::format) fn encoded(offset: u64, length: u64, shown: Shown, number: u32) -> Self {
        Self { shown, number, ..Self::stored(offset, length, ending::NONE) }
    }

    /// The header of encoded elements, and the number of bytes that the decoded elements take.
    pub(super) fn elements(&self) -> Option<(Vec<u8>, u64)> {
        let (descr, bytes) = match self.shown {
            Shown::Integers => ("<i8", 8_u64),
            Shown::Floats => ("<f4", 4),
            Shown::Stored | Shown::Array | Shown::Pieced | Shown::Headed | Shown::Coded => {
                return None;
            }
        };
        Some(match self.number {
            SCALAR => (npy::header(descr, &[]), bytes),
            number => (npy::header(descr, &[number.into()]), bytes.saturating_mul(number.into())),
        })
    }

    /// The code of the ending of its name.
    pub(super) fn ending_code(&self) -> u8 {
        match self.shown {
            Shown::Stored | Shown::Pieced | Shown::Headed | Shown::Coded => self.ending,
            Shown::Array | Shown::Integers | Shown::Floats => ending::code(".npy"),
        }
    }

    /// The length of the header of an array.
    pub(super) fn header_bytes(&self) -> u32 {
        u32::from(self.ending).saturating_mul(HEADER_BLOCK_BYTES)
    }
}

/// The length of the header of a list of elements, which is the same for every number of them.
pub(super) const LIST_HEADER_BYTES: u64 = 128;

impl<F: RecordFormat> SampleRow for Row<F> {
    const FORMAT: &'static str = F::NAME;
    const VERSION: u32 = F::VERSION;
}

impl<F: RecordFormat> Packed for Row<F> {
    const BYTES: usize = 24;

    fn pack(&self, out: &mut Vec<u8>) {
        let kind = match self.shown {
            Shown::Stored => 0,
            Shown::Array => 1,
            Shown::Integers => 2,
            Shown::Floats => 3,
            Shown::Pieced => 4,
            Shown::Headed => 5,
            Shown::Coded => 6,
        };
        let damaged = if self.is_damaged { IS_DAMAGED } else { 0 };
        let code = self.checksum.map_or(0, |checksum| checksum.kind().code());
        let code = u8::try_from(code.wrapping_shl(CHECKSUM_SHIFT)).unwrap_or(0);
        let length = self.length.min(MAX_LENGTH_BYTES).to_le_bytes();
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(length.first_chunk::<6>().unwrap_or(&[0; 6]));
        out.extend_from_slice(&[kind | damaged | code, self.ending]);
        out.extend_from_slice(&self.number.to_le_bytes());
        // A damaged file is not compared: its reason stands in place of a checksum.
        let value = self.checksum.map_or(self.reason, Checksum::value);
        out.extend_from_slice(&value.to_le_bytes());
    }

    fn unpack(fields: &mut Fields) -> Self {
        let (offset, packed) = (fields.u64(), fields.u64());
        let [.., what, ending] = packed.to_le_bytes();
        let (number, value) = (fields.u32(), fields.u32());
        let kind = ChecksumKind::with_code(u32::from(what.wrapping_shr(CHECKSUM_SHIFT)));
        // A kept index with another kind is damaged, or of another version.
        let shown = match what & KIND {
            1 => Shown::Array,
            2 => Shown::Integers,
            3 => Shown::Floats,
            4 => Shown::Pieced,
            5 => Shown::Headed,
            6 => Shown::Coded,
            _ => Shown::Stored,
        };
        Self {
            offset,
            length: packed & MAX_LENGTH_BYTES,
            shown,
            ending,
            number,
            checksum: kind.map(|kind| kind.with_value(value)),
            is_damaged: what & IS_DAMAGED != 0,
            reason: if kind.is_none() { value } else { 0 },
            format: PhantomData,
        }
    }
}
