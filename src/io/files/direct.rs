//! Reading past the page cache, where the file system supports that, so that bytes are cached once, in the mount's own
//! pages. Elsewhere reads go through the page cache and leave no pages there. Imports the buffers and `probe`.

use super::probe;
use crate::io::memory::Buffer;
use rustix::io::ReadWriteFlags;
use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The alignment for a file system that states none: every device accepts it.
const USUAL_ALIGNMENT_BYTES: u64 = 4096;
/// Reads through the page cache and drops the pages afterwards (Linux 6.14).
const RWF_DONTCACHE: i32 = 0x80;
/// The most reads of a file that are under way at a time.
const MOST_UNDER_WAY: usize = 4096;

/// How samples are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Io {
    /// From the page cache if it holds the bytes, else past it; through it where the file system has no other reads.
    #[default]
    Auto,
    /// Past the page cache.
    Direct,
    /// Through the page cache.
    Buffered,
}

/// The descriptors through which the samples of a file are read.
#[derive(Debug, Default)]
pub struct Access {
    /// Opened past the page cache.
    direct: Option<File>,
    /// Opened through the page cache, without the kernel's read-ahead: the prefetch is our own.
    buffered: Option<File>,
    alignment_bytes: u64,
    is_cache_used: bool,
    /// How often the file system has refused to read without caching.
    refusals: AtomicUsize,
}

impl Access {
    /// Opens the descriptors for reading the samples of `file`.
    ///
    /// # Errors
    /// `io` is [`Io::Direct`], and the file cannot be read past the page cache.
    pub(super) fn new(file: &File, io: Io) -> io::Result<Self> {
        let buffered = reopen(file, 0).ok();
        if let Some(buffered) = &buffered {
            use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
            let _ = posix_fadvise(buffered, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM);
        }
        let direct = match io {
            Io::Buffered => None,
            Io::Auto => open_directly(file).ok(),
            Io::Direct => Some(open_directly(file)?),
        };
        let (direct, alignment_bytes) =
            direct.map_or((None, 1), |(file, bytes)| (Some(file), bytes));
        let refusals = AtomicUsize::new(0);
        let is_cache_used = io != Io::Direct;
        Ok(Self { direct, buffered, alignment_bytes, is_cache_used, refusals })
    }

    /// Whether reads that wait go past the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// The offset and the length of a read that waits must be multiples of this.
    #[must_use]
    pub fn alignment_bytes(&self) -> u64 {
        self.alignment_bytes.max(1)
    }

    pub(super) fn may_use_cache(&self) -> bool {
        self.is_cache_used || self.direct.is_none()
    }

    fn cached<'a>(&'a self, file: &'a File) -> &'a File {
        self.buffered.as_ref().unwrap_or(file)
    }

    /// The descriptor and flags for a read that waits.
    pub(super) fn descriptor(&self, file: &File) -> (RawFd, i32) {
        match &self.direct {
            Some(direct) => (direct.as_raw_fd(), 0),
            None if self.reads_uncached() => (self.cached(file).as_raw_fd(), RWF_DONTCACHE),
            None => (self.cached(file).as_raw_fd(), 0),
        }
    }

    fn reads_uncached(&self) -> bool {
        self.buffered.is_some() && self.refusals.load(Ordering::Relaxed) == 0
    }

    /// Notes that a read with the flags of [`Access::descriptor`] was refused. Returns whether another attempt, which has other
    /// flags, makes sense.
    pub(super) fn was_refused(&self, error: &io::Error) -> bool {
        // ENOSYS: no call with flags at all, as under some sandboxes and emulators.
        let unknown =
            matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS));
        // The first refusal changes the flags; reads that were under way then have the old flags, and are refused, too.
        unknown
            && self.direct.is_none()
            && self.buffered.is_some()
            && self.refusals.fetch_add(1, Ordering::Relaxed) < MOST_UNDER_WAY
    }

    pub(super) fn read_at(&self, file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some(direct) = &self.direct {
            return direct.read_at(buf, offset);
        }
        if self.reads_uncached() {
            match preadv2(self.cached(file), buf, offset, RWF_DONTCACHE) {
                Err(e) if self.was_refused(&e) => {}
                other => return other,
            }
        }
        self.cached(file).read_at(buf, offset)
    }

    /// Reads the bytes that the page cache holds; after a short count the next byte is not in the cache.
    pub(super) fn read_now(&self, file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = preadv2(self.cached(file), buf, offset, libc::RWF_NOWAIT);
        match read.as_ref().map_err(io::Error::raw_os_error) {
            // Not every file system can say that it would have to wait.
            Err(Some(libc::EAGAIN | libc::EOPNOTSUPP | libc::EINTR | libc::ENOSYS)) => Ok(0),
            _ => read,
        }
    }
}

fn preadv2(file: &File, buf: &mut [u8], offset: u64, flags: i32) -> io::Result<usize> {
    // The kernel takes the offset for a signed number, and -1 for the position of the descriptor.
    if i64::try_from(offset).is_err() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let flags = ReadWriteFlags::from_bits_retain(flags.cast_unsigned());
    let buffers = &mut [IoSliceMut::new(buf)];
    Ok(rustix::io::preadv2(file, buffers, offset, flags)?)
}

/// Opens the same file again, even if its path now leads elsewhere.
fn reopen(file: &File, flags: i32) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Opens the file past the page cache, and tries that with a small read. Returns the alignment that works, too.
fn open_directly(file: &File) -> io::Result<(File, u64)> {
    let direct = reopen(file, libc::O_DIRECT)?;
    let mut buffer = Buffer::with_capacity(USUAL_ALIGNMENT_BYTES as usize)?;
    let mut failed = None;
    for alignment in [stated_alignment(file), Some(USUAL_ALIGNMENT_BYTES)].into_iter().flatten() {
        match direct.read_at(&mut buffer.as_mut_slice()[..alignment as usize], 0) {
            Ok(_) => return Ok((direct, alignment)),
            Err(e) => failed = Some(e),
        }
    }
    Err(failed.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EINVAL)))
}

/// The alignment that the file system states, if it can be used.
fn stated_alignment(file: &File) -> Option<u64> {
    let (memory_bytes, offset_bytes) = probe::stated_alignment(file)?;
    let bytes = u64::from(memory_bytes.max(offset_bytes));
    (bytes.is_power_of_two() && bytes <= USUAL_ALIGNMENT_BYTES).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn temporary(bytes: usize) -> (tempfile::NamedTempFile, Vec<u8>) {
        let content: Vec<u8> = (0..bytes).map(|i| (i / 7) as u8).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&content).unwrap();
        file.as_file().sync_all().unwrap();
        (file, content)
    }

    #[test]
    fn every_way_reads_the_same_bytes() {
        let (file, content) = temporary(100_000);
        for io in [Io::Auto, Io::Direct, Io::Buffered] {
            // Not every file system has O_DIRECT.
            let Ok(access) = Access::new(file.as_file(), io) else { continue };
            let mut buffer = Buffer::with_capacity(16384).unwrap();
            let read = access.read_at(file.as_file(), &mut buffer.as_mut_slice()[..8192], 4096);
            assert_eq!(read.unwrap(), 8192, "{io:?}");
            assert_eq!(&buffer.as_slice()[..8192], &content[4096..12288], "{io:?}");
        }
    }

    #[test]
    fn a_refused_flag_is_not_tried_again() {
        let (file, _) = temporary(10);
        let access = Access::new(file.as_file(), Io::Buffered).unwrap();
        assert!(access.was_refused(&io::Error::from_raw_os_error(libc::ENOSYS)));
        let access = Access::new(file.as_file(), Io::Buffered).unwrap();
        assert_eq!(access.descriptor(file.as_file()).1, RWF_DONTCACHE);
        assert!(!access.was_refused(&io::Error::from_raw_os_error(libc::EIO)));
        assert!(access.was_refused(&io::Error::from_raw_os_error(libc::EOPNOTSUPP)));
        assert_eq!(access.descriptor(file.as_file()).1, 0);
        let refused = || access.was_refused(&io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        assert!(refused(), "this read was under way");
        assert!((0..MOST_UNDER_WAY).any(|_| !refused()), "this goes on for ever");
    }
}
