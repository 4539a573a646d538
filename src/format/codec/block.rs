//! Codecs of blocks, which know no streams: all of a block is decoded at once, to a length that the caller knows.

use super::{zlib, zstd};
use crate::format::counted;

/// Decodes a block of Snappy, without frames; fills `out`.
///
/// # Errors
/// `input` is no such block, or one of another length.
pub(in crate::format) fn snappy(input: &[u8], out: &mut [u8]) -> Result<(), String> {
    let said = |error: snap::Error| format!("snappy: {error}");
    let length = snap::raw::decompress_len(input).map_err(said)?;
    if length != out.len() {
        return Err(format!("snappy of {}, not {}", counted(length, "byte"), out.len()));
    }
    snap::raw::Decoder::new().decompress(input, out).map(drop).map_err(said)
}

/// Decodes a block of LZ4, without frames; fills `out`.
///
/// # Errors
/// `input` is no such block, or one of another length.
pub(in crate::format) fn lz4(input: &[u8], out: &mut [u8]) -> Result<(), String> {
    match lz4_flex::block::decompress_into(input, out) {
        Ok(length) if length == out.len() => Ok(()),
        Ok(length) => Err(format!("LZ4 of {}, not {}", counted(length, "byte"), out.len())),
        Err(error) => Err(format!("LZ4: {error}")),
    }
}

/// Decodes blocks of zstd and zlib one after the other with the same decoders: making one takes longer than decoding a
/// small block.
#[derive(Default)]
pub(in crate::format) struct Blocks {
    zstd: Option<zstd::Whole>,
    zlib: Option<zlib::Whole>,
}

impl Blocks {
    /// Decodes all of `input`; fills `out`.
    ///
    /// # Errors
    /// `input` is no such block, or one of another length.
    pub(in crate::format) fn zstd(&mut self, input: &[u8], out: &mut [u8]) -> Result<(), String> {
        let whole = match &mut self.zstd {
            Some(whole) => whole,
            none => none.insert(zstd::Whole::new()?),
        };
        whole.decode(input, out)
    }

    /// Decodes all of `input`; fills `out`.
    ///
    /// # Errors
    /// `input` is no such block, or one of another length.
    pub(in crate::format) fn zlib(&mut self, input: &[u8], out: &mut [u8]) -> Result<(), String> {
        self.zlib.get_or_insert_with(zlib::Whole::new).decode(input, out)
    }
}
