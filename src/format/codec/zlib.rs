//! zlib streams (RFC 1950): deflate between two bytes of header and the Adler-32 of the decoded bytes. Checkpoints between
//! deflate's blocks.

use super::deflate::Inflate;
use super::{FOREIGN_CHECKPOINT, Part as StreamPart, Phased, Place, Step, fill};
use crate::format::{Checkpoint, DecodeError, Decoder, Progress};
use libdeflater::Decompressor;

const HEADER_BYTES: usize = 2;
const TRAILER_BYTES: usize = 4;
/// The length of the Adler-32 with which a checkpoint's state begins.
const STATE_BYTES: usize = 4;
const MODULUS: u32 = 65_521;
/// Bytes that can be added up before 32 bits overflow.
const CHUNK_BYTES: usize = 5552;

/// Whether `bytes` begin as a stream: deflate, a window of 32 KiB, no dictionary.
pub(in crate::format) fn is_header(bytes: &[u8]) -> bool {
    let Some(&header) = bytes.first_chunk::<HEADER_BYTES>() else { return false };
    let [method, flags] = header;
    method == 0x78 && flags & 0x20 == 0 && u16::from_be_bytes(header).is_multiple_of(31)
}

/// Decodes all of a stream at once, which is two to three times as fast as step by step.
pub(super) struct Whole(Decompressor);

impl Whole {
    pub(super) fn new() -> Self {
        Self(Decompressor::new())
    }

    pub(super) fn decode(&mut self, input: &[u8], out: &mut [u8]) -> Result<(), String> {
        if self.0.zlib_decompress(input, out) == Ok(out.len()) {
            return Ok(());
        }
        // The other decoder finds the error.
        fill(&mut Zlib::new(None)?, input, out)
    }
}

/// The part of the deflate stream that the bytes between two checkpoints begin with.
pub(super) fn deflate_part<'a>(part: &StreamPart<'a>) -> Option<StreamPart<'a>> {
    let (stored, state) = match part.state {
        None => (part.stored.get(HEADER_BYTES..)?, None),
        Some(state) => (part.stored, Some(state.get(STATE_BYTES..)?)),
    };
    let next = match part.next {
        None => None,
        Some(state) => Some(state.get(STATE_BYTES..)?),
    };
    Some(StreamPart { stored, state, next })
}

/// A stream, step by step.
pub(super) struct Zlib {
    phase: Phase,
    inflate: Inflate,
    /// The checksum of the bytes that were given.
    adler: Adler,
    place: Place,
}

enum Phase {
    Header(Vec<u8>),
    Body,
    Trailer(usize),
    End,
}

impl Zlib {
    pub(super) fn new(from: Option<&Checkpoint>) -> Result<Self, String> {
        let place = Place::of(from);
        let Some(from) = from else {
            let (phase, inflate) = (Phase::Header(Vec::new()), Inflate::new(None)?);
            return Ok(Self { phase, inflate, adler: Adler::default(), place });
        };
        let state = from.state.split_first_chunk().ok_or_else(|| FOREIGN_CHECKPOINT.to_owned());
        let (adler, state) = state?;
        let inflate = Inflate::new(Some(&place.checkpoint(state)))?;
        Ok(Self { phase: Phase::Body, inflate, adler: Adler::resume(*adler), place })
    }
}

impl Phased for Zlib {
    fn advance(&mut self, step: &mut Step, is_last: bool) -> Result<bool, String> {
        match &mut self.phase {
            Phase::Header(seen) => {
                let Some(byte) = step.take_byte() else { return Ok(false) };
                seen.push(byte);
                if seen.len() == HEADER_BYTES {
                    if !is_header(seen) {
                        return Err("this is not a zlib header".to_owned());
                    }
                    self.phase = Phase::Body;
                }
            }
            Phase::Body => {
                let before = step.done;
                let adler = &mut self.adler;
                if !self.inflate.step(step, is_last, |decoded| adler.update(decoded))? {
                    return Ok(step.done != before && !self.inflate.is_at_boundary());
                }
                self.phase = Phase::Trailer(0);
            }
            Phase::Trailer(seen) => {
                let Some(byte) = step.take_byte() else { return Ok(false) };
                if self.adler.value().get(*seen) != Some(&byte) {
                    return Err("the zlib stream does not match its checksum".to_owned());
                }
                *seen = seen.saturating_add(1);
                if *seen == TRAILER_BYTES {
                    self.phase = Phase::End;
                }
            }
            Phase::End => return Ok(false),
        }
        Ok(true)
    }

    fn is_end(&self) -> bool {
        matches!(self.phase, Phase::End)
    }

    fn place_mut(&mut self) -> &mut Place {
        &mut self.place
    }
}

impl Decoder for Zlib {
    fn decode(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        is_last: bool,
    ) -> Result<Progress, DecodeError> {
        self.decode_phases(input, output, is_last)
    }

    fn checkpoint(&self) -> Option<Checkpoint> {
        let Phase::Body = self.phase else { return None };
        let inflate = self.inflate.state()?;
        Some(self.place.checkpoint(&[&self.adler.value()[..], &inflate].concat()))
    }
}

/// Adler-32, RFC 1950.
struct Adler {
    low: u32,
    high: u32,
}

impl Default for Adler {
    fn default() -> Self {
        Self { low: 1, high: 0 }
    }
}

impl Adler {
    fn resume(value: [u8; STATE_BYTES]) -> Self {
        let value = u32::from_be_bytes(value);
        Self { low: value & 0xffff, high: value >> 16 }
    }

    fn update(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(CHUNK_BYTES) {
            for byte in chunk {
                self.low = self.low.wrapping_add(u32::from(*byte));
                self.high = self.high.wrapping_add(self.low);
            }
            self.low = self.low.checked_rem(MODULUS).unwrap_or(0);
            self.high = self.high.checked_rem(MODULUS).unwrap_or(0);
        }
    }

    /// The checksum as it stands behind a stream.
    fn value(&self) -> [u8; STATE_BYTES] {
        (self.high << 16 | self.low).to_be_bytes()
    }
}
