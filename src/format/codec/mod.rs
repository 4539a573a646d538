//! Compressed bytes → bytes: one file for each codec, which decodes all at once ([`decode`]) and step by step
//! ([`decoder`]). No claim of the input makes a decoder take more memory than [`MAX_WINDOW_BYTES`].

pub(super) mod block;
mod bzip2;
mod deflate;
mod deflate64;
mod gzip;
mod lzma;
mod part;
mod ppmd;
#[cfg(test)]
pub(super) mod tests;
mod xz;
mod zlib;
mod zstd;

pub use gzip::GzipHeader;
pub(super) use part::decode_part;
#[cfg(test)]
pub(super) use part::quick as quick_part;
pub(super) use zlib::is_header as is_zlib_header;

use super::{Checkpoint, DecodeError, Decoder, Progress};
use crate::format::counted;

/// The largest window (dictionary) that a stream may ask for, in bytes: the most that `zstd --ultra` and `xz -9e` need. A
/// larger one (`--long=28`, `dict=256MiB`) is refused: each of many concurrent readers has a window.
pub const MAX_WINDOW_BYTES: u64 = 128 << 20;

/// A way in which bytes are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Raw deflate, RFC 1951.
    Deflate,
    /// As deflate, with a window of 64 KiB; zip's method 9.
    Deflate64,
    /// bzip2 streams, concatenated.
    Bzip2,
    /// LZMA as zip's method 14 has it: two bytes of version, two of length, properties, LZMA1.
    Lzma,
    /// `.xz` streams, concatenated.
    Xz,
    /// zstd frames, concatenated; RFC 8878.
    Zstd,
    /// PPMd version I, revision 1, as zip's method 98 has it: two bytes of parameters in front.
    Ppmd,
    /// gzip members, concatenated; RFC 1952.
    Gzip,
    /// One zlib stream; RFC 1950.
    Zlib,
}

impl Codec {
    /// The usual name of the codec.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Codec::Deflate => "deflate",
            Codec::Deflate64 => "deflate64",
            Codec::Bzip2 => "bzip2",
            Codec::Lzma => "LZMA",
            Codec::Xz => "xz",
            Codec::Zstd => "zstd",
            Codec::Ppmd => "PPMd",
            Codec::Gzip => "gzip",
            Codec::Zlib => "zlib",
        }
    }
}

/// Decodes all of `input`; fills `out` exactly. The format's own checksums are verified.
///
/// # Errors
/// The input is no such encoding, or decodes to fewer or more bytes.
pub fn decode(codec: Codec, input: &[u8], out: &mut [u8]) -> Result<(), String> {
    match codec {
        Codec::Deflate => deflate::decode(input, out),
        Codec::Gzip => gzip::decode(input, out),
        Codec::Zlib => zlib::Whole::new().decode(input, out),
        Codec::Lzma => lzma::decode(input, out),
        Codec::Ppmd => ppmd::decode(input, out),
        Codec::Zstd => zstd::Whole::new()?.decode(input, out),
        Codec::Bzip2 | Codec::Deflate64 | Codec::Xz => match decoder(codec, None)? {
            Some(mut decoder) => fill(decoder.as_mut(), input, out),
            None => Err(format!("{} cannot be decoded", codec.name())),
        },
    }
}

/// A decoder that decodes step by step, from the start or from a checkpoint that an earlier decoder gave. `None` if this
/// codec can only decode a whole stream.
///
/// # Errors
/// The checkpoint is not of this codec.
pub fn decoder(
    codec: Codec,
    from: Option<&Checkpoint>,
) -> Result<Option<Box<dyn Decoder>>, String> {
    Ok(Some(match codec {
        Codec::Deflate => Box::new(deflate::Inflate::new(from)?),
        Codec::Deflate64 => Box::new(deflate64::Inflate64::new(from)?),
        Codec::Bzip2 => Box::new(bzip2::Bzip2::new(from)?),
        Codec::Lzma => Box::new(lzma::Lzma::new(from)?),
        Codec::Xz => Box::new(xz::Xz::new(from)?),
        Codec::Zstd => Box::new(zstd::Zstd::new(from)?),
        Codec::Gzip => Box::new(gzip::Gzip::new(from)?),
        Codec::Zlib => Box::new(zlib::Zlib::new(from)?),
        Codec::Ppmd => return Ok(None),
    }))
}

/// Fills `out` with the decoded bytes of `input`, and checks that the stream ends with them.
fn fill(decoder: &mut dyn Decoder, mut input: &[u8], out: &mut [u8]) -> Result<(), String> {
    let wanted = out.len();
    let mut left = out;
    let mut spill = [0; 1];
    loop {
        let is_full = left.is_empty();
        let target = if is_full { &mut spill[..] } else { &mut *left };
        let step = decoder.decode(input, target, true)?;
        if is_full && step.given > 0 {
            return Err(format!("there are more bytes than the {wanted} that were expected"));
        }
        input = input.get(step.taken..).unwrap_or_default();
        if !is_full {
            left = left.get_mut(step.given..).unwrap_or_default();
        }
        if step.is_end && left.is_empty() {
            return Ok(());
        }
        if step.is_end || step == Progress::default() {
            let given = wanted.saturating_sub(left.len());
            return Err(format!("it ends after {given} of {}", counted(wanted, "byte")));
        }
    }
}

/// The place of a decoder in the stored and the decoded bytes, which every decoder counts.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    stored_bytes: u64,
    decoded_bytes: u64,
}

impl Place {
    fn of(from: Option<&Checkpoint>) -> Self {
        from.map_or_else(Self::default, |r| Self {
            stored_bytes: r.stored_bytes,
            decoded_bytes: r.decoded_bytes,
        })
    }

    fn pass(&mut self, step: Progress) {
        self.stored_bytes = self.stored_bytes.saturating_add(step.taken as u64);
        self.decoded_bytes = self.decoded_bytes.saturating_add(step.given as u64);
    }

    fn checkpoint(self, state: &[u8]) -> Checkpoint {
        let Self { stored_bytes, decoded_bytes } = self;
        Checkpoint { stored_bytes, decoded_bytes, state: state.into() }
    }
}

/// Input and output of one step of a decoder.
struct Step<'a> {
    input: &'a [u8],
    output: &'a mut [u8],
    done: Progress,
}

impl<'a> Step<'a> {
    fn new(input: &'a [u8], output: &'a mut [u8]) -> Self {
        Self { input, output, done: Progress::default() }
    }

    /// The input that has not been taken yet.
    fn rest(&self) -> &'a [u8] {
        self.input.get(self.done.taken..).unwrap_or_default()
    }

    /// The output that has not been filled yet.
    fn room(&mut self) -> &mut [u8] {
        self.output.get_mut(self.done.given..).unwrap_or_default()
    }

    fn take(&mut self, bytes: usize) {
        self.done.taken = self.done.taken.saturating_add(bytes).min(self.input.len());
    }

    fn give(&mut self, bytes: usize) {
        self.done.given = self.done.given.saturating_add(bytes).min(self.output.len());
    }

    fn take_byte(&mut self) -> Option<u8> {
        let byte = *self.rest().first()?;
        self.take(1);
        Some(byte)
    }

    fn copy(&mut self, bytes: &[u8]) -> usize {
        let room = self.room();
        let length = bytes.len().min(room.len());
        if let (Some(room), Some(bytes)) = (room.get_mut(..length), bytes.get(..length)) {
            room.copy_from_slice(bytes);
        }
        self.give(length);
        length
    }

    /// The result of a step when a decoder can go no further; an error if no more input will come.
    fn starved(&mut self, is_last: bool) -> Result<Progress, DecodeError> {
        if is_last && self.rest().is_empty() && self.done == Progress::default() {
            return Err(ENDS_EARLY.into());
        }
        Ok(self.done)
    }
}

/// A decoder that goes on by phases.
trait Phased {
    /// Goes on within a phase. Returns false if more input is needed, or room for output, or a checkpoint is reached.
    fn advance(&mut self, step: &mut Step, is_last: bool) -> Result<bool, String>;

    /// Whether the stream has ended.
    fn is_end(&self) -> bool;

    fn place_mut(&mut self) -> &mut Place;

    /// As [`Decoder::decode`].
    fn decode_phases(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        is_last: bool,
    ) -> Result<Progress, DecodeError> {
        let mut step = Step::new(input, output);
        while self.advance(&mut step, is_last)? {}
        step.done.is_end = self.is_end();
        self.place_mut().pass(step.done);
        if !step.done.is_end && !step.room().is_empty() {
            return step.starved(is_last);
        }
        Ok(step.done)
    }
}

/// The bytes between two checkpoints, and the states of the decoder there.
struct Part<'a> {
    stored: &'a [u8],
    /// The state at the beginning; `None` at the stream's start.
    state: Option<&'a [u8]>,
    /// The state at the end; `None` at the stream's end.
    next: Option<&'a [u8]>,
}

/// The error of every decoder if the input ends before the stream.
pub(super) const ENDS_EARLY: &str = "the stored bytes end early";
const FOREIGN_CHECKPOINT: &str = "this is not a checkpoint of this codec";
