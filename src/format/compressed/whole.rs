//! Compressed files of containers that are read at any place, and so are not found by the pass over the stream: HDF5, Parquet,
//! zip and the like.
//!
//! Imports members of this directory: such a container is one that is all of its stream.

use super::CODECS;
use super::decoded::{DecodedSource, RecentIntervals};
use super::file::CompressedFile;
use super::member::{Head, Reads, open_in_stream, open_kept_in_stream};
use crate::format::stream::StreamIndex;
use crate::format::{Error, Format, OpenOptions, Result, Source, has_known_extension, recognize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// So many decoded intervals are kept in memory while such a container is opened: what says where its samples lie may stand
/// in several places.
const RECENT: usize = 8;

const SHOW_FILE: &str = ": --nested 0 shows the file that was compressed";

/// The format of what a compressed file `name` holds. Its name must say so, too: nothing is decoded to find that out of all
/// others.
pub(super) fn format_of(
    decoded: &dyn Source,
    name: &[u8],
    options: &OpenOptions,
) -> Option<&'static dyn Format> {
    if options.compressed_whole || !has_known_extension(Path::new(OsStr::from_bytes(name))) {
        return None;
    }
    let format = recognize(decoded, &OpenOptions::default()).ok()?;
    let is_compressed = CODECS.iter().any(|codec| codec.name == format.name());
    (!format.scans_streams() && !is_compressed).then_some(format)
}

/// Opens what a stream holds, by what was kept of it if there is something. `None`: it is one file.
pub(super) fn open(
    source: &Arc<dyn Source>,
    stream: &Arc<StreamIndex>,
    (name, kept): (&[u8], Option<Arc<dyn Source>>),
    options: &OpenOptions,
) -> Result<Option<(CompressedFile, Reads)>> {
    // What it is called in the options is the compressed file.
    let options = OpenOptions { format: None, ..options.clone() };
    let (range, part) = (0..stream.decoded_bytes(), source.name().clone());
    let stream = Arc::clone(stream);
    if let Some(kept) = &kept
        && let Some(head) = Head::read(kept.as_ref())?
    {
        let (source, range) = ((Arc::clone(source), part.clone()), range.clone());
        let found = (Arc::clone(&stream), range);
        if let Some(file) = open_kept_in_stream(source, found, (kept, &head), &options)? {
            return Ok(Some((file, None)));
        }
    }
    let decoded = DecodedSource::new(Arc::clone(source), Arc::clone(&stream));
    if stream.is_cut() || format_of(&decoded, name, &options).is_none() {
        return Ok(None);
    }
    let recent = Arc::new(RecentIntervals::new(RECENT));
    let in_stream = (stream, range, (Arc::clone(&recent), 0));
    let opened = open_in_stream(Arc::clone(source), part, in_stream, (&options, true));
    recent.forget();
    named(opened).map(Some)
}

/// Says how a file is mounted whose container is malformed.
pub(super) fn named<T>(opened: Result<T>) -> Result<T> {
    opened.map_err(|error| match error {
        Error::Malformed { part, format, offset_bytes, expected, found, hint: "" } => {
            Error::Malformed { part, format, offset_bytes, expected, found, hint: SHOW_FILE }
        }
        other => other,
    })
}
