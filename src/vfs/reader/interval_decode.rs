//! Decoding of one interval of an encoding, on a thread that may be busy for long.

use super::pieces::Pieces;
use crate::catalog::Located;
use crate::format::{Decoder, Fault};
use crate::io::Buffer;
use crate::vfs::checkpoints::{Checkpoints, Interval};
use crate::vfs::memory::verified::Verified;
use crate::vfs::samples::{Samples, no_memory};
use crate::vfs::span::Span;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What intervals are of.
#[derive(Clone)]
pub(super) enum IntervalSource {
    /// A sample that is encoded by itself.
    Sample(Arc<Checkpoints>),
    /// A compressed container.
    Container,
}

/// An interval that was fetched, and what came of decoding it.
pub(super) struct IntervalDecode {
    pub(super) source: IntervalSource,
    pub(super) number: u64,
    pub(super) pieces: Box<Pieces>,
    pub(super) samples: Arc<Samples>,
    pub(super) decoded: Result<Verified, Fault>,
}

impl IntervalDecode {
    /// Decodes the bytes in `span`.
    pub(super) fn run(&mut self, located: &Located, span: &Span) {
        let decoded = catch_unwind(AssertUnwindSafe(|| self.decode(located, span)));
        self.decoded = decoded
            .unwrap_or_else(|_| Err(structure("the decoder failed; please report this".into())));
    }

    fn decode(&self, located: &Located, span: &Span) -> Result<Verified, Fault> {
        let none = || structure("no such interval".into());
        let container = self.samples.container(located);
        let (range, buffer) = match &self.source {
            IntervalSource::Sample(checkpoints) => {
                let interval = checkpoints.interval(self.number).ok_or_else(none)?;
                let mut buffer = buffer_for(&interval.decoded)?;
                self.resume(located, span, interval, buffer.as_mut_slice()).map_err(structure)?;
                (interval.decoded.clone(), buffer)
            }
            IntervalSource::Container => {
                let stream = container.intervals(located.index).ok_or_else(none)?;
                let interval = stream.nth(self.number).ok_or_else(none)?;
                let mut buffer = buffer_for(&interval.decoded)?;
                let out = &mut buffer.as_mut_slice()[..length(&interval.decoded)];
                stream.decode(self.number, span.bytes(), out).map_err(structure)?;
                (interval.decoded, buffer)
            }
        };
        Ok(Verified::made(buffer, 0..length(&range)))
    }

    /// Decodes from a checkpoint of a sample that is encoded by itself.
    fn resume(
        &self,
        located: &Located,
        span: &Span,
        interval: &Interval,
        buffer: &mut [u8],
    ) -> Result<(), String> {
        let out = &mut buffer[..length(&interval.decoded)];
        let container = self.samples.container(located);
        let decoder = container.decoder(located.index, interval.from.as_ref());
        let mut decoder = decoder
            .map_err(|error| error.to_string())?
            .ok_or_else(|| "it cannot be decoded in parts".to_owned())?;
        let is_last = span.range().end == located.sample.extent().end;
        fill(decoder.as_mut(), span.bytes(), out, is_last)?;
        match crc32fast::hash(out) == interval.crc32 {
            true => Ok(()),
            false => Err("an interval that was decoded again has changed".to_owned()),
        }
    }
}

fn structure(why: String) -> Fault {
    Fault::Structure(why)
}

fn length(range: &Range<u64>) -> usize {
    (range.end - range.start) as usize
}

fn buffer_for(range: &Range<u64>) -> Result<Buffer, Fault> {
    Buffer::with_capacity(length(range)).map_err(|error| no_memory(&error))
}

/// Decodes until `out` is full.
fn fill(
    decoder: &mut dyn Decoder,
    mut input: &[u8],
    mut out: &mut [u8],
    is_last: bool,
) -> Result<(), String> {
    while !out.is_empty() {
        let progress = decoder.decode(input, out, is_last)?;
        if progress.taken == 0 && progress.given == 0 {
            return Err("the encoding ends early".to_owned());
        }
        input = input.get(progress.taken..).unwrap_or_default();
        out = out.get_mut(progress.given..).unwrap_or_default();
    }
    Ok(())
}
