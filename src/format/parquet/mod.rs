//! Parquet (`.parquet`), as pyarrow, Hugging Face's `datasets` and Spark write it: own code, which reads only.
//!
//! A row is a directory of its columns. The footer says where the pages of each column lie (`footer`, `schema`), but not
//! how long a value is: the pages are read once (`scan`, `rows`, `column`), and the index is worth keeping. It has 24 bytes
//! a file, 48 a page, and the dictionaries of lists. A read decodes one page (`units`); values of uncompressed pages are
//! served in place. Only the codecs come from other crates: the rest of a file, which may be forged, is parsed here, by
//! lengths that were checked.

mod budget;
mod cells;
mod codecs;
mod column;
mod cursors;
mod dictionaries;
mod encoding;
mod fields;
mod file;
mod footer;
mod json;
mod labels;
mod literals;
mod page;
mod page_index;
mod rows;
mod scan;
mod schema;
#[cfg(test)]
mod tests;
mod texts;
mod thrift;
mod units;
mod values;

use super::reader::Reader;
use super::records::RecordFormat;
use super::{Container, Detected, Format, IndexChecksum, OpenOptions, Result, Source};
use file::ParquetFile;
use std::sync::Arc;

const NAME: &str = "Parquet";
/// The shortest file: two marks and the length of the footer.
const MIN_BYTES: u64 = 12;

/// The format Parquet.
#[derive(Debug)]
pub struct Parquet;

impl RecordFormat for Parquet {
    const NAME: &'static str = NAME;
    const VERSION: u32 = 2;
    const ENDS_NAMES: bool = true;

    fn index_checksum(_source: &dyn Source) -> IndexChecksum {
        IndexChecksum::None
    }
}

impl Format for Parquet {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["parquet", "parq", "pq"]
    }

    fn detect(&self, source: &dyn Source) -> Result<Detected> {
        if source.len() < MIN_BYTES {
            return Ok(Detected::No);
        }
        let head: [u8; 4] = Reader::new(source, NAME).bytes("the mark", 0)?;
        let is_it = &head == footer::MARK || &head == footer::ENCRYPTED;
        Ok(if is_it { Detected::Yes } else { Detected::No })
    }

    fn open(&self, source: Arc<dyn Source>, options: &OpenOptions) -> Result<Box<dyn Container>> {
        let (units, builder) = scan::scan(source.as_ref(), options)?;
        Ok(Box::new(ParquetFile::new(source, units, builder)?))
    }

    fn is_scanned(&self) -> bool {
        true
    }

    fn open_kept(
        &self,
        source: Arc<dyn Source>,
        kept: Arc<dyn Source>,
    ) -> Result<Option<Box<dyn Container>>> {
        let opened = ParquetFile::open_kept(source, kept)?;
        Ok(opened.map(|file| Box::new(file) as Box<dyn Container>))
    }
}
