//! A file that is no container: shown as the only file of a dataset.

use super::{Container, IndexChecksum, Member, Names, Node, Result, Sample, Source};
use std::sync::Arc;

/// A file under a name of its own.
pub struct PlainFile {
    source: Arc<dyn Source>,
    name: Vec<u8>,
    /// The notice that the file is a container, which was not opened.
    unopened: Option<String>,
}

impl PlainFile {
    /// Shows `source` as `name`.
    #[must_use]
    pub fn new(source: Arc<dyn Source>, name: Vec<u8>, unopened: Option<String>) -> Self {
        Self { source, name, unopened }
    }
}

impl Container for PlainFile {
    fn format(&self) -> &'static str {
        "file"
    }

    fn len(&self) -> u64 {
        1
    }

    fn sample(&self, _index: u64) -> Result<Sample> {
        Ok(Sample { length_bytes: self.source.len(), ..Sample::default() })
    }

    fn check_unchanged(&self) -> std::io::Result<()> {
        self.source.check_unchanged()
    }

    fn index_is_fixed(&self) -> bool {
        true
    }

    fn data_bytes(&self) -> u64 {
        self.source.len()
    }

    fn members(&self, visit: &mut dyn FnMut(Member) -> Result<()>) -> Result<()> {
        visit(Member { path: &self.name, node: Node::Sample(0) })
    }

    fn names(&self, _samples: u64) -> Result<Names> {
        Ok(Names::Members)
    }

    fn index_checksum(&self) -> IndexChecksum {
        IndexChecksum::None
    }

    fn warnings(&self) -> &[String] {
        &[]
    }

    fn unopened(&self) -> Option<&str> {
        self.unopened.as_deref()
    }
}
