//! Decoding from one checkpoint to the next. For deflate, libdeflate does it: two to three times as fast as the decoder
//! that can stop and go on, but it cannot begin with a window, or within a byte. So the part is made a stream of its own: a
//! stored block that holds the window, empty blocks with as many bits as bring the first bit to its place in its byte, the
//! part's own blocks, and an empty last block.

use super::deflate::{self, State, WINDOW_BYTES};
use super::{Codec, Part, decoder, gzip, zlib};
use crate::format::counted;
use crate::format::{Checkpoint, Progress};
use libdeflater::Decompressor;

/// An empty block of fixed codes that is not the last one: its bits, the lowest first, and their number.
const EMPTY: (u128, u32) = (0b010, 10);
/// The same block as the last one.
const EMPTY_LAST: (u128, u32) = (0b011, 10);

/// Decodes from `from` (the start, if `None`) to the next checkpoint, whose state is `next` (to the end, if `None`).
/// `stored` has exactly the bytes between them; fills `out`.
///
/// # Errors
/// The stored bytes are no encoding of `out.len()` bytes.
pub(in crate::format) fn decode_part(
    codec: Codec,
    from: Option<&Checkpoint>,
    next: Option<&[u8]>,
    stored: &[u8],
    out: &mut [u8],
) -> Result<(), String> {
    if quick(codec, from, next, stored, out).is_some() {
        return Ok(());
    }
    let Some(mut decoder) = decoder(codec, from)? else {
        return Err(format!("{} has no checkpoints", codec.name()));
    };
    let wanted = out.len();
    let (mut input, mut left) = (stored, out);
    while !left.is_empty() {
        let step = decoder.decode(input, left, next.is_none())?;
        input = input.get(step.taken..).unwrap_or_default();
        left = left.get_mut(step.given..).unwrap_or_default();
        if !left.is_empty() && (step.is_end || step == Progress::default()) {
            let given = wanted.saturating_sub(left.len());
            return Err(format!("it ends after {given} of {}", counted(wanted, "byte")));
        }
    }
    Ok(())
}

/// Decodes with libdeflate. `None` if this way does not succeed, which says nothing about the bytes.
pub(in crate::format) fn quick(
    codec: Codec,
    from: Option<&Checkpoint>,
    next: Option<&[u8]>,
    stored: &[u8],
    out: &mut [u8],
) -> Option<()> {
    let state = from.map(|from| &from.state[..]);
    let Part { stored, state, next } = match codec {
        Codec::Deflate => Part { stored, state, next },
        Codec::Gzip => gzip::deflate_part(&Part { stored, state, next })?,
        Codec::Zlib => zlib::deflate_part(&Part { stored, state, next })?,
        _ => return None,
    };
    let state = match state {
        Some(state) => State::read(state).ok()?,
        None => State { num_bits: 0, bit_buf: 0, window: Vec::new() },
    };
    if state.window.is_empty() && state.num_bits == 0 && next.is_none() {
        return deflate::decode(stored, out).ok();
    }
    let last_bits = match next {
        Some(next) => Some(*next.first()?),
        None => None,
    };
    let stream = whole_stream(&state, stored, last_bits)?;
    let (mut both, length) = (Vec::new(), state.window.len().checked_add(out.len())?);
    both.try_reserve_exact(length).ok()?;
    both.resize(length, 0);
    let given = Decompressor::new().deflate_decompress(&stream, &mut both).ok()?;
    if given != both.len() {
        return None;
    }
    out.copy_from_slice(both.get(state.window.len()..)?);
    Some(())
}

/// The part as a stream of its own. `last_bits`: the number of bits of the last byte that belong to the next part, if no
/// block is the last one; `None` if the part has a last block.
fn whole_stream(state: &State, stored: &[u8], last_bits: Option<u8>) -> Option<Vec<u8>> {
    let mut bits = Bits { bytes: Vec::new(), pending: 0, pending_bits: 0 };
    bits.bytes.try_reserve(stored.len().checked_add(WINDOW_BYTES)?.checked_add(64)?).ok()?;
    if !state.window.is_empty() {
        let length = u16::try_from(state.window.len()).ok()?;
        bits.bytes.push(0);
        bits.bytes.extend_from_slice(&length.to_le_bytes());
        bits.bytes.extend_from_slice(&(!length).to_le_bytes());
        bits.bytes.extend_from_slice(&state.window);
    }
    if state.num_bits > 0 {
        bits.fill(8_u32.checked_sub(state.num_bits.into())?);
        bits.push((state.bit_buf.into(), state.num_bits.into()));
    }
    let Some(last_bits) = last_bits else {
        bits.bytes.extend_from_slice(stored);
        return Some(bits.bytes);
    };
    let (last, before) = stored.split_last()?;
    bits.bytes.extend_from_slice(before);
    bits.push(((*last).into(), 8_u32.checked_sub(last_bits.into())?));
    bits.push(EMPTY_LAST);
    bits.push((0, 7));
    Some(bits.bytes)
}

/// Bits that become bytes, the lowest first.
struct Bits {
    bytes: Vec<u8>,
    pending: u128,
    pending_bits: u32,
}

impl Bits {
    /// Appends the lowest `count` bits of `bits`.
    fn push(&mut self, (bits, count): (u128, u32)) {
        let mask = 1_u128.checked_shl(count).unwrap_or(0).wrapping_sub(1);
        self.pending |= (bits & mask) << self.pending_bits;
        self.pending_bits = self.pending_bits.saturating_add(count);
        while self.pending_bits >= 8 {
            self.bytes.push(self.pending as u8);
            self.pending >>= 8;
            self.pending_bits = self.pending_bits.saturating_sub(8);
        }
    }

    /// Appends empty blocks, so that `count` bits (0 to 7) of a byte are used.
    fn fill(&mut self, count: u32) {
        if count & 1 != 0 {
            self.push_odd_block();
        }
        while self.pending_bits != count {
            self.push(EMPTY);
        }
    }

    /// An empty block of an odd number of bits (91): with codes of its own.
    fn push_odd_block(&mut self) {
        // Not the last; dynamic; 257 literal and length codes, 1 distance code; 18 code length codes.
        for field in [(0, 1), (2, 2), (0, 5), (0, 5), (14, 4)] {
            self.push(field);
        }
        // Of the code length codes, in their order 16 17 18 0 8 7 …, two are used: 18 (many zeros) and 1.
        for i in 0..18 {
            self.push((u128::from(i == 2 || i == 17), 3));
        }
        // Code 0 stands for a length of 1, code 1 for 11 + n zeros: 255 of them, 138 and 117.
        for zeros in [127, 106] {
            self.push((1, 1));
            self.push((zeros, 7));
        }
        // Lengths of 1 for literal 255, the end of the block, and the distance code; then that end.
        for bit in [0, 0, 0, 1] {
            self.push((bit, 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_blocks_of_any_number_of_bits_are_nothing_to_libdeflate() {
        for count in 0..8 {
            let mut bits = Bits { bytes: Vec::new(), pending: 0, pending_bits: 0 };
            bits.fill(count);
            assert_eq!(bits.pending_bits, count);
            bits.push(EMPTY_LAST);
            bits.push((0, 7));
            let given = Decompressor::new().deflate_decompress(&bits.bytes, &mut [0; 1]);
            assert_eq!(given, Ok(0), "{count} bits");
        }
    }
}
