//! Faults of an archive.

use crate::format::{Error, PartName};

pub(in crate::format) const DAMAGED: &str =
    ": the archive is damaged (--allow-damaged serves the members that are whole)";
pub(super) const TRUNCATED: &str =
    ": the archive is truncated (--allow-damaged serves the members that are whole)";
pub(super) const NO_HINT: &str = "";

/// A fault of an archive.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: u64,
    pub(super) expected: String,
    pub(super) found: String,
    hint: &'static str,
}

impl Fault {
    pub(super) fn new(
        at: u64,
        expected: &str,
        found: impl Into<String>,
        hint: &'static str,
    ) -> Self {
        Self { at, expected: expected.to_owned(), found: found.into(), hint }
    }

    /// The error that reports the fault of `part`.
    pub(super) fn into_error(self, part: &PartName) -> Error {
        Error::Malformed {
            part: part.clone(),
            format: super::NAME,
            offset_bytes: self.at,
            expected: self.expected,
            found: self.found,
            hint: self.hint,
        }
    }
}

pub(super) fn no_size(at: u64) -> Fault {
    Fault::new(
        at,
        "the size of a member",
        "a field that is not a number, or a number that is too large",
        DAMAGED,
    )
}
