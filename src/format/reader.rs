//! A source with the format that reads it: errors name both.

use super::{Error, Fault, PartName, Result, Source, Table};

/// Reads a container's structure.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    source: &'a dyn Source,
    format: &'static str,
}

impl<'a> Reader<'a> {
    pub(super) fn new(source: &'a dyn Source, format: &'static str) -> Self {
        Self { source, format }
    }

    /// Length of the source, in bytes.
    pub(super) fn len(&self) -> u64 {
        self.source.len()
    }

    /// The name of the source in errors.
    pub(super) fn part(&self) -> &'a PartName {
        self.source.name()
    }

    /// Fills `buf` from `offset_bytes`.
    pub(super) fn read(&self, what: &'static str, buf: &mut [u8], offset_bytes: u64) -> Result<()> {
        self.source
            .read_exact_at(buf, offset_bytes)
            .map_err(|e| self.unreadable(what, offset_bytes, e))
    }

    /// `N` bytes from `offset_bytes`.
    pub(super) fn bytes<const N: usize>(&self, what: &'static str, at: u64) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read(what, &mut bytes, at)?;
        Ok(bytes)
    }

    /// A table of a range that will be looked up at random.
    pub(super) fn table(&self, what: &'static str, at: u64, bytes: u64) -> Result<Box<dyn Table>> {
        self.source.table(at, bytes).map_err(|e| self.unreadable(what, at, e))
    }

    /// The error that the operating system does not give the bytes.
    pub(super) fn unreadable(&self, what: &'static str, at: u64, source: std::io::Error) -> Error {
        Error::Unreadable { part: self.source.name().clone(), what, offset_bytes: at, source }
    }

    /// The error for a fault in bytes that are decoded at an offset of the source.
    pub(super) fn faulty(&self, at: u64, expected: &str, fault: Fault) -> Error {
        match fault {
            Fault::PartChecksum { what, expected, found } => Error::Checksum {
                part: self.part().clone(),
                what,
                offset_bytes: at,
                expected,
                found,
                hint: "",
            },
            other => self.malformed(at, expected, other.to_string(), ""),
        }
    }

    /// The error that the structure is wrong at an offset of the source.
    pub(super) fn malformed(
        &self,
        at: u64,
        expected: impl Into<String>,
        found: impl Into<String>,
        hint: &'static str,
    ) -> Error {
        Error::Malformed {
            part: self.source.name().clone(),
            format: self.format,
            offset_bytes: at,
            expected: expected.into(),
            found: found.into(),
            hint,
        }
    }
}
