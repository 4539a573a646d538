//! The codecs of pages. Callers have bounded the lengths.
//!
//! Imports `codec` of this room.

use crate::format::codec::block::{lz4, snappy};
use crate::format::codec::{self, Codec};
use crate::format::counted;
use std::io::Read;

pub(super) const UNCOMPRESSED: i32 = 0;
const SNAPPY: i32 = 1;
const GZIP: i32 = 2;
const BROTLI: i32 = 4;
/// LZ4 in frames of Hadoop, or, as old releases of Arrow wrote it, in one block.
const LZ4_HADOOP: i32 = 5;
const ZSTD: i32 = 6;
const LZ4: i32 = 7;
const OTHER_LENGTHS: &str = "LZ4 of other lengths than its frame says";
/// Bytes that the decoder of brotli takes at a time.
const BROTLI_BUFFER_BYTES: usize = 64 << 10;

/// The name of a codec that cannot be decoded; `None` if it can.
pub(super) fn missing(number: i32) -> Option<String> {
    match number {
        UNCOMPRESSED | SNAPPY | GZIP | BROTLI | LZ4_HADOOP | ZSTD | LZ4 => None,
        3 => Some("codec 3 (LZO)".to_owned()),
        number => Some(format!("codec {number}")),
    }
}

/// Decodes all of `input`; fills `out`.
pub(super) fn decode(number: i32, input: &[u8], out: &mut [u8]) -> Result<(), String> {
    match number {
        UNCOMPRESSED if input.len() == out.len() => {
            out.copy_from_slice(input);
            Ok(())
        }
        UNCOMPRESSED => Err(format!("{}, not {}", counted(input.len(), "byte"), out.len())),
        SNAPPY => snappy(input, out),
        GZIP => codec::decode(Codec::Gzip, input, out),
        BROTLI => brotli(input, out),
        LZ4_HADOOP => hadoop(input, out).or_else(|_| lz4(input, out)),
        ZSTD => codec::decode(Codec::Zstd, input, out),
        LZ4 => lz4(input, out),
        number => Err(format!("it needs {}", missing(number).unwrap_or_default())),
    }
}

/// Decodes frames `u32 decoded bytes | u32 stored bytes | block | …`, one behind the other; big-endian. A frame that is longer
/// than Hadoop's buffer has several blocks, each behind its stored bytes, until the frame's decoded bytes are complete.
fn hadoop(mut input: &[u8], mut out: &mut [u8]) -> Result<(), String> {
    while let Some(decoded) = next_u32(&mut input) {
        let targets = std::mem::take(&mut out).split_at_mut_checked(decoded as usize);
        let (mut target, left) = targets.ok_or(OTHER_LENGTHS)?;
        loop {
            let stored = next_u32(&mut input).ok_or(OTHER_LENGTHS)?;
            let (block, behind) = input.split_at_checked(stored as usize).ok_or(OTHER_LENGTHS)?;
            let length = lz4_flex::block::decompress_into(block, target);
            let length = length.map_err(|error| format!("LZ4: {error}"))?;
            input = behind;
            target = std::mem::take(&mut target).get_mut(length..).unwrap_or_default();
            if target.is_empty() {
                break;
            }
        }
        out = left;
    }
    match input.is_empty() && out.is_empty() {
        true => Ok(()),
        false => Err("LZ4 whose frames end early".to_owned()),
    }
}

fn next_u32(input: &mut &[u8]) -> Option<u32> {
    let (number, behind) = input.split_first_chunk()?;
    *input = behind;
    Some(u32::from_be_bytes(*number))
}

fn brotli(input: &[u8], out: &mut [u8]) -> Result<(), String> {
    let said = |error: std::io::Error| format!("brotli: {error}");
    let mut decoder = brotli_decompressor::Decompressor::new(input, BROTLI_BUFFER_BYTES);
    decoder.read_exact(out).map_err(said)?;
    match decoder.read(&mut [0; 1]).map_err(said)? {
        0 => Ok(()),
        _ => Err(format!("brotli of more than {}", counted(out.len(), "byte"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_hadoop_have_one_block_or_several() {
        let data: Vec<u8> = (0..5000_u32).flat_map(|number| (number / 9).to_le_bytes()).collect();
        let block = |data: &[u8]| {
            let block = lz4_flex::block::compress(data);
            [&(block.len() as u32).to_be_bytes()[..], &block].concat()
        };
        let frame = |data: &[u8], blocks: usize| {
            let blocks = data.chunks(data.len().div_ceil(blocks)).flat_map(block);
            [(data.len() as u32).to_be_bytes().to_vec(), blocks.collect()].concat()
        };
        let (first, second) = data.split_at(7000);
        for stored in [
            frame(&data, 1),
            frame(&data, 4),
            [frame(first, 1), frame(second, 1)].concat(),
            [frame(first, 3), frame(second, 2)].concat(),
            lz4_flex::block::compress(&data),
        ] {
            let mut out = vec![0; data.len()];
            decode(LZ4_HADOOP, &stored, &mut out).unwrap();
            assert!(out == data);
            for end in [0, 3, 7, 9, stored.len() - 1] {
                assert!(decode(LZ4_HADOOP, &stored[..end], &mut out).is_err(), "{end}");
            }
            assert!(decode(LZ4_HADOOP, &stored, &mut out[1..]).is_err());
        }
        // Blocks of no bytes, again and again.
        let empty = [&4_u32.to_be_bytes()[..], &[0, 0, 0, 1, 0].repeat(1000)].concat();
        assert!(decode(LZ4_HADOOP, &empty, &mut [0; 4]).is_err());
    }
}
