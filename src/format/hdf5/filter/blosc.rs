//! Blosc (32001), as c-blosc 1 writes it (`README_CHUNK_FORMAT.rst`): blocks, each sorted and compressed.
//!
//! ```text
//! u8 2 | u8 | u8 flags | u8 bytes of an element | u32 bytes without it | u32 bytes of a block | u32 stored bytes
//! blocks  for each: u32 where it begins; there parts: u32 stored bytes | the part, as it is if that is not shorter
//! flags   1: bytes sorted, 2: all as it is, 4: bits sorted, 16: blocks have one part, not one for each byte of an element;
//!         from 32 on: 0 BloscLZ, 1 LZ4, 2 Snappy, 3 zlib, 4 zstd
//! ```
//!
//! Imports bitshuffle, shuffle, and the codecs.

use super::bitshuffle::unshuffled_bits;
use super::blosclz;
use super::shuffle;
use crate::format::codec::block::{lz4, snappy};
use crate::format::codec::{self, Codec};

const ARE_BYTES_SORTED: u8 = 1;
const IS_PLAIN: u8 = 2;
const ARE_BITS_SORTED: u8 = 4;
const IS_ONE_PART: u8 = 16;
const HEAD_BYTES: usize = 16;
/// Blocks have parts up to this size of elements, and if a part has so many bytes.
const MAX_PARTS: usize = 16;
const LEAST_PART: usize = 128;
const ENDS: &str = "Blosc ends early";

struct Head {
    flags: u8,
    element: usize,
    block: usize,
}

/// A little-endian number at a place.
fn number(stored: &[u8], at: usize) -> Option<usize> {
    let bytes = stored.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes) as usize)
}

/// How many bytes a chunk decodes to. `None`: it ends early.
pub(super) fn length(stored: &[u8]) -> Option<usize> {
    number(stored, 4)
}

/// Decodes a chunk; fills `out`.
pub(super) fn decode(stored: &[u8], out: &mut [u8]) -> Result<(), String> {
    let [_, _, flags, element, ..] = stored else { return Err(ENDS.to_owned()) };
    let block = number(stored, 8).ok_or(ENDS)?;
    if length(stored) != Some(out.len()) || (block == 0 && !out.is_empty()) {
        return Err(format!(
            "Blosc of {:?} bytes, not {}, in blocks of {block}",
            length(stored),
            out.len()
        ));
    }
    let head = Head { flags: *flags, element: usize::from(*element).max(1), block };
    if head.flags & IS_PLAIN != 0 {
        let end = HEAD_BYTES.saturating_add(out.len());
        out.copy_from_slice(stored.get(HEAD_BYTES..end).ok_or(ENDS)?);
        return Ok(());
    }
    let mut sorted = Vec::new();
    for (place, target) in out.chunks_mut(block.max(1)).enumerate() {
        let start =
            number(stored, place.saturating_mul(4).saturating_add(HEAD_BYTES)).ok_or(ENDS)?;
        let parts = stored.get(start..).ok_or(ENDS)?;
        sorted.resize(target.len(), 0);
        head.decode_block(parts, &mut sorted)?;
        head.unsort(&sorted, target);
    }
    Ok(())
}

impl Head {
    fn parts(&self, block: usize) -> usize {
        let each = block.checked_div(self.element).unwrap_or(0);
        let has_parts = self.flags & IS_ONE_PART == 0
            && self.element <= MAX_PARTS
            && each >= LEAST_PART
            && block == self.block;
        if has_parts { self.element } else { 1 }
    }

    fn decode_block(&self, mut parts: &[u8], out: &mut [u8]) -> Result<(), String> {
        let count = self.parts(out.len());
        let each = out.len().checked_div(count).unwrap_or(0).max(1);
        if each.checked_mul(count) != Some(out.len()) {
            return Err(format!("Blosc with blocks of {} in {count} parts", out.len()));
        }
        for target in out.chunks_exact_mut(each) {
            let (length, behind) = parts.split_first_chunk().ok_or(ENDS)?;
            let length = u32::from_le_bytes(*length) as usize;
            let (stored, behind) = behind.split_at_checked(length).ok_or(ENDS)?;
            parts = behind;
            if stored.len() == target.len() {
                target.copy_from_slice(stored);
                continue;
            }
            match self.flags >> 5 {
                0 => blosclz::decode(stored, target)?,
                1 => lz4(stored, target)?,
                2 => snappy(stored, target)?,
                3 => codec::decode(Codec::Zlib, stored, target)?,
                4 => codec::decode(Codec::Zstd, stored, target)?,
                kind => return Err(format!("Blosc with codec {kind}")),
            }
        }
        Ok(())
    }

    fn unsort(&self, sorted: &[u8], target: &mut [u8]) {
        let count = sorted.len().checked_div(self.element).unwrap_or(0);
        if self.flags & ARE_BYTES_SORTED != 0 {
            target.copy_from_slice(&shuffle::undo(sorted, self.element));
            return;
        }
        target.copy_from_slice(sorted);
        // Of another number of elements, bits are not sorted.
        if self.flags & ARE_BITS_SORTED != 0 && count.is_multiple_of(8) {
            let whole = count.saturating_mul(self.element);
            let (sorted, target) = (sorted.get(..whole), target.get_mut(..whole));
            unshuffled_bits(sorted.unwrap_or_default(), self.element, target.unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::shuffle::shuffled;
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn compress(kind: u8, part: &[u8]) -> Vec<u8> {
        match kind {
            1 => lz4_flex::block::compress(part),
            2 => snap::raw::Encoder::new().compress_vec(part).unwrap(),
            3 => miniz_oxide::deflate::compress_to_vec_zlib(part, 1),
            4 => zstd::bulk::compress(part, 1).unwrap(),
            // Literals alone.
            _ => part.chunks(32).flat_map(|run| [&[run.len() as u8 - 1], run].concat()).collect(),
        }
    }

    proptest! {
        #[test]
        fn what_is_decoded_is_what_was_sorted_and_compressed(
            (element, kind, is_sorted, is_one) in (1_usize..20, 0_u8..5, any::<bool>(), any::<bool>()),
            (block, length) in (1_usize..5000, 1_usize..9000), bytes in vec(any::<u8>(), 1..600),
        ) {
            let block = block.next_multiple_of(element);
            let plain: Vec<u8> = bytes.iter().copied().cycle().take(length).collect();
            let flags = kind << 5 | u8::from(is_sorted) | if is_one { IS_ONE_PART } else { 0 };
            let head = Head { flags, element, block };
            let (mut starts, mut blocks) = (Vec::new(), Vec::new());
            for part in plain.chunks(block) {
                starts.push(HEAD_BYTES + plain.len().div_ceil(block) * 4 + blocks.len());
                let sorted = if is_sorted { shuffled(part, element) } else { part.to_vec() };
                for part in sorted.chunks(sorted.len() / head.parts(sorted.len())) {
                    let stored = compress(kind, part);
                    let stored = if stored.len() < part.len() { stored } else { part.to_vec() };
                    blocks.extend((stored.len() as u32).to_le_bytes());
                    blocks.extend(stored);
                }
            }
            let sizes = [plain.len() as u32, block as u32, 0].map(u32::to_le_bytes).concat();
            let starts: Vec<u8> = starts.into_iter().flat_map(|start| (start as u32).to_le_bytes()).collect();
            let stored = [&[2, 1, flags, element as u8][..], &sizes, &starts, &blocks].concat();
            let mut out = vec![1; plain.len()];
            prop_assert_eq!(decode(&stored, &mut out), Ok(()));
            prop_assert!(out == plain);
            prop_assert_eq!(super::length(&stored), Some(out.len()));
            prop_assert!(decode(&stored[..stored.len() - 1], &mut out).is_err());
        }

        #[test]
        fn nothing_panics(
            (flags, element, block, length) in (any::<u8>(), any::<u8>(), 0_u32..400, 0_u32..900),
            stored in vec(prop_oneof![3 => 0_u8..40, 1 => any::<u8>()], 0..200),
        ) {
            let sizes = [length, block, 0].map(u32::to_le_bytes).concat();
            let _ = decode(&[&[2, 1, flags, element][..], &sizes, &stored].concat(), &mut vec![0; length as usize]);
        }
    }
}
