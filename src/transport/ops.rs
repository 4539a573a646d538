//! Answers each request but READ, and counts and traces it, for both transports. `devfuse` and `queue` only decode
//! requests and encode answers. Imports the vfs and `wire`.

use super::invalidate::Invalidator;
use super::negotiation::Negotiation;
use super::options::MountOptions;
use super::wire::{ABSENT, fopen, op, valid};
use crate::io::ControlRequest;
use crate::vfs::{Attr, Errno, FOREVER, Listed, Lookup, Operation, Totals, Traced, Vfs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Answers requests.
pub(super) struct Ops {
    vfs: Arc<Vfs>,
    negotiation: Arc<Negotiation>,
    invalidator: Arc<Invalidator>,
    has_xattrs: bool,
    /// How many more closes of samples the kernel is to tell of.
    told_closes: AtomicU32,
}

/// The sender of a request, and the time when it came.
#[derive(Clone, Copy)]
pub(super) struct Caller {
    /// The thread that asks; 0 for the kernel itself.
    pub(super) pid: u32,
    /// When the request was taken up.
    pub(super) start: Instant,
    /// When the kernel delivered it, perhaps with others, if that is known.
    pub(super) arrived: Option<Instant>,
}

/// The answer to GETXATTR and READLINK.
pub(super) enum Value {
    /// The length of the value: the caller asked with size 0.
    Length(u32),
    /// The bytes.
    Bytes(Vec<u8>),
}

/// The answer to a request that the kernel need not send again.
const ENOSYS: Errno = Errno(libc::ENOSYS);

/// The number of closes of samples that the kernel tells of, some 10 µs each. It tells of the closes of all files or of none,
/// and programs that write announcements should be told of a wrong last line.
const TOLD_CLOSES: u32 = 10_000;

impl Ops {
    pub(super) fn new(
        vfs: Arc<Vfs>,
        negotiation: Arc<Negotiation>,
        invalidator: Arc<Invalidator>,
        options: &MountOptions,
    ) -> Self {
        // In a read-only mount no program writes to the file of announcements.
        let told_closes = AtomicU32::new(if options.read_only { 0 } else { TOLD_CLOSES });
        Self { vfs, negotiation, invalidator, has_xattrs: options.xattrs, told_closes }
    }

    /// The file system that requests ask about.
    pub(super) fn vfs(&self) -> &Arc<Vfs> {
        &self.vfs
    }

    /// Begins to trace a request if the trace is being read.
    pub(super) fn trace(&self, caller: Caller, operation: Operation, ino: u64) -> Traced {
        match self.vfs.trace().is_on() && !self.vfs.is_control(ino) {
            true => self
                .vfs
                .trace()
                .begin(operation, ino, caller.pid, caller.start)
                .arrived(caller.arrived),
            false => Traced::NONE,
        }
    }

    /// Counts a request before its answer is sent: a program that has the answer finds it in the counters.
    fn count<T>(
        &self,
        caller: Caller,
        operation: Operation,
        ino: u64,
        answer: Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.count_at(caller, operation, (ino, 0), answer)
    }

    /// Counts a request that begins at an offset of the inode.
    fn count_at<T>(
        &self,
        caller: Caller,
        operation: Operation,
        (ino, offset): (u64, u64),
        answer: Result<T, Errno>,
    ) -> Result<T, Errno> {
        let traced = self.trace(caller, operation, ino).range(offset, 0);
        self.vfs.trace().end(traced, answer.as_ref().map(|_| 0).map_err(|errno| *errno));
        self.vfs.stats().request(operation, self.vfs.is_control(ino), caller.start);
        answer
    }

    pub(super) fn lookup(&self, caller: Caller, parent: u64, name: &[u8]) -> Result<Lookup, Errno> {
        #[cfg(feature = "test-hooks")]
        super::provoked::note(name);
        let control = self.vfs.is_control_name(parent, name);
        let found = self.vfs.lookup(parent, name);
        let mut traced = match control {
            true => Traced::NONE,
            false => self.trace(caller, Operation::Lookup, parent),
        };
        traced.looked_up(name, found.as_ref().ok().and_then(Lookup::ino));
        self.vfs.trace().end(traced, found.as_ref().map(|_| 0).map_err(|errno| *errno));
        self.vfs.stats().request(Operation::Lookup, control, caller.start);
        found
    }

    pub(super) fn forget(&self, caller: Caller, ino: u64, lookups: u64) {
        self.vfs.forget(ino, lookups);
        let _ = self.count(caller, Operation::Forget, ino, Ok(()));
    }

    pub(super) fn getattr(&self, caller: Caller, ino: u64) -> Result<Attr, Errno> {
        self.count(caller, Operation::Getattr, ino, self.vfs.getattr(ino))
    }

    /// Nothing but the size of a control file can be set; `what` are bits of [`valid`].
    pub(super) fn setattr(&self, caller: Caller, ino: u64, what: u32) -> Result<Attr, Errno> {
        let only_size =
            what & valid::SIZE != 0 && what & (valid::MODE | valid::UID | valid::GID) == 0;
        let attr = if only_size { self.vfs.set_size(ino) } else { Err(Errno::EROFS) };
        self.count(caller, Operation::Other, ino, attr)
    }

    pub(super) fn readlink(&self, caller: Caller, ino: u64) -> Result<Vec<u8>, Errno> {
        self.count(caller, Operation::Readlink, ino, self.vfs.readlink(ino))
    }

    /// Returns the flags to answer with, of [`fopen`]; or ENOSYS, after which the kernel opens files itself.
    pub(super) fn open(&self, caller: Caller, ino: u64, flags: i32) -> Result<u32, Errno> {
        let reads = flags & libc::O_ACCMODE == libc::O_RDONLY;
        let allowed = if reads { Ok(()) } else { self.vfs.open_for_writing(ino) };
        self.count(caller, Operation::Open, ino, allowed)?;
        match self.negotiation.no_open() {
            true => Err(ENOSYS),
            false => Ok(fopen::KEEP_CACHE | fopen::NOFLUSH),
        }
    }

    /// As [`Ops::open`], for a directory.
    pub(super) fn opendir(&self, caller: Caller, ino: u64) -> Result<u32, Errno> {
        self.count(caller, Operation::Opendir, ino, Ok(()))?;
        match self.negotiation.no_opendir() {
            true => Err(ENOSYS),
            false => Ok(fopen::KEEP_CACHE | fopen::CACHE_DIR),
        }
    }

    /// Returns the number of bytes that were written.
    pub(super) fn write(
        &self,
        caller: Caller,
        ino: u64,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u32, Errno> {
        let written = self.vfs.write(ino, offset, bytes).map(|()| bytes.len() as u32);
        if written.is_err() {
            self.invalidator.drop_pages(&self.vfs, ino);
        }
        self.count_at(caller, Operation::Other, (ino, offset), written)
    }

    pub(super) fn statfs(&self, caller: Caller, ino: u64) -> Totals {
        let _ = self.count(caller, Operation::Statfs, ino, Ok(()));
        self.vfs.totals()
    }

    pub(super) fn getxattr(
        &self,
        caller: Caller,
        ino: u64,
        name: &[u8],
        size: u32,
    ) -> Result<Value, Errno> {
        let value = match self.has_xattrs {
            true => self.vfs.getxattr(ino, name).and_then(|value| sized(value, size)),
            false => Err(ENOSYS),
        };
        self.count(caller, Operation::Getxattr, ino, value)
    }

    /// Lists a directory from cursor `from` until `emit` returns false.
    pub(super) fn readdir(
        &self,
        caller: Caller,
        ino: u64,
        from: u64,
        emit: &mut dyn FnMut(Listed) -> bool,
    ) -> Result<(), Errno> {
        let listed = self.vfs.readdir(ino, from, emit);
        self.count_at(caller, Operation::Readdir, (ino, from), listed)
    }

    /// As [`Ops::readdir`], with the attributes of each entry and how long they are valid. Each entry that is
    /// emitted counts as a lookup.
    pub(super) fn readdirplus(
        &self,
        caller: Caller,
        ino: u64,
        from: u64,
        mut emit: impl FnMut(&Listed, &Attr, Duration) -> bool,
    ) -> Result<(), Errno> {
        let mut failed = None;
        let listed = self.vfs.readdir(ino, from, &mut |entry: Listed| {
            let (attr, valid) = match self.vfs.attr_of_listed(ino, &entry) {
                Ok(found) => found,
                Err(errno) => {
                    failed = Some(errno);
                    return false;
                }
            };
            let fits = emit(&entry, &attr, valid);
            // Only entries of the control directory count; a sample may be known from another lookup.
            if !fits && self.vfs.is_control(attr.ino) {
                self.vfs.forget(attr.ino, 1);
            }
            fits
        });
        let listed = failed.map_or(listed, Err);
        self.count_at(caller, Operation::Readdirplus, (ino, from), listed)
    }

    /// The kernel asks for SEEK_DATA and SEEK_HOLE alone.
    pub(super) fn lseek(
        &self,
        caller: Caller,
        ino: u64,
        offset: u64,
        whence: i32,
    ) -> Result<u64, Errno> {
        let found = self.vfs.seek(ino, offset, whence == libc::SEEK_DATA);
        self.count_at(caller, Operation::Lseek, (ino, offset), found)
    }

    /// Takes announcements and settings. Python asks each file that it opens whether it is a terminal, too.
    pub(super) fn ioctl(
        &self,
        caller: Caller,
        ino: u64,
        number: u32,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let request = ControlRequest::of(number).ok_or(Errno::ENOTTY);
        let taken = request.and_then(|request| self.vfs.take_ioctl(ino, request, bytes));
        self.count(caller, Operation::Other, ino, taken)
    }

    /// Answers FLUSH, at a close: a program that closes the file of announcements is told of a wrong last line. Once FLUSH is
    /// answered ENOSYS, the kernel sends it for no file any more, so that no close costs a request.
    pub(super) fn flush(&self, caller: Caller, ino: u64) -> Result<(), Errno> {
        if self.vfs.is_control(ino) {
            return self.count(caller, Operation::Flush, ino, self.vfs.flush(ino));
        }
        let _ = self.count(caller, Operation::Flush, ino, Ok(()));
        let one_less = |left: u32| left.checked_sub(1);
        let told = self.told_closes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        told.map(drop).map_err(|_| ENOSYS)
    }

    /// FSYNC, FSYNCDIR: no file is ever dirty. ACCESS: the kernel checks permissions itself (`default_permissions`). LISTXATTR:
    /// no attribute is listed. Answered ENOSYS, the kernel does not send them again.
    pub(super) fn not_needed(&self, caller: Caller, opcode: u32, ino: u64) -> Errno {
        let operation = match opcode {
            op::ACCESS => Operation::Access,
            op::LISTXATTR => Operation::Listxattr,
            _ => Operation::Other,
        };
        let _ = self.count(caller, operation, ino, Ok(()));
        ENOSYS
    }

    /// Refuses an operation that would change the file system with EROFS, and an unknown one with ENOSYS.
    pub(super) fn refuse(&self, caller: Caller, opcode: u32, ino: u64) -> Errno {
        let errno = match opcode {
            op::SYMLINK
            | op::MKNOD..=op::LINK
            | op::SETXATTR
            | op::REMOVEXATTR
            | op::CREATE
            | op::FALLOCATE
            | op::RENAME2 => Errno::EROFS,
            _ => ENOSYS,
        };
        let _ = self.count(caller, Operation::Other, ino, Err::<(), _>(errno));
        errno
    }
}

/// The attributes of the entry that was looked up, and how long the kernel may keep them.
pub(super) fn entry(found: &Lookup) -> (&Attr, Duration) {
    match found {
        Lookup::Found(attr) => (attr, FOREVER),
        Lookup::Passing(attr) => (attr, Duration::ZERO),
        Lookup::Absent => (&ABSENT, FOREVER),
    }
}

/// The value, or its length if `size` is 0.
fn sized(value: Vec<u8>, size: u32) -> Result<Value, Errno> {
    match u32::try_from(value.len()) {
        Ok(length) if size == 0 => Ok(Value::Length(length)),
        Ok(length) if length <= size => Ok(Value::Bytes(value)),
        _ => Err(Errno::ERANGE),
    }
}
