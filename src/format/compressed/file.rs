//! An open compressed file: samples are ranges of the decoded stream.

use super::inside::Inside;
use super::kept;
use crate::format::codec;
use crate::format::stream::{Interval, StreamIndex};
use crate::format::{
    Attributes, Checkpoint, Container, Content, Decoder, Error, IndexChecksum, Member, Names,
    Piece, Result, Sample, Source,
};
use std::sync::Arc;

/// An open compressed file.
pub(super) struct CompressedFile {
    format: &'static str,
    source: Arc<dyn Source>,
    stream: Arc<StreamIndex>,
    inside: Inside,
    warnings: Vec<String>,
}

impl CompressedFile {
    /// A file whose stream is indexed.
    pub(super) fn new(
        format: &'static str,
        source: Arc<dyn Source>,
        stream: Arc<StreamIndex>,
        inside: Inside,
    ) -> Self {
        let part = source.name();
        let mut warnings = Vec::new();
        let behind = source.len().saturating_sub(stream.stored_bytes());
        if behind > 0 {
            warnings
                .push(format!("{part}: {behind} bytes after the end of the stream are ignored"));
        }
        if stream.is_cut() {
            let (stored, decoded) = (stream.stored_bytes(), stream.decoded_bytes());
            warnings.push(format!(
                "{part}: the stream is cut at byte {stored}: the {decoded} bytes before were decoded, and \
                 could not all be checked"
            ));
        }
        warnings.extend_from_slice(inside.container().map_or(&[], Container::warnings));
        Self { format, source, stream, inside, warnings }
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

    /// The sample as a part of the decoded stream.
    fn inner(&self, index: u64) -> Result<Sample> {
        let sample = self.inside.sample(index)?;
        sample.ok_or_else(|| self.malformed(0, "sample 0 only", index.to_string()))
    }

    /// The intervals that a range of the decoded stream lies in: the first, and where the last one ends.
    fn intervals(&self, sample: &Sample) -> Option<(Interval, Interval)> {
        let last = sample.end_bytes().checked_sub(1)?;
        Some((self.stream.interval(sample.offset_bytes)?, self.stream.interval(last)?))
    }

    /// Decodes the intervals from `first` on, whose bytes `stored` is, one after the other.
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

/// Copies what two ranges have in common: `from` lies at `from_at`, `to` at `to_at`.
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

    /// The stored bytes are those of all intervals that it lies in.
    fn sample(&self, index: u64) -> Result<Sample> {
        let inner = self.inner(index)?;
        let content = Content::Encoded(inner.size_bytes());
        if inner.damaged || inner.length_bytes == 0 && inner.content == Content::Stored {
            return Ok(Sample { offset_bytes: 0, ..inner });
        }
        let Some((first, last)) = self.intervals(&inner) else {
            // A sparse file of holes alone has no stored bytes; else its data is not all there.
            let damaged = inner.length_bytes > 0;
            return Ok(Sample {
                offset_bytes: 0,
                length_bytes: u64::from(damaged),
                damaged,
                content,
                ..inner
            });
        };
        let length_bytes = last.stored.end.saturating_sub(first.stored.start);
        Ok(Sample { offset_bytes: first.stored.start, length_bytes, content, ..inner })
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
        out.fill(0);
        let Some((first, _)) = self.intervals(&inner) else { return Ok(()) };
        // Up to there all pieces were copied.
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

    fn piece(&self, index: u64, offset_bytes: u64) -> Result<Option<Piece>> {
        let inner = self.inner(index)?;
        self.inside.piece(index, &inner, offset_bytes)
    }

    fn keep(&self, out: &mut dyn std::io::Write) -> std::io::Result<()> {
        kept::write(out, &self.stream, self.inside.container())
    }

    fn stream(&self) -> Option<&StreamIndex> {
        Some(&self.stream)
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
}
