//! The common parts of passes over containers of records: the bytes that are wanted next, the files found so far, and the end
//! of a pass that can go no further.

use super::builder::{Builder, Record};
use super::row::RecordFormat;
use crate::format::counted;
use crate::format::scanned::TooMany;
use crate::format::{Container, Error, OpenOptions, PartName, Result, Source, View};
use std::sync::Arc;

/// Hints of errors behind which a container is not used.
pub(in crate::format) const DAMAGED: &str =
    ": the file is damaged (--allow-damaged serves the records before this byte)";
pub(in crate::format) const TRUNCATED: &str =
    ": the file is truncated (--allow-damaged serves the records before this byte)";

/// A pass over a container of records.
pub(in crate::format) struct Pass<F> {
    pub(in crate::format) part: PartName,
    pub(in crate::format) allow_damaged: bool,
    /// Whether records are taken apart.
    pub(in crate::format) is_typed: bool,
    /// The extent that is wanted next, as in [`crate::format::scanned::Scanner::want`].
    pub(in crate::format) want: Option<(u64, u64)>,
    pub(in crate::format) builder: Builder<F>,
    /// The files of the record that is being read.
    pub(in crate::format) record: Record<F>,
    /// The number of records that were added.
    pub(in crate::format) records: u64,
}

impl<F: RecordFormat> Pass<F> {
    /// Begins a pass with the container's first `head_bytes` bytes. Errors call the container `part`.
    pub(in crate::format) fn new(part: &PartName, options: &OpenOptions, head_bytes: u64) -> Self {
        Self {
            part: part.clone(),
            allow_damaged: options.allow_damaged,
            is_typed: options.view != View::Raw,
            want: Some((0, head_bytes)),
            builder: Builder::default(),
            record: Record::default(),
            records: 0,
        }
    }

    /// Adds the record that was read; it begins at `at`.
    pub(in crate::format) fn add(&mut self, at: u64) -> Result<()> {
        self.builder.add(&self.record).map_err(|TooMany| {
            let found = counted(self.records, "record");
            self.malformed(at, "fewer than 2³¹ files", found, "")
        })?;
        self.records = self.records.saturating_add(1);
        Ok(())
    }

    /// Ends the pass: the bytes from `at` on are not used. Returns an error, unless damage is allowed.
    pub(in crate::format) fn end(
        &mut self,
        at: u64,
        expected: &str,
        found: String,
        hint: &'static str,
    ) -> Result<()> {
        self.want = None;
        if !self.allow_damaged {
            let hint = if self.records == 0 && hint == DAMAGED { "" } else { hint };
            return Err(self.malformed(at, expected, found, hint));
        }
        let part = &self.part;
        self.builder.warn(format!(
            "{part}: at byte {at}: expected {expected}, found {found}: nothing behind it is shown"
        ));
        Ok(())
    }

    /// Makes the error of a container that is malformed at `at`.
    pub(in crate::format) fn malformed(
        &self,
        at: u64,
        expected: &str,
        found: String,
        hint: &'static str,
    ) -> Error {
        Error::Malformed {
            part: self.part.clone(),
            format: F::NAME,
            offset_bytes: at,
            expected: expected.to_owned(),
            found,
            hint,
        }
    }

    /// Makes the container of the records that were found; `source` has its bytes.
    pub(in crate::format) fn finish(self, source: Arc<dyn Source>) -> Result<Box<dyn Container>> {
        Ok(Box::new(self.builder.finish(self.part, source)?))
    }
}
