//! MDS, the shards of MosaicML Streaming.
//!
//! ```text
//! u32 n | u32 offsets[n + 1] | JSON of the columns | samples                                       little-endian
//! a sample: u32 sizes of the columns that have none of their own | values
//! ```
//! Where the values of a sample lie stands before it, so a shard is read once, sample by sample (`scan`); values are
//! passed over. There is no checksum in a shard.

mod columns;
mod scan;
#[cfg(test)]
mod tests;

use super::bytes::u32_at;
use super::reader::Reader;
use super::records::{RecordFile, RecordFormat};
use super::scanned::{self, Scanner};
use super::{Container, Detected, Format, IndexChecksum, OpenOptions, PartName, Result, Source};
use scan::MdsScanner;
use std::sync::Arc;

const NAME: &str = "MDS";
/// Of the JSON so much is looked at to recognise it.
const LOOK_BYTES: u64 = 4 << 10;

/// The format MDS.
#[derive(Debug)]
pub struct Mds;

impl RecordFormat for Mds {
    const NAME: &'static str = NAME;
    const VERSION: u32 = 1;
    const INDEX_CHECKSUM: IndexChecksum = IndexChecksum::None;
}

impl Format for Mds {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["mds"]
    }

    /// The first offset leads behind an object of JSON that names the columns.
    fn detect(&self, source: &dyn Source) -> Result<Detected> {
        let reader = Reader::new(source, NAME);
        if reader.len() < 8 {
            return Ok(Detected::No);
        }
        let head: [u8; 8] = reader.bytes("the header", 0)?;
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

    fn open(&self, source: Arc<dyn Source>, options: &OpenOptions) -> Result<Box<dyn Container>> {
        let scanner = MdsScanner::new(source.name(), options);
        scanned::scan(source, Box::new(scanner))
    }

    fn is_scanned(&self) -> bool {
        true
    }

    fn scans_streams(&self) -> bool {
        true
    }

    /// The columns stand behind thousands of offsets: the name must tell.
    fn scan_stream(
        &self,
        part: &PartName,
        first: &[u8],
        options: &OpenOptions,
    ) -> Result<Option<Box<dyn Scanner>>> {
        let name =
            part.file_name().file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let is_it = name.contains(".mds") && json_range(first).is_some();
        Ok(is_it.then(|| Box::new(MdsScanner::new(part, options)) as Box<dyn Scanner>))
    }

    fn open_kept(
        &self,
        source: Arc<dyn Source>,
        kept: Arc<dyn Source>,
    ) -> Result<Option<Box<dyn Container>>> {
        RecordFile::<Mds>::open_kept(source, kept.as_ref())
    }
}

/// Where the JSON begins, and where it ends and the first sample begins, by the first 8 bytes of a shard.
fn json_range(head: &[u8]) -> Option<(u64, u64)> {
    let samples = u64::from(u32_at(head, 0)?);
    let json_at = samples.checked_add(2)?.checked_mul(4)?;
    let samples_at = u64::from(u32_at(head, 4)?);
    (samples_at > json_at).then_some((json_at, samples_at))
}
