//! One container file of a dataset, local or remote.

use super::Profile;
use super::arrival::{self, Arrived, Cause, Pin, Place, Remote};
use crate::format::{MemorySource, PartName, Source, Table, table_in_memory};
use crate::io::{File, FileVersion, ReadError};
use std::fmt::Display;
use std::io;
use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::SystemTime;

/// Tells a part from earlier and later content under the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Version {
    /// A local file, as of its opening.
    File(FileVersion),
    /// An object: the name of its version in the store (an ETag, a version id, a generation).
    Object {
        /// The version, as the store writes it.
        tag: String,
    },
    /// Bytes that cannot change.
    Fixed,
}

/// Where a part's bytes are. Only the transports' reads match on this.
pub enum Bytes {
    /// In a local file.
    Local(File),
    /// In a store; cached bytes are in a local file at the same offsets.
    Remote(Arc<dyn Remote>),
    /// In memory, for benches, fuzz targets and tests.
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
    /// A part of the given bytes in memory, with this name and modification time.
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

    /// A part whose bytes `remote` fetches from a store.
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

    /// The name in messages and statistics.
    #[must_use]
    pub fn name(&self) -> &PartName {
        &self.name
    }

    /// The version that was opened.
    #[must_use]
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// The part's length.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// The alignment that direct reads of the part need, of offset and length.
    #[must_use]
    pub fn alignment_bytes(&self) -> u64 {
        self.alignment_bytes
    }

    /// Whether the part's bytes come from a store.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        matches!(self.bytes, Bytes::Remote(_))
    }

    /// The modification time as of the opening, which its samples show.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        self.modified
    }

    /// The constants by which reads of the part are planned.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Where the part's bytes are.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The local file from which the part's bytes are read, if there is one.
    #[must_use]
    pub fn file(&self) -> Option<&File> {
        match &self.bytes {
            Bytes::Local(file) => Some(file),
            Bytes::Remote(remote) => remote.file(),
            Bytes::Memory(_) => None,
        }
    }

    /// Whether the part is an object that this node's cache keeps.
    #[must_use]
    pub fn has_cache(&self) -> bool {
        matches!(&self.bytes, Bytes::Remote(remote) if remote.file().is_some())
    }

    /// The client that fetches the part's bytes, if the part is an object.
    pub(super) fn remote_of(&self) -> Option<&Arc<dyn Remote>> {
        match &self.bytes {
            Bytes::Remote(remote) => Some(remote),
            Bytes::Local(_) | Bytes::Memory(_) => None,
        }
    }

    /// Whether reads of the part are likely to wait for a disk.
    #[must_use]
    pub fn is_cold(&self) -> bool {
        match &self.bytes {
            Bytes::Local(file) => file.is_cold(),
            // Asking the store slightly earlier gains nothing.
            Bytes::Remote(remote) => remote.file().is_some_and(File::is_cold),
            Bytes::Memory(_) => false,
        }
    }

    /// Checks that a local file is still the version that was opened.
    ///
    /// # Errors
    /// [`ReadError::Changed`] if it is not.
    pub fn check_unchanged(&self) -> Result<(), ReadError> {
        match &self.bytes {
            Bytes::Local(file) => file.check_unchanged(),
            // The client compares the version in each response.
            Bytes::Remote(_) | Bytes::Memory(_) => Ok(()),
        }
    }

    /// Fills at least the first `needed` bytes of `buf` from `offset_bytes`, and waits as long as that takes, like
    /// [`File::read`].
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
                        // Only aligned reads can bypass the page cache; tools that read a whole object make such reads.
                        false => Ok(file.read_exact_at(&mut buf[..needed], offset_bytes)?),
                    }
                })
            }
            Bytes::Memory(memory) => Ok(memory.read_exact_at(&mut buf[..needed], offset_bytes)?),
        }
    }

    /// Waits for a range; if it is in the file, calls `read` to read it from there.
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

    /// Notes that the cache file could not be read. Returns whether the bytes can be requested from the store instead.
    #[must_use]
    pub fn lose_file(&self, why: &dyn Display) -> bool {
        matches!(&self.bytes, Bytes::Remote(remote) if remote.lose(why))
    }

    /// Announces that `range` will be read, at this place of the reading order.
    pub fn announce(&self, range: Range<u64>, place: Place) {
        if let Bytes::Remote(remote) = &self.bytes {
            remote.announce(range, place);
        }
    }

    /// Notes that the bytes of `range` failed their check. Returns whether they may have come from a cache and should be
    /// fetched again, once.
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
    /// The error that ended the fetch.
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

/// Whether a read can bypass the page cache.
fn is_aligned(buf: &[u8], offset_bytes: u64, file: &File) -> bool {
    let alignment = file.alignment_bytes().max(1);
    let places = [buf.as_ptr() as u64, buf.len() as u64, offset_bytes];
    places.iter().all(|place| place.is_multiple_of(alignment))
}

/// Reads that open a container; they may block. Cached blocks of it are compared with their checksums, once.
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
                // Formats keep the bytes that they read, and names have no checksum of their own.
                remote.check(offset_bytes..end);
                let wanted = (offset_bytes..end, Cause::Open);
                let read = self.read_remote(&**remote, wanted, buf, |file, buf| {
                    Ok(file.read_exact_at(buf, offset_bytes)?)
                });
                Ok(read?)
            }
            Bytes::Memory(memory) => memory.read_exact_at(buf, offset_bytes),
        }
    }

    fn check_unchanged(&self) -> io::Result<()> {
        Ok(Part::check_unchanged(self)?)
    }

    fn table(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Box<dyn Table>> {
        match &self.bytes {
            Bytes::Local(file) => file.table(offset_bytes, length_bytes),
            // Copied into memory, since a cache file may lose its blocks.
            Bytes::Remote(_) => table_in_memory(self, offset_bytes, length_bytes),
            Bytes::Memory(memory) => memory.table(offset_bytes, length_bytes),
        }
    }
}
