//! Deflate (RFC 1951): whole by libdeflate, in steps by miniz_oxide, which can stop between blocks.

use super::{ENDS_EARLY, FOREIGN_CHECKPOINT, Place, Step, fill};
use crate::format::counted;
use crate::format::{Checkpoint, DecodeError, Decoder, Progress};
use libdeflater::{DecompressionError, Decompressor};
use miniz_oxide::inflate::TINFLStatus as Status;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY,
};
use miniz_oxide::inflate::core::{BlockBoundaryState, DecompressorOxide, decompress};

/// The largest distance that deflate refers back.
pub(super) const WINDOW_BYTES: usize = 32 << 10;
/// A power of two (its length is a mask), a few times the window.
const RING_BYTES: usize = 128 << 10;

pub(super) fn decode(input: &[u8], out: &mut [u8]) -> Result<(), String> {
    match Decompressor::new().deflate_decompress(input, out) {
        Ok(given) if given == out.len() => Ok(()),
        Ok(given) => Err(format!("it ends after {given} of {}", counted(out.len(), "byte"))),
        Err(DecompressionError::InsufficientSpace) => {
            Err(format!("there are more bytes than the {} that were expected", out.len()))
        }
        Err(DecompressionError::BadData) => explain(input, out),
    }
}

/// Finds the error with the other decoder: libdeflate says only that the stream is damaged.
fn explain(input: &[u8], out: &mut [u8]) -> Result<(), String> {
    fill(&mut Inflate::new(None)?, input, out)?;
    Err("the deflate stream is damaged".to_owned())
}

/// Deflate step by step. Checkpoints between blocks: the bits left of the last byte, and the window.
pub(super) struct Inflate {
    core: Box<DecompressorOxide>,
    /// The bytes that were decoded last, to which deflate may refer. The ring is filled up to `end`, and the bytes in
    /// `start..end` have not been given yet.
    ring: Box<[u8]>,
    start: usize,
    end: usize,
    boundary: Option<BlockBoundaryState>,
    is_done: bool,
    place: Place,
    /// The number of bytes that were ever decoded, or taken over from a checkpoint, up to the window's size.
    window_bytes: usize,
}

impl Inflate {
    pub(super) fn new(from: Option<&Checkpoint>) -> Result<Self, String> {
        let mut inflate = Self {
            core: Box::default(),
            ring: vec![0; RING_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            boundary: None,
            is_done: false,
            place: Place::of(from),
            window_bytes: 0,
        };
        if let Some(from) = from {
            inflate.resume(&State::read(&from.state)?);
        }
        Ok(inflate)
    }

    fn resume(&mut self, state: &State) {
        let State { num_bits, bit_buf, ref window } = *state;
        let boundary = BlockBoundaryState { num_bits, bit_buf, ..Default::default() };
        *self.core = DecompressorOxide::from_block_boundary_state(&boundary);
        self.boundary = Some(boundary);
        if let Some(ring) = self.ring.get_mut(..window.len()) {
            ring.copy_from_slice(window);
        }
        self.window_bytes = window.len();
        self.start = window.len();
        self.end = window.len();
    }

    /// The state of a checkpoint here.
    pub(super) fn state(&self) -> Option<Vec<u8>> {
        let boundary = self.boundary.as_ref().filter(|_| self.is_at_boundary())?;
        let mut window = Vec::with_capacity(self.window_bytes);
        let before = self.window_bytes.saturating_sub(self.end);
        window.extend_from_slice(self.ring.get(RING_BYTES.saturating_sub(before)..)?);
        let behind = self.end.saturating_sub(self.window_bytes);
        window.extend_from_slice(self.ring.get(behind..self.end)?);
        let state = State { num_bits: boundary.num_bits, bit_buf: boundary.bit_buf, window };
        state.write()
    }

    pub(super) fn is_at_boundary(&self) -> bool {
        self.boundary.is_some() && self.start == self.end
    }

    fn give(&mut self, step: &mut Step) {
        let pending = self.ring.get(self.start..self.end).unwrap_or_default();
        self.start = self.start.saturating_add(step.copy(pending));
    }

    /// Decodes as many bytes as the ring takes. Returns false if more input is needed.
    fn advance(&mut self, step: &mut Step) -> Result<bool, String> {
        if self.end == RING_BYTES {
            (self.start, self.end) = (0, 0);
        }
        let flags = TINFL_FLAG_HAS_MORE_INPUT | TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY;
        let (status, taken, given) =
            decompress(&mut self.core, step.rest(), &mut self.ring, self.end, flags);
        step.take(taken);
        self.end = self.end.saturating_add(given).min(RING_BYTES);
        self.window_bytes = self.window_bytes.saturating_add(given).min(WINDOW_BYTES);
        self.boundary = None;
        match status {
            Status::Done => self.is_done = true,
            Status::BlockBoundary => self.boundary = self.core.block_boundary_state(),
            Status::HasMoreOutput => {}
            Status::NeedsMoreInput => return Ok(given > 0),
            Status::FailedCannotMakeProgress => return Err(ENDS_EARLY.to_owned()),
            _ => return Err("the deflate stream is damaged".to_owned()),
        }
        Ok(true)
    }
}

impl Inflate {
    /// Makes one step for the stream around this one, and shows `check` the decoded bytes. Returns true if the deflate
    /// stream has ended.
    pub(super) fn step(
        &mut self,
        step: &mut Step,
        is_last: bool,
        check: impl FnOnce(&[u8]),
    ) -> Result<bool, String> {
        let rest = step.rest();
        let room = step.room();
        let did = self.decode(rest, room, is_last)?;
        check(room.get(..did.given).unwrap_or_default());
        step.take(did.taken);
        step.give(did.given);
        Ok(did.is_end)
    }
}

impl Decoder for Inflate {
    fn decode(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        is_last: bool,
    ) -> Result<Progress, DecodeError> {
        let mut step = Step::new(input, output);
        let mut is_starved = false;
        loop {
            self.give(&mut step);
            let is_pending = self.start < self.end;
            let is_new_boundary = self.boundary.is_some() && step.done != Progress::default();
            if is_pending || self.is_done || is_new_boundary || step.room().is_empty() {
                break;
            }
            if !self.advance(&mut step)? {
                is_starved = true;
                break;
            }
        }
        step.done.is_end = self.is_done && self.start == self.end;
        self.place.pass(step.done);
        if is_starved { step.starved(is_last) } else { Ok(step.done) }
    }

    fn checkpoint(&self) -> Option<Checkpoint> {
        self.state().map(|state| self.place.checkpoint(&state))
    }
}

/// The state of the decoder between two blocks.
pub(super) struct State {
    /// The number of bits of the last byte taken that belong to the next block …
    pub(super) num_bits: u8,
    /// … and these bits.
    pub(super) bit_buf: u8,
    /// The last bytes decoded before, up to 32 KiB.
    pub(super) window: Vec<u8>,
}

impl State {
    /// `num_bits | bit_buf | zstd frame of the window`
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let foreign = || FOREIGN_CHECKPOINT.to_owned();
        let [num_bits @ 0..=7, bit_buf, packed @ ..] = bytes else { return Err(foreign()) };
        let window = ::zstd::bulk::decompress(packed, WINDOW_BYTES).map_err(|_| foreign())?;
        Ok(Self { num_bits: *num_bits, bit_buf: *bit_buf, window })
    }

    fn write(&self) -> Option<Vec<u8>> {
        let packed = ::zstd::bulk::compress(&self.window, 3).ok()?;
        let mut bytes = vec![self.num_bits, self.bit_buf];
        bytes.extend_from_slice(&packed);
        Some(bytes)
    }
}
