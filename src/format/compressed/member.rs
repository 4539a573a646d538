//! Containers that are compressed members of other containers: opened through the interval index of the stream that
//! they lie in.

use super::decoded::DecodedSource;
use super::examined::Examined;
use super::file::CompressedFile;
use crate::format::codec::Codec;
use crate::format::stream::{INTERVAL_BYTES, StreamIndex};
use crate::format::{
    self, Checksum, Container, Error, OpenOptions, PartName, Result, SliceSource, Source,
};
use std::ops::Range;
use std::sync::Arc;

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
    let examined = Examined::of(container.as_ref(), slice.as_ref())?;
    decoded.forget();
    Ok(Box::new(CompressedFile::member(source, stream, range.start, (container, examined))))
}
