//! LZMA as zip's method 14 has it (APPNOTE 5.8): two bytes of version, two bytes length of the properties
//! (5), a byte lc/lp/pb, the dictionary's size in four bytes, then LZMA1 with or without an end marker.

use super::{ENDS_EARLY, FOREIGN_CHECKPOINT, MAX_WINDOW_BYTES, Step, fill};
use crate::format::{Checkpoint, DecodeError, Decoder, Progress};
use liblzma::stream::{Action, Error, Status, Stream};

const HEAD_BYTES: usize = 9;
/// Memory that liblzma needs beside the dictionary.
const OWN_BYTES: u64 = 1 << 20;

/// Decodes all of `input`. A window larger than the output is never needed, so hostile claims cost no memory.
pub(super) fn decode(input: &[u8], out: &mut [u8]) -> Result<(), String> {
    let size_bytes = Some(out.len() as u64);
    fill(&mut Lzma { size_bytes, ..Lzma::new(None)? }, input, out)
}

pub(super) struct Lzma {
    core: Option<Stream>,
    head: Vec<u8>,
    /// The number of all decoded bytes, if it is known.
    size_bytes: Option<u64>,
    is_done: bool,
}

impl Lzma {
    pub(super) fn new(from: Option<&Checkpoint>) -> Result<Self, String> {
        match from {
            None => Ok(Self { core: None, head: Vec::new(), size_bytes: None, is_done: false }),
            Some(_) => Err(FOREIGN_CHECKPOINT.to_owned()),
        }
    }

    /// Begins with a header as `.lzma` files have it; it says "unknown" if the size is not known.
    fn begin(&self) -> Result<Stream, String> {
        let [_, _, 5, 0, flags, dictionary @ ..] = self.head.as_slice() else {
            return Err("this is not an LZMA header as zip stores it".to_owned());
        };
        let mut dictionary = dictionary.first_chunk().map_or(0, |&b| u32::from_le_bytes(b));
        if let Some(size) = self.size_bytes {
            dictionary = dictionary.min(u32::try_from(size).unwrap_or(u32::MAX).max(4096));
        }
        let mut head = vec![*flags];
        head.extend_from_slice(&dictionary.to_le_bytes());
        head.extend_from_slice(&self.size_bytes.unwrap_or(u64::MAX).to_le_bytes());
        let memory_bytes = MAX_WINDOW_BYTES.saturating_add(OWN_BYTES);
        let mut core = Stream::new_lzma_decoder(memory_bytes).map_err(|e| damaged(&e))?;
        // Without room for output, liblzma would not even read the header.
        core.process(&head, &mut [0], Action::Run).map_err(|e| damaged(&e))?;
        Ok(core)
    }
}

impl Decoder for Lzma {
    fn decode(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        is_last: bool,
    ) -> Result<Progress, DecodeError> {
        let mut step = Step::new(input, output);
        while self.head.len() < HEAD_BYTES {
            let Some(byte) = step.take_byte() else { return step.starved(is_last) };
            self.head.push(byte);
        }
        let mut core = match self.core.take() {
            Some(core) => core,
            None => self.begin()?,
        };
        if !self.is_done {
            let rest = step.rest();
            let did = process(&mut core, rest, step.room())?;
            step.take(did.taken);
            step.give(did.given);
            self.is_done = did.is_end;
        }
        self.core = Some(core);
        step.done.is_end = self.is_done;
        let is_stuck = step.done == Progress::default() && !step.output.is_empty();
        // Without an end marker and a known size, the stream ends where the input ends.
        if is_stuck && is_last && self.size_bytes.is_none() && step.rest().is_empty() {
            step.done.is_end = true;
        }
        if is_stuck && is_last && self.size_bytes.is_some() {
            return Err(ENDS_EARLY.into());
        }
        Ok(step.done)
    }

    fn checkpoint(&self) -> Option<Checkpoint> {
        None
    }
}

/// One call of liblzma.
pub(super) fn process(
    core: &mut Stream,
    input: &[u8],
    output: &mut [u8],
) -> Result<Progress, String> {
    let before = (core.total_in(), core.total_out());
    let status = core.process(input, output, Action::Run).map_err(|e| damaged(&e))?;
    let length = |now: u64, before: u64| usize::try_from(now.saturating_sub(before)).unwrap_or(0);
    Ok(Progress {
        taken: length(core.total_in(), before.0),
        given: length(core.total_out(), before.1),
        is_end: status == Status::StreamEnd,
    })
}

fn damaged(error: &Error) -> String {
    match error {
        Error::MemLimit => {
            format!("the stream needs a dictionary of more than {} MiB", MAX_WINDOW_BYTES >> 20)
        }
        Error::Options => "the stream uses filters or options that are not supported".to_owned(),
        _ => format!("the stream cannot be decoded: {error}"),
    }
}
