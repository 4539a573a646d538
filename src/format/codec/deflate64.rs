//! Deflate64, zip's method 9.

use super::{FOREIGN_CHECKPOINT, Step};
use crate::format::{Checkpoint, DecodeError, Decoder, Progress};
use ::deflate64::InflaterManaged;

pub(super) struct Inflate64 {
    core: Box<InflaterManaged>,
}

impl Inflate64 {
    pub(super) fn new(from: Option<&Checkpoint>) -> Result<Self, String> {
        match from {
            None => Ok(Self { core: Box::new(InflaterManaged::new()) }),
            Some(_) => Err(FOREIGN_CHECKPOINT.to_owned()),
        }
    }
}

impl Decoder for Inflate64 {
    fn decode(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        is_last: bool,
    ) -> Result<Progress, DecodeError> {
        let mut step = Step::new(input, output);
        while !self.core.finished() && !step.room().is_empty() {
            let rest = step.rest();
            let did = self.core.inflate(rest, step.room());
            if did.data_error {
                return Err("the deflate64 stream is damaged".into());
            }
            step.take(did.bytes_consumed);
            step.give(did.bytes_written);
            if did.bytes_consumed == 0 && did.bytes_written == 0 && !self.core.finished() {
                return step.starved(is_last);
            }
        }
        step.done.is_end = self.core.finished();
        Ok(step.done)
    }

    fn checkpoint(&self) -> Option<Checkpoint> {
        None
    }
}
