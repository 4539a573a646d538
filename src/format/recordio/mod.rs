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
use super::records::{RecordFile, RecordFormat, Row};
use super::scanned::{Index, ScannedFormat, Scanner};
use super::{Container, Detected, IndexChecksum, OpenOptions, PartName, Result, Source};
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

    fn index_checksum(_source: &dyn Source) -> IndexChecksum {
        IndexChecksum::None
    }
}

impl ScannedFormat for RecordIo {
    type Row = Row<RecordIo>;
    const EXTENSIONS: &'static [&'static str] = &["rec"];

    fn looks_like(source: &dyn Source) -> Result<Detected> {
        if source.len() < HEAD_BYTES {
            return Ok(Detected::No);
        }
        let head: [u8; 4] = Reader::new(source, NAME).bytes("the first header", 0)?;
        Ok(if u32::from_le_bytes(head) == MAGIC { Detected::Yes } else { Detected::No })
    }

    /// A file without records is recognized by its name.
    fn is_stream(part: &PartName, first: &[u8]) -> Result<bool> {
        if first.is_empty() {
            return Ok(part.has_ending_within(Self::EXTENSIONS));
        }
        Ok(u32_at(first, 0) == Some(MAGIC))
    }

    fn pass(part: &PartName, options: &OpenOptions) -> Result<Box<dyn Scanner>> {
        Ok(Box::new(RecordIoScanner::new(part, options)))
    }

    fn with_index(
        source: Arc<dyn Source>,
        index: Index<Row<RecordIo>>,
    ) -> Result<Box<dyn Container>> {
        RecordFile::boxed(source, index)
    }
}
