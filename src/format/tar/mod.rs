//! tar: V7, POSIX ustar and pax, GNU, star and Solaris, sparse files of all of them.
//!
//! An archive is read once, header by header (`scan`); the result is an index that can be kept
//! ([`super::scanned`]). Members are served in place. `docs/formats.md` says how ffrfs decides where readers differ.

mod builder;
mod fault;
mod header;
mod members;
mod names;
mod pax;
mod row;
mod scan;
mod sparse;
mod state;
#[cfg(test)]
mod tests;
mod writer;

pub(super) use fault::DAMAGED;
pub use writer::WriteTar;

use super::reader::Reader;
use super::scanned::{MembersFile, ScannedFormat, Scanner};
use super::{
    Container, Detected, MemorySource, OpenOptions, PartName, Result, Source, has_known_extension,
};
use header::{BLOCK_BYTES, Header};
use row::{Index, Row};
use state::TarScanner;
use std::path::Path;
use std::sync::Arc;

const NAME: &str = "tar";
/// Zeros alone are an empty archive up to this length: programs write 10 KiB of them.
const MAX_EMPTY_BYTES: u64 = 1 << 20;

/// The format tar.
#[derive(Debug)]
pub struct Tar;

impl ScannedFormat for Tar {
    type Row = Row;
    const EXTENSIONS: &'static [&'static str] = &["tar"];

    /// Whether the first block has the right checksum; or the file is zeros, in whole blocks, unless its name is
    /// one of another format, whose writer died.
    fn looks_like(source: &dyn Source) -> Result<Detected> {
        let length = source.len();
        if length < BLOCK_BYTES {
            return Ok(Detected::No);
        }
        let reader = Reader::new(source, NAME);
        let mut block = [0; BLOCK_BYTES as usize];
        reader.read("the first header", &mut block, 0)?;
        let header = Header::new(&block);
        if !header.is_zero() {
            let is_tar = header.has_right_checksum();
            return Ok(if is_tar { Detected::Yes } else { Detected::No });
        }
        let may_be_empty = length > BLOCK_BYTES
            && length <= MAX_EMPTY_BYTES
            && length.is_multiple_of(BLOCK_BYTES)
            && (!has_known_extension(source.name().file_name())
                || is_named_so(source.name().file_name()));
        if !may_be_empty {
            return Ok(Detected::No);
        }
        let mut rest = vec![0; usize::try_from(length.saturating_sub(BLOCK_BYTES)).unwrap_or(0)];
        reader.read("the first header", &mut rest, BLOCK_BYTES)?;
        let is_zero = rest.iter().all(|byte| *byte == 0);
        Ok(if is_zero { Detected::Perhaps } else { Detected::No })
    }

    /// Whether a stream is an archive. One without a member is zeros, which prove nothing by themselves: its name must.
    fn is_stream(part: &PartName, first: &[u8]) -> Result<bool> {
        let Some(block) = first.get(..BLOCK_BYTES as usize) else { return Ok(false) };
        let source = MemorySource::new(part.clone(), block.to_vec());
        let is_tar = Tar::looks_like(&source)? == Detected::Yes;
        Ok(is_tar || Header::new(block).is_zero() && is_stream_named_so(part.file_name()))
    }

    fn pass(part: &PartName, options: &OpenOptions) -> Result<Box<dyn Scanner>> {
        Ok(Box::new(TarScanner::new(part, options)?))
    }

    fn with_index(source: Arc<dyn Source>, index: Index) -> Result<Box<dyn Container>> {
        Ok(Box::new(MembersFile::new(source, index)))
    }
}

fn is_named_so(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(NAME))
}

/// Whether the compressed file `path` holds an archive, by its name.
fn is_stream_named_so(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let is_short = ["tgz", "tbz", "tbz2", "txz", "tzst"].iter().any(|e| name.ends_with(e));
    is_short || name.contains(".tar.")
}
