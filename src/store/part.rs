//! One container file of a dataset, wherever it lies.

use super::Profile;
use super::arrival::{self, Arrived, Cause, Pin, Remote};
use crate::format::{MemorySource, PartName, Source, Table};
use crate::io::{File, FileVersion, ReadError};
use std::fmt::Display;
use std::io;
use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::SystemTime;

/// What tells a part from what it was before, or will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Version {
    /// A local file, as it was when it was opened.
    File(FileVersion),
    /// An object: what its store calls this version (an ETag, a version id, a generation).
    Object {
        /// The version, as the store writes it.
        tag: String,
    },
    /// Bytes that cannot change.
    Fixed,
}

/// Where a part's bytes are. Only the reads of the transports ask this.
pub enum Bytes {
    /// In a local file.
    Local(File),
    /// Elsewhere: what is kept here is in a local file at the same offsets.
    Remote(Arc<dyn Remote>),
    /// In memory: benches, fuzz targets and tests.
    Memory(MemorySource),
}

/// One container file of a dataset.
pub struct Part {
    name: PartName,
    version: Version,
    length_bytes: u64,
    alignment_bytes: u64,
    modified: SystemTime,
    profile: Profile,
    bytes: Bytes,
}

impl From<File> for Part {
    fn from(file: File) -> Self {
        Self {
            name: file.name().clone(),
            version: Version::File(file.version()),
            length_bytes: file.len(),
            alignment_bytes: file.alignment_bytes(),
            modified: file.modified(),
            profile: Profile::DISK,
            bytes: Bytes::Local(file),
        }
    }
}

impl Part {
    /// Bytes in memory that are called `name`, and were modified at `modified`.
    #[must_use]
    pub fn in_memory(name: impl Into<PartName>, bytes: Vec<u8>, modified: SystemTime) -> Self {
        let (name, length_bytes) = (name.into(), bytes.len() as u64);
        Self {
            version: Version::Fixed,
            length_bytes,
            alignment_bytes: 1,
            modified,
            profile: Profile::DISK,
            bytes: Bytes::Memory(MemorySource::new(name.clone(), bytes)),
            name,
        }
    }

    /// A part whose bytes lie elsewhere: `remote` fetches them.
    #[must_use]
    pub fn remote(
        name: PartName,
        version: Version,
        modified: SystemTime,
        profile: Profile,
        remote: Arc<dyn Remote>,
    ) -> Self {
        Self {
            name,
            version,
            length_bytes: remote.len_bytes(),
            alignment_bytes: remote.file().map_or(1, File::alignment_bytes),
            modified,
            profile,
            bytes: Bytes::Remote(remote),
        }
    }

    /// What messages and figures call it.
    #[must_use]
    pub fn name(&self) -> &PartName {
        &self.name
    }

    /// Which version of it was opened.
    #[must_use]
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Its length.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// What the place and length of a read that waits are multiples of.
    #[must_use]
    pub fn alignment_bytes(&self) -> u64 {
        self.alignment_bytes
    }

    /// Whether its bytes come from a store.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        matches!(self.bytes, Bytes::Remote(_))
    }

    /// When it was modified, as of its opening: the time of its samples.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        self.modified
    }

    /// What it likes.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Where its bytes are.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The local file that its bytes are read from, if it has one.
    #[must_use]
    pub fn file(&self) -> Option<&File> {
        match &self.bytes {
            Bytes::Local(file) => Some(file),
            Bytes::Remote(remote) => remote.file(),
            Bytes::Memory(_) => None,
        }
    }

    /// Whether it is an object whose bytes are kept in a cache of this node.
    #[must_use]
    pub fn has_cache(&self) -> bool {
        matches!(&self.bytes, Bytes::Remote(remote) if remote.file().is_some())
    }

    /// What brings its bytes to this machine, if it is an object.
    pub(super) fn remote_of(&self) -> Option<&Arc<dyn Remote>> {
        match &self.bytes {
            Bytes::Remote(remote) => Some(remote),
            Bytes::Local(_) | Bytes::Memory(_) => None,
        }
    }

    /// Whether samples are likely to have to be waited for.
    #[must_use]
    pub fn is_cold(&self) -> bool {
        match &self.bytes {
            Bytes::Local(file) => file.is_cold(),
            // To ask the store a little earlier gains nothing.
            Bytes::Remote(remote) => remote.file().is_some_and(File::is_cold),
            Bytes::Memory(_) => false,
        }
    }

    /// Whether it still is what was opened.
    ///
    /// # Errors
    /// [`ReadError::Changed`] if not.
    pub fn check_unchanged(&self) -> Result<(), ReadError> {
        match &self.bytes {
            Bytes::Local(file) => file.check_unchanged(),
            // The client compares versions with each answer.
            Bytes::Remote(_) | Bytes::Memory(_) => Ok(()),
        }
    }

    /// Fills at least the first `needed` bytes of `buf` from `offset_bytes`, waiting as long as it takes, as
    /// [`File::read`] does.
    ///
    /// # Errors
    /// See [`ReadError`]; neither `WouldBlock` nor `Absent`.
    pub fn read(&self, buf: &mut [u8], offset_bytes: u64, needed: usize) -> Result<(), ReadError> {
        match &self.bytes {
            Bytes::Local(file) => file.read(buf, offset_bytes, needed),
            Bytes::Remote(remote) => {
                let range = offset_bytes..offset_bytes + needed as u64;
                self.read_remote(&**remote, (range, Cause::Demand), buf, |file, buf| {
                    match is_aligned(buf, offset_bytes, file) {
                        true => file.read(buf, offset_bytes, needed),
                        // A whole object is read past the page cache by whoever can.
                        false => Ok(file.read_exact_at(&mut buf[..needed], offset_bytes)?),
                    }
                })
            }
            Bytes::Memory(memory) => Ok(memory.read_exact_at(&mut buf[..needed], offset_bytes)?),
        }
    }

    /// Waits for a range, and has `read` read it if it has come into the file.
    fn read_remote(
        &self,
        remote: &dyn Remote,
        (range, cause): (Range<u64>, Cause),
        buf: &mut [u8],
        read: impl Fn(&File, &mut [u8]) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        loop {
            let arrived = self.wait(range.clone(), cause)?;
            let (Some(_pin), Some(file)) = (arrived.take(buf), remote.file()) else {
                return Ok(());
            };
            match read(file, buf) {
                Err(error) if remote.lose(&error) => {}
                read => return read,
            }
        }
    }

    /// The file that holds its bytes here could not be read. Tells whether they can be asked for anew.
    #[must_use]
    pub fn lose_file(&self, why: &dyn Display) -> bool {
        matches!(&self.bytes, Bytes::Remote(remote) if remote.lose(why))
    }

    /// `range` will be read, in the order in which ranges are announced.
    pub fn announce(&self, range: Range<u64>) {
        if let Bytes::Remote(remote) = &self.bytes {
            remote.announce(range);
        }
    }

    /// What was read of `range` failed its check. Tells whether it came out of a cache, and should be read once more.
    #[must_use]
    pub fn distrust(&self, range: Range<u64>) -> bool {
        match &self.bytes {
            Bytes::Remote(remote) => remote.distrust(range),
            Bytes::Local(_) | Bytes::Memory(_) => false,
        }
    }

    /// Waits until `range` can be read.
    ///
    /// # Errors
    /// Why it does not come.
    pub fn wait(&self, range: Range<u64>, cause: Cause) -> Result<Arrived, ReadError> {
        if let Bytes::Remote(remote) = &self.bytes
            && let Some(pin) = remote.pin(&range)
        {
            return Ok(Arrived::InFile(pin));
        }
        let (send, receive) = mpsc::sync_channel(1);
        self.begin(range, cause, move |arrived| drop(send.send(arrived)));
        receive.recv().unwrap_or_else(|error| Err(io::Error::other(error).into()))
    }

    /// See [`super::Store::begin`].
    pub(super) fn begin(
        &self,
        range: Range<u64>,
        cause: Cause,
        then: impl FnOnce(Result<Arrived, ReadError>) + Send + 'static,
    ) {
        match &self.bytes {
            Bytes::Local(_) | Bytes::Memory(_) => then(Ok(Arrived::InFile(Pin::none()))),
            Bytes::Remote(remote) => {
                arrival::begin(remote, self.profile.patience, (range, cause), then);
            }
        }
    }
}

/// Whether a read can go past the page cache.
fn is_aligned(buf: &[u8], offset_bytes: u64, file: &File) -> bool {
    let alignment = file.alignment_bytes().max(1);
    let places = [buf.as_ptr() as u64, buf.len() as u64, offset_bytes];
    places.iter().all(|place| place.is_multiple_of(alignment))
}

/// Reads that open a container: they may wait.
impl Source for Part {
    fn name(&self) -> &PartName {
        &self.name
    }

    fn len(&self) -> u64 {
        self.length_bytes
    }

    fn read_exact_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        match &self.bytes {
            Bytes::Local(file) => file.read_exact_at(buf, offset_bytes),
            Bytes::Remote(remote) => {
                let end = offset_bytes.checked_add(buf.len() as u64);
                let end = end.filter(|end| *end <= self.length_bytes);
                let end = end.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
                let wanted = (offset_bytes..end, Cause::Open);
                let read = self.read_remote(&**remote, wanted, buf, |file, buf| {
                    Ok(file.read_exact_at(buf, offset_bytes)?)
                });
                read.map_err(|why| match why {
                    ReadError::Io(error) => error,
                    why => io::Error::other(why),
                })
            }
            Bytes::Memory(memory) => memory.read_exact_at(buf, offset_bytes),
        }
    }

    fn check_unchanged(&self) -> io::Result<()> {
        Part::check_unchanged(self).map_err(io::Error::other)
    }

    fn table(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Box<dyn Table>> {
        match &self.bytes {
            Bytes::Local(file) => file.table(offset_bytes, length_bytes),
            // Into memory: a cache file may lose what it holds.
            Bytes::Remote(_) => {
                let end = offset_bytes.checked_add(length_bytes);
                if end.is_none_or(|end| end > self.length_bytes) {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let mut bytes = vec![0; usize::try_from(length_bytes).map_err(io::Error::other)?];
                self.read_exact_at(&mut bytes, offset_bytes)?;
                Ok(Box::new(bytes))
            }
            Bytes::Memory(memory) => memory.table(offset_bytes, length_bytes),
        }
    }
}
