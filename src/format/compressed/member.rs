//! Containers that are compressed members of other containers: opened through the interval index of the stream that
//! they lie in.

use super::decoded::DecodedSource;
use super::file::CompressedFile;
use crate::format::codec::Codec;
use crate::format::stream::{INTERVAL_BYTES, StreamIndex};
use crate::format::{
    self, Checksum, Container, Content, Error, OpenOptions, PartName, Result, Sample, SliceSource,
    Source,
};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// What stands before a sample is looked at so often at most: the first look may tell where to look.
const MAX_LOOKS: u32 = 3;
/// So much is hashed at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Opens a container whose stored bytes, all of `source`, are a stream of this codec. They are decoded once, which makes
/// the index; `checksum` is that of the decoded bytes.
///
/// # Errors
/// The stream is damaged or cannot be read in the middle, or holds no container.
pub fn open_encoded(
    source: Arc<dyn Source>,
    codec: Codec,
    checksum: Option<Checksum>,
    options: &OpenOptions,
) -> Result<Box<dyn Container>> {
    let mut hasher = checksum.map(Checksum::hasher);
    let stream = StreamIndex::build(source.as_ref(), codec, INTERVAL_BYTES, &mut |_, bytes| {
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
            expected: mismatch.expected,
            found: mismatch.found,
            hint: "",
        })?;
    }
    let (name, range) = (source.name().clone(), 0..stream.decoded_bytes());
    open_range(source, Arc::new(stream), range, name, options)
}

/// Opens a container called `name` that is a range of a decoded stream, whose stored bytes `source` has.
///
/// # Errors
/// The stream is damaged, or there is no container in that range.
pub fn open_range(
    source: Arc<dyn Source>,
    stream: Arc<StreamIndex>,
    range: Range<u64>,
    name: PartName,
    options: &OpenOptions,
) -> Result<Box<dyn Container>> {
    let decoded = Arc::new(DecodedSource::new(Arc::clone(&source), Arc::clone(&stream)));
    let length_bytes = range.end.saturating_sub(range.start);
    let whole = Arc::clone(&decoded) as Arc<dyn Source>;
    let slice: Arc<dyn Source> = Arc::new(SliceSource::new(name, whole, range.start, length_bytes));
    let container = format::open(Arc::clone(&slice), options)?;
    let mut found = Looked { has_ranges: true, bad: BTreeSet::new() };
    found.look(container.as_ref(), slice.as_ref())?;
    decoded.forget();
    Ok(Box::new(CompressedFile::member(source, stream, range.start, (container, found))))
}

/// What was found by looking at each sample when a container was opened.
pub(super) struct Looked {
    /// Whether all samples are ranges of the container.
    pub(super) has_ranges: bool,
    /// Samples that are not whole.
    pub(super) bad: BTreeSet<u64>,
}

impl Looked {
    /// Looks at what stands before each sample, and at the checksums of ranges, in the order of the container: nobody
    /// can do that later, as reads of ranges check only that the stream is still the same.
    fn look(&mut self, container: &dyn Container, source: &dyn Source) -> Result<()> {
        let mut places = Vec::new();
        for index in 0..container.len() {
            let at = container.sample(index)?;
            self.has_ranges &= matches!(at.content, Content::Stored | Content::Sparse(_));
            if !at.damaged {
                places.push((at.extent().start, index));
            }
        }
        places.sort_unstable();
        for (_, index) in places {
            let is_whole = check_header(container, index, source)?
                && (!self.has_ranges || matches_checksum(&container.sample(index)?, source)?);
            if !is_whole {
                self.bad.insert(index);
            }
        }
        Ok(())
    }
}

/// Checks what stands before a sample; false if it is wrong.
fn check_header(container: &dyn Container, index: u64, source: &dyn Source) -> Result<bool> {
    for _ in 0..MAX_LOOKS {
        let at = container.sample(index)?;
        if at.header_bytes == 0 {
            return Ok(true);
        }
        let mut header = vec![0; usize::try_from(at.header_bytes).unwrap_or(0)];
        read(source, &mut header, at.extent().start)?;
        if container.check_header(index, &header).is_err() {
            return Ok(false);
        }
    }
    Ok(container.sample(index)?.header_bytes == 0)
}

/// Whether a sample that is a range matches its checksum, if it has one.
fn matches_checksum(at: &Sample, source: &dyn Source) -> Result<bool> {
    let (Some(expected), Content::Stored) = (at.checksum, at.content) else { return Ok(true) };
    let mut hasher = expected.hasher();
    let mut place = at.offset_bytes;
    let mut piece = vec![0; PIECE_BYTES];
    while place < at.end_bytes() {
        let left = at.end_bytes().saturating_sub(place);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let bytes = piece.get_mut(..length).unwrap_or_default();
        read(source, bytes, place)?;
        hasher.update(bytes);
        place = place.saturating_add(length as u64);
    }
    Ok(expected.compare(hasher.finish()).is_ok())
}

fn read(source: &dyn Source, bytes: &mut [u8], offset_bytes: u64) -> Result<()> {
    source.read_exact_at(bytes, offset_bytes).map_err(|e| Error::Unreadable {
        part: source.name().clone(),
        what: "a member of the member",
        offset_bytes,
        source: e,
    })
}
