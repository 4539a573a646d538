//! A file that is one compressed stream (gzip, bzip2, xz, zstd): of a tar archive, whose members are then
//! ranges of the decoded stream, or of any other file, which is shown as the only one.
//!
//! It is decoded once when it is opened, which makes a [`StreamIndex`] and, on the way, the archive's index.
//! Magic numbers: RFC 1952 2.3.1, bzip2's `decompress.c`, .xz format 2.1.1.1, RFC 8878 3.1.

mod feed;
#[cfg(test)]
mod tests;

use super::codec::{self, Codec, GzipHeader};
use super::stream::{INTERVAL_BYTES, Interval, StreamIndex};
use super::{
    Attributes, Container, Content, Decoder, Detected, Error, Format, IndexChecksum, Member, Names,
    Node, OpenOptions, Piece, Restart, Result, Sample, SliceSource, Source, tar,
};
use feed::Feed;
use std::sync::Arc;

/// Enough for every magic number.
const MAGIC_BYTES: usize = 18;
/// Enough for a gzip header with the longest name of a file.
const HEADER_BYTES: u64 = 8 << 10;

/// The formats of compressed files.
#[derive(Debug)]
pub struct Compressed {
    codec: Codec,
    name: &'static str,
    /// Endings, and what replaces them.
    endings: &'static [&'static str],
}

impl Compressed {
    /// gzip.
    pub const GZIP: Self = Self { codec: Codec::Gzip, name: "gzip", endings: &["gz", "tgz"] };
    /// bzip2.
    pub const BZIP2: Self =
        Self { codec: Codec::Bzip2, name: "bzip2", endings: &["bz2", "tbz2", "tbz"] };
    /// xz.
    pub const XZ: Self = Self { codec: Codec::Xz, name: "xz", endings: &["xz", "txz"] };
    /// zstd.
    pub const ZSTD: Self = Self { codec: Codec::Zstd, name: "zstd", endings: &["zst", "tzst"] };

    fn is_magic(&self, head: &[u8]) -> bool {
        match (self.codec, head) {
            (Codec::Gzip, [0x1f, 0x8b, 8, flags, ..]) => flags & 0xe0 == 0,
            (Codec::Bzip2, [b'B', b'Z', b'h', b'1'..=b'9', magic @ ..]) => {
                magic.starts_with(b"1AY&SY") || magic.starts_with(b"\x17\x72\x45\x38\x50\x90")
            }
            (Codec::Xz, head) => head.starts_with(b"\xfd7zXZ\0"),
            // A frame, or one that is to be skipped.
            (Codec::Zstd, [0x28, 0xb5, 0x2f, 0xfd, ..]) => true,
            (Codec::Zstd, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]) => true,
            _ => false,
        }
    }

    /// The name of the file that was compressed.
    fn file_name(&self, source: &dyn Source, header: Option<&GzipHeader>) -> Vec<u8> {
        let stored = header.and_then(|header| header.name.as_deref()).unwrap_or_default();
        let stored = stored.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if !stored.is_empty() {
            return latin1(stored);
        }
        let path = source.name().file_name();
        let ending = path.extension().and_then(|e| e.to_str()).map(str::to_lowercase);
        let stem = path.file_stem().unwrap_or(path.as_os_str()).as_encoded_bytes();
        match ending {
            Some(ending) if self.endings.contains(&&*ending) => match ending.starts_with('t') {
                true => [stem, b".tar"].concat(),
                false => stem.to_vec(),
            },
            _ => [path.file_name().unwrap_or_default().as_encoded_bytes(), b".out"].concat(),
        }
    }
}

/// gzip's names are Latin-1, but most programs store what the file system has.
fn latin1(name: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(name) {
        Ok(_) => name.to_vec(),
        Err(_) => name.iter().map(|byte| char::from(*byte)).collect::<String>().into_bytes(),
    }
}

impl Format for Compressed {
    fn name(&self) -> &'static str {
        self.name
    }

    fn extensions(&self) -> &'static [&'static str] {
        self.endings
    }

    fn detect(&self, source: &dyn Source) -> Result<Detected> {
        let mut head = [0; MAGIC_BYTES];
        let length = usize::try_from(source.len()).unwrap_or(MAGIC_BYTES).min(MAGIC_BYTES);
        let head = head.get_mut(..length).unwrap_or_default();
        read(source, head)?;
        Ok(if self.is_magic(head) { Detected::Yes } else { Detected::No })
    }

    fn open(&self, source: Arc<dyn Source>, options: &OpenOptions) -> Result<Box<dyn Container>> {
        let mut feed = Feed::new(source.name(), options);
        let build = match options.allow_damaged {
            true => StreamIndex::build_cut,
            false => StreamIndex::build,
        };
        let take = &mut |_: u64, bytes: &[u8]| feed.take(bytes);
        let stream = build(source.as_ref(), self.codec, INTERVAL_BYTES, take)?;
        let archive = feed.finish()?;
        if stream.is_cut() && archive.is_none() {
            return Err(Error::Malformed {
                part: source.name().clone(),
                format: self.name,
                offset_bytes: stream.stored_bytes(),
                expected: "a whole file".to_owned(),
                found: format!("{} bytes of it, and the end", stream.decoded_bytes()),
                hint: ": the file is truncated, and nothing in it is whole",
            });
        }
        Ok(Box::new(CompressedFile::new(self, source, stream, archive)?))
    }

    fn unpack(&self, source: &dyn Source, out: &mut dyn std::io::Write) -> Result<Vec<u8>> {
        StreamIndex::decode_all(source, self.codec, &mut |offset_bytes, bytes| {
            out.write_all(bytes).map_err(|e| Error::Unreadable {
                part: source.name().clone(),
                what: "the stream into its spool",
                offset_bytes,
                source: e,
            })
        })?;
        let length = usize::try_from(source.len().min(HEADER_BYTES)).unwrap_or(0);
        let mut head = vec![0; length];
        read(source, &mut head)?;
        let header = GzipHeader::read(&head).filter(|_| self.codec == Codec::Gzip);
        Ok(self.file_name(source, header.as_ref()))
    }

    fn is_scanned(&self) -> bool {
        true
    }

    fn open_kept(
        &self,
        source: Arc<dyn Source>,
        kept: Arc<dyn Source>,
    ) -> Result<Option<Box<dyn Container>>> {
        let mut head = [0; 8];
        if kept.len() < 8 {
            return Ok(None);
        }
        read(kept.as_ref(), &mut head)?;
        let length = u64::from_le_bytes(head);
        let Some(rest) = kept.len().checked_sub(8).and_then(|rest| rest.checked_sub(length)) else {
            return Ok(None);
        };
        let Ok(stream_bytes) = usize::try_from(length) else { return Ok(None) };
        let mut bytes = vec![0; stream_bytes];
        let name = kept.name().clone();
        kept.read_exact_at(&mut bytes, 8).map_err(|source| Error::Unreadable {
            part: name.clone(),
            what: "the kept index",
            offset_bytes: 8,
            source,
        })?;
        let Some(stream) = StreamIndex::read(&bytes) else { return Ok(None) };
        let archive = match rest {
            0 => None,
            _ => {
                let part = SliceSource::new(name, kept, length.saturating_add(8), rest);
                match tar::Index::read(&part) {
                    Ok(index) => Some(index),
                    Err(_) => return Ok(None),
                }
            }
        };
        Ok(Some(Box::new(CompressedFile::new(self, source, stream, archive)?)))
    }
}

fn read(source: &dyn Source, buf: &mut [u8]) -> Result<()> {
    source.read_exact_at(buf, 0).map_err(|e| Error::Unreadable {
        part: source.name().clone(),
        what: "the first bytes",
        offset_bytes: 0,
        source: e,
    })
}

/// An open compressed file.
pub struct CompressedFile {
    format: &'static str,
    source: Arc<dyn Source>,
    stream: StreamIndex,
    inside: Inside,
    warnings: Vec<String>,
}

/// What a stream holds.
enum Inside {
    Archive(tar::Index),
    File { name: Vec<u8>, modified: Option<u32> },
}

impl CompressedFile {
    /// A file whose indices are there already; `archive`: if it holds one.
    ///
    /// # Errors
    /// The source cannot be read.
    pub fn new(
        format: &Compressed,
        source: Arc<dyn Source>,
        stream: StreamIndex,
        archive: Option<tar::Index>,
    ) -> Result<Self> {
        let part = source.name();
        let mut warnings = Vec::new();
        let behind = source.len().saturating_sub(stream.stored_bytes());
        if behind > 0 {
            warnings.push(format!("{part}: {behind} bytes behind the stream are none of it"));
        }
        if stream.is_cut() {
            let (stored, decoded) = (stream.stored_bytes(), stream.decoded_bytes());
            warnings.push(format!(
                "{part}: the stream is cut at byte {stored}: the {decoded} bytes before were decoded, and \
                 could not all be checked"
            ));
        }
        let inside = match archive {
            Some(index) => {
                warnings.extend_from_slice(index.warnings());
                Inside::Archive(index)
            }
            None => {
                let length = usize::try_from(source.len().min(HEADER_BYTES)).unwrap_or(0);
                let mut head = vec![0; length];
                read(source.as_ref(), &mut head)?;
                let header = GzipHeader::read(&head).filter(|_| format.codec == Codec::Gzip);
                let name = format.file_name(source.as_ref(), header.as_ref());
                Inside::File { name, modified: header.and_then(|header| header.modified) }
            }
        };
        Ok(Self { format: format.name, source, stream, inside, warnings })
    }

    /// The index of the archive that it holds, if it does.
    #[must_use]
    pub fn archive(&self) -> Option<&tar::Index> {
        match &self.inside {
            Inside::Archive(index) => Some(index),
            Inside::File { .. } => None,
        }
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
        match &self.inside {
            Inside::Archive(archive) => archive.sample(index),
            Inside::File { .. } if index == 0 => {
                Ok(Sample { length_bytes: self.stream.decoded_bytes(), ..Sample::default() })
            }
            Inside::File { .. } => Err(self.malformed(0, "sample 0 only", index.to_string())),
        }
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
fn copy_common(from: &[u8], from_at: u64, to: &mut [u8], to_at: u64) {
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
        self.archive().map_or(1, tar::Index::len)
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

    fn data_bytes(&self) -> u64 {
        self.archive().map_or(self.stream.decoded_bytes(), tar::Index::data_bytes)
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

    fn decoder(&self, index: u64, from: Option<&Restart>) -> Result<Option<Box<dyn Decoder>>> {
        let malformed = |why| self.malformed(0, "a restart point of this file", why);
        match self.inside {
            Inside::File { .. } if index == 0 => {
                codec::decoder(self.stream.codec(), from).map_err(malformed)
            }
            _ => Ok(None),
        }
    }

    fn piece(&self, index: u64, offset_bytes: u64) -> Result<Option<Piece>> {
        let inner = self.inner(index)?;
        match (&self.inside, inner.content) {
            (Inside::Archive(archive), Content::Sparse(_)) => archive.piece(index, offset_bytes),
            _ => Ok((offset_bytes < inner.length_bytes).then_some(Piece {
                at_bytes: 0,
                length_bytes: inner.length_bytes,
                offset_bytes: inner.offset_bytes,
            })),
        }
    }

    /// The stream's index, its length before it, and the archive's.
    fn keep(&self, out: &mut dyn std::io::Write) -> std::io::Result<()> {
        let stream = self.stream.write();
        out.write_all(&(stream.len() as u64).to_le_bytes())?;
        out.write_all(&stream)?;
        self.archive().map_or(Ok(()), |archive| archive.write(out))
    }

    fn stream(&self) -> Option<&StreamIndex> {
        Some(&self.stream)
    }

    fn attributes(&self, index: u64) -> Result<Attributes> {
        match &self.inside {
            Inside::Archive(archive) => archive.attributes(index),
            Inside::File { modified, .. } => {
                let modified = modified.map(|seconds| (i64::from(seconds), 0));
                Ok(Attributes { modified, ..Attributes::default() })
            }
        }
    }

    fn link_target(&self, index: u64) -> Result<Vec<u8>> {
        self.archive().map_or(Ok(Vec::new()), |archive| archive.link_target(index))
    }

    fn members(&self, visit: &mut dyn FnMut(Member) -> Result<()>) -> Result<()> {
        match &self.inside {
            Inside::Archive(archive) => archive.members(visit),
            Inside::File { name, .. } => visit(Member { path: name, node: Node::Sample(0) }),
        }
    }

    fn names(&self, _samples: u64) -> Result<Names> {
        Ok(Names::Members)
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
