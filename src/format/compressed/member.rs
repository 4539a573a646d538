//! Containers that are members of other containers: stored ones, and compressed ones, which are opened through the
//! interval index of the stream that they lie in. What decoding them told is kept:
//!
//! ```text
//! "FFRMEMB\0" | u64 version | 16 bytes name of the format | u64 bytes of the stream's index, 0 if it is not its own
//! u64 reads | u64 bad samples | the stream's index
//! reads × { u64 offset | u64 length } | the bytes of the reads | bad samples × u64
//! the container's index, if its format scans                                          little-endian
//! ```

use super::decoded::{DecodedSource, RecentIntervals};
use super::examined::Examined;
use super::file::CompressedFile;
use super::recorded::{Recorded, RecordedSource, ReplayedSource};
use crate::format::bytes::u64_at;
use crate::format::codec::Codec;
use crate::format::stream::{INTERVAL_BYTES, StreamIndex};
use crate::format::{
    self, Checksum, Container, Error, Format, OpenOptions, PartName, Result, SliceSource, Source,
};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"FFRMEMB\0";
const VERSION: u64 = 1;
const NAME_BYTES: usize = 16;
const HEAD_BYTES: usize = 16 + NAME_BYTES + 24;

/// A member that may be a container.
#[derive(Clone)]
pub struct MemberSource {
    /// The stored bytes of the member, or those of the stream that it is a range of.
    pub source: Arc<dyn Source>,
    /// What errors call it.
    pub name: PartName,
    /// How it lies in the source.
    pub coding: Coding,
}

/// Where what was decoded last of a stream is found, and the number of its container there.
pub type Recent = (Arc<RecentIntervals>, usize);

/// How a member lies in its source.
#[derive(Clone)]
pub enum Coding {
    /// As it is.
    Stored,
    /// The source is a stream of this codec; the checksum is that of the decoded bytes.
    Stream(Codec, Option<Checksum>),
    /// It is this range of a decoded stream.
    Range(Arc<StreamIndex>, Range<u64>, Recent),
}

/// An open member; and, if it should be kept, what [`open_kept`] needs to open it again.
pub type OpenedMember = (Box<dyn Container>, Option<Vec<u8>>);

/// Opens a member. A stream is decoded once, which makes its index, and all samples in it are examined. `keeps`: what
/// was found is to be kept, if finding it again costs more than reading a few header bytes.
///
/// # Errors
/// The stream is damaged or cannot be read in the middle, or there is no container in it.
pub fn open_member(
    member: MemberSource,
    options: &OpenOptions,
    keeps: bool,
) -> Result<OpenedMember> {
    let MemberSource { source, name, coding } = member;
    let own = || (Arc::new(RecentIntervals::new(1)), 0);
    let (in_stream, is_own) = match coding {
        Coding::Stored => return open_stored(source, options, keeps),
        Coding::Stream(codec, checksum) => {
            let stream = index_of(source.as_ref(), codec, checksum)?;
            let range = 0..stream.decoded_bytes();
            ((Arc::new(stream), range, own()), true)
        }
        Coding::Range(stream, range, recent) => ((stream, range, recent), false),
    };
    let (stream, recent) = (Arc::clone(&in_stream.0), Arc::clone(&in_stream.2.0));
    let (member, reads) = open_in_stream(source, name, in_stream, (options, keeps))?;
    let kept = reads.and_then(|(reads, format)| {
        let stream = is_own.then_some(stream.as_ref());
        member.written(stream, &reads, format)
    });
    if is_own {
        recent.forget();
    }
    Ok((Box::new(member), kept))
}

/// A range of a decoded stream.
pub(super) type InStream = (Arc<StreamIndex>, Range<u64>, Recent);

/// What was read of a container to open it, and its format; `None`: that is not to be kept.
pub(super) type Reads = Option<(Recorded, &'static dyn Format)>;

/// Opens a container that is a range of a decoded stream.
pub(super) fn open_in_stream(
    source: Arc<dyn Source>,
    name: PartName,
    (stream, range, recent): InStream,
    (options, keeps): (&OpenOptions, bool),
) -> Result<(CompressedFile, Reads)> {
    let decoded =
        Arc::new(DecodedSource::sharing(Arc::clone(&source), Arc::clone(&stream), recent));
    let slice = slice_of(&decoded, name, &range);
    let recorded = Arc::new(RecordedSource::new(Arc::clone(&slice), keeps));
    let format = format::recognize(recorded.as_ref(), options)?;
    // The index of a format that scans is kept in place of what the scan reads.
    let whole = match format.is_scanned() {
        true => Arc::clone(&slice),
        false => Arc::clone(&recorded) as Arc<dyn Source>,
    };
    let container = format.open(Arc::clone(&whole), options)?;
    // A sample may hold the names. If it is damaged, that is found when they are asked for.
    let _ = container.names(container.len().saturating_sub(1));
    let examined = Examined::of(container.as_ref(), whole.as_ref(), slice.as_ref())?;
    let reads = recorded.end().filter(|_| may_be_kept(container.as_ref()));
    let member = CompressedFile::member(source, stream, range.start, (container, examined));
    Ok((member, reads.map(|reads| (reads, format))))
}

/// Opens a member by what was kept of it; nothing is decoded. `None`: it was kept by another version, or of another
/// format.
///
/// # Errors
/// A source cannot be read, or what was kept is damaged.
pub fn open_kept(
    member: MemberSource,
    kept: &Arc<dyn Source>,
    options: &OpenOptions,
) -> Result<Option<Box<dyn Container>>> {
    let Some(head) = Head::read(kept.as_ref())? else { return Ok(None) };
    let MemberSource { source, name, coding } = member;
    let (stream, range) = match coding {
        Coding::Stored => {
            return kept_index(source, kept, head.stream_end(), &head.name, options);
        }
        Coding::Range(stream, range, _) => (stream, range),
        Coding::Stream(codec, _) => {
            let at = HEAD_BYTES as u64;
            let stream = StreamIndex::read_kept(kept.as_ref(), at..head.stream_end())
                .map_err(|e| unreadable(kept.as_ref(), at, e))?;
            let Some(stream) = stream.filter(|stream| stream.codec() == codec) else {
                return Ok(None);
            };
            let range = 0..stream.decoded_bytes();
            (Arc::new(stream), range)
        }
    };
    let found = open_kept_in_stream((source, name), (stream, range), (kept, &head), options)?;
    Ok(found.map(|member| Box::new(member) as Box<dyn Container>))
}

/// The numbers that a kept member begins with.
pub(super) struct Head {
    name: [u8; NAME_BYTES],
    stream_bytes: u64,
    reads: u64,
    bad: u64,
}

impl Head {
    /// `None`: it was kept by another version.
    pub(super) fn read(kept: &dyn Source) -> Result<Option<Self>> {
        let mut head = [0; HEAD_BYTES];
        if kept.len() < HEAD_BYTES as u64 {
            return Ok(None);
        }
        kept.read_exact_at(&mut head, 0).map_err(|e| unreadable(kept, 0, e))?;
        let number = |at| u64_at(&head, at).unwrap_or_default();
        if !head.starts_with(&MAGIC) || number(8) != VERSION {
            return Ok(None);
        }
        let name = head.get(16..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        Ok(Some(Self { name, stream_bytes: number(32), reads: number(40), bad: number(48) }))
    }

    fn stream_end(&self) -> u64 {
        (HEAD_BYTES as u64).saturating_add(self.stream_bytes)
    }
}

fn unreadable(kept: &dyn Source, offset_bytes: u64, source: std::io::Error) -> Error {
    let (part, what) = (kept.name().clone(), "the kept index of a member");
    Error::Unreadable { part, what, offset_bytes, source }
}

/// Opens a container that is a range of a decoded stream by what was kept of it. `None`: as [`open_kept`].
pub(super) fn open_kept_in_stream(
    (source, name): (Arc<dyn Source>, PartName),
    (stream, range): (Arc<StreamIndex>, Range<u64>),
    (kept, head): (&Arc<dyn Source>, &Head),
    options: &OpenOptions,
) -> Result<Option<CompressedFile>> {
    let recent = Arc::new(RecentIntervals::new(1));
    let shared = (Arc::clone(&recent), 0);
    let decoded =
        Arc::new(DecodedSource::sharing(Arc::clone(&source), Arc::clone(&stream), shared));
    let slice = slice_of(&decoded, name, &range);
    let reads_at = head.stream_end();
    let replayed = ReplayedSource::new(slice, kept, reads_at, head.reads)
        .map_err(|e| unreadable(kept.as_ref(), reads_at, e))?;
    let Some((replayed, bad_at)) = replayed else { return Ok(None) };
    let bad = read_bad(kept.as_ref(), bad_at, head.bad)
        .map_err(|e| unreadable(kept.as_ref(), bad_at, e))?;
    let Some((bad, index_at)) = bad else { return Ok(None) };
    let replayed: Arc<dyn Source> = Arc::new(replayed);
    let container = kept_index(Arc::clone(&replayed), kept, index_at, &head.name, options)?;
    let Some(container) = container else { return Ok(None) };
    let examined = Examined::again(container.as_ref(), replayed.as_ref(), bad)?;
    recent.forget();
    Ok(Some(CompressedFile::member(source, stream, range.start, (container, examined))))
}

/// Only a pass over a stored member is worth keeping.
fn open_stored(
    source: Arc<dyn Source>,
    options: &OpenOptions,
    keeps: bool,
) -> Result<OpenedMember> {
    let format = format::recognize(source.as_ref(), options)?;
    let container = format.open(source, options)?;
    let kept = (keeps && format.is_scanned() && may_be_kept(container.as_ref()))
        .then(|| {
            let (reads, bad) = (Recorded::default(), BTreeSet::new());
            written(None, &reads, &bad, (container.as_ref(), format))
        })
        .flatten();
    Ok((container, kept))
}

/// Opens a container whose own index, if its format scans, is kept from `at` on.
fn kept_index(
    source: Arc<dyn Source>,
    kept: &Arc<dyn Source>,
    at: u64,
    name: &[u8],
    options: &OpenOptions,
) -> Result<Option<Box<dyn Container>>> {
    let format = format::recognize(source.as_ref(), options)?;
    let Some(length_bytes) = kept.len().checked_sub(at).filter(|_| name == padded(format.name()))
    else {
        return Ok(None);
    };
    match format.is_scanned() {
        true => {
            let index = SliceSource::new(kept.name().clone(), Arc::clone(kept), at, length_bytes);
            format.open_kept(source, Arc::new(index), options)
        }
        false => format.open(source, options).map(Some),
    }
}

/// Decodes a whole stream for its index, and compares its checksum.
fn index_of(source: &dyn Source, codec: Codec, checksum: Option<Checksum>) -> Result<StreamIndex> {
    let mut hasher = checksum.map(Checksum::hasher);
    let stream = StreamIndex::build(source, codec, INTERVAL_BYTES, &mut |_, bytes| {
        if let Some(hasher) = &mut hasher {
            hasher.update(bytes);
        }
        Ok(())
    })?;
    if let (Some(expected), Some(hasher)) = (checksum, hasher) {
        expected.compare(hasher.finish()).map_err(|mismatch| Error::Checksum {
            part: source.name().clone(),
            what: "the member".to_owned(),
            offset_bytes: 0,
            expected: mismatch.expected.value(),
            found: mismatch.found.value(),
            hint: "",
        })?;
    }
    Ok(stream)
}

fn slice_of(decoded: &Arc<DecodedSource>, name: PartName, range: &Range<u64>) -> Arc<dyn Source> {
    let length_bytes = range.end.saturating_sub(range.start);
    let whole = Arc::clone(decoded) as Arc<dyn Source>;
    Arc::new(SliceSource::new(name, whole, range.start, length_bytes))
}

/// What is found of encrypted samples depends on the password.
fn may_be_kept(container: &dyn Container) -> bool {
    let is_open = |index| container.may_keep_checkpoints(index) && !container.is_locked(index);
    !container.wants_password() && (0..container.len()).all(is_open)
}

fn padded(name: &str) -> [u8; NAME_BYTES] {
    let mut padded = [0; NAME_BYTES];
    padded.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
    padded
}

/// What [`open_kept`] reads. `None`: the container's index cannot be read any more.
pub(super) fn written(
    stream: Option<&StreamIndex>,
    reads: &Recorded,
    bad: &BTreeSet<u64>,
    (container, format): (&dyn Container, &dyn Format),
) -> Option<Vec<u8>> {
    let stream = stream.map(StreamIndex::write).unwrap_or_default();
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&padded(format.name()));
    for count in [stream.len() as u64, reads.len(), bad.len() as u64] {
        out.extend_from_slice(&count.to_le_bytes());
    }
    out.extend_from_slice(&stream);
    reads.write(&mut out);
    bad.iter().for_each(|sample| out.extend_from_slice(&sample.to_le_bytes()));
    if format.is_scanned() {
        container.keep(&mut out).ok()?;
    }
    Some(out)
}

/// The numbers of bad samples, and where they end. `Ok(None)`: they are not all there.
fn read_bad(
    kept: &dyn Source,
    at: u64,
    count: u64,
) -> std::io::Result<Option<(BTreeSet<u64>, u64)>> {
    let end = count.checked_mul(8).and_then(|bytes| at.checked_add(bytes));
    let Some(end) = end.filter(|end| *end <= kept.len()) else { return Ok(None) };
    let length = usize::try_from(end.saturating_sub(at)).map_err(std::io::Error::other)?;
    let mut bytes = vec![0; length];
    kept.read_exact_at(&mut bytes, at)?;
    let numbers = bytes.chunks_exact(8).filter_map(|bytes| u64_at(bytes, 0)).collect();
    Ok(Some((numbers, end)))
}
