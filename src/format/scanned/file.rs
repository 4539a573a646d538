//! An open container of named members, by its index.

use super::index::Index;
use super::row::SampleRow;
use crate::format::{
    Attributes, Container, Error, IndexChecksum, Member, Names, Piece, Result, Sample, Source,
    counted,
};
use std::sync::Arc;

/// The row that is stored of a member.
pub(in crate::format) trait MemberRow: SampleRow + 'static {
    /// As [`Container::replaces_members`].
    const REPLACES: bool;
    /// As [`Container::index_checksum`].
    const INDEX_CHECKSUM: IndexChecksum;

    /// Returns where the member lies.
    ///
    /// # Errors
    /// The index cannot be read.
    fn sample(&self, index: &Index<Self>) -> Result<Sample>;

    /// As [`Container::prefix`].
    ///
    /// # Errors
    /// The index cannot be read.
    fn prefix(&self, index: &Index<Self>) -> Result<Vec<u8>> {
        let _ = index;
        Ok(Vec::new())
    }

    /// As [`Container::decode`]. Returns false if the stored bytes are no encoding of `out.len()` bytes.
    ///
    /// # Errors
    /// The index cannot be read.
    fn decode(&self, index: &Index<Self>, stored: &[u8], out: &mut [u8]) -> Result<bool> {
        let _ = (index, stored, out);
        Ok(false)
    }

    /// As [`Container::attributes`].
    fn attributes(&self) -> Attributes {
        Attributes::default()
    }

    /// The number of the member among the files in pieces, if it is one.
    fn pieced(&self) -> Option<u32> {
        None
    }

    /// The target of a symbolic link: its offset among the targets, and its length.
    fn target(&self) -> Option<(u64, u64)> {
        None
    }
}

/// An open container of named members.
pub(in crate::format) struct MembersFile<R> {
    source: Arc<dyn Source>,
    index: Index<R>,
}

impl<R: MemberRow> MembersFile<R> {
    pub(in crate::format) fn new(source: Arc<dyn Source>, index: Index<R>) -> Self {
        Self { source, index }
    }
}

impl<R: MemberRow> Container for MembersFile<R> {
    fn format(&self) -> &'static str {
        R::FORMAT
    }

    fn len(&self) -> u64 {
        self.index.len()
    }

    fn replaces_members(&self) -> bool {
        R::REPLACES
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
        match self.index.sample(index)?.pieced() {
            Some(number) => self.index.piece(number.into(), offset_bytes),
            None => Ok(None),
        }
    }

    fn prefix(&self, index: u64) -> Result<Vec<u8>> {
        self.index.sample(index)?.prefix(&self.index)
    }

    fn decode(&self, index: u64, stored: &[u8], out: &mut [u8]) -> Result<()> {
        let row = self.index.sample(index)?;
        if row.decode(&self.index, stored, out)? {
            return Ok(());
        }
        Err(Error::Malformed {
            part: self.source.name().clone(),
            format: R::FORMAT,
            offset_bytes: row.sample(&self.index)?.offset_bytes,
            expected: format!("what encodes {}", counted(out.len(), "byte")),
            found: "other bytes than when it was indexed".to_owned(),
            hint: "",
        })
    }

    fn has_holes(&self) -> bool {
        self.index.has_pieces()
    }

    fn attributes(&self, index: u64) -> Result<Attributes> {
        self.index.sample(index).map(|row| row.attributes())
    }

    fn link_target(&self, index: u64) -> Result<Vec<u8>> {
        match self.index.sample(index)?.target() {
            Some((at, length)) => self.index.target(at, length),
            None => Ok(Vec::new()),
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

    fn index_checksum(&self) -> IndexChecksum {
        R::INDEX_CHECKSUM
    }

    fn warnings(&self) -> &[String] {
        self.index.warnings()
    }
}
