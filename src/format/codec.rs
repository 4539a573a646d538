//! Deflate, until the codecs are merged.

use super::{Decoder, Restart};

/// How bytes are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Raw deflate, RFC 1951.
    Deflate,
    /// Not yet.
    Deflate64,
    /// Not yet.
    Bzip2,
    /// Not yet.
    Lzma,
    /// Not yet.
    Xz,
    /// Not yet.
    Zstd,
    /// Not yet.
    Ppmd,
}

/// Decodes all of `input`; fills `out` exactly.
///
/// # Errors
/// The input is no such encoding, or one of fewer or more bytes.
pub fn decode(codec: Codec, input: &[u8], out: &mut [u8]) -> Result<(), String> {
    if codec != Codec::Deflate {
        return Err(format!("{codec:?}"));
    }
    match libdeflater::Decompressor::new().deflate_decompress(input, out) {
        Ok(given) if given == out.len() => Ok(()),
        Ok(given) => Err(format!("{given} bytes")),
        Err(why) => Err(why.to_string()),
    }
}

/// # Errors
/// None.
pub fn decoder(_: Codec, _: Option<&Restart>) -> Result<Option<Box<dyn Decoder>>, String> {
    Ok(None)
}
