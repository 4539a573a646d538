//! The places of the intervals of an encoding, and the decoding of an interval, on a thread that may be busy for long.

use super::pieces::Pieces;
use crate::catalog::Located;
use crate::format::stream::Interval;
use crate::format::{Container, Decoder, Fault};
use crate::io::Buffer;
use crate::vfs::checkpoints::{self, Checkpoints};
use crate::vfs::memory::verified::Verified;
use crate::vfs::samples::Samples;
use crate::vfs::span::Span;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The source of intervals.
#[derive(Clone)]
pub(super) enum IntervalSource {
    /// A sample that is encoded by itself.
    Sample(Arc<Checkpoints>),
    /// A compressed container.
    Container,
}

/// An interval that was fetched, and the result of decoding it.
pub(super) struct IntervalDecode {
    pub(super) source: IntervalSource,
    pub(super) number: u64,
    pub(super) pieces: Box<Pieces>,
    pub(super) samples: Arc<Samples>,
    pub(super) decoded: Result<Verified, Fault>,
}

/// The stored bytes that are fetched behind an interval: it can end within a byte, and decoders look a little ahead.
const SLACK_BYTES: u64 = 16;

/// The place of an interval.
pub(super) struct Place {
    /// The stored bytes, as a range of the part.
    pub(super) stored: Range<u64>,
    /// The range of the decoded bytes.
    pub(super) decoded: Range<u64>,
}

impl Place {
    /// The memory for decoding the interval, in bytes: decoders copy stored and decoded bytes, with a window before them.
    pub(super) fn memory_bytes(&self) -> u64 {
        2 * (length(&self.stored) + length(&self.decoded)) as u64
    }

    /// Returns the place of an interval of a compressed container.
    pub(super) fn in_container(samples: &Samples, located: &Located, interval: Interval) -> Self {
        let base = samples.dataset().base_of(located.container);
        let Interval { stored, decoded, .. } = interval;
        Self { stored: base + stored.start..base + stored.end, decoded }
    }
}

impl IntervalSource {
    /// Returns the place of interval `number`; `None` if there is no such interval.
    pub(super) fn place(&self, samples: &Samples, located: &Located, number: u64) -> Option<Place> {
        match self {
            IntervalSource::Sample(checkpoints) => {
                let interval = checkpoints.interval(number)?;
                let (at, first) = (located.sample, located.sample.offset_bytes);
                let last = (interval.stored.end + SLACK_BYTES).min(at.length_bytes);
                let stored = first + interval.stored.start..first + last;
                Some(Place { stored, decoded: interval.decoded.clone() })
            }
            IntervalSource::Container => {
                let stream = samples.container(located).intervals(located.index)?;
                Some(Place::in_container(samples, located, stream.nth(number)?))
            }
        }
    }

    /// Decodes the interval `number`, whose stored bytes lie in `span`.
    pub(super) fn decode(
        &self,
        samples: &Samples,
        located: &Located,
        number: u64,
        span: &Span,
    ) -> Result<Verified, Fault> {
        let decode = || self.decode_unguarded(samples, located, number, span);
        let decoded = catch_unwind(AssertUnwindSafe(decode));
        decoded.unwrap_or_else(|_| Err(structure("the decoder failed; please report this".into())))
    }

    fn decode_unguarded(
        &self,
        samples: &Samples,
        located: &Located,
        number: u64,
        span: &Span,
    ) -> Result<Verified, Fault> {
        let none = || structure("no such interval".into());
        let container = samples.container(located);
        let (range, buffer) = match self {
            IntervalSource::Sample(checkpoints) => {
                let interval = checkpoints.interval(number).ok_or_else(none)?;
                let mut buffer = buffer_for(&interval.decoded)?;
                resume(container, located, span, interval, buffer.as_mut_slice())
                    .map_err(structure)?;
                (interval.decoded.clone(), buffer)
            }
            IntervalSource::Container => {
                let stream = container.intervals(located.index).ok_or_else(none)?;
                let interval = stream.nth(number).ok_or_else(none)?;
                let mut buffer = buffer_for(&interval.decoded)?;
                let out = &mut buffer.as_mut_slice()[..length(&interval.decoded)];
                stream.decode(number, span.bytes(), out)?;
                samples.decoded_again(located, &interval, out)?;
                (interval.decoded, buffer)
            }
        };
        Ok(Verified::made(buffer, 0..length(&range)))
    }
}

impl IntervalDecode {
    /// Decodes the bytes in `span`.
    pub(super) fn run(&mut self, located: &Located, span: &Span) {
        self.decoded = self.source.decode(&self.samples, located, self.number, span);
        self.samples.stats().interval_decoded(false);
    }
}

/// Decodes from a checkpoint of a sample that is encoded by itself.
fn resume(
    container: &dyn Container,
    located: &Located,
    span: &Span,
    interval: &checkpoints::Interval,
    buffer: &mut [u8],
) -> Result<(), String> {
    let out = &mut buffer[..length(&interval.decoded)];
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

fn structure(why: String) -> Fault {
    Fault::Structure(why)
}

fn length(range: &Range<u64>) -> usize {
    (range.end - range.start) as usize
}

fn buffer_for(range: &Range<u64>) -> Result<Buffer, Fault> {
    Buffer::with_capacity(length(range)).map_err(|_| Fault::no_memory())
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
