//! Positioned access to a container's bytes, in a file, a range of another source, a decoded stream or memory.

use super::PartName;
use std::io;
use std::sync::Arc;

/// The bytes of one container.
pub trait Source: Send + Sync {
    /// The name of the source in errors.
    fn name(&self) -> &PartName;

    /// Length in bytes, as it was when the source was opened.
    fn len(&self) -> u64;

    /// Whether the source has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` from `offset_bytes`.
    ///
    /// # Errors
    /// The bytes are not all there, or cannot be read.
    fn read_exact_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()>;

    /// Checks that the source is still the one that was opened.
    ///
    /// # Errors
    /// The source was changed meanwhile: the error says how.
    fn check_unchanged(&self) -> io::Result<()> {
        Ok(())
    }

    /// A range of the source that will be looked up at random, without system calls where possible.
    ///
    /// # Errors
    /// The range is not within the source, or cannot be mapped or read.
    fn table(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Box<dyn Table>>;
}

/// A resident range of a source.
pub trait Table: Send + Sync {
    /// Copies `out.len()` bytes from `offset_bytes` within the table.
    ///
    /// # Errors
    /// The range is not within the table, or the file was truncated under its mapping.
    fn copy_to(&self, offset_bytes: u64, out: &mut [u8]) -> io::Result<()>;
}

/// Bytes of a table that are read at a time.
const PIECE_BYTES: usize = 64 << 20;

/// A range of a source as a table in memory. It takes no more memory than bytes have come, whatever length the source
/// claims.
///
/// # Errors
/// As [`Source::table`].
pub fn table_in_memory(
    source: &dyn Source,
    offset_bytes: u64,
    length_bytes: u64,
) -> io::Result<Box<dyn Table>> {
    let end = offset_bytes.checked_add(length_bytes).filter(|end| *end <= source.len());
    let length = end.and_then(|_| usize::try_from(length_bytes).ok()).ok_or_else(out_of_range)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
    while bytes.len() < length {
        let start = bytes.len();
        bytes.resize(start.saturating_add(PIECE_BYTES).min(length), 0);
        let piece = bytes.get_mut(start..).unwrap_or_default();
        source.read_exact_at(piece, offset_bytes.saturating_add(start as u64))?;
    }
    Ok(Box::new(bytes))
}

/// A range of a source: a container that is a member of another one.
pub struct SliceSource {
    name: PartName,
    inner: Arc<dyn Source>,
    offset_bytes: u64,
    length_bytes: u64,
}

impl SliceSource {
    /// The `length_bytes` bytes from `offset_bytes` of `inner`, called `name`.
    #[must_use]
    pub fn new(
        name: PartName,
        inner: Arc<dyn Source>,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Self {
        Self { name, inner, offset_bytes, length_bytes }
    }

    fn place(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<u64> {
        let end = offset_bytes.checked_add(length_bytes).ok_or_else(out_of_range)?;
        if end > self.length_bytes {
            return Err(out_of_range());
        }
        self.offset_bytes.checked_add(offset_bytes).ok_or_else(out_of_range)
    }
}

impl Source for SliceSource {
    fn name(&self) -> &PartName {
        &self.name
    }

    fn len(&self) -> u64 {
        self.length_bytes
    }

    fn read_exact_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        let place = self.place(offset_bytes, buf.len() as u64)?;
        self.inner.read_exact_at(buf, place)
    }

    fn check_unchanged(&self) -> io::Result<()> {
        self.inner.check_unchanged()
    }

    fn table(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Box<dyn Table>> {
        self.inner.table(self.place(offset_bytes, length_bytes)?, length_bytes)
    }
}

/// A source in memory.
#[derive(Debug, Clone)]
pub struct MemorySource {
    name: PartName,
    bytes: Vec<u8>,
}

impl MemorySource {
    /// Wraps `bytes`; errors call them `name`.
    pub fn new(name: impl Into<PartName>, bytes: Vec<u8>) -> Self {
        Self { name: name.into(), bytes }
    }
}

impl Source for MemorySource {
    fn name(&self) -> &PartName {
        &self.name
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        copy_range(&self.bytes, offset_bytes, buf)
    }

    fn table(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Box<dyn Table>> {
        let start = usize::try_from(offset_bytes).map_err(|_| out_of_range())?;
        let length = usize::try_from(length_bytes).map_err(|_| out_of_range())?;
        let end = start.checked_add(length).ok_or_else(out_of_range)?;
        let bytes = self.bytes.get(start..end).ok_or_else(out_of_range)?;
        Ok(Box::new(bytes.to_vec()))
    }
}

impl Table for Vec<u8> {
    fn copy_to(&self, offset_bytes: u64, out: &mut [u8]) -> io::Result<()> {
        copy_range(self, offset_bytes, out)
    }
}

fn copy_range(bytes: &[u8], offset_bytes: u64, out: &mut [u8]) -> io::Result<()> {
    let start = usize::try_from(offset_bytes).map_err(|_| out_of_range())?;
    let end = start.checked_add(out.len()).ok_or_else(out_of_range)?;
    out.copy_from_slice(bytes.get(start..end).ok_or_else(out_of_range)?);
    Ok(())
}

fn out_of_range() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "past the end of the file")
}
