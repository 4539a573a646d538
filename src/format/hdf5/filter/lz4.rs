//! The filter LZ4 (32004), as the HDF Group registers it: blocks, each by itself.
//!
//! ```text
//! u64 bytes without it | u32 bytes of a block | blocks: u32 stored bytes | LZ4, or the bytes as they are if that is shorter
//! ```
//! All in big endian.
//!
//! Imports lengths and the codecs.

use super::length::{self, take_block};
use crate::format::codec::block::lz4;

/// The number of bytes that a chunk decodes to; `None` if the chunk ends early.
pub(super) fn length(stored: &[u8]) -> Option<usize> {
    usize::try_from(u64::from_be_bytes(*stored.first_chunk()?)).ok()
}

/// Decodes a chunk; fills `out`.
pub(super) fn decode(stored: &[u8], out: &mut [u8]) -> Result<(), String> {
    length::check("LZ4", length(stored), out.len())?;
    let ends = "LZ4 ends early";
    let (block, mut rest) = stored.get(8..).and_then(<[u8]>::split_first_chunk).ok_or(ends)?;
    let block = u32::from_be_bytes(*block).max(1) as usize;
    for target in out.chunks_mut(block) {
        let stored = take_block(&mut rest).ok_or(ends)?;
        match stored.len() == target.len() {
            true => target.copy_from_slice(stored),
            false => lz4(stored, target)?,
        }
    }
    Ok(())
}
