//! A container file: positioned reads, and the question whether it is still the file that was opened.

use super::Mapping;
use super::direct::{Access, Io};
use super::residency::Heat;
use crate::format::{Source, Table};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Indexes up to this size are copied to memory, larger ones are mapped.
const COPY_BELOW_BYTES: u64 = 256 << 10;

/// A container file.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    file: fs::File,
    /// How samples are read, beside the index.
    access: Access,
    heat: Heat,
    size: u64,
    modified: (i64, i64),
    /// It never had a name: nobody can take it away.
    is_nameless: bool,
}

/// Why a read did not give the bytes.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// They are not in memory, and waiting was not allowed.
    #[error("not in memory")]
    WouldBlock,
    /// The file is not the one that was opened any more.
    #[error("the file was {0} while it was in use; open it again")]
    Changed(&'static str),
    /// The operating system cannot read them.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl File {
    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// It cannot be opened, or is none.
    pub fn open(path: &Path) -> io::Result<Self> {
        // To open a pipe would wait for somebody to write to it.
        let kind = fs::metadata(path)?.file_type();
        if !kind.is_file() && !kind.is_dir() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let file = fs::File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        }
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Self::of(file, path)
    }

    /// A file that is open already, such as one without a name; errors call it `path`.
    ///
    /// # Errors
    /// Its metadata cannot be read.
    pub fn of(file: fs::File, path: PathBuf) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            path,
            access: Access::default(),
            heat: Heat::default(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            is_nameless: metadata.nlink() == 0,
            file,
        })
    }

    /// The descriptor and flags for a read through a ring.
    pub(super) fn descriptor(&self) -> (RawFd, i32) {
        self.access.descriptor(&self.file)
    }

    /// Notes that a read was refused for what it asked for; whether it makes sense to try again.
    pub fn was_refused(&self, error: &io::Error) -> bool {
        self.access.was_refused(error)
    }

    /// Chooses how samples are read from now on.
    ///
    /// # Errors
    /// [`Io::Direct`], and the file system cannot read past the page cache.
    pub fn set_io(&mut self, io: Io) -> io::Result<()> {
        self.access = Access::new(&self.file, io)?;
        Ok(())
    }

    /// How samples are read.
    #[must_use]
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// When it was last modified, as of its opening.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        let (seconds, nanos) = self.modified;
        let nanos = Duration::from_nanos(nanos.unsigned_abs());
        match u64::try_from(seconds) {
            Ok(seconds) => UNIX_EPOCH + Duration::from_secs(seconds) + nanos,
            Err(_) => UNIX_EPOCH - Duration::from_secs(seconds.unsigned_abs()) + nanos,
        }
    }

    /// Owner and group, as of now.
    ///
    /// # Errors
    /// The file's metadata cannot be read.
    pub fn owner(&self) -> io::Result<(u32, u32)> {
        let metadata = self.file.metadata()?;
        Ok((metadata.uid(), metadata.gid()))
    }

    /// Fills at least the first `needed` bytes of `buf` from `offset_bytes`, waiting for the disk if need
    /// be, and only then makes sure that the file was still the same: what was read is either of the file
    /// that was opened or not given out.
    ///
    /// Past the page cache if that is how samples are read: then `offset_bytes` and the length of `buf`
    /// are multiples of [`Access::alignment_bytes`], and may reach behind the file's end.
    ///
    /// # Errors
    /// See [`ReadError`]; not `WouldBlock`.
    pub fn read(&self, buf: &mut [u8], offset_bytes: u64, needed: usize) -> Result<(), ReadError> {
        let mut done = 0;
        while done < needed {
            let (rest, offset) = (&mut buf[done..], offset_bytes + done as u64);
            match self.access.read_at(&self.file, rest, offset) {
                Ok(0) => {
                    self.check_unchanged()?;
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
                // Past the page cache the rest must begin at a multiple again.
                Ok(bytes) if done + bytes < needed => match self.access.align_down(bytes) {
                    0 => {
                        self.check_unchanged()?;
                        return Err(
                            io::Error::other("the file ends in the middle of a block").into()
                        );
                    }
                    bytes => done += bytes,
                },
                Ok(bytes) => done += bytes,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.check_unchanged()
    }

    /// Fills `buf` from what the page cache holds.
    ///
    /// # Errors
    /// See [`ReadError`]; `WouldBlock` if it does not hold everything.
    pub fn read_cached(&self, buf: &mut [u8], offset_bytes: u64) -> Result<(), ReadError> {
        if !self.access.may_use_cache() {
            return Err(ReadError::WouldBlock);
        }
        if self.access.is_direct() && !self.heat.is_hot(&self.file, self.size) {
            return Err(ReadError::WouldBlock);
        }
        if self.access.read_now(&self.file, buf, offset_bytes)? < buf.len() {
            self.heat.missed();
            return Err(ReadError::WouldBlock);
        }
        self.check_unchanged()
    }

    /// Whether samples are likely to have to be waited for.
    #[must_use]
    pub fn is_cold(&self) -> bool {
        self.access.is_direct() && !self.heat.was_hot()
    }

    /// Whether this is still the file that was opened.
    ///
    /// # Errors
    /// [`ReadError::Changed`] if not.
    pub fn check_unchanged(&self) -> Result<(), ReadError> {
        let now = self.file.metadata()?;
        if now.len() < self.size {
            Err(ReadError::Changed("truncated"))
        } else if now.len() > self.size || (now.mtime(), now.mtime_nsec()) != self.modified {
            Err(ReadError::Changed("rewritten"))
        } else if now.nlink() == 0 && !self.is_nameless {
            Err(ReadError::Changed("replaced or deleted"))
        } else {
            Ok(())
        }
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl Source for File {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.size
    }

    fn check_unchanged(&self) -> io::Result<()> {
        File::check_unchanged(self).map_err(io::Error::other)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, offset_bytes)
    }

    fn table(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Box<dyn Table>> {
        if offset_bytes.checked_add(length_bytes).is_none_or(|end| end > self.size) {
            return Err(out_of_range());
        }
        if length_bytes > COPY_BELOW_BYTES
            && let Some(mapping) = Mapping::new(&self.file, offset_bytes, length_bytes)?
        {
            return Ok(Box::new(mapping));
        }
        let length = usize::try_from(length_bytes).map_err(|_| out_of_range())?;
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset_bytes)?;
        Ok(Box::new(bytes))
    }
}

fn out_of_range() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "past the end of the file")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn temporary(bytes: &[u8]) -> (tempfile::NamedTempFile, File) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let opened = File::open(file.path()).unwrap();
        (file, opened)
    }

    #[test]
    fn a_read_gives_the_bytes_at_the_offset() {
        let (_keep, file) = temporary(b"0123456789");
        let mut buf = [0; 4];
        file.read(&mut buf, 3, 4).unwrap();
        assert_eq!(&buf, b"3456");
    }

    #[test]
    fn a_read_without_waiting_gives_bytes_or_says_that_it_would_wait() {
        let (_keep, file) = temporary(b"0123456789");
        let mut buf = [0; 10];
        match file.read_cached(&mut buf, 0) {
            Ok(()) => assert_eq!(&buf, b"0123456789"),
            Err(e) => assert!(matches!(e, ReadError::WouldBlock)),
        }
    }

    #[test]
    fn a_truncated_a_rewritten_and_a_deleted_file_are_told_apart() {
        let mut buf = [0; 4];
        let (keep, file) = temporary(b"0123456789");
        keep.as_file().set_len(5).unwrap();
        let error = file.read(&mut buf, 6, 4).unwrap_err();
        assert!(matches!(error, ReadError::Changed("truncated")));

        let (mut keep, file) = temporary(b"0123456789");
        keep.write_all(b"more").unwrap();
        let error = file.read(&mut buf, 0, 4).unwrap_err();
        assert!(matches!(error, ReadError::Changed("rewritten")));

        let (keep, file) = temporary(b"0123456789");
        drop(keep);
        let error = file.read(&mut buf, 0, 4).unwrap_err();
        assert!(matches!(error, ReadError::Changed("replaced or deleted")));
    }

    #[test]
    fn a_folder_and_a_device_are_no_containers() {
        assert!(File::open(Path::new("/")).is_err());
        assert!(File::open(Path::new("/dev/null")).is_err());
    }
}
