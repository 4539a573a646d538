//! Reads the samples of one span: fetched with one read, checked in memory.
//!
//! Imports the types of this directory, and the reader of single samples.

use super::samples::{Hashing, SampleReader, reserve};
use super::types::{Chunk, FileBytes, Scratch, Stop, WholeFile};
use crate::catalog::Located;
use crate::failure::Failure;
use crate::format::checksum::ChecksumKind;
use crate::format::{Checksum, Container, Content, Fault, Sample, shown};
use std::ops::Range;

/// A sample whose extent was checked in memory.
pub(super) enum Checked {
    /// The bytes are right. Has their checksum if it was computed.
    Here(Option<Checksum>),
    /// The sample lies elsewhere; its container now knows the place.
    Elsewhere,
}

/// Checks a sample whose extent is in memory. An encoded sample is decoded to `decoded`. Returns the checksum `wanted`,
/// or else the compared one.
pub(super) fn check_extent(
    container: &dyn Container,
    located: &Located,
    extent: &[u8],
    decoded: &mut [u8],
    wanted: Option<ChecksumKind>,
) -> Result<Checked, Fault> {
    let at = located.sample;
    shown::refuse_damaged(container, located.index, &at)?;
    let (header, stored) = extent.split_at(at.header_bytes as usize);
    if !shown::check_header(container, located.index, header)? {
        return Ok(Checked::Elsewhere);
    }
    let held = match at.content {
        Content::Encoded(_) => {
            shown::decode(container, located.index, stored, decoded)?;
            &*decoded
        }
        Content::Stored | Content::Prefixed(_) | Content::Sparse(_) => stored,
    };
    let mut hashing = Hashing::new(at.checksum, wanted);
    hashing.update(&Chunk::Data(held));
    Ok(Checked::Here(hashing.finish()?))
}

/// The memory that checking a sample needs in addition to its extent.
pub(super) fn decoded_bytes(sample: &Sample) -> usize {
    match sample.content {
        Content::Encoded(size) => size as usize,
        Content::Stored | Content::Prefixed(_) | Content::Sparse(_) => 0,
    }
}

/// The memory that the file of a sample needs in addition to its extent.
fn made_bytes(sample: &Sample) -> usize {
    match sample.content {
        Content::Stored | Content::Sparse(_) => 0,
        Content::Prefixed(_) | Content::Encoded(_) => sample.size_bytes() as usize,
    }
}

/// The range of a part that contains a span.
pub(super) fn extent_of(span: &[Located]) -> Range<u64> {
    let start = span.iter().map(|l| l.sample.extent().start).min().unwrap_or_default();
    let end = span.iter().map(|l| l.sample.extent().end).max().unwrap_or(start);
    start..end
}

/// The place of a sample's extent in the memory with its span.
pub(super) fn place_in(span: &Range<u64>, sample: &Sample) -> Range<usize> {
    let extent = sample.extent();
    (extent.start - span.start) as usize..(extent.end - span.start) as usize
}

impl SampleReader<'_> {
    /// Reads the whole files of a span; their bytes are then in [`Scratch::buffer`].
    ///
    /// # Errors
    /// The user has interrupted the work.
    pub(crate) fn read_span(
        &self,
        span: &[Located],
        scratch: &mut Scratch,
    ) -> Result<Vec<Result<WholeFile, Fault>>, Failure> {
        let Some(first) = span.first() else { return Ok(Vec::new()) };
        if span.len() == 1 || self.container(first).intervals(first.index).is_some() {
            return span.iter().map(|located| self.read_one(located, scratch)).collect();
        }
        let range = extent_of(span);
        let length = (range.end - range.start) as usize;
        let made: usize = span.iter().map(|located| made_bytes(&located.sample)).sum();
        let room = reserve(&mut scratch.buffer, length + made);
        let fetch =
            |()| self.fetch(first, &mut scratch.buffer.as_mut_slice()[..length], range.start);
        if room.and_then(fetch).is_err() {
            // One sample may be unreadable, or there is memory for one only: each is read without the others.
            return span.iter().map(|located| self.read_one(located, scratch)).collect();
        }
        let (mut made, mut files) = (length, Vec::with_capacity(span.len()));
        let mut other = Scratch::default();
        for located in span {
            let place = place_in(&range, &located.sample);
            let memory = scratch.buffer.as_mut_slice();
            files.push(match self.file_in(located, place, &mut made, memory) {
                Ok(Some(file)) => Ok(file),
                // Needs a buffer of its own, as this one holds the other samples.
                Ok(None) => self.read_one(located, &mut other)?,
                Err(fault) => Err(fault),
            });
        }
        Ok(files)
    }

    /// The file of a sample whose extent is in `memory`. Bytes that must be computed from the extent are written after
    /// `made`. `None` if the sample lies elsewhere.
    fn file_in(
        &self,
        located: &Located,
        extent: Range<usize>,
        made: &mut usize,
        memory: &mut [u8],
    ) -> Result<Option<WholeFile>, Fault> {
        let (at, container) = (located.sample, self.container(located));
        let stored = extent.start + at.header_bytes as usize..extent.end;
        let out = *made..*made + made_bytes(&at);
        let (read, free) = memory.split_at_mut(*made);
        let free = &mut free[..out.len()];
        let checksum = match check_extent(container, located, &read[extent], free, None)? {
            Checked::Here(checksum) => checksum,
            Checked::Elsewhere => return Ok(None),
        };
        let (place, checksum) = match at.content {
            Content::Stored | Content::Sparse(_) => (stored, checksum),
            Content::Encoded(_) => (out, checksum),
            Content::Prefixed(_) => {
                let prefix = shown::prefix(container, located.index, &at)?;
                let (before, behind) = free.split_at_mut(prefix.len());
                before.copy_from_slice(&prefix);
                behind.copy_from_slice(&read[stored]);
                (out, None)
            }
        };
        *made = (*made).max(place.end);
        Ok(Some(WholeFile { bytes: FileBytes::InBuffer(place), checksum }))
    }

    fn read_one(
        &self,
        located: &Located,
        scratch: &mut Scratch,
    ) -> Result<Result<WholeFile, Fault>, Failure> {
        let mut bytes = Vec::new();
        let read = self.stream(located, scratch, &mut |chunk| {
            match chunk {
                Chunk::Data(data) => bytes.extend_from_slice(data),
                Chunk::Hole(length) => bytes.resize(bytes.len() + length as usize, 0),
            }
            Ok(())
        });
        match read {
            Ok(()) => Ok(Ok(WholeFile { bytes: FileBytes::Own(bytes), checksum: None })),
            Err(Stop::Bad(fault)) => Ok(Err(fault)),
            Err(Stop::Failed(failure)) => Err(failure),
        }
    }
}
