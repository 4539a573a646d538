//! Containers that are members of other containers: stored ones, and compressed ones, which are opened through the interval
//! index of the stream that they lie in. The results of decoding them are kept:
//!
//! ```text
//! "FFRMEMB\0" | u64 version | 16 bytes name of the format | u64 bytes of the stream's index, 0 if it is not its own
//! u64 reads | u64 bad samples | the stream's index
//! reads × { u64 offset | u64 length } | the bytes of the reads | bad samples × u64
//! the container's index, if its format scans | u32 CRC-32 of all before it              little-endian
//! ```

use super::decoded::{DecodedSource, RecentIntervals};
use super::examined::{Examined, matches_checksum};
use super::file::CompressedFile;
use super::recorded::{Recorded, RecordedSource, ReplayedSource};
use crate::format::bytes::u64_at;
use crate::format::codec::Codec;
use crate::format::stream::{INTERVAL_BYTES, StreamIndex};
use crate::format::{
    self, Checksum, Container, Error, Format, OpenOptions, PartName, Result, Sample, SliceSource,
    Source,
};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"FFRMEMB\0";
const VERSION: u64 = 3;
const NAME_BYTES: usize = 16;
const HEAD_BYTES: usize = 16 + NAME_BYTES + 24;
const CRC_BYTES: u64 = 4;
/// The most times that the bytes of a container, and those of a few intervals, are decoded to open it.
const MAX_TIMES: u64 = 8;
const FREE_INTERVALS: u64 = 8;

/// A member that may be a container.
#[derive(Clone)]
pub struct MemberSource {
    /// The stored bytes of the member, or those of the stream that it is a range of.
    pub source: Arc<dyn Source>,
    /// The name of the member in errors.
    pub name: PartName,
    /// How the member lies in the source.
    pub coding: Coding,
}

/// The intervals that were decoded last of a stream, and the number of its container among them.
pub type Recent = (Arc<RecentIntervals>, usize);

/// How a member lies in its source.
#[derive(Clone)]
pub enum Coding {
    /// The source has the member's bytes.
    Stored,
    /// The source is a stream of this codec; the checksum is that of the decoded bytes. The intervals are those that are
    /// kept of streams that are opened at the same time.
    Stream(Codec, Option<Checksum>, Arc<RecentIntervals>),
    /// The member is this range of a decoded stream.
    Range(Arc<StreamIndex>, Range<u64>, Recent),
}

/// An open member; and, if they should be kept, the bytes from which [`open_kept`] opens it again.
pub type OpenedMember = (Box<dyn Container>, Option<Vec<u8>>);

/// Opens a member. A stream is decoded once, which makes its index, and all samples in it are examined. `keeps`: the
/// results are to be kept, if finding them again costs more than reading a few header bytes.
///
/// # Errors
/// The stream is damaged or cannot be read in the middle, or there is no container in it.
pub fn open_member(
    member: MemberSource,
    options: &OpenOptions,
    keeps: bool,
) -> Result<OpenedMember> {
    let MemberSource { source, name, coding } = member;
    let (stream, range, recent, is_own) = match coding {
        Coding::Stored => return open_stored(source, options, keeps),
        Coding::Stream(codec, checksum, others) => {
            let stream = index_of(source.as_ref(), codec, checksum)?;
            let range = 0..stream.decoded_bytes();
            (Arc::new(stream), range, (Arc::new(others.of_one()), 0), true)
        }
        Coding::Range(stream, range, recent) => (stream, range, recent, false),
    };
    let decoded =
        Arc::new(DecodedSource::sharing(Arc::clone(&source), Arc::clone(&stream), recent.clone()));
    decoded.limit(most_decoded_bytes(&range));
    let slice = slice_of(&decoded, name, &range);
    let recorded = Arc::new(RecordedSource::new(Arc::clone(&slice), keeps));
    let format = format::recognize(recorded.as_ref(), options)?;
    // The index of a format that scans is kept in place of the scan's reads.
    let whole = match format.is_scanned() {
        true => Arc::clone(&slice),
        false => Arc::clone(&recorded) as Arc<dyn Source>,
    };
    let container = format.open(Arc::clone(&whole), options)?;
    // A sample may hold the names. If that sample is damaged, its damage is found when the names are asked for.
    let _ = container.names(container.len().saturating_sub(1));
    let examined = Examined::of(container.as_ref(), whole.as_ref(), slice.as_ref())?;
    end_limit(&decoded, slice.name())?;
    let kept = recorded.end().filter(|_| may_be_kept(container.as_ref())).and_then(|reads| {
        let stream = is_own.then_some(stream.as_ref());
        written(stream, &reads, &examined.bad, (container.as_ref(), format))
    });
    if is_own {
        recent.0.forget();
    }
    let member = CompressedFile::member(source, stream, range.start, (container, examined));
    Ok((Box::new(member), kept))
}

/// Opens a member by its kept results; only reads that were not kept are decoded. `None` if the results are of another
/// version or another format, or damaged.
///
/// # Errors
/// A source cannot be read.
pub fn open_kept(
    member: MemberSource,
    kept: &Arc<dyn Source>,
    options: &OpenOptions,
) -> Result<Option<Box<dyn Container>>> {
    let unreadable = |offset_bytes, source| Error::Unreadable {
        part: kept.name().clone(),
        what: "the kept index of a member",
        offset_bytes,
        source,
    };
    let mut head = [0; HEAD_BYTES];
    let Some(kept) = &checked(kept).map_err(|e| unreadable(0, e))? else { return Ok(None) };
    kept.read_exact_at(&mut head, 0).map_err(|e| unreadable(0, e))?;
    let number = |at| u64_at(&head, at).unwrap_or_default();
    if !head.starts_with(&MAGIC) || number(8) != VERSION {
        return Ok(None);
    }
    let name = head.get(16..16 + NAME_BYTES).unwrap_or_default();
    let (stream_bytes, reads, bad) = (number(32), number(40), number(48));
    let stream_end = (HEAD_BYTES as u64).saturating_add(stream_bytes);
    let MemberSource { source, name: part, coding } = member;
    let (stream, range) = match coding {
        Coding::Stored => return kept_index(source, kept, stream_end, name, options),
        Coding::Range(stream, range, _) => (stream, range),
        Coding::Stream(codec, ..) => {
            let stream = StreamIndex::read_kept(kept.as_ref(), HEAD_BYTES as u64..stream_end)
                .map_err(|e| unreadable(HEAD_BYTES as u64, e))?;
            let Some(stream) = stream.filter(|stream| stream.codec() == codec) else {
                return Ok(None);
            };
            let range = 0..stream.decoded_bytes();
            (Arc::new(stream), range)
        }
    };
    let recent = Arc::new(RecentIntervals::new(1, 0));
    let shared = (Arc::clone(&recent), 0);
    let decoded =
        Arc::new(DecodedSource::sharing(Arc::clone(&source), Arc::clone(&stream), shared));
    decoded.limit(most_decoded_bytes(&range));
    let slice = slice_of(&decoded, part, &range);
    let replayed = ReplayedSource::new(slice, kept, stream_end, reads)
        .map_err(|e| unreadable(stream_end, e))?;
    let Some((replayed, bad_at)) = replayed else { return Ok(None) };
    let bad = read_bad(kept.as_ref(), bad_at, bad).map_err(|e| unreadable(bad_at, e))?;
    let Some((bad, index_at)) = bad else { return Ok(None) };
    let replayed: Arc<dyn Source> = Arc::new(replayed);
    let container = kept_index(Arc::clone(&replayed), kept, index_at, name, options)?;
    let Some(container) = container else { return Ok(None) };
    let examined = Examined::again(container.as_ref(), replayed.as_ref(), bad)?;
    end_limit(&decoded, replayed.name())?;
    recent.forget();
    let member = CompressedFile::member(source, stream, range.start, (container, examined));
    Ok(Some(Box::new(member)))
}

/// The kept bytes, without their checksum. `None` if they do not match it.
fn checked(kept: &Arc<dyn Source>) -> std::io::Result<Option<Arc<dyn Source>>> {
    let length_bytes = kept.len().saturating_sub(CRC_BYTES);
    if length_bytes < HEAD_BYTES as u64 {
        return Ok(None);
    }
    let mut stored = [0; CRC_BYTES as usize];
    kept.read_exact_at(&mut stored, length_bytes)?;
    let checksum = Some(Checksum::Crc32(u32::from_le_bytes(stored)));
    let all = Sample { length_bytes, checksum, ..Sample::default() };
    let is_right = matches_checksum(&all, kept.as_ref()).map_err(std::io::Error::other)?;
    let body = || SliceSource::new(kept.name().clone(), Arc::clone(kept), 0, length_bytes);
    Ok(is_right.then(|| Arc::new(body()) as Arc<dyn Source>))
}

/// Opens a stored member. Only the index that a pass makes is worth keeping.
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
            format.open_kept(source, Arc::new(index))
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

/// The most bytes that are decoded to open the container that lies in this range of a stream.
fn most_decoded_bytes(range: &Range<u64>) -> u64 {
    let more = FREE_INTERVALS.saturating_mul(INTERVAL_BYTES);
    let length_bytes = range.end.saturating_sub(range.start);
    length_bytes.saturating_add(more).saturating_mul(MAX_TIMES)
}

/// Ends the bound on decoding. A format may take the error of a refused read for a damaged sample: here it ends the
/// opening.
fn end_limit(decoded: &DecodedSource, name: &PartName) -> Result<()> {
    decoded.end_limit().map_err(|source| Error::Unreadable {
        part: name.clone(),
        what: "the structure of the container",
        offset_bytes: 0,
        source,
    })
}

fn slice_of(decoded: &Arc<DecodedSource>, name: PartName, range: &Range<u64>) -> Arc<dyn Source> {
    let length_bytes = range.end.saturating_sub(range.start);
    let whole = Arc::clone(decoded) as Arc<dyn Source>;
    Arc::new(SliceSource::new(name, whole, range.start, length_bytes))
}

/// Whether results may be kept: those about encrypted samples depend on the password.
fn may_be_kept(container: &dyn Container) -> bool {
    !container.wants_password()
        && (0..container.len()).all(|index| container.may_keep_checkpoints(index))
}

fn padded(name: &str) -> [u8; NAME_BYTES] {
    let mut padded = [0; NAME_BYTES];
    padded.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
    padded
}

/// The bytes that [`open_kept`] reads. `None` if the container's index cannot be read any more.
fn written(
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
    out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
    Some(out)
}

/// The numbers of bad samples, and the offset at which they end. `Ok(None)` if they are not all there.
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
