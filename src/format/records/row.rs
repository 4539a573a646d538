//! What is stored of a file: 24 bytes.
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

/// In the first byte of a stored name: its file, or directory, is the first of its record.
pub(super) const IS_FIRST: u8 = 1;
/// The file is the record.
pub(super) const IS_RECORD: u8 = 2;
/// It is the name of a file of every record.
pub(super) const IS_OF_ALL: u8 = 4;
/// Of records with more files than this each has names of its own: they are looked up one after the other.
pub(super) const MAX_FIELDS: usize = 256;
/// Longer values are none of a file that exists.
const MAX_LENGTH_BYTES: u64 = (1 << 48) - 1;
const KIND: u8 = 7;
const IS_DAMAGED: u8 = 8;
const CHECKSUM_SHIFT: u32 = 4;
/// The header of an array is whole blocks of so many bytes.
pub(super) const HEADER_BLOCK_BYTES: u32 = 64;
/// Instead of a number of elements: an array of no dimension, which has one.
pub(in crate::format) const SCALAR: u32 = u32::MAX;

/// A format of records.
pub(in crate::format) trait RecordFormat: Send + Sync + 'static {
    /// Its name: at most 16 bytes.
    const NAME: &'static str;
    /// Raised when the meaning of its rows changes.
    const VERSION: u32;
    /// Whether names are `STEM\0ENDING`: the file has that ending, or, if there is none, the one of its row.
    const ENDS_NAMES: bool = false;

    /// Whether what says where records lie has a checksum.
    fn index_checksum(source: &dyn Source) -> IndexChecksum;

    /// Fills `values` with the little-endian elements that `stored` encodes ([`Shown::Integers`] and
    /// [`Shown::Floats`]) or with its bytes ([`Shown::Coded`]), which are as many as were found in the pass. False: it encodes no such elements.
    fn decode(shown: Shown, stored: &[u8], values: &mut [u8]) -> bool {
        let _ = (shown, stored, values);
        false
    }
}

/// How the file comes from the stored bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::format) enum Shown {
    /// It is them.
    Stored,
    /// They stand behind the header of an array: the number is that of its type and shape.
    Array,
    /// They encode so many integers: `<i8`.
    Integers,
    /// They encode so many floats: `<f4`.
    Floats,
    /// They are pieces: the number is that of the file in pieces.
    Pieced,
    /// They stand behind a header: the number is its place.
    Headed,
    /// They encode bytes behind a header: the number is the place of both.
    Coded,
}

/// What is stored of a file of a format's record.
#[derive(Debug)]
pub(in crate::format) struct Row<F> {
    /// Where its bytes begin, and how many there are.
    pub(in crate::format) offset: u64,
    pub(in crate::format) length: u64,
    pub(in crate::format) shown: Shown,
    /// The code of its name's ending; of an array behind a header, the header's length in blocks.
    pub(in crate::format) ending: u8,
    /// As [`Shown`] says.
    pub(in crate::format) number: u32,
    pub(in crate::format) checksum: Option<Checksum>,
    pub(in crate::format) is_damaged: bool,
    /// Of a damaged file: what [`super::Builder::reason`] gave; 0 if there is nothing to say.
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
    /// Bytes that are a file as they are.
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

    /// Bytes that encode `number` elements.
    pub(in crate::format) fn encoded(offset: u64, length: u64, shown: Shown, number: u32) -> Self {
        Self { shown, number, ..Self::stored(offset, length, ending::NONE) }
    }

    /// The type, and the header, of elements that are encoded.
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

    /// The ending of its name, by its code.
    pub(super) fn ending_code(&self) -> u8 {
        match self.shown {
            Shown::Stored | Shown::Pieced | Shown::Headed | Shown::Coded => self.ending,
            Shown::Array | Shown::Integers | Shown::Floats => ending::code(".npy"),
        }
    }

    /// Length of the header of an array.
    pub(super) fn header_bytes(&self) -> u32 {
        u32::from(self.ending).saturating_mul(HEADER_BLOCK_BYTES)
    }
}

/// The header of a list of elements is as long for every number of them.
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
        // Nothing is compared of what is damaged.
        let value = self.checksum.map_or(self.reason, Checksum::value);
        out.extend_from_slice(&value.to_le_bytes());
    }

    fn unpack(fields: &mut Fields) -> Self {
        let (offset, packed) = (fields.u64(), fields.u64());
        let [.., what, ending] = packed.to_le_bytes();
        let (number, value) = (fields.u32(), fields.u32());
        let kind = ChecksumKind::with_code(u32::from(what.wrapping_shr(CHECKSUM_SHIFT)));
        // A kept index that says anything else is damaged, or of another version.
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
