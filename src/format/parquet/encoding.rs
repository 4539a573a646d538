//! Encodings of levels and values: runs, packed bits, differences.
//!
//! ```text
//! runs                  (varint count << 1 | value) or (varint groups << 1 | 1 | groups × 8 packed values)
//! DELTA_BINARY_PACKED   block size | miniblocks | count | first | blocks: smallest | widths | packed differences
//! ```
//! No memory is taken for more values than the caller expects. Imports the texts of counts.

use crate::format::counted;

/// The most differences of a block; writers use 128 and 256.
const MAX_BLOCK_VALUES: u64 = 1 << 16;

const ENDS_EARLY: &str = "its values end early";

/// Returns the bytes behind their u32 length, and the number of bytes of both.
pub(super) fn prefixed(bytes: &[u8]) -> Result<(&[u8], usize), String> {
    let (length, rest) = bytes.split_first_chunk().ok_or("levels without their length")?;
    let length = u32::from_le_bytes(*length) as usize;
    let found = rest.get(..length).ok_or("levels that are longer than their page")?;
    Ok((found, length.saturating_add(4)))
}

/// Decodes levels from 0 to `most`.
pub(super) fn levels(bytes: &[u8], most: u32, count: usize) -> Result<Vec<u8>, String> {
    let width = u32::BITS.saturating_sub(most.leading_zeros());
    // Fewer than 128 groups lie in each other: a level has 8 bits at most.
    let levels = runs_of(bytes, width.min(8), count, |level| level as u8)?;
    match levels.iter().all(|level| u32::from(*level) <= most) {
        true => Ok(levels),
        false => Err(format!("a level above {most}")),
    }
}

/// Decodes `count` values of `width` bits, in runs.
pub(super) fn runs(bytes: &[u8], width: u32, count: usize) -> Result<Vec<u32>, String> {
    runs_of(bytes, width, count, |value| value)
}

fn runs_of<T: Copy>(
    mut bytes: &[u8],
    width: u32,
    count: usize,
    of: impl Fn(u32) -> T,
) -> Result<Vec<T>, String> {
    if width > 32 {
        return Err(format!("values of {width} bits"));
    }
    let mut out = Vec::with_capacity(count.min(1 << 16));
    while out.len() < count {
        let head = varint(&mut bytes)?;
        let left = count.saturating_sub(out.len());
        let number = usize::try_from(head >> 1).unwrap_or(usize::MAX);
        if head & 1 == 0 {
            let length = width.div_ceil(8) as usize;
            let (stored, rest) = bytes.split_at_checked(length).ok_or(ENDS_EARLY)?;
            let value = stored.iter().rev().fold(0_u32, |all, byte| all << 8 | u32::from(*byte));
            if number == 0 {
                return Err("a run of no values".to_owned());
            }
            out.resize(out.len().saturating_add(number.min(left)), of(value));
            bytes = rest;
            continue;
        }
        let values = number.saturating_mul(8).min(left);
        let length = number.saturating_mul(width as usize);
        // The last group may be cut behind its last value.
        let (packed, rest) = bytes.split_at_checked(length.min(bytes.len())).unwrap_or_default();
        if number == 0 {
            return Err("a run of no values".to_owned());
        }
        unpack(packed, width, values, &mut |value| out.push(of(value as u32)))?;
        bytes = rest;
    }
    Ok(out)
}

/// Unpacks `count` values of `width` bits, the lowest bits first.
fn unpack(bytes: &[u8], width: u32, count: usize, each: &mut dyn FnMut(u64)) -> Result<(), String> {
    let needed = (count as u64).saturating_mul(width.into()).div_ceil(8);
    if (bytes.len() as u64) < needed {
        return Err(ENDS_EARLY.to_owned());
    }
    let mask = match width {
        64.. => u64::MAX,
        width => 1_u64.wrapping_shl(width).wrapping_sub(1),
    };
    let (mut bits, mut have, mut rest) = (0_u128, 0_u32, bytes.iter());
    for _ in 0..count {
        while have < width {
            let byte = rest.next().copied().unwrap_or(0);
            bits |= u128::from(byte).wrapping_shl(have);
            have = have.saturating_add(8);
        }
        each(bits as u64 & mask);
        bits = bits.wrapping_shr(width);
        have = have.saturating_sub(width);
    }
    Ok(())
}

/// Unpacks booleans to a byte each.
pub(super) fn booleans(bytes: &[u8], count: usize) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(count.min(bytes.len().saturating_mul(8)));
    unpack(bytes, 1, count, &mut |value| out.push(value as u8))?;
    Ok(out)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(ENDS_EARLY)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).wrapping_shl(shift);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number of more than 64 bits".to_owned())
}

fn zigzag(bytes: &mut &[u8]) -> Result<i64, String> {
    let value = varint(bytes)?;
    Ok((value >> 1).cast_signed() ^ (value & 1).cast_signed().wrapping_neg())
}

/// Decodes `count` numbers of DELTA_BINARY_PACKED; the bytes behind them stay in `bytes`.
pub(super) fn differences(bytes: &mut &[u8], count: usize) -> Result<Vec<i64>, String> {
    let (block, miniblocks) = (varint(bytes)?, varint(bytes)?);
    let total = varint(bytes)?;
    let first = zigzag(bytes)?;
    let each = block.checked_div(miniblocks).unwrap_or(0);
    if block > MAX_BLOCK_VALUES || each == 0 || !each.is_multiple_of(8) {
        return Err(format!("blocks of {block} differences in {miniblocks}"));
    }
    if total != count as u64 {
        return Err(format!("{}, not {count}", counted(total, "value")));
    }
    let mut out = Vec::with_capacity(count.min(1 << 16));
    if count > 0 {
        out.push(first);
    }
    let mut last = first;
    while out.len() < count {
        let smallest = zigzag(bytes)?;
        let miniblocks = usize::try_from(miniblocks).unwrap_or(usize::MAX);
        let (widths, rest) = bytes.split_at_checked(miniblocks).ok_or(ENDS_EARLY)?;
        *bytes = rest;
        for width in widths {
            let left = count.saturating_sub(out.len());
            if left == 0 {
                break;
            }
            if *width > 64 {
                return Err(format!("differences of {width} bits"));
            }
            let length = (each / 8).saturating_mul((*width).into());
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let (packed, rest) = bytes.split_at_checked(length).ok_or(ENDS_EARLY)?;
            *bytes = rest;
            let values = left.min(usize::try_from(each).unwrap_or(0));
            unpack(packed, (*width).into(), values, &mut |difference| {
                last = last.wrapping_add(smallest).wrapping_add(difference.cast_signed());
                out.push(last);
            })?;
        }
    }
    Ok(out)
}

/// Decodes lengths that are stored as DELTA_BINARY_PACKED.
pub(super) fn lengths(bytes: &mut &[u8], count: usize) -> Result<Vec<u32>, String> {
    let found = differences(bytes, count)?;
    let lengths = found.into_iter().map(|length| u32::try_from(length).ok());
    lengths.collect::<Option<_>>().ok_or_else(|| "a length that is negative".to_owned())
}

/// Decodes BYTE_STREAM_SPLIT: the first bytes of all values, then the second bytes, and so on.
pub(super) fn joined(bytes: &[u8], width: usize, count: usize) -> Result<Vec<u8>, String> {
    let all = width.saturating_mul(count);
    let bytes = bytes.get(..all).ok_or(ENDS_EARLY)?;
    let mut out = vec![0; all];
    if count == 0 || width == 0 {
        return Ok(out);
    }
    for (place, stream) in bytes.chunks_exact(count).enumerate() {
        let targets = out.iter_mut().skip(place).step_by(width);
        targets.zip(stream).for_each(|(to, from)| *to = *from);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_packed_values_follow_each_other() {
        // 3 × 5 (3 bits), 8 packed values 0 to 7: the example of the specification.
        let bytes = [6, 5, 3, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        let expected = [5, 5, 5, 0, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(runs(&bytes, 3, 11).unwrap(), expected);
        assert_eq!(runs(&bytes, 3, 5).unwrap(), expected[..5]);
        assert!(runs(&bytes, 3, 12).is_err());
        assert_eq!(runs(&[8], 0, 4).unwrap(), [0; 4]);
        assert!(runs(&[0, 0], 1, 4).is_err());
        assert!(runs(&[1], 1, 4).is_err());
        // A run of 2³¹ values is made no longer than was asked for.
        assert_eq!(runs(&[0xfe, 0xff, 0xff, 0xff, 0x1f, 1], 1, 3).unwrap(), [1; 3]);
    }

    #[test]
    fn differences_are_added_up() {
        // The example of the specification: 7, 5, 3, 1, 2, 3, 4, 5 in a block of 128 of 4.
        let mut bytes = vec![0x80, 1, 4, 8, 14, 3, 2, 0, 0, 0];
        bytes.extend([0b1100_0000, 0b11_1111, 0, 0, 0, 0, 0, 0]);
        bytes.push(9);
        let mut rest = &bytes[..];
        assert_eq!(differences(&mut rest, 8).unwrap(), [7, 5, 3, 1, 2, 3, 4, 5]);
        assert_eq!(rest, [9]);
        assert!(differences(&mut &bytes[..], 7).is_err());
        assert!(differences(&mut &bytes[..14], 8).is_err());
        assert!(differences(&mut &[0, 0, 8, 14][..], 8).is_err());
    }

    #[test]
    fn streams_of_bytes_are_values() {
        assert_eq!(joined(&[1, 4, 2, 5, 3, 6], 3, 2).unwrap(), [1, 2, 3, 4, 5, 6]);
        assert!(joined(&[1, 2, 3], 2, 2).is_err());
        assert_eq!(booleans(&[0b101], 3).unwrap(), [1, 0, 1]);
    }
}
