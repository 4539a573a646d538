//! Reads one sample of any size, chunk by chunk, in bounded memory.
//!
//! Imports the types of this directory. `together.rs` reads spans of samples, `check.rs` only checks.

use super::types::{Chunk, DecodedInterval, SPAN_BYTES, Scratch, Stop, TakeChunk};
use crate::catalog::Located;
use crate::dataset::{self, Opened};
use crate::format::checksum::{ChecksumKind, Hasher};
use crate::format::counted;
use crate::format::stream::{Interval, Intervals};
use crate::format::{Checksum, Container, Content, Fault, shown};
use crate::interrupt::Interrupt;
use crate::io::Buffer;
use std::ops::Range;

/// The maximum size that is decoded as a whole, if an encoding cannot be decoded step by step.
const MAX_DECODED_BYTES: u64 = 1 << 30;

/// Reads the samples of open containers.
#[derive(Clone, Copy)]
pub(crate) struct SampleReader<'a> {
    pub(super) opened: &'a Opened,
    pub(super) interrupt: &'a Interrupt,
}

/// Checksums of a sample's bytes in its container, updated chunk by chunk.
pub(super) struct Hashing {
    expected: Option<(Checksum, Hasher)>,
    /// A checksum that is wanted in addition to the expected one.
    other: Option<Hasher>,
}

impl Hashing {
    /// Compares with `expected`, and computes the checksum `wanted`.
    pub(super) fn new(expected: Option<Checksum>, wanted: Option<ChecksumKind>) -> Self {
        let other = wanted.filter(|kind| expected.is_none_or(|stored| stored.kind() != *kind));
        Self {
            expected: expected.map(|expected| (expected, expected.hasher())),
            other: other.map(Hasher::new),
        }
    }

    /// Adds a chunk. Holes are not stored, and do not count in the checksum.
    pub(super) fn update(&mut self, chunk: &Chunk) {
        let Chunk::Data(bytes) = chunk else { return };
        let hashers = self.expected.iter_mut().map(|(_, hasher)| hasher).chain(&mut self.other);
        hashers.for_each(|hasher| hasher.update(bytes));
    }

    /// The wanted checksum, or else the expected one; an error if the bytes do not match that.
    pub(super) fn finish(self) -> Result<Option<Checksum>, Fault> {
        let other = self.other.map(Hasher::finish);
        let Some((expected, hasher)) = self.expected else { return Ok(other) };
        expected.compare(hasher.finish())?;
        Ok(other.or(Some(expected)))
    }
}

impl<'a> SampleReader<'a> {
    pub(crate) fn new(opened: &'a Opened, interrupt: &'a Interrupt) -> Self {
        Self { opened, interrupt }
    }

    pub(super) fn container(&self, located: &Located) -> &'a dyn Container {
        self.opened.dataset.containers()[located.container].as_ref()
    }

    /// Reads `target` from an offset of the sample's part.
    pub(super) fn fetch(
        &self,
        located: &Located,
        target: &mut [u8],
        offset_bytes: u64,
    ) -> Result<(), Fault> {
        let length = target.len();
        let read = self.opened.store.part(located.part).read(target, offset_bytes, length);
        read.map_err(|error| error.fault())
    }

    /// Logs that a sample is bad; without its path if that is empty.
    pub(crate) fn log_bad(&self, located: &Located, path: &[u8], fault: &Fault) {
        let container = self.opened.store.part(located.part).name();
        let (index, offset) = (located.index, located.sample.offset_bytes);
        let name = match path {
            [] => String::new(),
            path => format!(" ({})", String::from_utf8_lossy(path)),
        };
        tracing::error!("{container}: sample {index}{name} at byte {offset}: {fault}");
    }

    /// The exact place of a sample, after its header bytes are checked.
    fn exact(&self, located: &Located) -> Result<Located, Fault> {
        shown::refuse_damaged(self.container(located), located.index, &located.sample)?;
        Ok(dataset::exact(&self.opened.dataset, &self.opened.store, located)?)
    }

    /// Passes the file of a sample to `take` chunk by chunk. Only the result says whether the bytes were right.
    pub(crate) fn stream(
        &self,
        located: &Located,
        scratch: &mut Scratch,
        take: &mut TakeChunk,
    ) -> Result<(), Stop> {
        let mut hashing = Hashing::new(located.sample.checksum, None);
        shown::refuse_damaged(self.container(located), located.index, &located.sample)?;
        if let Some(stream) = self.container(located).intervals(located.index) {
            self.in_stream(located, stream, scratch, &mut |chunk| {
                hashing.update(&chunk);
                take(chunk)
            })?;
            return Ok(hashing.finish().map(drop)?);
        }
        let located = self.exact(located)?;
        let prefix = shown::prefix(self.container(&located), located.index, &located.sample)?;
        if !prefix.is_empty() {
            take(Chunk::Data(&prefix))?;
        }
        if let Content::Sparse(size) = located.sample.content {
            self.pieces_of_part(&located, size, &mut hashing, scratch, take)?;
        } else {
            self.held(&located, scratch, &mut |chunk| {
                hashing.update(&chunk);
                take(chunk)
            })?;
        }
        Ok(hashing.finish().map(drop)?)
    }

    /// Passes on a file of pieces, and hashes all that is stored of it, with what stands between them.
    fn pieces_of_part(
        &self,
        located: &Located,
        size: u64,
        hashing: &mut Hashing,
        scratch: &mut Scratch,
        take: &mut TakeChunk,
    ) -> Result<(), Stop> {
        let container = self.container(located);
        let base = self.opened.dataset.base_of(located.container);
        let (mut stored_at, mut at) = (located.sample.offset_bytes, 0);
        while let Some(piece) = container.piece(located.index, at).map_err(Fault::from)? {
            let start = base.saturating_add(piece.offset_bytes);
            let end = piece.at_bytes.saturating_add(piece.length_bytes);
            if piece.at_bytes < at || start < stored_at || end <= at {
                return Err(Fault::Damaged.into());
            }
            self.range(located, stored_at..start, &mut scratch.buffer, &mut |between, _| {
                hashing.update(&Chunk::Data(between));
                Ok(())
            })?;
            if piece.at_bytes > at {
                take(Chunk::Hole(piece.at_bytes - at))?;
            }
            stored_at = start.saturating_add(piece.length_bytes);
            self.range(located, start..stored_at, &mut scratch.buffer, &mut |bytes, _| {
                hashing.update(&Chunk::Data(bytes));
                Ok(take(Chunk::Data(bytes))?)
            })?;
            at = end;
        }
        if at < size {
            take(Chunk::Hole(size - at))?;
        }
        self.range(
            located,
            stored_at..located.sample.end_bytes(),
            &mut scratch.buffer,
            &mut |behind, _| {
                hashing.update(&Chunk::Data(behind));
                Ok(())
            },
        )
    }

    /// Reads all bytes of a sample in its container, decoded if they are encoded, and compares their checksum. Returns
    /// the checksum `wanted`, or else the compared one.
    pub(super) fn check_held(
        &self,
        located: &Located,
        scratch: &mut Scratch,
        wanted: Option<ChecksumKind>,
    ) -> Result<Option<Checksum>, Stop> {
        let located = self.exact(located)?;
        let mut hashing = Hashing::new(located.sample.checksum, wanted);
        self.held(&located, scratch, &mut |chunk| {
            hashing.update(&chunk);
            Ok(())
        })?;
        Ok(hashing.finish()?)
    }

    /// Passes on the bytes of a sample in its container, decoded if they are encoded.
    fn held(
        &self,
        located: &Located,
        scratch: &mut Scratch,
        take: &mut TakeChunk,
    ) -> Result<(), Stop> {
        match located.sample.content {
            Content::Encoded(_) => self.decoded(located, scratch, take),
            Content::Stored | Content::Prefixed(_) | Content::Sparse(_) => {
                self.stored(located, &mut scratch.buffer, &mut |bytes, _| {
                    take(Chunk::Data(bytes)).map_err(Stop::Failed)
                })
            }
        }
    }

    /// Passes on the stored bytes of a sample; each slice says whether it is the last.
    fn stored(
        &self,
        located: &Located,
        buffer: &mut Buffer,
        take: &mut TakeStored,
    ) -> Result<(), Stop> {
        let at = located.sample;
        self.range(located, at.offset_bytes..at.end_bytes(), buffer, take)
    }

    /// Passes on a range of the part that a sample lies in; each slice says whether it is the last.
    fn range(
        &self,
        located: &Located,
        range: Range<u64>,
        buffer: &mut Buffer,
        take: &mut TakeStored,
    ) -> Result<(), Stop> {
        let mut at = range.start;
        reserve(buffer, range.end.saturating_sub(at).min(SPAN_BYTES) as usize)?;
        while at < range.end {
            self.interrupt.check()?;
            let length = (range.end - at).min(SPAN_BYTES);
            let target = &mut buffer.as_mut_slice()[..length as usize];
            self.fetch(located, target, at)?;
            at += length;
            take(target, at == range.end)?;
        }
        Ok(())
    }

    /// Decodes a sample step by step, or as a whole if its encoding or size requires that.
    fn decoded(
        &self,
        located: &Located,
        scratch: &mut Scratch,
        take: &mut TakeChunk,
    ) -> Result<(), Stop> {
        let (at, container) = (located.sample, self.container(located));
        let decoder = container.decoder(located.index, None).map_err(Fault::from)?;
        let Some(mut decoder) = decoder.filter(|_| at.size_bytes() > SPAN_BYTES) else {
            return self.decoded_at_once(located, scratch, take);
        };
        let (mut given, mut out) = (0, vec![0; SPAN_BYTES as usize]);
        self.stored(located, &mut scratch.buffer, &mut |mut bytes, is_last| {
            loop {
                let step = decoder.decode(bytes, &mut out, is_last).map_err(Fault::from)?;
                given += step.given as u64;
                bytes = &bytes[step.taken..];
                if given > at.size_bytes() {
                    let error = format!(
                        "more than the {} that it should be",
                        counted(at.size_bytes(), "byte")
                    );
                    return Err(Fault::Structure(error).into());
                }
                if step.given > 0 {
                    take(Chunk::Data(&out[..step.given]))?;
                }
                if step.is_end || (step.given < out.len() && bytes.is_empty()) {
                    return Ok(());
                }
                if step.given == 0 && step.taken == 0 {
                    return Err(Fault::Structure("the encoding ends early".into()).into());
                }
            }
        })?;
        match given < at.size_bytes() {
            true => {
                let error = format!("{} instead of {}", counted(given, "byte"), at.size_bytes());
                Err(Fault::Structure(error).into())
            }
            false => Ok(()),
        }
    }

    fn decoded_at_once(
        &self,
        located: &Located,
        scratch: &mut Scratch,
        take: &mut TakeChunk,
    ) -> Result<(), Stop> {
        let at = located.sample;
        if at.largest_bytes() > MAX_DECODED_BYTES {
            return Err(too_large(at.largest_bytes()).into());
        }
        let mut stored = zeros(at.length_bytes)?;
        self.fetch(located, &mut stored, at.offset_bytes)?;
        reserve(&mut scratch.buffer, at.size_bytes() as usize)?;
        let out = &mut scratch.buffer.as_mut_slice()[..at.size_bytes() as usize];
        shown::decode(self.container(located), located.index, &stored, out)?;
        Ok(take(Chunk::Data(out))?)
    }

    /// Passes on the file of a sample that lies in a compressed stream.
    fn in_stream(
        &self,
        located: &Located,
        stream: &dyn Intervals,
        scratch: &mut Scratch,
        take: &mut TakeChunk,
    ) -> Result<(), Stop> {
        let (size, container) = (located.sample.size_bytes(), self.container(located));
        match container.content_in_stream(located.index).map_err(Fault::from)? {
            Content::Stored | Content::Sparse(_) => {
                self.pieces(located, stream, 0..size, scratch, take)
            }
            Content::Prefixed(_) => {
                let prefix = container.prefix(located.index).map_err(Fault::from)?;
                take(Chunk::Data(&prefix))?;
                self.pieces(located, stream, prefix.len() as u64..size, scratch, take)
            }
            Content::Encoded(_) => {
                let range = container.piece(located.index, 0).map_err(Fault::from)?;
                let length = range.map_or(0, |range| range.length_bytes);
                if size.max(length) > MAX_DECODED_BYTES {
                    return Err(too_large(size.max(length)).into());
                }
                let (mut range, mut made) = (Vec::new(), zeros(size)?);
                range.try_reserve_exact(length as usize).map_err(|_| Fault::no_memory())?;
                self.pieces(located, stream, 0..length, scratch, &mut |chunk| {
                    if let Chunk::Data(bytes) = chunk {
                        range.extend_from_slice(bytes);
                    }
                    Ok(())
                })?;
                shown::decode_in_stream(container, located.index, &range, &mut made)?;
                Ok(take(Chunk::Data(&made))?)
            }
        }
    }

    /// Passes on a part of a file that consists of pieces of its container, or of the container's compressed stream.
    fn pieces(
        &self,
        located: &Located,
        stream: &dyn Intervals,
        part: Range<u64>,
        scratch: &mut Scratch,
        take: &mut TakeChunk,
    ) -> Result<(), Stop> {
        let container = self.container(located);
        let (mut at, size) = (part.start, part.end);
        while at < size {
            let piece = container.piece(located.index, at).map_err(Fault::from)?;
            let Some(piece) = piece.filter(|piece| piece.at_bytes < size) else {
                return Ok(take(Chunk::Hole(size - at))?);
            };
            if piece.at_bytes > at {
                take(Chunk::Hole(piece.at_bytes - at))?;
                at = piece.at_bytes;
            }
            let end = piece.at_bytes.saturating_add(piece.length_bytes).min(size);
            if end <= at {
                return Err(Fault::Damaged.into());
            }
            while at < end {
                self.interrupt.check()?;
                let offset = piece.offset_bytes + (at - piece.at_bytes);
                let length = (end - at).min(SPAN_BYTES);
                let interval = stream.interval(offset).ok_or(Fault::Damaged)?;
                let bytes = self.interval(located, stream, &interval, scratch)?;
                let from = (offset - interval.decoded.start) as usize;
                let bytes = &bytes[from..bytes.len().min(from + length as usize)];
                take(Chunk::Data(bytes))?;
                at += bytes.len() as u64;
            }
        }
        Ok(())
    }

    /// The decoded and checked bytes of an interval of a stream. The last interval is remembered, as the next sample
    /// usually lies in it.
    pub(super) fn interval<'s>(
        &self,
        located: &Located,
        stream: &dyn Intervals,
        interval: &Interval,
        scratch: &'s mut Scratch,
    ) -> Result<&'s [u8], Fault> {
        let (container, number) = (located.container, interval.number);
        if !scratch.intervals.touch((container, located.index), number) {
            let length = (interval.stored.end - interval.stored.start) as usize;
            let offset = self.opened.dataset.base_of(container) + interval.stored.start;
            reserve(&mut scratch.buffer, length)?;
            let stored = &mut scratch.buffer.as_mut_slice()[..length];
            self.fetch(located, stored, offset)?;
            let decoded = (interval.decoded.end - interval.decoded.start) as usize;
            let mut bytes =
                scratch.intervals.make_room((container, located.index), number, decoded);
            resize(&mut bytes, decoded)?;
            stream.decode(number, stored, &mut bytes)?;
            scratch.intervals.keep(DecodedInterval { container, number, bytes });
        }
        Ok(scratch.intervals.latest())
    }
}

/// Makes room for `bytes` bytes; the content may be lost.
pub(crate) fn reserve(buffer: &mut Buffer, bytes: usize) -> Result<(), Fault> {
    buffer.try_reserve(bytes).map_err(|_| Fault::no_memory())
}

fn zeros(length: u64) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    resize(&mut bytes, length as usize)?;
    Ok(bytes)
}

fn resize(bytes: &mut Vec<u8>, length: usize) -> Result<(), Fault> {
    let more = length.saturating_sub(bytes.len());
    bytes.try_reserve_exact(more).map_err(|_| Fault::no_memory())?;
    bytes.resize(length, 0);
    Ok(())
}

/// A sample that takes so many bytes of memory at once.
fn too_large(bytes: u64) -> Fault {
    let most = MAX_DECODED_BYTES >> 20;
    let why = format!(
        "decoding it takes {} MiB of memory at once, more than {most} MiB",
        bytes.div_ceil(1 << 20)
    );
    Fault::Lacking(why)
}

/// Takes stored bytes, and whether they are the last ones.
type TakeStored<'a> = dyn FnMut(&[u8], bool) -> Result<(), Stop> + 'a;
