//! An open compressed file: samples are ranges of the decoded stream; or a container that is a compressed member of another
//! one, whose samples may be encoded once more in the decoded stream.

use super::examined::{Examined, is_range};
use super::inside::Inside;
use super::kept;
use crate::format::codec;
use crate::format::one_or_many;
use crate::format::stream::{INTERVAL_BYTES, Interval, Intervals, StreamIndex};
use crate::format::{
    Attributes, Checkpoint, Container, Content, Decoder, Error, Fault, IndexChecksum, Member,
    Names, Piece, Result, Sample, Source,
};
use std::sync::Arc;

/// An open compressed file.
pub(super) struct CompressedFile {
    format: &'static str,
    source: Arc<dyn Source>,
    stream: Arc<StreamIndex>,
    inside: Inside,
    /// The offset in the decoded stream at which the container begins.
    base_bytes: u64,
    examined: Examined,
    warnings: Vec<String>,
}

impl CompressedFile {
    /// A file whose stream is indexed, with the warnings about it.
    pub(super) fn new(
        format: &'static str,
        source: Arc<dyn Source>,
        stream: Arc<StreamIndex>,
        inside: Inside,
    ) -> Self {
        let mut warnings = Vec::new();
        let part = source.name();
        let behind = source.len().saturating_sub(stream.stored_bytes());
        if behind > 0 && !stream.is_cut() {
            warnings.push(format!(
                "{part}: {} ignored",
                one_or_many(
                    behind,
                    "byte after the end of the stream is",
                    "bytes after the end of the stream are"
                )
            ));
        }
        if stream.is_cut() {
            let (stored, decoded) = (stream.stored_bytes(), stream.decoded_bytes());
            let before = one_or_many(decoded, "byte before was", "bytes before were");
            warnings.push(format!(
                "{part}: the stream is cut: from byte {stored} on it cannot be decoded; {before} decoded, and could not all \
                 be checked"
            ));
        }
        // Samples in a stream are checked with the stream.
        let examined = Examined::all_good();
        warnings.extend_from_slice(inside.container().map_or(&[], Container::warnings));
        Self { format, source, stream, inside, base_bytes: 0, examined, warnings }
    }

    /// A container that begins at byte `base_bytes` of a decoded stream.
    pub(super) fn member(
        source: Arc<dyn Source>,
        stream: Arc<StreamIndex>,
        base_bytes: u64,
        (container, examined): (Box<dyn Container>, Examined),
    ) -> Self {
        let (format, warnings) = (container.format(), container.warnings().to_vec());
        let inside = Inside::Container(container);
        Self { format, source, stream, inside, base_bytes, examined, warnings }
    }

    fn malformed(&self, at: u64, expected: &str, found: String) -> Error {
        Error::Malformed {
            part: self.source.name().clone(),
            format: self.format,
            offset_bytes: at,
            expected: expected.to_owned(),
            found,
            hint: "",
        }
    }

    /// The sample as it lies in the decoded stream.
    fn inner(&self, index: u64) -> Result<Sample> {
        let sample = self.inside.sample(index)?;
        let mut sample =
            sample.ok_or_else(|| self.malformed(0, "sample 0 only", index.to_string()))?;
        sample.offset_bytes = sample.offset_bytes.saturating_add(self.base_bytes);
        if self.examined.bad.contains(&index) {
            sample = Sample {
                header_bytes: 0,
                damaged: true,
                length_bytes: sample.length_bytes.max(1),
                ..sample
            };
        }
        Ok(sample)
    }

    /// Decodes a sample that is encoded, or stands behind a prefix, in the decoded stream.
    fn decode_twice(
        &self,
        index: u64,
        inner: &Sample,
        stored: &[u8],
        out: &mut [u8],
    ) -> Result<()> {
        let wrong = |why| self.malformed(inner.offset_bytes, "a whole sample", why);
        let (Some((first, _)), Some(container)) = (self.intervals(inner), self.inside.container())
        else {
            return Err(wrong("nothing is stored of it".to_owned()));
        };
        let copy_to = |out: &mut [u8]| {
            self.decode_range(&first, stored, &mut |interval, bytes| {
                copy_common(bytes, interval.decoded.start, out, inner.offset_bytes);
            })
        };
        if let Content::Prefixed(_) = inner.content {
            let prefix = container.prefix(index)?;
            let (before, behind) = out.split_at_mut(prefix.len().min(out.len()));
            before.iter_mut().zip(&prefix).for_each(|(to, from)| *to = *from);
            return copy_to(behind).map_err(wrong);
        }
        let mut encoded = Vec::new();
        let length = usize::try_from(inner.length_bytes).unwrap_or(usize::MAX);
        encoded.try_reserve_exact(length).map_err(|_| self.no_memory(inner.offset_bytes))?;
        encoded.resize(length, 0);
        copy_to(&mut encoded).map_err(wrong)?;
        container.decode(index, &encoded, out)
    }

    fn no_memory(&self, offset_bytes: u64) -> Error {
        Error::Unreadable {
            part: self.source.name().clone(),
            what: "a sample that is encoded in it",
            offset_bytes,
            source: std::io::ErrorKind::OutOfMemory.into(),
        }
    }

    /// The first and the last interval that a range of the decoded stream lies in.
    fn intervals(&self, sample: &Sample) -> Option<(Interval, Interval)> {
        let last = sample.end_bytes().checked_sub(1)?;
        Some((self.stream.interval(sample.offset_bytes)?, self.stream.interval(last)?))
    }

    /// Memory that decoding a sample takes beside its stored and its shown bytes: the range that it is encoded in, and the
    /// bytes by which the first interval exceeds a usual one.
    fn scratch_bytes(&self, inner: &Sample, first: &Interval) -> u64 {
        if self.examined.has_ranges || is_range(inner.content) {
            return 0;
        }
        let interval = first.decoded.end.saturating_sub(first.decoded.start);
        let range = match inner.content {
            Content::Encoded(_) => inner.length_bytes.saturating_add(inner.scratch_bytes),
            _ => 0,
        };
        range.saturating_add(interval.saturating_sub(INTERVAL_BYTES))
    }

    /// Decodes the intervals from `first` on, one after the other; `stored` has their bytes.
    fn decode_range(
        &self,
        first: &Interval,
        stored: &[u8],
        each: &mut dyn FnMut(&Interval, &[u8]),
    ) -> Result<(), String> {
        let mut number = first.number;
        let mut at = 0_usize;
        while let Some(interval) = self.stream.nth(number).filter(|_| at < stored.len()) {
            let length = |range: &std::ops::Range<u64>| {
                usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX)
            };
            let end = at.saturating_add(length(&interval.stored));
            let bytes = stored.get(at..end).ok_or("the stored bytes end early")?;
            // At most MAX_INTERVAL_BYTES.
            let mut decoded = vec![0; length(&interval.decoded)];
            self.stream.decode(number, bytes, &mut decoded)?;
            each(&interval, &decoded);
            at = end;
            number = number.saturating_add(1);
        }
        Ok(())
    }
}

/// Copies the bytes that two ranges have in common: `from` lies at `from_at`, `to` at `to_at`.
pub(super) fn copy_common(from: &[u8], from_at: u64, to: &mut [u8], to_at: u64) {
    let start = from_at.max(to_at);
    let from_skip = usize::try_from(start.saturating_sub(from_at)).unwrap_or(usize::MAX);
    let to_skip = usize::try_from(start.saturating_sub(to_at)).unwrap_or(usize::MAX);
    if let (Some(from), Some(to)) = (from.get(from_skip..), to.get_mut(to_skip..)) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    }
}

impl Container for CompressedFile {
    fn format(&self) -> &'static str {
        self.format
    }

    fn len(&self) -> u64 {
        self.inside.len()
    }

    fn replaces_members(&self) -> bool {
        self.inside.container().is_some_and(Container::replaces_members)
    }

    /// The stored bytes are those of all intervals that the sample lies in.
    fn sample(&self, index: u64) -> Result<Sample> {
        let inner = self.inner(index)?;
        let content = Content::Encoded(inner.size_bytes());
        let is_range = matches!(inner.content, Content::Stored | Content::Sparse(_));
        // A checksum covers only the bytes behind a prefix; the check would cover all bytes of the file.
        let is_prefixed = matches!(inner.content, Content::Prefixed(_));
        let checksum = inner.checksum.filter(|_| !is_prefixed);
        if inner.damaged || inner.length_bytes == 0 && !matches!(inner.content, Content::Sparse(_))
        {
            return Ok(Sample { offset_bytes: 0, checksum, ..inner });
        }
        let Some((first, last)) = self.intervals(&inner) else {
            // A sparse file of holes alone has no stored bytes; the data of any other sample are not all there.
            let damaged = inner.length_bytes > 0 || !is_range;
            return Ok(Sample {
                offset_bytes: 0,
                length_bytes: u64::from(damaged),
                damaged,
                content,
                ..inner
            });
        };
        let length_bytes = last.stored.end.saturating_sub(first.stored.start);
        let scratch_bytes = self.scratch_bytes(&inner, &first);
        Ok(Sample {
            offset_bytes: first.stored.start,
            length_bytes,
            checksum,
            content,
            scratch_bytes,
            ..inner
        })
    }

    fn check_unchanged(&self) -> std::io::Result<()> {
        self.source.check_unchanged()
    }

    fn index_is_fixed(&self) -> bool {
        true
    }

    fn data_bytes(&self) -> u64 {
        self.inside.data_bytes()
    }

    fn decode(&self, index: u64, stored: &[u8], out: &mut [u8]) -> Result<()> {
        let inner = self.inner(index)?;
        if matches!(inner.content, Content::Encoded(_) | Content::Prefixed(_)) {
            return self.decode_twice(index, &inner, stored, out);
        }
        out.fill(0);
        let Some((first, _)) = self.intervals(&inner) else { return Ok(()) };
        // All pieces before this offset of the file were copied.
        let mut at = 0;
        let mut failed = None;
        let decoded = self.decode_range(&first, stored, &mut |interval, bytes| {
            while let Some(piece) = self.piece(index, at).unwrap_or_else(|e| {
                failed = Some(e);
                None
            }) {
                if piece.offset_bytes >= interval.decoded.end {
                    break;
                }
                let start = usize::try_from(piece.at_bytes).unwrap_or(usize::MAX);
                let length = usize::try_from(piece.length_bytes).unwrap_or(usize::MAX);
                let end = start.saturating_add(length).min(out.len());
                let target = out.get_mut(start..end).unwrap_or_default();
                copy_common(bytes, interval.decoded.start, target, piece.offset_bytes);
                if piece.offset_bytes.saturating_add(piece.length_bytes) > interval.decoded.end {
                    break;
                }
                at = piece.at_bytes.saturating_add(piece.length_bytes);
            }
        });
        match failed {
            Some(error) => Err(error),
            None => decoded.map_err(|why| {
                self.malformed(first.stored.start, "the stream that was indexed", why)
            }),
        }
    }

    fn decoder(&self, index: u64, from: Option<&Checkpoint>) -> Result<Option<Box<dyn Decoder>>> {
        let malformed = |why| self.malformed(0, "a checkpoint of this file", why);
        match self.inside {
            Inside::File { .. } if index == 0 => {
                codec::decoder(self.stream.codec(), from).map_err(malformed)
            }
            _ => Ok(None),
        }
    }

    fn has_decoders(&self) -> bool {
        matches!(self.inside, Inside::File { .. })
    }

    fn piece(&self, index: u64, offset_bytes: u64) -> Result<Option<Piece>> {
        let inner = self.inner(index)?;
        let piece = self.inside.piece(index, &inner, offset_bytes)?;
        let base_bytes = match inner.content {
            // The container in the stream gives the offset, from its own beginning.
            Content::Sparse(_) => self.base_bytes,
            _ => 0,
        };
        Ok(piece.map(|piece| Piece {
            offset_bytes: piece.offset_bytes.saturating_add(base_bytes),
            ..piece
        }))
    }

    fn prefix(&self, index: u64) -> Result<Vec<u8>> {
        self.inside.container().map_or(Ok(Vec::new()), |container| container.prefix(index))
    }

    /// Samples that are encoded in the container are decoded with the stream.
    fn checks_encoding(&self, index: u64) -> bool {
        let checks = |inside: &dyn Container| {
            inside.checks_encoding(index) || inside.checks_intervals(index)
        };
        self.inside.container().is_some_and(checks)
    }

    fn content_in_stream(&self, index: u64) -> Result<Content> {
        Ok(self.inner(index)?.content)
    }

    fn decode_in_stream(&self, index: u64, range: &[u8], out: &mut [u8]) -> Result<()> {
        self.inside.decode(index, range, out)
    }

    fn field_name(&self, index: u64) -> Result<Vec<u8>> {
        self.inside.container().map_or(Ok(Vec::new()), |container| container.field_name(index))
    }

    fn fault(&self, index: u64) -> Option<Fault> {
        self.inside.container().and_then(|container| container.fault(index))
    }

    fn wants_password(&self) -> bool {
        self.inside.container().is_some_and(Container::wants_password)
    }

    fn has_password(&self) -> bool {
        self.inside.container().is_some_and(Container::has_password)
    }

    fn keep(&self, out: &mut dyn std::io::Write) -> std::io::Result<()> {
        kept::write(out, &self.stream, self.inside.container())
    }

    /// Samples that are encoded in the container are decoded each by itself, unless its format scans streams.
    fn intervals(&self, index: u64) -> Option<&dyn Intervals> {
        let is_range = self.examined.has_ranges || is_range(self.inner(index).ok()?.content);
        is_range.then_some(self.stream.as_ref() as &dyn Intervals)
    }

    fn has_intervals(&self) -> bool {
        true
    }

    fn stream(&self) -> Option<&Arc<StreamIndex>> {
        self.examined.has_ranges.then_some(&self.stream)
    }

    fn attributes(&self, index: u64) -> Result<Attributes> {
        self.inside.attributes(index)
    }

    fn link_target(&self, index: u64) -> Result<Vec<u8>> {
        self.inside.container().map_or(Ok(Vec::new()), |container| container.link_target(index))
    }

    fn members(&self, visit: &mut dyn FnMut(Member) -> Result<()>) -> Result<()> {
        self.inside.members(visit)
    }

    fn names(&self, samples: u64) -> Result<Names> {
        self.inside.names(samples)
    }

    /// All bytes were decoded and matched the checksums of their format.
    fn index_checksum(&self) -> IndexChecksum {
        if self.stream.is_cut() {
            return IndexChecksum::Absent;
        }
        IndexChecksum::Ok
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn unopened(&self) -> Option<&str> {
        match &self.inside {
            Inside::File { unopened, .. } => unopened.as_deref(),
            Inside::Container(_) => None,
        }
    }
}
