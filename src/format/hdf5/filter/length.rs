//! Lengths that are stored in chunks.

use crate::format::counted;

/// Checks that a chunk decodes to `wanted` bytes. `length` is `None` if the chunk ends before its length.
pub(super) fn check(what: &str, length: Option<usize>, wanted: usize) -> Result<(), String> {
    match length {
        Some(length) if length == wanted => Ok(()),
        Some(length) => Err(format!("{what} of {}, not {wanted}", counted(length, "byte"))),
        None => Err(format!("{what} ends early")),
    }
}

/// Takes a block that stands behind its length.
pub(super) fn take_block<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk()?;
    let (block, behind) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    *rest = behind;
    Some(block)
}
