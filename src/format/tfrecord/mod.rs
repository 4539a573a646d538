//! TFRecord, as TensorFlow and the `tfrecord` package write it.
//!
//! ```text
//! records of: u64 length | u32 masked CRC-32C of the length | data | u32 masked CRC-32C of the data     little-endian
//! ```
//! There is no index: the file is read once (`scan`). A record that is a `tf.Example` is a directory of its features
//! (`example`); all else is a file. Each file has a CRC-32C of its own, taken from bytes that matched their record's.

mod example;
mod scan;
#[cfg(test)]
mod tests;
mod wire;

use super::records::{RecordFile, RecordFormat, Shown};
use super::scanned::{self, Scanner};
use super::{
    Checksum, ChecksumKind, Container, Detected, Format, IndexChecksum, OpenOptions, PartName,
    Result, Source,
};
use scan::{HEAD_BYTES, TfRecordScanner};
use std::sync::Arc;

const NAME: &str = "TFRecord";

/// The format TFRecord.
#[derive(Debug)]
pub struct TfRecord;

impl RecordFormat for TfRecord {
    const NAME: &'static str = NAME;
    const VERSION: u32 = 1;
    /// Of lengths, which were checked.
    const INDEX_CHECKSUM: IndexChecksum = IndexChecksum::Ok;

    fn decode(shown: Shown, stored: &[u8], values: &mut [u8]) -> bool {
        example::decode(shown, stored, values)
    }
}

impl Format for TfRecord {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["tfrecord", "tfrecords", "tfrec"]
    }

    /// The first length has the right checksum.
    fn detect(&self, source: &dyn Source) -> Result<Detected> {
        let mut head = [0; HEAD_BYTES as usize];
        if source.len() < HEAD_BYTES {
            return Ok(Detected::No);
        }
        super::reader::Reader::new(source, NAME).read("the first length", &mut head, 0)?;
        Ok(if length_of(&head).is_some() { Detected::Yes } else { Detected::No })
    }

    fn open(&self, source: Arc<dyn Source>, options: &OpenOptions) -> Result<Box<dyn Container>> {
        let scanner = TfRecordScanner::new(source.name(), options);
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
        let is_it = first.first_chunk().is_some_and(|head| length_of(head).is_some());
        Ok(is_it.then(|| Box::new(TfRecordScanner::new(part, options)) as Box<dyn Scanner>))
    }

    fn open_kept(
        &self,
        source: Arc<dyn Source>,
        kept: Arc<dyn Source>,
    ) -> Result<Option<Box<dyn Container>>> {
        RecordFile::<TfRecord>::open_kept(source, kept.as_ref())
    }
}

/// The length of a record, by what stands before it; `None` if that does not match its checksum.
fn length_of(head: &[u8; HEAD_BYTES as usize]) -> Option<u64> {
    let (length, stored) = (head.first_chunk::<8>()?, head.last_chunk::<4>()?);
    let is_right = stored_checksum(*stored).check(length).is_ok();
    is_right.then(|| u64::from_le_bytes(*length))
}

fn stored_checksum(bytes: [u8; 4]) -> Checksum {
    ChecksumKind::MaskedCrc32c.with_value(u32::from_le_bytes(bytes))
}
