//! Checks samples without delivering their bytes.
//!
//! Each interval of a compressed stream is decoded once, however many samples lie in it. Imports the reader of single
//! samples and of spans.

use super::samples::{Hashing, SampleReader, reserve};
use super::together::{Checked, check_extent, decoded_bytes, extent_of, place_in};
use super::types::{Scratch, Stop};
use crate::catalog::Located;
use crate::failure::Failure;
use crate::format::checksum::ChecksumKind;
use crate::format::stream::Intervals;
use crate::format::{Checksum, Fault, shown};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The checksum of a sample's bytes in its container, if it was computed.
pub(crate) type CheckedSample = Result<Option<Checksum>, Fault>;

/// Checks the samples of open containers.
pub(crate) struct SampleChecker<'a> {
    reader: SampleReader<'a>,
    /// The checksum to compute, in addition to the sample's own.
    wanted: Option<ChecksumKind>,
    /// The results for intervals of streams, by container and number.
    intervals: Mutex<HashMap<(usize, u64), Result<(), Fault>>>,
}

impl<'a> SampleChecker<'a> {
    pub(crate) fn new(reader: SampleReader<'a>, wanted: Option<ChecksumKind>) -> Self {
        Self { reader, wanted, intervals: Mutex::default() }
    }

    /// Checks the samples of a span.
    ///
    /// # Errors
    /// The user has interrupted the work.
    pub(crate) fn check_span(
        &self,
        span: &[Located],
        scratch: &mut Scratch,
    ) -> Result<Vec<CheckedSample>, Failure> {
        let Some(first) = span.first() else { return Ok(Vec::new()) };
        if let Some(stream) = self.reader.container(first).intervals(first.index) {
            let each = span.iter().map(|one| match (self.wanted, one.sample.checksum) {
                (None, None) => self.check_in_stream(stream, one, scratch),
                _ => self.hash_in_stream(one, scratch),
            });
            return each.collect();
        }
        let range = extent_of(span);
        let length = (range.end - range.start) as usize;
        let most_decoded = span.iter().map(|one| decoded_bytes(&one.sample)).max();
        if span.len() > 1 {
            let room = reserve(&mut scratch.buffer, length + most_decoded.unwrap_or(0));
            let fetch = |()| {
                let target = &mut scratch.buffer.as_mut_slice()[..length];
                self.reader.fetch(first, target, range.start)
            };
            if room.and_then(fetch).is_ok() {
                return self.check_in_memory(span, range.start, length, scratch);
            }
            // One sample may be unreadable, or there is memory for one only: each is read without the others.
        }
        span.iter().map(|one| self.check_one(one, scratch)).collect()
    }

    fn check_in_memory(
        &self,
        span: &[Located],
        start: u64,
        length: usize,
        scratch: &mut Scratch,
    ) -> Result<Vec<CheckedSample>, Failure> {
        let range = start..start + length as u64;
        let mut other = Scratch::default();
        let (extents, free) = scratch.buffer.as_mut_slice().split_at_mut(length);
        let each = span.iter().map(|one| {
            let extent = &extents[place_in(&range, &one.sample)];
            let decoded = &mut free[..decoded_bytes(&one.sample)];
            let container = self.reader.container(one);
            match check_extent(container, one, extent, decoded, self.wanted) {
                Ok(Checked::Here(found)) => Ok(Ok(found)),
                Ok(Checked::Elsewhere) => self.check_one(one, &mut other),
                Err(fault) => Ok(Err(fault)),
            }
        });
        each.collect()
    }

    /// Checks one sample of any size in bounded memory.
    pub(crate) fn check_one(
        &self,
        located: &Located,
        scratch: &mut Scratch,
    ) -> Result<CheckedSample, Failure> {
        match self.reader.check_held(located, scratch, self.wanted) {
            Ok(found) => Ok(Ok(found)),
            Err(Stop::Bad(fault)) => Ok(Err(fault)),
            Err(Stop::Failed(failure)) => Err(failure),
        }
    }

    /// Reads a sample in a compressed stream, which compares the checksum that it has, and computes the one that is wanted.
    fn hash_in_stream(
        &self,
        located: &Located,
        scratch: &mut Scratch,
    ) -> Result<CheckedSample, Failure> {
        let mut hashing = Hashing::new(None, self.wanted);
        let read = self.reader.stream(located, scratch, &mut |chunk| {
            hashing.update(&chunk);
            Ok(())
        });
        match read {
            Ok(()) => Ok(hashing.finish()),
            Err(Stop::Bad(fault)) => Ok(Err(fault)),
            Err(Stop::Failed(failure)) => Err(failure),
        }
    }

    /// Checks the intervals that contain a sample.
    fn check_in_stream(
        &self,
        stream: &dyn Intervals,
        located: &Located,
        scratch: &mut Scratch,
    ) -> Result<CheckedSample, Failure> {
        let container = self.reader.container(located);
        if let Err(fault) = shown::refuse_damaged(container, located.index, &located.sample) {
            return Ok(Err(fault));
        }
        let mut at = 0;
        loop {
            let piece = match container.piece(located.index, at) {
                Ok(Some(piece)) => piece,
                Ok(None) => return Ok(Ok(None)),
                Err(error) => return Ok(Err(error.into())),
            };
            let end = piece.offset_bytes.saturating_add(piece.length_bytes);
            let mut offset = piece.offset_bytes;
            while offset < end {
                let Some(interval) = stream.interval(offset) else {
                    return Ok(Err(Fault::Damaged));
                };
                offset = interval.decoded.end;
                let key = (located.container, interval.number);
                let known = || self.intervals.lock().unwrap_or_else(PoisonError::into_inner);
                let earlier = known().get(&key).cloned();
                let result = match earlier {
                    Some(result) => result,
                    None => {
                        self.reader.interrupt.check()?;
                        let read = self.reader.interval(located, stream, &interval, scratch);
                        let result = read.map(drop);
                        // Memory may be there for the next sample.
                        if !matches!(result, Err(Fault::Lacking(_))) {
                            known().insert(key, result.clone());
                        }
                        result
                    }
                };
                if let Err(fault) = result {
                    return Ok(Err(fault));
                }
            }
            at = piece.at_bytes.saturating_add(piece.length_bytes);
        }
    }
}
