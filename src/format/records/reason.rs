//! The reason why a file is damaged, as the index has it among its headers.
//!
//! ```text
//! u8 what it is: 1 a text, 2 a checksum | u32 expected | u32 found | text          little-endian
//! ```

use crate::format::Fault;
use crate::format::bytes::u32_at;

const TEXT: u8 = 1;
const CHECKSUM: u8 = 2;
const TEXT_AT: usize = 9;
/// The longest text that is stored: longer ones are cut.
const MAX_TEXT_BYTES: usize = 1024;

/// The number that a row has of the reason at a place; not 0.
pub(super) fn number(place: u32) -> u32 {
    place.saturating_add(1)
}

/// The place of the reason with a row's number.
pub(super) fn place(number: u32) -> Option<u32> {
    number.checked_sub(1)
}

pub(super) fn pack(fault: &Fault) -> Vec<u8> {
    let (kind, text) = match fault {
        Fault::PartChecksum { what, .. } => (CHECKSUM, what.clone()),
        other => (TEXT, other.to_string()),
    };
    let (expected, found) = fault.mismatch().unwrap_or_default();
    let text = text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or_default();
    [&[kind][..], &expected.to_le_bytes(), &found.to_le_bytes(), text.as_bytes()].concat()
}

/// Reads a fault that [`pack`] wrote.
pub(super) fn unpack(bytes: &[u8]) -> Option<Fault> {
    let text = String::from_utf8_lossy(bytes.get(TEXT_AT..)?).into_owned();
    match *bytes.first()? {
        TEXT => Some(Fault::Structure(text)),
        CHECKSUM => Some(Fault::PartChecksum {
            what: text,
            expected: u32_at(bytes, 1)?,
            found: u32_at(bytes, 5)?,
        }),
        _ => None,
    }
}
