//! TFRecord, as TensorFlow and the `tfrecord` package write it.
//!
//! ```text
//! records of: u64 length | u32 masked CRC-32C of the length | data | u32 masked CRC-32C of the data     little-endian
//! ```
//! There is no index: the file is read once (`scan`). A record that is a `tf.Example` is a directory of its features
//! (`example`); any other is a file. Each file has a CRC-32C of its own, taken from bytes that matched their record's.

mod example;
mod scan;
#[cfg(test)]
mod tests;
mod wire;
mod writer;

pub use writer::WriteTfRecord;

use super::reader::Reader;
use super::records::{RecordFile, RecordFormat, Row, Shown};
use super::scanned::{Index, ScannedFormat, Scanner};
use super::{
    Checksum, ChecksumKind, Container, Detected, IndexChecksum, OpenOptions, PartName, Result,
    Source,
};
use scan::{HEAD_BYTES, TfRecordScanner};
use std::sync::Arc;

const NAME: &str = "TFRecord";

/// The format TFRecord.
#[derive(Debug)]
pub struct TfRecord;

impl RecordFormat for TfRecord {
    const NAME: &'static str = NAME;
    const VERSION: u32 = 3;

    /// The checksums of lengths, which were checked.
    fn index_checksum(_source: &dyn Source) -> IndexChecksum {
        IndexChecksum::Ok
    }

    fn decode(shown: Shown, stored: &[u8], values: &mut [u8]) -> bool {
        example::decode(shown, stored, values)
    }
}

impl ScannedFormat for TfRecord {
    type Row = Row<TfRecord>;
    const EXTENSIONS: &'static [&'static str] = &["tfrecord", "tfrecords", "tfrec"];

    /// Yes if the first length has the right checksum.
    fn looks_like(source: &dyn Source) -> Result<Detected> {
        if source.len() < HEAD_BYTES {
            return Ok(Detected::No);
        }
        let head = Reader::new(source, NAME).bytes("the first length", 0)?;
        Ok(if length_of(&head).is_some() { Detected::Yes } else { Detected::No })
    }

    /// A file without records is recognized by its name.
    fn is_stream(part: &PartName, first: &[u8]) -> Result<bool> {
        if first.is_empty() {
            return Ok(part.has_ending_within(Self::EXTENSIONS));
        }
        Ok(first.first_chunk().is_some_and(|head| length_of(head).is_some()))
    }

    fn pass(part: &PartName, options: &OpenOptions) -> Result<Box<dyn Scanner>> {
        Ok(Box::new(TfRecordScanner::new(part, options)))
    }

    fn with_index(
        source: Arc<dyn Source>,
        index: Index<Row<TfRecord>>,
    ) -> Result<Box<dyn Container>> {
        RecordFile::boxed(source, index)
    }
}

/// The length of a record, from its header bytes; `None` if the length does not match its checksum.
fn length_of(head: &[u8; HEAD_BYTES as usize]) -> Option<u64> {
    let (length, stored) = (head.first_chunk::<8>()?, head.last_chunk::<4>()?);
    let is_right = stored_checksum(*stored).check(length).is_ok();
    is_right.then(|| u64::from_le_bytes(*length))
}

fn stored_checksum(bytes: [u8; 4]) -> Checksum {
    ChecksumKind::MaskedCrc32c.with_value(u32::from_le_bytes(bytes))
}
