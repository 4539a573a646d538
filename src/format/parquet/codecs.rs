//! The codecs of pages. Lengths were bounded before.
//!
//! Imports `codec` of this room.

use crate::format::codec::{self, Codec};
use crate::format::counted;
use std::io::Read;

pub(super) const UNCOMPRESSED: i32 = 0;
const SNAPPY: i32 = 1;
const GZIP: i32 = 2;
const BROTLI: i32 = 4;
/// In frames of Hadoop, or, as old releases of Arrow wrote it, one block.
const LZ4_HADOOP: i32 = 5;
const ZSTD: i32 = 6;
const LZ4: i32 = 7;
/// What the decoder of brotli takes at a time.
const BROTLI_BUFFER_BYTES: usize = 64 << 10;

/// Why a codec is not read; `None`: it is.
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

fn snappy(input: &[u8], out: &mut [u8]) -> Result<(), String> {
    let said = |error: snap::Error| format!("snappy: {error}");
    let length = snap::raw::decompress_len(input).map_err(said)?;
    if length != out.len() {
        return Err(format!("snappy of {}, not {}", counted(length, "byte"), out.len()));
    }
    snap::raw::Decoder::new().decompress(input, out).map(drop).map_err(said)
}

fn lz4(input: &[u8], out: &mut [u8]) -> Result<(), String> {
    match lz4_flex::block::decompress_into(input, out) {
        Ok(length) if length == out.len() => Ok(()),
        Ok(length) => Err(format!("LZ4 of {}, not {}", counted(length, "byte"), out.len())),
        Err(error) => Err(format!("LZ4: {error}")),
    }
}

/// `u32 decoded bytes | u32 stored bytes | block`, again and again; big-endian.
fn hadoop(mut input: &[u8], mut out: &mut [u8]) -> Result<(), String> {
    while let Some((head, rest)) = input.split_first_chunk::<8>() {
        let [a, b, c, d, e, f, g, h] = *head;
        let (decoded, stored) =
            (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        let blocks = rest.split_at_checked(stored as usize);
        let targets = std::mem::take(&mut out).split_at_mut_checked(decoded as usize);
        let ((block, behind), (target, left)) =
            blocks.zip(targets).ok_or("LZ4 of other lengths than its frame says")?;
        lz4(block, target)?;
        (input, out) = (behind, left);
    }
    match input.is_empty() && out.is_empty() {
        true => Ok(()),
        false => Err("LZ4 whose frames end early".to_owned()),
    }
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
