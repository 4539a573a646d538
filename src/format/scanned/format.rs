//! Formats whose containers a forward pass indexes, and how all of them are opened. A format defines how it is recognised,
//! and its pass.

use super::{Index, SampleRow, Scanner, scan};
use crate::format::{Container, Detected, Format, OpenOptions, PartName, Result, Source};
use std::sync::Arc;

/// A format whose containers one forward pass indexes, in files and in decoded streams.
pub(in crate::format) trait ScannedFormat: Sync {
    /// The row that is stored of a sample.
    type Row: SampleRow;
    /// As [`Format::extensions`].
    const EXTENSIONS: &'static [&'static str];

    /// As [`Format::directory_file`].
    const DIRECTORY_FILE: Option<&'static str> = None;

    /// As [`Format::detect`].
    fn looks_like(source: &dyn Source) -> Result<Detected>;

    /// Whether a decoded stream that begins with `first` is of this format; `part` is the compressed file.
    fn is_stream(part: &PartName, first: &[u8]) -> Result<bool>;

    /// Begins a pass. Errors call the container `part`.
    fn pass(part: &PartName, options: &OpenOptions) -> Result<Box<dyn Scanner>>;

    /// The container of an index.
    fn with_index(source: Arc<dyn Source>, index: Index<Self::Row>) -> Result<Box<dyn Container>>;
}

impl<F: ScannedFormat> Format for F {
    fn name(&self) -> &'static str {
        F::Row::FORMAT
    }

    fn extensions(&self) -> &'static [&'static str] {
        F::EXTENSIONS
    }

    fn directory_file(&self) -> Option<&'static str> {
        F::DIRECTORY_FILE
    }

    fn detect(&self, source: &dyn Source) -> Result<Detected> {
        F::looks_like(source)
    }

    fn open(&self, source: Arc<dyn Source>, options: &OpenOptions) -> Result<Box<dyn Container>> {
        let pass = F::pass(source.name(), options)?;
        scan(source, pass)
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
        match F::is_stream(part, first)? {
            true => F::pass(part, options).map(Some),
            false => Ok(None),
        }
    }

    fn open_kept(
        &self,
        source: Arc<dyn Source>,
        kept: Arc<dyn Source>,
    ) -> Result<Option<Box<dyn Container>>> {
        let index = Index::read(kept.as_ref())?;
        index.map(|index| F::with_index(source, index)).transpose()
    }
}
