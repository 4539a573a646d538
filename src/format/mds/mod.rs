//! MDS, the shards of MosaicML Streaming.
//!
//! ```text
//! u32 n | u32 offsets[n + 1] | JSON of the columns | samples                                       little-endian
//! a sample: u32 sizes of the columns that have none of their own | values
//! ```
//! The sizes of a sample's values stand before them, so a shard is read once, sample by sample (`scan`); values are
//! passed over, except pickles that are to be taken apart. A shard has no checksum.

mod columns;
mod encoding;
mod listed;
mod scan;
#[cfg(test)]
mod tests;
mod writer;

pub use listed::{FileHashes, LIST_NAME, listed_hashes};
pub use writer::WriteMds;

use super::bytes::u32_at;
use super::pickled;
use super::reader::Reader;
use super::records::{RecordFile, RecordFormat, Row, Shown};
use super::scanned::{Index, ScannedFormat, Scanner};
use super::{Container, Detected, IndexChecksum, OpenOptions, PartName, Result, Source};
use scan::MdsScanner;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const NAME: &str = "MDS";
/// The endings of the names of compressed shards.
const COMPRESSED: [&str; 5] = ["zstd", "zst", "gz", "bz2", "xz"];
/// Bytes of the JSON that are read to recognise a shard.
const LOOK_BYTES: u64 = 4 << 10;
/// Bytes of the number of samples, and of the first offset.
const HEAD_BYTES: u64 = 8;

/// The shard of which the file `path` beside it is a compressed copy, by its name: `shard.00000.mds` for
/// `shard.00000.mds.zstd`. MosaicML Streaming keeps both where it is told to (`keep_zip`).
#[must_use]
pub fn copied_shard(path: &Path) -> Option<PathBuf> {
    let ending = path.extension()?.to_str()?;
    let is_compressed = COMPRESSED.iter().any(|known| known.eq_ignore_ascii_case(ending));
    let shard = path.with_extension("");
    (is_compressed && shard.extension().is_some_and(|ending| ending == "mds")).then_some(shard)
}

/// The format MDS.
#[derive(Debug)]
pub struct Mds;

impl RecordFormat for Mds {
    const NAME: &'static str = NAME;
    const VERSION: u32 = 3;

    fn index_checksum(_source: &dyn Source) -> IndexChecksum {
        IndexChecksum::None
    }

    /// Decodes bytes in pickles.
    fn decode(shown: Shown, stored: &[u8], values: &mut [u8]) -> bool {
        shown == Shown::Coded && pickled::latin1(stored, values)
    }
}

impl ScannedFormat for Mds {
    type Row = Row<Mds>;
    const EXTENSIONS: &'static [&'static str] = &["mds"];
    const DIRECTORY_FILE: Option<&'static str> = Some(LIST_NAME);

    /// The first offset leads behind an object of JSON that names the columns.
    fn looks_like(source: &dyn Source) -> Result<Detected> {
        let reader = Reader::new(source, NAME);
        if reader.len() < HEAD_BYTES {
            return Ok(Detected::No);
        }
        let head: [u8; HEAD_BYTES as usize] = reader.bytes("the header", 0)?;
        let Some((json_at, samples_at)) = json_range(&head) else { return Ok(Detected::No) };
        if samples_at > reader.len() {
            return Ok(Detected::No);
        }
        let length = samples_at.saturating_sub(json_at).min(LOOK_BYTES);
        let mut json = vec![0; usize::try_from(length).unwrap_or(0)];
        reader.read("the columns", &mut json, json_at)?;
        let names_columns = json.windows(16).any(|text| text == b"column_encodings");
        let is_it = json.first() == Some(&b'{') && names_columns;
        Ok(if is_it { Detected::Yes } else { Detected::No })
    }

    /// The columns stand behind thousands of offsets: the name must show the format.
    fn is_stream(part: &PartName, first: &[u8]) -> Result<bool> {
        let name = part.file_name().file_name().unwrap_or_default();
        let name = name.to_string_lossy().to_lowercase();
        Ok(name.contains(".mds") && json_range(first).is_some())
    }

    fn pass(part: &PartName, options: &OpenOptions) -> Result<Box<dyn Scanner>> {
        Ok(Box::new(MdsScanner::new(part, options)))
    }

    fn with_index(source: Arc<dyn Source>, index: Index<Row<Mds>>) -> Result<Box<dyn Container>> {
        RecordFile::boxed(source, index)
    }
}

/// The offset of the JSON, and the offset of its end, where the first sample begins, by the first 8 bytes of a shard.
fn json_range(head: &[u8]) -> Option<(u64, u64)> {
    let samples = u64::from(u32_at(head, 0)?);
    let json_at = samples.checked_add(2)?.checked_mul(4)?;
    let samples_at = u64::from(u32_at(head, 4)?);
    (samples_at > json_at).then_some((json_at, samples_at))
}
