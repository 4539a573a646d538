//! tar: V7, POSIX ustar and pax, GNU, star and Solaris, sparse files of all of them.
//!
//! An archive is read once, header by header ([`Scan`]); what is found is an [`Index`], which can be kept.
//! Members are served in place. What is done where readers differ is in `docs/formats.md`.

mod build;
mod fault;
mod header;
mod index;
mod members;
mod names;
mod pax;
mod scan;
mod sparse;
#[cfg(test)]
mod tests;
mod window;
mod writer;

pub use fault::Fault;
pub use index::Index;
pub use scan::{Scan, scan};
pub use writer::WriteTar;

use super::{
    Attributes, Container, Detected, Error, Format, IndexChecksum, Member, Names, OpenOptions,
    Piece, Result, Sample, Source, has_known_extension,
};
use header::{BLOCK_BYTES, Header};
use std::path::Path;
use std::sync::Arc;

const NAME: &str = "tar";
/// Zeros alone are an empty archive up to this length: programs write 10 KiB of them.
const MAX_EMPTY_BYTES: u64 = 1 << 20;

/// The format tar.
#[derive(Debug)]
pub struct Tar;

impl Format for Tar {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["tar"]
    }

    /// The first block has the right checksum; or all is zeros, in whole blocks, unless the name is one of
    /// another format, whose writer died.
    fn detect(&self, source: &dyn Source) -> Result<Detected> {
        let length = source.len();
        if length < BLOCK_BYTES {
            return Ok(Detected::No);
        }
        let mut block = [0; BLOCK_BYTES as usize];
        read(source, &mut block, 0)?;
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
        read(source, &mut rest, BLOCK_BYTES)?;
        let is_zero = rest.iter().all(|byte| *byte == 0);
        Ok(if is_zero { Detected::Perhaps } else { Detected::No })
    }

    fn open(&self, source: Arc<dyn Source>, options: &OpenOptions) -> Result<Box<dyn Container>> {
        let index = scan(source.as_ref(), options)?;
        Ok(Box::new(Archive::new(source, index)))
    }

    fn is_scanned(&self) -> bool {
        true
    }

    fn open_kept(
        &self,
        source: Arc<dyn Source>,
        kept: Arc<dyn Source>,
    ) -> Result<Option<Box<dyn Container>>> {
        Ok(match Index::read(kept.as_ref()) {
            Ok(index) => Some(Box::new(Archive::new(source, index))),
            Err(_) => None,
        })
    }
}

fn is_named_so(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(NAME))
}

/// An open archive.
#[derive(Debug)]
pub struct Archive {
    source: Opened,
    index: Index,
}

struct Opened(Arc<dyn Source>);

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.name().fmt(f)
    }
}

impl Archive {
    /// An archive whose index is there already.
    #[must_use]
    pub fn new(source: Arc<dyn Source>, index: Index) -> Self {
        Self { source: Opened(source), index }
    }

    /// What was found in it.
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.index
    }
}

impl Container for Archive {
    fn format(&self) -> &'static str {
        NAME
    }

    fn len(&self) -> u64 {
        self.index.len()
    }

    fn sample(&self, index: u64) -> Result<Sample> {
        self.index.sample(index)
    }

    fn check_unchanged(&self) -> std::io::Result<()> {
        self.source.0.check_unchanged()
    }

    fn data_bytes(&self) -> u64 {
        self.index.data_bytes()
    }

    fn piece(&self, index: u64, offset_bytes: u64) -> Result<Option<Piece>> {
        self.index.piece(index, offset_bytes)
    }

    fn has_holes(&self) -> bool {
        self.index.has_holes()
    }

    fn attributes(&self, index: u64) -> Result<Attributes> {
        self.index.attributes(index)
    }

    fn link_target(&self, index: u64) -> Result<Vec<u8>> {
        self.index.link_target(index)
    }

    fn members(&self, visit: &mut dyn FnMut(Member) -> Result<()>) -> Result<()> {
        self.index.members(visit)
    }

    fn keep(&self, out: &mut dyn std::io::Write) -> std::io::Result<()> {
        self.index.write(out)
    }

    fn names(&self, _samples: u64) -> Result<Names> {
        Ok(Names::Members)
    }

    /// Of headers, which were checked; there is none over the members' data.
    fn index_checksum(&self) -> IndexChecksum {
        IndexChecksum::Ok
    }

    fn warnings(&self) -> &[String] {
        self.index.warnings()
    }
}

fn read(source: &dyn Source, buf: &mut [u8], offset_bytes: u64) -> Result<()> {
    source.read_exact_at(buf, offset_bytes).map_err(|source_error| Error::Unreadable {
        part: source.name().clone(),
        what: "the first header",
        offset_bytes,
        source: source_error,
    })
}
