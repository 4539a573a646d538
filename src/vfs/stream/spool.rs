//! A sample that cannot be decoded from the middle, decoded to a file without a name: it goes with the mount.

use crate::io::Buffer;
use crate::vfs::bad::Fault;
use crate::vfs::verify::Verified;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The decoded bytes of a sample on disk.
pub(super) struct Spool {
    file: File,
    folder: PathBuf,
    written: u64,
}

impl Spool {
    pub(super) fn new(folder: &Path) -> Result<Self, Fault> {
        let file = tempfile::tempfile_in(folder).map_err(|e| failed(folder, &e))?;
        Ok(Self { file, folder: folder.to_owned(), written: 0 })
    }

    /// Adds what was decoded next.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let written = self.file.write_all_at(bytes, self.written);
        written.map_err(|e| failed(&self.folder, &e))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// A range that was written, with the CRC-32 that it had.
    pub(super) fn read(&self, range: &Range<u64>, crc32: u32) -> Result<Verified, Fault> {
        let length = (range.end - range.start) as usize;
        let mut buffer = Buffer::with_capacity(length);
        let out = &mut buffer.as_mut_slice()[..length];
        let read = self.file.read_exact_at(out, range.start);
        read.map_err(|e| failed(&self.folder, &e))?;
        if crc32fast::hash(out) != crc32 {
            let changed = io::Error::other("what was written there is not what it was");
            return Err(failed(&self.folder, &changed));
        }
        Ok(Verified::unchecked(buffer, 0..length))
    }
}

/// No fault of the sample's: it can be tried again.
fn failed(folder: &Path, error: &io::Error) -> Fault {
    Fault::Unreadable(format!("--spool {}: {error}", folder.display()))
}
