//! Blosc (32001), as c-blosc 1 writes it (`README_CHUNK_FORMAT.rst`): blocks, each sorted and compressed.
//!
//! ```text
//! u8 2 | u8 1 | u8 flags | u8 bytes of an element | u32 bytes without it | u32 bytes of a block | u32 stored bytes
//! blocks  for each: u32 where it begins; there parts: u32 stored bytes | the part, as it is if that is not shorter
//! flags   1: bytes sorted, 2: all as it is, 4: bits sorted, 8: none yet, 16: blocks have one part, not one for each byte of an element;
//!         from 32 on: 0 BloscLZ, 1 LZ4, 2 Snappy, 3 zlib, 4 zstd
//! ```
//!
//! Imports bitshuffle, shuffle, lengths and the codecs.

use super::bitshuffle::unshuffled_bits;
use super::blosclz;
use super::length;
use super::shuffle;
use crate::format::codec::block::{Blocks, lz4, snappy};

const ARE_BYTES_SORTED: u8 = 1;
const IS_PLAIN: u8 = 2;
const ARE_BITS_SORTED: u8 = 4;
const IS_NEWER: u8 = 8;
const IS_ONE_PART: u8 = 16;
const HEAD_BYTES: usize = 16;
/// The largest elements of blocks that have parts, and the fewest bytes of a part.
const MAX_PARTS: usize = 16;
const LEAST_PART: usize = 128;
/// The fewest bytes of a block, except of a smaller chunk: c-blosc makes blocks of 128 bytes at least, or of as many
/// whole elements as those hold.
const LEAST_BLOCK: usize = 64;
const ENDS: &str = "Blosc ends early";

struct Head {
    flags: u8,
    element: usize,
    block: usize,
}

/// A little-endian number at offset `at`.
fn number(stored: &[u8], at: usize) -> Option<usize> {
    let bytes = stored.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes) as usize)
}

/// The number of bytes that a chunk decodes to; `None` if the chunk ends early.
pub(super) fn length(stored: &[u8]) -> Option<usize> {
    number(stored, 4)
}

/// Decodes a chunk; fills `out`.
pub(super) fn decode(stored: &[u8], out: &mut [u8]) -> Result<(), String> {
    length::check("Blosc", length(stored), out.len())?;
    let head = Head::read(stored, out.len())?;
    let stored = number(stored, 12).and_then(|bytes| stored.get(..bytes)).ok_or(ENDS)?;
    if head.flags & IS_PLAIN != 0 {
        let end = HEAD_BYTES.saturating_add(out.len());
        out.copy_from_slice(stored.get(HEAD_BYTES..end).ok_or(ENDS)?);
        return Ok(());
    }
    let (mut sorted, mut blocks) = (Vec::new(), Blocks::default());
    for (place, target) in out.chunks_mut(head.block).enumerate() {
        let start =
            number(stored, place.saturating_mul(4).saturating_add(HEAD_BYTES)).ok_or(ENDS)?;
        let parts = stored.get(start..).ok_or(ENDS)?;
        sorted.resize(target.len(), 0);
        head.decode_block(parts, &mut blocks, &mut sorted)?;
        head.unsort(&sorted, target);
    }
    Ok(())
}

impl Head {
    /// Reads the head of a chunk that decodes to `length` bytes.
    fn read(stored: &[u8], length: usize) -> Result<Self, String> {
        let [version, codec_version, flags, element, ..] = stored else {
            return Err(ENDS.to_owned());
        };
        let block = number(stored, 8).ok_or(ENDS)?;
        if (*version, *codec_version) != (2, 1) || flags & IS_NEWER != 0 {
            return Err(format!(
                "Blosc of version {version}.{codec_version}, with flags {flags:#04x}"
            ));
        }
        if *element == 0 || block < LEAST_BLOCK.min(length) {
            return Err(format!("Blosc with elements of {element} bytes, in blocks of {block}"));
        }
        Ok(Self { flags: *flags, element: usize::from(*element), block: block.max(1) })
    }

    fn parts(&self, block: usize) -> usize {
        let each = block.checked_div(self.element).unwrap_or(0);
        let has_parts = self.flags & IS_ONE_PART == 0
            && self.element <= MAX_PARTS
            && each >= LEAST_PART
            && block == self.block;
        if has_parts { self.element } else { 1 }
    }

    fn decode_block(
        &self,
        mut parts: &[u8],
        blocks: &mut Blocks,
        out: &mut [u8],
    ) -> Result<(), String> {
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
                3 => blocks.zlib(stored, target)?,
                4 => blocks.zstd(stored, target)?,
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
        // The bits of another number of elements are not sorted.
        if self.flags & ARE_BITS_SORTED != 0 && count.is_multiple_of(8) {
            let whole = count.saturating_mul(self.element);
            let (sorted, target) = (sorted.get(..whole), target.get_mut(..whole));
            unshuffled_bits(sorted.unwrap_or_default(), self.element, target.unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bitshuffle::sorted_bits;
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

    /// What Blosc makes of a block: 1 sorts bytes, 2 bits, if there are 8 elements or a multiple.
    fn sorted(how: u8, block: &[u8], element: usize) -> Vec<u8> {
        let (whole, rest) = block.split_at(block.len() / element * element);
        match how {
            1 => shuffled(block, element),
            2 if (whole.len() / element).is_multiple_of(8) => {
                [&sorted_bits(whole, element), rest].concat()
            }
            _ => block.to_vec(),
        }
    }

    #[test]
    fn blocks_that_are_so_small_that_there_could_be_millions_are_refused() {
        // Two parts of two bytes, as they are; and the same as one small chunk.
        let stored = |length: u32, block: u32, starts: &[u32]| {
            let all = HEAD_BYTES + starts.len() * 4 + 8;
            let sizes = [&[length, block, all as u32], starts].concat();
            let sizes: Vec<u8> = sizes.into_iter().flat_map(u32::to_le_bytes).collect();
            [&[2, 1, IS_ONE_PART, 1][..], &sizes, &length.to_le_bytes(), b"abcd"].concat()
        };
        let mut out = [0; 4];
        assert_eq!(decode(&stored(4, 4, &[20]), &mut out), Ok(()));
        assert_eq!(&out, b"abcd");
        let said = decode(&stored(4, 2, &[24, 24]), &mut out).unwrap_err();
        assert!(said.contains("in blocks of 2"), "{said}");
    }

    proptest! {
        #[test]
        fn what_is_decoded_is_what_was_sorted_and_compressed(
            (element, kind, how, is_one) in (1_usize..20, 0_u8..5, 0_u8..3, any::<bool>()),
            (block, length) in (64_usize..5000, 1_usize..9000), bytes in vec(any::<u8>(), 1..600),
        ) {
            let block = block.next_multiple_of(element);
            let plain: Vec<u8> = bytes.iter().copied().cycle().take(length).collect();
            let (mut starts, mut blocks) = (Vec::new(), Vec::new());
            for part in plain.chunks(block) {
                starts.push(HEAD_BYTES + plain.len().div_ceil(block) * 4 + blocks.len());
                let sorted = sorted(how, part, element);
                let is_split = !is_one && element <= 16 && part.len() == block && block / element >= 128;
                for part in sorted.chunks(if is_split { block / element } else { sorted.len() }) {
                    let stored = compress(kind, part);
                    let stored = if stored.len() < part.len() { stored } else { part.to_vec() };
                    blocks.extend((stored.len() as u32).to_le_bytes());
                    blocks.extend(stored);
                }
            }
            let starts: Vec<u8> = starts.into_iter().flat_map(|start| (start as u32).to_le_bytes()).collect();
            let all = HEAD_BYTES + starts.len() + blocks.len();
            let sizes = [plain.len() as u32, block as u32, all as u32].map(u32::to_le_bytes).concat();
            let flags = kind << 5 | [0, ARE_BYTES_SORTED, ARE_BITS_SORTED][usize::from(how)] | u8::from(is_one) << 4;
            let mut stored = [&[2, 1, flags, element as u8][..], &sizes, &starts, &blocks].concat();
            let mut out = vec![1; plain.len()];
            prop_assert_eq!(decode(&stored, &mut out), Ok(()));
            prop_assert!(out == plain);
            prop_assert_eq!(super::length(&stored), Some(out.len()));
            prop_assert!(decode(&stored[..stored.len() - 1], &mut out).is_err());
            // Another version, and what only newer ones write.
            for (place, byte) in [(0, 5), (1, 9), (2, flags | IS_NEWER), (3, 0)] {
                let before = std::mem::replace(&mut stored[place], byte);
                prop_assert!(decode(&stored, &mut out).is_err());
                stored[place] = before;
            }
        }

        #[test]
        fn nothing_panics(
            (flags, element, block, length) in (any::<u8>(), any::<u8>(), 0_u32..400, 0_u32..900),
            stored in vec(prop_oneof![3 => 0_u8..40, 1 => any::<u8>()], 0..200),
        ) {
            let all = stored.len() as u32 + HEAD_BYTES as u32;
            let sizes = [length, block, all].map(u32::to_le_bytes).concat();
            let _ = decode(&[&[2, 1, flags, element][..], &sizes, &stored].concat(), &mut vec![0; length as usize]);
        }
    }
}
