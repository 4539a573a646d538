//! Bitshuffle (32008), as its authors have it (`bshuf_h5filter.c`): bits sorted by their place in an element, in blocks, and
//! perhaps compressed.
//!
//! ```text
//! values  u32 version | u32 version | bytes of an element | elements of a block, or 0 | 0, 2 LZ4, 3 zstd | …
//! chunk   (if it is compressed: u64 bytes without it | u32 bytes of a block, both in big endian)
//!         blocks, each (if so) behind u32 stored bytes | elements behind the last 8, as they are
//! ```
//!
//! Imports lengths and the codecs.

use super::length::{self, take_block};
use crate::format::codec::block::{Blocks, lz4};
use crate::format::counted;

const PLAIN: u32 = 0;
const LZ4: u32 = 2;
const ZSTD: u32 = 3;
/// The number of elements whose bits are sorted together.
const GROUP: usize = 8;
const HEAD_BYTES: usize = 12;
/// The bytes of a block, and its fewest elements, if neither the values nor the chunk say its size.
const BLOCK_BYTES: usize = 8192;
const LEAST_BLOCK: usize = 128;

/// The number of bytes that a chunk decodes to; `None` if the chunk ends early.
pub(super) fn length(values: &[u32], stored: &[u8]) -> Option<usize> {
    match kind(values) {
        PLAIN => Some(stored.len()),
        _ => usize::try_from(u64::from_be_bytes(*stored.first_chunk()?)).ok(),
    }
}

fn kind(values: &[u32]) -> u32 {
    values.get(4).copied().unwrap_or(PLAIN)
}

/// Decodes a chunk; fills `out`.
pub(super) fn decode(values: &[u32], stored: &[u8], out: &mut [u8]) -> Result<(), String> {
    let element = values.get(2).copied().unwrap_or(0) as usize;
    length::check("bitshuffle", length(values, stored), out.len())?;
    if element == 0 || !out.len().is_multiple_of(element) {
        let bytes = counted(out.len(), "byte");
        return Err(format!("bitshuffle of {bytes}, in elements of {element}"));
    }
    let kind = kind(values);
    let (mut block, mut rest) = (values.get(3).copied().unwrap_or(0) as usize, stored);
    if kind != PLAIN {
        let (head, behind) = stored.split_at_checked(HEAD_BYTES).ok_or("bitshuffle ends early")?;
        let bytes = head.last_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes) as usize);
        (block, rest) = (bytes.checked_div(element).unwrap_or(0), behind);
    }
    if block == 0 {
        let elements = BLOCK_BYTES.checked_div(element).unwrap_or(0) / GROUP;
        block = elements.saturating_mul(GROUP).max(LEAST_BLOCK);
    }
    if !block.is_multiple_of(GROUP) {
        return Err(format!("bitshuffle in blocks of {block} elements"));
    }
    let (mut out, mut sorted, mut blocks) = (out, Vec::new(), Blocks::default());
    while out.len().checked_div(element).unwrap_or(0) >= GROUP {
        let left = out.len().checked_div(element).unwrap_or(0) / GROUP;
        let bytes = left.saturating_mul(GROUP).min(block).saturating_mul(element);
        let (target, behind) =
            std::mem::take(&mut out).split_at_mut_checked(bytes).unwrap_or_default();
        sorted.resize(bytes, 0);
        block_of(kind, &mut rest, &mut blocks, &mut sorted)?;
        unshuffled_bits(&sorted, element, target);
        out = behind;
    }
    out.copy_from_slice(rest.get(..out.len()).ok_or("bitshuffle ends early")?);
    Ok(())
}

/// Takes the next block; fills `sorted`.
fn block_of(
    kind: u32,
    rest: &mut &[u8],
    blocks: &mut Blocks,
    sorted: &mut [u8],
) -> Result<(), String> {
    let ends = || "bitshuffle ends early".to_owned();
    if kind == PLAIN {
        let (block, behind) = rest.split_at_checked(sorted.len()).ok_or_else(ends)?;
        *rest = behind;
        sorted.copy_from_slice(block);
        return Ok(());
    }
    let stored = take_block(rest).ok_or_else(ends)?;
    match kind {
        LZ4 => lz4(stored, sorted),
        ZSTD => blocks.zstd(stored, sorted),
        kind => Err(format!("bitshuffle with compression {kind}")),
    }
}

/// Puts the bits of a multiple of 8 elements back, which were sorted by their place in an element.
pub(super) fn unshuffled_bits(sorted: &[u8], element: usize, out: &mut [u8]) {
    // The bytes of a row, which has one bit of each element.
    let row = out.len().checked_div(element.max(1)).unwrap_or(0) / GROUP;
    if row == 0 {
        return;
    }
    for (place, rows) in sorted.chunks_exact(row.saturating_mul(GROUP)).enumerate() {
        for group in 0..row {
            let column = rows.iter().skip(group).step_by(row);
            let bits = column.rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
            let first = group.saturating_mul(GROUP).saturating_mul(element).saturating_add(place);
            let targets = out.iter_mut().skip(first).step_by(element);
            targets.zip(transposed(bits).to_le_bytes()).for_each(|(to, byte)| *to = byte);
        }
    }
}

/// Transposes the bits of 8 bytes: bit `i` of byte `k` becomes bit `k` of byte `i`.
fn transposed(bits: u64) -> u64 {
    let swap = |bits: u64, distance: u32, mask: u64| {
        let changed = (bits ^ bits >> distance) & mask;
        bits ^ changed ^ changed << distance
    };
    let bits = swap(bits, 7, 0x00aa_00aa_00aa_00aa);
    let bits = swap(bits, 14, 0x0000_cccc_0000_cccc);
    swap(bits, 28, 0x0000_0000_f0f0_f0f0)
}

/// What bitshuffle makes of a multiple of 8 elements, bit by bit.
#[cfg(test)]
pub(super) fn sorted_bits(plain: &[u8], element: usize) -> Vec<u8> {
    let (count, mut sorted) = (plain.len() / element, vec![0; plain.len()]);
    for (at, byte) in plain.iter().enumerate() {
        let (number, place) = (at / element, at % element);
        for bit in 0..8 {
            let to = (place * 8 + bit) * count + number;
            sorted[to / 8] |= (byte >> bit & 1) << (to % 8);
        }
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn elements_are_those_whose_bits_were_sorted(
            (element, groups) in (1_usize..18, 0_usize..9), block in 0_u32..5,
            kind in prop::sample::select(&[PLAIN, LZ4, ZSTD][..]), bytes in vec(any::<u8>(), 1..40), more in 0_usize..8,
        ) {
            let plain: Vec<u8> = bytes.iter().copied().cycle().take((groups * 8 + more) * element).collect();
            let whole = groups * 8 * element;
            let block = block * 8;
            let elements = if block == 0 { (BLOCK_BYTES / element / 8 * 8).max(LEAST_BLOCK) } else { block as usize };
            let mut stored = Vec::new();
            if kind != PLAIN {
                stored.extend((plain.len() as u64).to_be_bytes());
                stored.extend(((elements * element) as u32).to_be_bytes());
            }
            for part in plain[..whole].chunks(elements * element) {
                let part = sorted_bits(part, element);
                let part = match kind {
                    LZ4 => lz4_flex::block::compress(&part),
                    ZSTD => zstd::bulk::compress(&part, 1).unwrap(),
                    _ => { stored.extend(part); continue }
                };
                stored.extend((part.len() as u32).to_be_bytes());
                stored.extend(part);
            }
            stored.extend(&plain[whole..]);
            let values = [0, 3, element as u32, block, kind];
            let mut out = vec![1; plain.len()];
            prop_assert_eq!(decode(&values, &stored, &mut out), Ok(()));
            prop_assert_eq!(&out, &plain);
            prop_assert_eq!(length(&values, &stored), Some(out.len()));
            prop_assert!(stored.is_empty() || decode(&values, &stored[..stored.len() - 1], &mut out).is_err());
        }

        #[test]
        fn nothing_panics(values in vec(0_u32..20, 0..6), stored in vec(any::<u8>(), 0..60), length in 0_usize..300) {
            let mut head = stored;
            head.splice(..0, (length as u64).to_be_bytes());
            let _ = decode(&values, &head, &mut vec![0; length]);
        }
    }
}
