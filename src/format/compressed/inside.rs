//! The content of a compressed stream: a container, or any other file.

use crate::format::{Attributes, Container, Content, Member, Names, Node, Piece, Result, Sample};

/// The content of a stream. Samples and pieces are ranges of the decoded stream.
pub(super) enum Inside {
    Container(Box<dyn Container>),
    File {
        name: Vec<u8>,
        /// Seconds since 1970.
        modified: Option<u32>,
        size_bytes: u64,
        /// The notice that the file is a container, which was not opened.
        unopened: Option<String>,
    },
}

impl Inside {
    pub(super) fn container(&self) -> Option<&dyn Container> {
        match self {
            Inside::Container(container) => Some(container.as_ref()),
            Inside::File { .. } => None,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.container().map_or(1, Container::len)
    }

    pub(super) fn data_bytes(&self) -> u64 {
        match self {
            Inside::Container(container) => container.data_bytes(),
            Inside::File { size_bytes, .. } => *size_bytes,
        }
    }

    /// The sample of that number; `None` if there is no such sample.
    pub(super) fn sample(&self, index: u64) -> Result<Option<Sample>> {
        match self {
            Inside::Container(container) => container.sample(index).map(Some),
            Inside::File { size_bytes, .. } => {
                Ok((index == 0).then(|| Sample { length_bytes: *size_bytes, ..Sample::default() }))
            }
        }
    }

    /// The piece of a sample at or behind `offset_bytes` of its file; for an encoded sample, of the range that it is made
    /// from.
    pub(super) fn piece(
        &self,
        index: u64,
        sample: &Sample,
        offset_bytes: u64,
    ) -> Result<Option<Piece>> {
        match (self, sample.content) {
            (Inside::Container(container), Content::Sparse(_)) => {
                container.piece(index, offset_bytes)
            }
            _ => {
                let at_bytes = match sample.content {
                    Content::Prefixed(prefix) => u64::from(prefix),
                    _ => 0,
                };
                let end = at_bytes.saturating_add(sample.length_bytes);
                Ok((offset_bytes < end && sample.length_bytes > 0).then_some(Piece {
                    at_bytes,
                    length_bytes: sample.length_bytes,
                    offset_bytes: sample.offset_bytes,
                }))
            }
        }
    }

    /// Makes the file of a sample from the range that it is encoded in.
    pub(super) fn decode(&self, index: u64, range: &[u8], out: &mut [u8]) -> Result<()> {
        self.container().map_or(Ok(()), |container| container.decode(index, range, out))
    }

    pub(super) fn attributes(&self, index: u64) -> Result<Attributes> {
        match self {
            Inside::Container(container) => container.attributes(index),
            Inside::File { modified, .. } => {
                let modified = modified.map(|seconds| (i64::from(seconds), 0));
                Ok(Attributes { modified, ..Attributes::default() })
            }
        }
    }

    pub(super) fn names(&self, samples: u64) -> Result<Names> {
        self.container().map_or(Ok(Names::Members), |container| container.names(samples))
    }

    pub(super) fn members(&self, visit: &mut dyn FnMut(Member) -> Result<()>) -> Result<()> {
        match self {
            Inside::Container(container) => container.members(visit),
            Inside::File { name, .. } => visit(Member { path: name, node: Node::Sample(0) }),
        }
    }
}
