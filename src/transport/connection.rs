//! A descriptor of the connection to the kernel: requests are read from it, and answers and notices written to it.
//! Imports `io`, `negotiation` and `wire`.

use super::negotiation::{Negotiation, Unsupported};
use super::wire::{InitIn, NotifyInvalInodeOut, NotifyStoreOut, notice, op};
use crate::io::Buffer;
use crate::io::mount::passed_connection;
use crate::io::process::workers::MAX_DESCRIPTORS;
use crate::io::ring::{InHeader, OutHeader};
use crate::vfs::Errno;
use nix::errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::uio::writev;
use nix::unistd::{read, write};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The bytes of a request besides written bytes: its headers, and the name that comes with it.
const REQUEST_MARGIN_BYTES: usize = 4096;
/// The smallest buffer that the kernel lets a request be read to.
const MIN_READ_BYTES: usize = 8192;
/// The pause before a read is tried again for which there was no memory.
const MEMORY_PAUSE: Duration = Duration::from_millis(1);

/// /dev/fuse, or a clone of it. A request that was read through one descriptor must be answered through the same one.
pub(super) struct Device(OwnedFd);

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The first bytes of a request, before the operation's own header.
pub(super) const HEADER_BYTES: usize = size_of::<InHeader>();
/// The first bytes of an answer.
pub(super) const ANSWER_HEADER_BYTES: usize = size_of::<OutHeader>();

impl Device {
    pub(super) fn new(device: OwnedFd) -> Self {
        Self(device)
    }

    /// Descriptors of the same connection for up to `threads` threads, this one at the end; fewer where they cannot be
    /// had.
    pub(super) fn for_threads(self, threads: usize) -> Vec<Arc<Self>> {
        let mut devices = Vec::new();
        for _ in 1..threads.min(MAX_DESCRIPTORS) {
            match passed_connection::clone_device(&self.0) {
                Ok(clone) => devices.push(Arc::new(Self(clone))),
                Err(error) => {
                    tracing::debug!("the threads share a descriptor: {error}");
                    break;
                }
            }
        }
        devices.push(Arc::new(self));
        devices
    }

    /// Memory for requests of up to `max_request_bytes` bytes.
    ///
    /// # Errors
    /// There is no memory.
    pub(super) fn buffer(max_request_bytes: u32) -> io::Result<Buffer> {
        let bytes = (max_request_bytes as usize).max(MIN_READ_BYTES) + REQUEST_MARGIN_BYTES;
        let mut buffer = Buffer::with_capacity(bytes)?;
        // Its first page holds nearly every request, and is present from now on: a request that the kernel cannot copy, since
        // this process is killed while it waits for memory, is answered with EIO, and no other process gets it.
        buffer.as_mut_slice()[0] = 0;
        Ok(buffer)
    }

    /// Waits for a request, and returns its length; `None` once the mount has ended, or `is_over` is set: the thread that sets
    /// it must also interrupt the system call.
    ///
    /// # Errors
    /// The connection broke.
    pub(super) fn read(
        &self,
        buffer: &mut [u8],
        is_over: &AtomicBool,
    ) -> io::Result<Option<usize>> {
        loop {
            if is_over.load(Ordering::Relaxed) {
                return Ok(None);
            }
            match read(&self.0, buffer) {
                Ok(bytes) => return Ok(Some(bytes)),
                // ENOENT: the request was withdrawn while it was read.
                Err(errno::Errno::ENOENT | errno::Errno::EINTR | errno::Errno::EAGAIN) => {}
                // Memory is short. The kernel has answered the request, or keeps it.
                Err(errno::Errno::EFAULT | errno::Errno::ENOMEM) => thread::sleep(MEMORY_PAUSE),
                Err(errno::Errno::ENODEV) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether a request comes within `time`; true also if the mount has ended.
    pub(super) fn has_request(&self, time: PollTimeout) -> bool {
        let mut descriptors = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        // The thread that reads notices a signal.
        poll(&mut descriptors, time) != Ok(0)
    }

    /// Answers a request with bytes, wherever they lie, or with an error.
    pub(super) fn answer(&self, unique: u64, answer: Result<&[u8], Errno>) {
        let header = answer_header(unique, answer.map(<[u8]>::len));
        let sent = match answer {
            Ok(bytes) => writev(&self.0, &[IoSlice::new(header.as_bytes()), IoSlice::new(bytes)]),
            Err(_) => write(&self.0, header.as_bytes()),
        };
        note(unique, sent);
    }

    /// Answers with the bytes of `buffer` behind its first [`ANSWER_HEADER_BYTES`], or with an error.
    pub(super) fn answer_from(&self, unique: u64, buffer: &mut [u8], answer: Result<usize, Errno>) {
        let header = answer_header(unique, answer);
        buffer[..ANSWER_HEADER_BYTES].copy_from_slice(header.as_bytes());
        note(unique, write(&self.0, &buffer[..header.len as usize]));
    }

    /// Puts bytes at the beginning of an inode into the kernel's page cache. It waits for pages that requests hold.
    ///
    /// # Errors
    /// ENOENT: the kernel does not know the inode.
    pub(super) fn store(&self, ino: u64, bytes: &[u8]) -> io::Result<()> {
        let size = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let store = NotifyStoreOut { nodeid: ino, offset: 0, size, padding: 0 };
        self.notify(notice::STORE, store.as_bytes(), bytes)
    }

    /// Drops an inode's attributes, and its pages from `offset` on; a negative offset spares them. It waits for
    /// requests that hold these pages.
    ///
    /// # Errors
    /// ENOENT: the kernel does not know the inode.
    pub(super) fn invalidate(&self, ino: u64, offset: i64) -> io::Result<()> {
        let range = NotifyInvalInodeOut { ino, off: offset, len: 0 };
        self.notify(notice::INVAL_INODE, range.as_bytes(), &[])
    }

    fn notify(&self, code: i32, head: &[u8], bytes: &[u8]) -> io::Result<()> {
        notify(self.as_fd(), code, head, bytes)
    }

    /// Answers INIT, the first request of a connection.
    ///
    /// # Errors
    /// The connection broke, it is not mounted, or the kernel speaks too old a version.
    pub(super) fn negotiate(&self, negotiation: &Negotiation) -> io::Result<()> {
        let mut buffer = Self::buffer(0)?;
        let buffer = buffer.as_mut_slice();
        loop {
            let length =
                self.read(buffer, &AtomicBool::new(false))?.ok_or(io::ErrorKind::NotConnected)?;
            let request = InHeader::read_from_prefix(&buffer[..length]);
            let Ok((header, init)) = request.map(|(header, rest)| (header, init_of(rest))) else {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a request without header"));
            };
            let unique = header.unique;
            if header.opcode != op::INIT {
                self.answer(unique, Err(Errno::EIO));
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a request before INIT"));
            }
            match negotiation.negotiate(&init) {
                Ok(out) => {
                    self.answer(unique, Ok(out.as_bytes()));
                    return Ok(());
                }
                // The kernel asks again, with this version.
                Err(Unsupported::TooNew(out)) => self.answer(unique, Ok(out.as_bytes())),
                Err(Unsupported::TooOld) => {
                    self.answer(unique, Err(Errno(libc::EPROTO)));
                    let said = format!("this kernel speaks FUSE {}.{}", init.major, init.minor);
                    return Err(io::Error::new(io::ErrorKind::Unsupported, said));
                }
            }
        }
    }
}

/// Has the kernel send again all requests of a connection that were taken, and not answered (Linux 6.9): those of a process
/// that has died. A process that still works on a request does so in vain: its answer is refused.
///
/// # Errors
/// The mount has ended.
pub(super) fn resend(device: BorrowedFd<'_>) -> io::Result<()> {
    notify(device, notice::RESEND, &[], &[])
}

fn notify(device: BorrowedFd<'_>, code: i32, head: &[u8], bytes: &[u8]) -> io::Result<()> {
    let length = ANSWER_HEADER_BYTES + head.len() + bytes.len();
    let len = u32::try_from(length).map_err(io::Error::other)?;
    let header = OutHeader { len, error: code, unique: 0 };
    let parts = [header.as_bytes(), head, bytes].map(IoSlice::new);
    writev(device, &parts)?;
    Ok(())
}

/// The fields of INIT: older kernels send fewer, and the others are 0.
fn init_of(bytes: &[u8]) -> InitIn {
    let mut init = InitIn::new_zeroed();
    let length = bytes.len().min(size_of::<InitIn>());
    init.as_mut_bytes()[..length].copy_from_slice(&bytes[..length]);
    init
}

fn answer_header(unique: u64, answer: Result<usize, Errno>) -> OutHeader {
    let (bytes, error) = match answer {
        Ok(bytes) => (bytes, 0),
        Err(Errno(errno)) => (0, -errno),
    };
    OutHeader { len: (ANSWER_HEADER_BYTES + bytes) as u32, error, unique }
}

/// Logs an answer that failed, unless the request was withdrawn (ENOENT) or the mount has ended (ENODEV).
fn note(unique: u64, sent: nix::Result<usize>) {
    if let Err(error) = sent
        && !matches!(error, errno::Errno::ENOENT | errno::Errno::ENODEV)
    {
        tracing::warn!("request {unique} is not answered: {error}");
    }
}
