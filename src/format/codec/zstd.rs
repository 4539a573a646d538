//! zstd (RFC 8878) by the reference library. Checkpoints between frames.

use super::{FOREIGN_CHECKPOINT, MAX_WINDOW_BYTES, Place, Step};
use crate::format::counted;
use crate::format::{Checkpoint, DecodeError, Decoder, Progress};
use ::zstd::stream::raw::{DParameter, Decoder as Core, InBuffer, Operation, OutBuffer};

/// 1 << 27 is [`MAX_WINDOW_BYTES`].
const MAX_WINDOW_LOG: u32 = MAX_WINDOW_BYTES.trailing_zeros();

/// Decodes all frames at once: `out` is the window, whatever a frame claims.
pub(super) struct Whole(::zstd::bulk::Decompressor<'static>);

impl Whole {
    pub(super) fn new() -> Result<Self, String> {
        ::zstd::bulk::Decompressor::new().map(Self).map_err(|e| e.to_string())
    }

    pub(super) fn decode(&mut self, input: &[u8], out: &mut [u8]) -> Result<(), String> {
        let wanted = out.len();
        match self.0.decompress_to_buffer(input, out) {
            Ok(given) if given == wanted => Ok(()),
            Ok(given) => Err(format!("it ends after {given} of {}", counted(wanted, "byte"))),
            Err(e) => Err(damaged(&e)),
        }
    }
}

pub(super) struct Zstd {
    core: Core<'static>,
    /// Whether the decoder is between two frames, behind at least one, or at a checkpoint.
    is_between: bool,
    place: Place,
}

impl Zstd {
    pub(super) fn new(from: Option<&Checkpoint>) -> Result<Self, String> {
        if from.is_some_and(|from| !from.state.is_empty()) {
            return Err(FOREIGN_CHECKPOINT.to_owned());
        }
        let mut core = Core::new().map_err(|e| e.to_string())?;
        core.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG)).map_err(|e| e.to_string())?;
        Ok(Self { core, is_between: from.is_some(), place: Place::of(from) })
    }
}

impl Decoder for Zstd {
    fn decode(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        is_last: bool,
    ) -> Result<Progress, DecodeError> {
        if self.is_between && input.is_empty() {
            return Ok(Progress { is_end: is_last, ..Progress::default() });
        }
        let mut step = Step::new(input, output);
        let mut source = InBuffer::around(input);
        let mut target = OutBuffer::around(step.room());
        let hint = self.core.run(&mut source, &mut target).map_err(|e| damaged(&e))?;
        let (taken, given) = (source.pos(), target.pos());
        step.take(taken);
        step.give(given);
        if step.done == Progress::default() && !step.output.is_empty() {
            return step.starved(is_last);
        }
        self.is_between = hint == 0;
        self.place.pass(step.done);
        Ok(step.done)
    }

    fn checkpoint(&self) -> Option<Checkpoint> {
        self.is_between.then(|| self.place.checkpoint(&[]))
    }
}

fn damaged(error: &std::io::Error) -> String {
    match error.to_string() {
        text if text.contains("too much memory") => {
            format!("the zstd frame needs a window of more than {} MiB", MAX_WINDOW_BYTES >> 20)
        }
        text => format!("the zstd frame cannot be decoded: {text}"),
    }
}
