//! A container file: positioned reads, and the check that it is still the file that was opened.

use super::direct::{Access, Io};
use super::mapping::Mapping;
use super::pool::{Handles, Pool, Pooled};
use super::reading::Kept;
use super::residency::Residency;
use super::space;
use super::version::{Change, FileVersion, Status};
use crate::format::{PartName, Source, Table};
use std::os::fd::RawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io};

/// Indexes up to this size are copied to memory, larger ones are mapped.
const COPY_BELOW_BYTES: u64 = 256 << 10;

/// A container file.
#[derive(Debug)]
pub struct File {
    name: PartName,
    holding: Holding,
    residency: Residency,
    size: u64,
    modified: (i64, i64),
    /// Device and inode.
    identity: (u64, u64),
    /// The file never had a name, so that it cannot be deleted or replaced.
    is_nameless: bool,
    /// This program itself fills the file: a change is no error.
    is_filled: bool,
    /// When the file was made, if it is filled and the file system says so: inodes are used again.
    born: Option<SystemTime>,
    io: Io,
    is_direct: bool,
    alignment_bytes: u64,
    may_use_cache: bool,
    may_hang: bool,
}

#[derive(Debug)]
enum Holding {
    /// The file stays open.
    Open(Arc<Handles>),
    /// The file is opened for each use, unless the pool has it open.
    Pooled(Pooled),
}

/// Keeps a file open while a ring reads it, and another value alive as long.
pub struct Held {
    handles: Arc<Handles>,
    _also: Kept,
}

impl Held {
    /// Holds `also` until the read has ended.
    #[must_use]
    pub fn with(self, also: Kept) -> Self {
        Self { _also: also, ..self }
    }

    /// The descriptor and flags for a read through a ring.
    pub(in crate::io) fn descriptor(&self) -> (RawFd, i32) {
        self.handles.access.descriptor(&self.handles.file)
    }
}

/// The reason why a read did not give the bytes.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The bytes are not in memory, and the caller did not allow a wait.
    #[error("not in memory")]
    WouldBlock,
    /// The bytes are not on this machine yet; the store can fetch them.
    #[error("not on this machine")]
    Absent,
    /// The file was changed or replaced since it was opened.
    #[error("the file was {0} while it was in use; mount it, or start the command, once more")]
    Changed(Change),
    /// The operating system cannot read the bytes.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => error,
            error => io::Error::other(error),
        }
    }
}

impl File {
    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// The file cannot be opened, or is not a regular file.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Opening a pipe would wait for a writer.
        let kind = fs::metadata(path)?.file_type();
        if !kind.is_file() && !kind.is_dir() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let file = fs::File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        }
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Self::of(file, path)
    }

    /// Takes an open file, such as one without a name; errors call it `name`.
    ///
    /// # Errors
    /// Its metadata cannot be read.
    pub fn of(file: fs::File, name: impl Into<PartName>) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let access = Access::default();
        Ok(Self {
            name: name.into(),
            residency: Residency::default(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            identity: (metadata.dev(), metadata.ino()),
            is_nameless: metadata.nlink() == 0,
            is_filled: false,
            born: None,
            io: Io::Buffered,
            is_direct: access.is_direct(),
            alignment_bytes: access.alignment_bytes(),
            may_use_cache: access.may_use_cache(),
            may_hang: space::is_elsewhere(&file),
            holding: Holding::Open(Arc::new(Handles { file, access })),
        })
    }

    /// Lets the file have no name: it stays open, and the removal of its name is no change.
    #[must_use]
    pub fn nameless(self) -> Self {
        Self { is_nameless: true, ..self }
    }

    /// As [`File::of`], for a file that this program fills while it is read: a change of the file is no error.
    ///
    /// # Errors
    /// Its metadata cannot be read.
    pub fn filled(file: fs::File, name: impl Into<PartName>) -> io::Result<Self> {
        let born = file.metadata()?.created().ok();
        Ok(Self { is_filled: true, born, ..Self::of(file, name)? })
    }

    /// Puts the file into a pool, which opens it when it is read and may close it afterwards.
    ///
    /// # Errors
    /// The file's directory cannot be opened.
    pub fn share(&mut self, pool: &Arc<Pool>) -> io::Result<()> {
        if let (Holding::Open(handles), false) = (&self.holding, self.is_nameless)
            && let Some(path) = self.name.as_path()
        {
            let handles = Arc::clone(handles);
            self.holding = Holding::Pooled(Pooled::new(pool, path, self.io, handles)?);
        }
        Ok(())
    }

    /// The open descriptors, which stay open as long as the result is held.
    fn handles(&self) -> Result<Cow<'_>, ReadError> {
        match &self.holding {
            Holding::Open(handles) => Ok(Cow::Lent(handles)),
            Holding::Pooled(pooled) => {
                let handles = pooled.handles(|file| {
                    let found = file.metadata()?;
                    let checked = match self.is_filled {
                        true => self.check_identity(&found),
                        false => self.check(&found.into()),
                    };
                    checked.map_err(io::Error::other)
                });
                handles.map(Cow::Own).map_err(of_pooled)
            }
        }
    }

    #[cfg(test)]
    fn is_open(&self) -> bool {
        match &self.holding {
            Holding::Open(_) => true,
            Holding::Pooled(pooled) => pooled.is_open(),
        }
    }

    /// Keeps the file open for a read through a ring.
    ///
    /// # Errors
    /// The file cannot be opened again, or its path leads to another file now.
    pub fn hold(&self) -> Result<Held, ReadError> {
        self.handles().map(|handles| Held { handles: handles.into_owned(), _also: Kept::Nothing })
    }

    /// Notes that a read was refused for its flags; returns whether another attempt makes sense.
    pub fn was_refused(&self, error: &io::Error) -> bool {
        self.handles().is_ok_and(|handles| handles.access.was_refused(error))
    }

    /// Chooses how samples are read from now on.
    ///
    /// # Errors
    /// `io` is [`Io::Direct`], and the file system cannot read past the page cache.
    pub fn set_io(&mut self, io: Io) -> io::Result<()> {
        let Holding::Open(handles) = &self.holding else { return Ok(()) };
        let file = handles.file.try_clone()?;
        let access = Access::new(&file, io)?;
        self.io = io;
        self.is_direct = access.is_direct();
        self.alignment_bytes = access.alignment_bytes();
        self.may_use_cache = access.may_use_cache();
        self.holding = Holding::Open(Arc::new(Handles { file, access }));
        Ok(())
    }

    /// Whether reads that wait go past the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// The offset and the length of a read that waits must be multiples of this.
    #[must_use]
    pub fn alignment_bytes(&self) -> u64 {
        self.alignment_bytes
    }

    /// Whether calls on the file may take for ever: another program or machine gives its bytes.
    #[must_use]
    pub fn may_hang(&self) -> bool {
        self.may_hang
    }

    fn align_down(&self, bytes: usize) -> usize {
        bytes - bytes % self.alignment_bytes as usize
    }

    /// The version that was opened.
    #[must_use]
    pub fn version(&self) -> FileVersion {
        let (device, inode) = self.identity;
        FileVersion { device, inode, size_bytes: self.size, modified: self.modified }
    }

    /// When the file was last modified, as of its opening.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        let (seconds, nanos) = self.modified;
        let nanos = Duration::from_nanos(nanos.unsigned_abs());
        match u64::try_from(seconds) {
            Ok(seconds) => UNIX_EPOCH + Duration::from_secs(seconds) + nanos,
            Err(_) => UNIX_EPOCH - Duration::from_secs(seconds.unsigned_abs()) + nanos,
        }
    }

    /// Fills at least the first `needed` bytes of `buf` from `offset_bytes`, waiting for the disk if need be, and only then
    /// makes sure that the file was still the same: the bytes are either of the file that was opened, or not given out.
    ///
    /// Past the page cache if that is how samples are read: then `offset_bytes` and the length of `buf`
    /// are multiples of [`File::alignment_bytes`], and may reach behind the file's end.
    ///
    /// # Errors
    /// See [`ReadError`]; not `WouldBlock`.
    pub fn read(&self, buf: &mut [u8], offset_bytes: u64, needed: usize) -> Result<(), ReadError> {
        let handles = self.handles()?;
        let mut done = 0;
        while done < needed {
            let (rest, offset) = (&mut buf[done..], offset_bytes + done as u64);
            match handles.access.read_at(&handles.file, rest, offset) {
                Ok(0) => {
                    self.check_unchanged()?;
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
                // Past the page cache the rest must begin at a multiple again.
                Ok(bytes) if done + bytes < needed => match self.align_down(bytes) {
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

    /// Fills `buf` from the page cache.
    ///
    /// # Errors
    /// See [`ReadError`]; `WouldBlock` if the page cache does not hold all bytes.
    pub fn read_cached(&self, buf: &mut [u8], offset_bytes: u64) -> Result<(), ReadError> {
        if !self.may_use_cache {
            return Err(ReadError::WouldBlock);
        }
        let handles = self.handles()?;
        if self.is_direct && !self.residency.is_mostly_cached(&handles.file, self.size) {
            return Err(ReadError::WouldBlock);
        }
        if handles.access.read_now(&handles.file, buf, offset_bytes)? < buf.len() {
            self.residency.missed();
            return Err(ReadError::WouldBlock);
        }
        self.check_unchanged()
    }

    /// Whether reads of samples will probably wait for the disk.
    #[must_use]
    pub fn is_cold(&self) -> bool {
        self.is_direct && !self.residency.was_mostly_cached()
    }

    /// Whether this is still the file that was opened.
    ///
    /// # Errors
    /// [`ReadError::Changed`] if not.
    pub fn check_unchanged(&self) -> Result<(), ReadError> {
        if self.is_filled {
            return Ok(());
        }
        let now = match &self.holding {
            Holding::Open(handles) => handles.file.metadata()?.into(),
            Holding::Pooled(pooled) => Status::from(pooled.status().map_err(of_pooled)?),
        };
        self.check(&now)
    }

    /// Whether this is the file that was opened, whatever it holds by now.
    ///
    /// # Errors
    /// [`ReadError::Changed`] if it is another file.
    pub fn check_identity(&self, found: &fs::Metadata) -> Result<(), ReadError> {
        let is_same = (found.dev(), found.ino()) == self.identity;
        match is_same && (self.born.is_none() || found.created().ok() == self.born) {
            true => Ok(()),
            false => Err(ReadError::Changed(Change::Replaced)),
        }
    }

    fn check(&self, now: &Status) -> Result<(), ReadError> {
        if now.identity != self.identity {
            Err(ReadError::Changed(Change::Replaced))
        } else if now.size < self.size {
            Err(ReadError::Changed(Change::Truncated))
        } else if now.size > self.size || now.modified != self.modified {
            Err(ReadError::Changed(Change::Rewritten))
        } else if !now.has_name && !self.is_nameless {
            Err(ReadError::Changed(Change::Unlinked))
        } else {
            Ok(())
        }
    }
}

/// The open descriptors of a file: lent, or a share of its own.
enum Cow<'a> {
    Lent(&'a Arc<Handles>),
    Own(Arc<Handles>),
}

impl Cow<'_> {
    fn into_owned(self) -> Arc<Handles> {
        match self {
            Cow::Lent(handles) => Arc::clone(handles),
            Cow::Own(handles) => handles,
        }
    }
}

impl std::ops::Deref for Cow<'_> {
    type Target = Handles;

    fn deref(&self) -> &Handles {
        match self {
            Cow::Lent(handles) => handles,
            Cow::Own(handles) => handles,
        }
    }
}

impl Source for File {
    fn name(&self) -> &PartName {
        &self.name
    }

    fn len(&self) -> u64 {
        self.size
    }

    fn check_unchanged(&self) -> io::Result<()> {
        Ok(File::check_unchanged(self)?)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        self.handles()?.file.read_exact_at(buf, offset_bytes)
    }

    fn table(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Box<dyn Table>> {
        if offset_bytes.checked_add(length_bytes).is_none_or(|end| end > self.size) {
            return Err(out_of_range());
        }
        if length_bytes > COPY_BELOW_BYTES {
            let handles = self.handles()?;
            if let Some(mapping) = Mapping::new(&handles.file, offset_bytes, length_bytes)? {
                return Ok(Box::new(mapping));
            }
        }
        let length = usize::try_from(length_bytes).map_err(|_| out_of_range())?;
        let mut bytes = vec![0; length];
        self.read_exact_at(&mut bytes, offset_bytes)?;
        Ok(Box::new(bytes))
    }
}

/// The error for a file of a pool that cannot be opened, or is another file.
fn of_pooled(error: io::Error) -> ReadError {
    match error.kind() {
        io::ErrorKind::NotFound => ReadError::Changed(Change::Replaced),
        _ => error.downcast().unwrap_or_else(ReadError::Io),
    }
}

fn out_of_range() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "past the end of the file")
}

#[cfg(test)]
mod tests;
