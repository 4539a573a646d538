//! The kept index of a compressed file: the index of the stream, and that of the container in it.
//!
//! ```text
//! "FFRCOMP\0" | u64 version | u64 bytes of the stream's index | 16 bytes name of the container's format, or zeros
//! the stream's index | the container's                                                    little-endian
//! ```

use super::decoded::DecodedSource;
use crate::format::bytes::u64_at;
use crate::format::counted;
use crate::format::stream::StreamIndex;
use crate::format::{Container, Error, FORMATS, Result, SliceSource, Source};
use std::io;
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"FFRCOMP\0";
const VERSION: u64 = 1;
const HEAD_BYTES: usize = 40;
const NAME_BYTES: usize = 16;

pub(super) fn write(
    out: &mut dyn io::Write,
    stream: &StreamIndex,
    container: Option<&dyn Container>,
) -> io::Result<()> {
    let stream = stream.write();
    let mut name = container.map_or("", Container::format).as_bytes().to_vec();
    name.resize(NAME_BYTES, 0);
    out.write_all(&MAGIC)?;
    out.write_all(&VERSION.to_le_bytes())?;
    out.write_all(&(stream.len() as u64).to_le_bytes())?;
    out.write_all(&name)?;
    out.write_all(&stream)?;
    container.map_or(Ok(()), |container| container.keep(out))
}

/// The stream's index and the container, from the kept index of a compressed file.
type Kept = (Arc<StreamIndex>, Option<Box<dyn Container>>);

/// Reads an index that [`write`] wrote. `None` if another version kept it.
pub(super) fn read(source: &Arc<dyn Source>, kept: &Arc<dyn Source>) -> Result<Option<Kept>> {
    let unreadable = |offset_bytes, source| Error::Unreadable {
        part: kept.name().clone(),
        what: "the kept index",
        offset_bytes,
        source,
    };
    if kept.len() < HEAD_BYTES as u64 {
        return Ok(None);
    }
    let mut head = [0; HEAD_BYTES];
    kept.read_exact_at(&mut head, 0).map_err(|e| unreadable(0, e))?;
    if !head.starts_with(&MAGIC) || u64_at(&head, 8) != Some(VERSION) {
        return Ok(None);
    }
    let malformed = |offset_bytes, expected: &str, found: String| Error::Malformed {
        part: kept.name().clone(),
        format: "kept index",
        offset_bytes,
        expected: expected.to_owned(),
        found,
        hint: "",
    };
    let stream_bytes = u64_at(&head, 16).unwrap_or_default();
    let container_at = (HEAD_BYTES as u64).saturating_add(stream_bytes);
    let Some(container_bytes) = kept.len().checked_sub(container_at) else {
        let found = format!("{} of {}", counted(stream_bytes, "byte"), kept.len());
        return Err(malformed(16, "the length of a stream's index within the file", found));
    };
    let stream = StreamIndex::read_kept(kept.as_ref(), HEAD_BYTES as u64..container_at)
        .map_err(|e| unreadable(HEAD_BYTES as u64, e))?;
    let stream = stream.map(Arc::new).ok_or_else(|| {
        malformed(HEAD_BYTES as u64, "the index of a stream", "damaged bytes".to_owned())
    })?;
    let name = head.last_chunk::<NAME_BYTES>().map_or(&[][..], |name| name);
    if name.iter().all(|&byte| byte == 0) && container_bytes == 0 {
        return Ok(Some((stream, None)));
    }
    let is_named = |format: &&&dyn crate::format::Format| {
        let (text, zeros) = name.split_at_checked(format.name().len()).unwrap_or_default();
        format.scans_streams()
            && text == format.name().as_bytes()
            && zeros.iter().all(|&byte| byte == 0)
    };
    let Some(format) = FORMATS.iter().find(is_named) else {
        let found = String::from_utf8_lossy(name).into_owned();
        return Err(malformed(24, "the name of a format", found));
    };
    let part =
        SliceSource::new(kept.name().clone(), Arc::clone(kept), container_at, container_bytes);
    let decoded = DecodedSource::new(Arc::clone(source), Arc::clone(&stream));
    let container = format.open_kept(Arc::new(decoded), Arc::new(part))?;
    Ok(container.map(|container| (stream, Some(container))))
}
