//! Requests from /dev/fuse, through fuser.

use super::mount::Readdirplus;
use super::reads;
use super::undo::Undo;
use super::wire::{ABSENT, PREFERRED_READ_BYTES};
use super::workers::Workers;
use crate::io::{ReadError, is_announcement};
use crate::vfs::{
    Attr, Driver, Errno, FOREVER, FileKind, InFlightRead, Listed, Lookup, Operation, Phase,
    ReadRequest, Reply, Step, Task, Traced, Vfs, begin, drive,
};
use fuser::{
    AccessFlags, BsdFileFlags, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::ops::ControlFlow::{self, Break, Continue};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// The generation of every inode: numbers are never used for something else.
const GENERATION: Generation = Generation(0);
/// How many read-aheads the kernel may have under way.
pub const MAX_BACKGROUND: u16 = 128;

/// A [`Vfs`] as fuser wants it.
pub(super) struct DevFuse {
    shared: Arc<Shared>,
    agreed: Arc<Agreement>,
    undo: Arc<Undo>,
}

/// What is asked of the kernel, and what it grants.
#[derive(Default)]
pub(super) struct Agreement {
    /// The largest single request.
    max_request_bytes: u32,
    readdirplus: Readdirplus,
    /// Whether to ask for io_uring.
    wants_uring: bool,
    /// Requests will come through io_uring.
    pub(super) uring: AtomicBool,
    /// The kernel opens files without asking once it was answered ENOSYS.
    no_open: AtomicBool,
    no_opendir: AtomicBool,
}

struct Shared {
    vfs: Arc<Vfs>,
    workers: Workers,
}

/// A read that is not answered yet.
struct Job {
    read: ReadRequest,
    start: Instant,
    traced: Traced,
    reply: ReplyData,
}

impl Agreement {
    pub(super) fn new(max_request_bytes: u32, readdirplus: Readdirplus, wants_uring: bool) -> Self {
        Self { max_request_bytes, readdirplus, wants_uring, ..Self::default() }
    }
}

impl DevFuse {
    /// Serves `vfs`; reads that must wait do so on up to `workers` threads.
    pub(super) fn new(
        vfs: Arc<Vfs>,
        workers: usize,
        agreed: Arc<Agreement>,
        undo: Arc<Undo>,
    ) -> Self {
        let shared = Arc::new(Shared { vfs, workers: Workers::new(workers) });
        Self { shared, agreed, undo }
    }

    fn vfs(&self) -> &Vfs {
        &self.shared.vfs
    }

    /// Counts a request that is about to be answered, and records it if somebody wants to know.
    fn count<T>(
        &self,
        request: &Request,
        operation: Operation,
        ino: u64,
        start: Instant,
        answer: &Result<T, Errno>,
    ) {
        self.count_at(request, operation, (ino, 0), start, answer);
    }

    /// As `count`, of a request that begins somewhere in the inode.
    fn count_at<T>(
        &self,
        request: &Request,
        operation: Operation,
        (ino, offset): (u64, u64),
        start: Instant,
        answer: &Result<T, Errno>,
    ) {
        let traced = self.begin(request, operation, ino, start).range(offset, 0);
        self.vfs().trace().end(traced, answer.as_ref().map(|_| 0).map_err(|errno| *errno));
        self.vfs().stats().request(operation, self.vfs().is_control(ino), start);
    }

    fn begin(&self, request: &Request, operation: Operation, ino: u64, start: Instant) -> Traced {
        match self.vfs().trace().is_on() && !self.vfs().is_control(ino) {
            true => self.vfs().trace().begin(operation, ino, request.pid(), start),
            false => Traced::NONE,
        }
    }
}

/// A read of a request from /dev/fuse; what must wait goes to a worker thread.
struct RequestRead<'a> {
    shared: &'a Arc<Shared>,
    job: Job,
    /// Whether this thread is a worker.
    may_wait: bool,
}

impl Driver for RequestRead<'_> {
    type Output = ();

    fn vfs(&self) -> &Vfs {
        &self.shared.vfs
    }

    fn request(&self) -> ReadRequest {
        self.job.read
    }

    fn fetch(mut self, mut task: Task) -> ControlFlow<(), (Self, Task, Result<(), ReadError>)> {
        let waits = task.waits();
        if (waits || task.is_long()) && !self.may_wait {
            self.hand_over(task);
            return Break(());
        }
        self.job.traced.enter(if waits { Phase::Disk } else { Phase::Cache });
        let fetched = reads::fetch(self.shared.vfs.store(), task.span(), waits);
        match fetched {
            Err(ReadError::WouldBlock) => self.job.traced.cancel(),
            _ => self.job.traced.enter(Phase::Verify),
        }
        Continue((self, task, fetched))
    }

    fn follow(self, read: Arc<InFlightRead>) -> ControlFlow<(), Self> {
        let (shared, mut job) = (Arc::clone(self.shared), self.job);
        job.traced.enter(Phase::Wait);
        read.when_ended(move || {
            job.traced.leave();
            begin(RequestRead { shared: &shared, job, may_wait: false });
        });
        Break(())
    }

    fn answer(self, reply: Reply) {
        let Self { shared, mut job, .. } = self;
        // Counted first: whoever has the answer finds it in the counters.
        let control = shared.vfs.is_control(job.read.ino);
        shared.vfs.stats().request(Operation::Read, control, job.start);
        job.traced.enter(Phase::Reply);
        let bytes = reply.bytes();
        match bytes {
            Ok(bytes) => job.reply.data(bytes),
            Err(errno) => job.reply.error(wire(errno)),
        }
        shared.vfs.trace().end(job.traced, bytes.map(|bytes| bytes.len() as u64));
        shared.vfs.finish(reply);
    }
}

impl RequestRead<'_> {
    /// Goes on with a task on a worker thread.
    fn hand_over(self, mut task: Task) {
        let (shared, mut job) = (Arc::clone(self.shared), self.job);
        job.traced.enter(Phase::Queue);
        shared.vfs.shelve(&mut task);
        self.shared.workers.run(move || {
            job.traced.leave();
            shared.vfs.unshelve(&mut task);
            drive(RequestRead { shared: &shared, job, may_wait: true }, Step::Read(task));
        });
    }
}

fn wire(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.0)
}

fn kind(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Folder => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
    }
}

fn file_attr(attr: &Attr) -> fuser::FileAttr {
    fuser::FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.stored_bytes.div_ceil(512),
        atime: attr.modified,
        mtime: attr.modified,
        ctime: attr.modified,
        crtime: attr.modified,
        kind: kind(attr.kind),
        perm: attr.mode,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: 0,
        blksize: PREFERRED_READ_BYTES,
        flags: 0,
    }
}

/// Methods of [`Filesystem`] that would change something.
macro_rules! read_only {
    ($($name:ident($ino:ident: INodeNo $(, $argument:ident: $kind:ty)*) -> $reply:ty;)*) => {
        $(fn $name(&self, request: &Request, $ino: INodeNo, $($argument: $kind,)* reply: $reply) {
            let _ = ($($argument,)*);
            let start = Instant::now();
            self.count(request, Operation::Other, $ino.0, start, &Err::<(), _>(Errno::EROFS));
            reply.error(wire(Errno::EROFS));
        })*
    };
}

impl Filesystem for DevFuse {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let mut has = |flag| config.add_capabilities(flag).is_ok();
        let Agreement { max_request_bytes, readdirplus, wants_uring, uring, no_open, no_opendir } =
            self.agreed.as_ref();
        no_open.store(has(InitFlags::FUSE_NO_OPEN_SUPPORT), Ordering::Relaxed);
        no_opendir.store(has(InitFlags::FUSE_NO_OPENDIR_SUPPORT), Ordering::Relaxed);
        uring.store(*wants_uring && has(InitFlags::FUSE_OVER_IO_URING), Ordering::Relaxed);
        for flag in [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_MAX_PAGES,
            InitFlags::FUSE_PARALLEL_DIROPS,
            // The first alone: always.
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
        ] {
            let unwanted = match flag {
                InitFlags::FUSE_DO_READDIRPLUS => *readdirplus == Readdirplus::Never,
                InitFlags::FUSE_READDIRPLUS_AUTO => *readdirplus != Readdirplus::Auto,
                _ => false,
            };
            if !unwanted && !has(flag) {
                tracing::debug!("the kernel lacks {flag:?}");
            }
        }
        // Each setter answers with the nearest value that the kernel takes.
        let _ = config.set_max_write(*max_request_bytes);
        if let Err(most) = config.set_max_readahead(*max_request_bytes) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let start = Instant::now();
        let name = name.as_bytes();
        let control = self.vfs().is_control_name(parent.0, name);
        let found = self.vfs().lookup(parent.0, name);
        let mut traced = match control {
            true => Traced::NONE,
            false => self.begin(request, Operation::Lookup, parent.0, start),
        };
        traced.looked_up(name, found.as_ref().ok().and_then(Lookup::ino));
        self.vfs().trace().end(traced, found.map(|_| 0));
        self.vfs().stats().request(Operation::Lookup, control, start);
        match found {
            Ok(Lookup::Found(attr)) => reply.entry(&FOREVER, &file_attr(&attr), GENERATION),
            Ok(Lookup::Passing(attr)) => {
                reply.entry(&Duration::ZERO, &file_attr(&attr), GENERATION);
            }
            // An entry with inode 0 is how the kernel is told to remember that there is none.
            Ok(Lookup::Absent) => reply.entry(&FOREVER, &file_attr(&ABSENT), GENERATION),
            Err(errno) => reply.error(wire(errno)),
        }
    }

    fn forget(&self, request: &Request, ino: INodeNo, lookups: u64) {
        self.vfs().forget(ino.0, lookups);
        self.count(request, Operation::Forget, ino.0, Instant::now(), &Ok(()));
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let start = Instant::now();
        let attr = self.vfs().getattr(ino.0);
        self.count(request, Operation::Getattr, ino.0, start, &attr);
        match attr {
            Ok(attr) => reply.attr(&FOREVER, &file_attr(&attr)),
            Err(errno) => reply.error(wire(errno)),
        }
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let start = Instant::now();
        let reads = flags.0 & libc::O_ACCMODE == libc::O_RDONLY;
        let allowed = if reads { Ok(()) } else { self.vfs().open_for_writing(ino.0) };
        self.count(request, Operation::Open, ino.0, start, &allowed);
        if let Err(errno) = allowed {
            reply.error(wire(errno));
        } else if self.agreed.no_open.load(Ordering::Relaxed) {
            reply.error(fuser::Errno::ENOSYS);
        } else {
            let keep = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
            reply.opened(FileHandle(0), keep);
        }
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.count(request, Operation::Opendir, ino.0, Instant::now(), &Ok(()));
        if self.agreed.no_opendir.load(Ordering::Relaxed) {
            reply.error(fuser::Errno::ENOSYS);
        } else {
            let keep = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR;
            reply.opened(FileHandle(0), keep);
        }
    }

    fn flush(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.count(request, Operation::Flush, ino.0, Instant::now(), &Ok(()));
        reply.error(fuser::Errno::ENOSYS);
    }

    /// Nothing is ever dirty: there is nothing to write back. ENOSYS is success, for good.
    fn fsync(&self, request: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.count(request, Operation::Other, ino.0, Instant::now(), &Ok(()));
        reply.error(fuser::Errno::ENOSYS);
    }

    fn fsyncdir(&self, request: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.count(request, Operation::Other, ino.0, Instant::now(), &Ok(()));
        reply.error(fuser::Errno::ENOSYS);
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let start = Instant::now();
        let written = self.vfs().write(ino.0, offset, data);
        self.count_at(request, Operation::Other, (ino.0, offset), start, &written);
        match written {
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => {
                reply.error(wire(errno));
                self.undo.write_to(self.vfs(), ino.0);
            }
        }
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let start = Instant::now();
        let only_size = size.is_some() && mode.is_none() && uid.is_none() && gid.is_none();
        let attr = if only_size { self.vfs().set_size(ino.0) } else { Err(Errno::EROFS) };
        self.count(request, Operation::Other, ino.0, start, &attr);
        match attr {
            Ok(attr) => reply.attr(&FOREVER, &file_attr(&attr)),
            Err(errno) => reply.error(wire(errno)),
        }
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let start = Instant::now();
        let length = u64::from(size);
        let traced = self.begin(request, Operation::Read, ino.0, start).range(offset, length);
        let read = ReadRequest { ino: ino.0, offset_bytes: offset, length_bytes: length };
        let job = Job { read, start, traced, reply };
        begin(RequestRead { shared: &self.shared, job, may_wait: false });
    }

    fn readdir(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let start = Instant::now();
        let listed = self.vfs().readdir(ino.0, offset, &mut |entry: Listed| {
            let name = OsStr::from_bytes(entry.name);
            !reply.add(INodeNo(entry.ino), entry.next, kind(entry.kind), name)
        });
        self.count_at(request, Operation::Readdir, (ino.0, offset), start, &listed);
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(wire(errno)),
        }
    }

    fn readdirplus(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let start = Instant::now();
        let mut failed = None;
        let listed = self.vfs().readdir(ino.0, offset, &mut |entry: Listed| {
            let (attr, ttl) = match self.vfs().attr_of_listed(ino.0, &entry) {
                Ok((attr, ttl)) => (file_attr(&attr), ttl),
                Err(errno) => {
                    failed = Some(errno);
                    return false;
                }
            };
            let name = OsStr::from_bytes(entry.name);
            let full = reply.add(attr.ino, entry.next, name, &ttl, &attr, GENERATION);
            if full {
                self.vfs().forget(attr.ino.0, 1);
            }
            !full
        });
        let listed = failed.map_or(listed, Err);
        self.count_at(request, Operation::Readdirplus, (ino.0, offset), start, &listed);
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(wire(errno)),
        }
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let start = Instant::now();
        let target = self.vfs().readlink(ino.0);
        self.count(request, Operation::Readlink, ino.0, start, &target);
        match target {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(wire(errno)),
        }
    }

    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let start = Instant::now();
        let totals = self.vfs().totals();
        self.count(request, Operation::Statfs, ino.0, start, &Ok(()));
        reply.statfs(totals.bytes.div_ceil(512), 0, 0, totals.files, 0, 4096, 255, 512);
    }

    fn getxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let start = Instant::now();
        let value = self.vfs().getxattr(ino.0, name.as_bytes());
        self.count(request, Operation::Getxattr, ino.0, start, &value);
        match value {
            Ok(value) => reply_sized(reply, &value, size),
            Err(errno) => reply.error(wire(errno)),
        }
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let start = Instant::now();
        let names = self.vfs().listxattr(ino.0);
        self.count(request, Operation::Listxattr, ino.0, start, &Ok(()));
        reply_sized(reply, &names, size);
    }

    /// The kernel checks permissions itself (`default_permissions`).
    fn access(&self, request: &Request, ino: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        self.count(request, Operation::Access, ino.0, Instant::now(), &Ok(()));
        reply.error(fuser::Errno::ENOSYS);
    }

    /// The kernel asks for SEEK_DATA and SEEK_HOLE alone.
    fn lseek(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let start = Instant::now();
        let offset = u64::try_from(offset).unwrap_or(u64::MAX);
        let found = self.vfs().seek(ino.0, offset, whence == libc::SEEK_DATA);
        self.count(request, Operation::Lseek, ino.0, start, &found);
        match found {
            Ok(found) => reply.offset(found.cast_signed()),
            Err(errno) => reply.error(wire(errno)),
        }
    }

    /// Announcements and settings; and Python asks each file that it opens whether it is a terminal.
    fn ioctl(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        number: u32,
        data: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let start = Instant::now();
        let taken = match is_announcement(number) {
            true => self.vfs().write_by_ioctl(ino.0, data),
            false => Err(Errno::ENOTTY),
        };
        self.count(request, Operation::Other, ino.0, start, &taken);
        match taken {
            Ok(()) => reply.ioctl(0, &[]),
            Err(errno) => reply.error(wire(errno)),
        }
    }

    read_only! {
        mknod(parent: INodeNo, name: &OsStr, mode: u32, umask: u32, rdev: u32) -> ReplyEntry;
        mkdir(parent: INodeNo, name: &OsStr, mode: u32, umask: u32) -> ReplyEntry;
        unlink(parent: INodeNo, name: &OsStr) -> ReplyEmpty;
        rmdir(parent: INodeNo, name: &OsStr) -> ReplyEmpty;
        symlink(parent: INodeNo, name: &OsStr, target: &Path) -> ReplyEntry;
        rename(
            parent: INodeNo, name: &OsStr, newparent: INodeNo, newname: &OsStr, flags: RenameFlags
        ) -> ReplyEmpty;
        link(ino: INodeNo, parent: INodeNo, name: &OsStr) -> ReplyEntry;
        create(parent: INodeNo, name: &OsStr, mode: u32, umask: u32, flags: i32) -> ReplyCreate;
        setxattr(ino: INodeNo, name: &OsStr, value: &[u8], flags: i32, at: u32) -> ReplyEmpty;
        removexattr(ino: INodeNo, name: &OsStr) -> ReplyEmpty;
        fallocate(ino: INodeNo, fh: FileHandle, offset: u64, length: u64, mode: i32) -> ReplyEmpty;
    }
}

/// Size 0 asks for the value's size.
fn reply_sized(reply: ReplyXattr, value: &[u8], size: u32) {
    match u32::try_from(value.len()) {
        Ok(length) if size == 0 => reply.size(length),
        Ok(length) if length <= size => reply.data(value),
        _ => reply.error(wire(Errno::ERANGE)),
    }
}
