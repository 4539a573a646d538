//! RecordIO, as MXNet and dmlc-core write it, and the image records in it.
//!
//! ```text
//! records of: u32 0xced7230a | u32 kind << 29 | length | data, filled up to 4 bytes                  little-endian
//! kind 0: a whole record; 1, 2, 3: its first part, one in the middle, the last. Between parts stood the magic number
//! data of an image record: u32 n | f32 label | u64 id | u64 id2 | f32 labels[n] | value
//! ```
//! The file is read once, header by header (`scan`). There is no checksum.

mod scan;
#[cfg(test)]
mod tests;

use super::bytes::u32_at;
use super::reader::Reader;
use super::records::{RecordFile, RecordFormat};
use super::scanned::{self, Scanner};
use super::{Container, Detected, Format, IndexChecksum, OpenOptions, PartName, Result, Source};
use scan::{HEAD_BYTES, RecordIoScanner};
use std::sync::Arc;

const NAME: &str = "RecordIO";
const MAGIC: u32 = 0xced7_230a;

/// The format RecordIO.
#[derive(Debug)]
pub struct RecordIo;

impl RecordFormat for RecordIo {
    const NAME: &'static str = NAME;
    const VERSION: u32 = 1;
    const INDEX_CHECKSUM: IndexChecksum = IndexChecksum::None;
}

impl Format for RecordIo {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["rec"]
    }

    fn detect(&self, source: &dyn Source) -> Result<Detected> {
        if source.len() < HEAD_BYTES {
            return Ok(Detected::No);
        }
        let head: [u8; 4] = Reader::new(source, NAME).bytes("the first header", 0)?;
        Ok(if u32::from_le_bytes(head) == MAGIC { Detected::Yes } else { Detected::No })
    }

    fn open(&self, source: Arc<dyn Source>, options: &OpenOptions) -> Result<Box<dyn Container>> {
        let scanner = RecordIoScanner::new(source.name(), options);
        scanned::scan(source, Box::new(scanner))
    }

    fn is_scanned(&self) -> bool {
        true
    }

    fn scans_streams(&self) -> bool {
        true
    }

    fn scan_stream(
        &self,
        part: &PartName,
        first: &[u8],
        options: &OpenOptions,
    ) -> Result<Option<Box<dyn Scanner>>> {
        let is_it = u32_at(first, 0) == Some(MAGIC);
        Ok(is_it.then(|| Box::new(RecordIoScanner::new(part, options)) as Box<dyn Scanner>))
    }

    fn open_kept(
        &self,
        source: Arc<dyn Source>,
        kept: Arc<dyn Source>,
    ) -> Result<Option<Box<dyn Container>>> {
        RecordFile::<RecordIo>::open_kept(source, kept.as_ref())
    }
}
