//! A sample that cannot be decoded from the middle, decoded to a file without a name, which goes with the
//! mount. Writing and reading it is file I/O: only a driver does that, where it may block.

use crate::format::Fault;
use crate::io::Buffer;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The decoded bytes of a sample on disk.
pub(in crate::vfs) struct Spool {
    /// `None` until bytes are written.
    file: Option<File>,
    directory: PathBuf,
    written: u64,
}

impl Spool {
    /// Makes a spool in `directory`.
    pub(in crate::vfs) fn new(directory: &Path) -> Self {
        Self { file: None, directory: directory.to_owned(), written: 0 }
    }

    /// Appends decoded bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let failed = |error: io::Error| failed(&self.directory, &error);
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile_in(&self.directory).map_err(failed)?),
        };
        file.write_all_at(bytes, self.written).map_err(failed)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Reads a range that was written, if the range still has the CRC-32 that it had.
    pub(in crate::vfs) fn read(&self, range: &Range<u64>, crc32: u32) -> Result<Buffer, Fault> {
        let failed = |error: io::Error| failed(&self.directory, &error);
        let length = (range.end - range.start) as usize;
        let mut buffer = Buffer::with_capacity(length).map_err(failed)?;
        let out = &mut buffer.as_mut_slice()[..length];
        let missing = || failed(io::ErrorKind::UnexpectedEof.into());
        self.file.as_ref().ok_or_else(missing)?.read_exact_at(out, range.start).map_err(failed)?;
        if crc32fast::hash(out) != crc32 {
            return Err(failed(io::Error::other(
                "the file no longer holds what was written to it",
            )));
        }
        Ok(buffer)
    }
}

/// The fault of a spool that cannot be read or written. It is no fault of the sample's: the sample can be tried again.
fn failed(directory: &Path, error: &io::Error) -> Fault {
    Fault::Unreadable(format!("--spool {}: {error}", directory.display()))
}
