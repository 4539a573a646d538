//! An archive that was scanned, or whose index was kept.

use super::row::{IS_SPARSE, IS_SYMLINK, Index, Row};
use crate::format::scanned::SampleRow;
use crate::format::{
    Attributes, Container, IndexChecksum, Member, Names, Piece, Result, Sample, Source,
};
use std::sync::Arc;

/// An open archive.
pub(super) struct Archive {
    source: Arc<dyn Source>,
    index: Index,
}

impl Archive {
    /// An archive that was scanned.
    pub(super) fn new(source: Arc<dyn Source>, index: Index) -> Self {
        Self { source, index }
    }
}

impl Container for Archive {
    fn format(&self) -> &'static str {
        Row::FORMAT
    }

    fn len(&self) -> u64 {
        self.index.len()
    }

    /// What was appended replaces what stood before.
    fn replaces_members(&self) -> bool {
        true
    }

    fn sample(&self, index: u64) -> Result<Sample> {
        self.index.sample(index)?.sample(&self.index)
    }

    fn check_unchanged(&self) -> std::io::Result<()> {
        self.source.check_unchanged()
    }

    fn index_is_fixed(&self) -> bool {
        true
    }

    fn data_bytes(&self) -> u64 {
        self.index.data_bytes()
    }

    fn piece(&self, index: u64, offset_bytes: u64) -> Result<Option<Piece>> {
        let row = self.index.sample(index)?;
        match row.is(IS_SPARSE) {
            true => self.index.piece(row.sparse.into(), offset_bytes),
            false => Ok(None),
        }
    }

    fn has_holes(&self) -> bool {
        self.index.has_pieces()
    }

    fn attributes(&self, index: u64) -> Result<Attributes> {
        self.index.sample(index).map(|row| row.attributes())
    }

    fn link_target(&self, index: u64) -> Result<Vec<u8>> {
        let row = self.index.sample(index)?;
        match row.is(IS_SYMLINK) {
            true => self.index.target(row.offset, row.length),
            false => Ok(Vec::new()),
        }
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
