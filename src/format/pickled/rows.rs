//! The files of a pickle as rows of a record.
//!
//! Imports the files, and `records` of this room.

use super::files::{Files, decoded};
use crate::format::ChecksumKind;
use crate::format::records::{Builder, Record, RecordFormat, Row};

/// Adds the files of a pickle to a record, below the directory `above` if that is not empty. The pickle is `bytes`, which
/// begin at `offset` of the container. With `checksum` each file gets one of its own. The format decodes coded files with
/// [`super::latin1`]. `None` if there are too many headers; some files may have been added.
pub(in crate::format) fn add<F: RecordFormat>(
    (bytes, offset): (&[u8], u64),
    files: &Files,
    above: &[u8],
    checksum: Option<ChecksumKind>,
    build: &mut Builder<F>,
    record: &mut Record<F>,
) -> Option<()> {
    let below = |path: &[Vec<u8>]| -> Vec<Vec<u8>> {
        let above = (!above.is_empty()).then(|| above.to_vec());
        above.into_iter().chain(path.iter().cloned()).collect()
    };
    for file in &files.files {
        let at = offset.saturating_add(file.data.range.start as u64);
        let place = (at, file.data.range.len() as u64);
        let size = (file.header.len() as u64).saturating_add(file.data.len() as u64);
        let mut row = match file.data.latin1 {
            None if file.header.is_empty() => Row::stored(place.0, place.1, file.ending),
            None => build.headed(place, &file.header, file.ending)?,
            Some(count) => build.coded(place, &file.header, count, file.ending)?,
        };
        row.checksum = checksum.map(|kind| {
            let shown = decoded(bytes, &file.data);
            match file.data.latin1 {
                None => kind.of(&shown),
                Some(_) => kind.of(&[&file.header[..], &shown].concat()),
            }
        });
        let path = below(&file.path);
        match path.is_empty() {
            true => record.whole(row, size),
            false => record.sized(&parts(&path), row, size),
        }
    }
    for path in &files.directories {
        record.directory(&parts(&below(path)));
    }
    Some(())
}

fn parts(path: &[Vec<u8>]) -> Vec<&[u8]> {
    path.iter().map(Vec::as_slice).collect()
}
