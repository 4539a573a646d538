//! Requests from /dev/fuse, through fuser: decodes them, and encodes the answers of `ops`. Reads that must
//! wait do so on threads of their own.

use super::negotiation::Negotiation;
use super::ops::{self, Caller, Ops, Value};
use super::reads;
use super::wire::{
    BLOCK_BYTES, MAX_NAME_BYTES, PREFERRED_BLOCK_BYTES, PREFERRED_READ_BYTES, op, valid,
};
use super::workers::Workers;
use crate::io::ReadError;
use crate::store::Cause;
use crate::vfs::{
    Attr, Driver, Errno, FOREVER, FileKind, InFlightRead, Listed, Operation, Phase, ReadRequest,
    Reply, Step, Task, Traced, Vfs, begin, drive,
};
use fuser::{
    AccessFlags, BsdFileFlags, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::ops::ControlFlow::{self, Break, Continue};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// The generation of every inode: numbers are never used again.
const GENERATION: Generation = Generation(0);

/// [`Ops`] behind fuser's trait.
pub(super) struct DevFuse {
    shared: Arc<Shared>,
    negotiation: Arc<Negotiation>,
}

struct Shared {
    ops: Arc<Ops>,
    workers: Workers,
}

/// A read that is not answered yet.
struct Job {
    read: ReadRequest,
    start: Instant,
    traced: Traced,
    reply: ReplyData,
}

impl DevFuse {
    /// Reads that must wait do so on up to `workers` threads.
    pub(super) fn new(ops: Arc<Ops>, workers: usize, negotiation: Arc<Negotiation>) -> Self {
        let shared = Arc::new(Shared { ops, workers: Workers::new(workers) });
        Self { shared, negotiation }
    }

    fn ops(&self) -> &Ops {
        &self.shared.ops
    }
}

/// The thread that sent a request; the time of the request begins now.
fn caller(request: &Request) -> Caller {
    Caller { pid: request.pid(), start: Instant::now(), arrived: None }
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
        self.shared.ops.vfs()
    }

    fn request(&self) -> ReadRequest {
        self.job.read
    }

    fn fetch(mut self, mut task: Task) -> ControlFlow<(), (Self, Task, Result<(), ReadError>)> {
        let waits = task.waits();
        if (waits || task.is_long()) && !self.may_wait {
            self.shared.ops.vfs().shelve(&mut task);
            self.hand_over(Step::Read(task));
            return Break(());
        }
        self.job.traced.enter(if waits { Phase::Disk } else { Phase::Cache });
        let fetched = reads::fetch(self.shared.ops.vfs().store(), task.span(), waits);
        match fetched {
            Err(ReadError::Absent) => {
                self.job.traced.cancel();
                self.job.traced.enter(Phase::Store);
                self.bring(task);
                return Break(());
            }
            Err(ReadError::WouldBlock) => self.job.traced.cancel(),
            _ => self.job.traced.enter(Phase::Verify),
        }
        Continue((self, task, fetched))
    }

    fn work(self, mut task: Task) -> ControlFlow<(), (Self, Task)> {
        if !self.may_wait {
            self.hand_over(Step::Work(task));
            return Break(());
        }
        task.work();
        Continue((self, task))
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
        let control = shared.ops.vfs().is_control(job.read.ino);
        shared.ops.vfs().stats().request(Operation::Read, control, job.start);
        job.traced.enter(Phase::Reply);
        let bytes = reply.bytes();
        match bytes {
            Ok(bytes) => job.reply.data(bytes),
            Err(errno) => job.reply.error(wire(errno)),
        }
        shared.ops.vfs().trace().end(job.traced, bytes.map(|bytes| bytes.len() as u64));
        shared.ops.vfs().finish(reply);
    }
}

impl RequestRead<'_> {
    /// Goes on with a task on a worker thread once its bytes are on this machine; no thread waits for them.
    fn bring(self, mut task: Task) {
        let (shared, mut job) = (Arc::clone(self.shared), self.job);
        shared.ops.vfs().shelve(&mut task);
        let (part, range) = (task.span().part(), task.span().range());
        self.shared.ops.vfs().store().begin(part, range, Cause::Demand, move |arrived| {
            let workers = Arc::clone(&shared);
            workers.workers.run(move || {
                job.traced.enter(Phase::Verify);
                shared.ops.vfs().unshelve(&mut task);
                // The pin lasts until the bytes were read.
                let (_pin, step) = match arrived.map(|arrived| reads::take(task.span(), arrived)) {
                    Ok(Some(pin)) => (Some(pin), Step::Read(task)),
                    fetched => (None, shared.ops.vfs().resume(task, fetched.map(drop))),
                };
                drive(RequestRead { shared: &shared, job, may_wait: true }, step);
            });
        });
    }

    /// Goes on with a step on a worker thread.
    fn hand_over(self, mut step: Step) {
        let (shared, mut job) = (Arc::clone(self.shared), self.job);
        job.traced.enter(Phase::Queue);
        self.shared.workers.run(move || {
            job.traced.leave();
            if let Step::Read(task) = &mut step {
                shared.ops.vfs().unshelve(task);
            }
            drive(RequestRead { shared: &shared, job, may_wait: true }, step);
        });
    }
}

fn wire(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.0)
}

fn kind(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
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

/// Sends the answer, whose arm is given, or the error.
macro_rules! answer {
    ($reply:ident, $answer:expr, $value:pat => $send:expr) => {
        match $answer {
            Ok($value) => $send,
            Err(errno) => $reply.error(wire(errno)),
        }
    };
}

/// Methods of [`Filesystem`] that would change something.
macro_rules! read_only {
    ($($name:ident, $opcode:ident(
        $ino:ident: INodeNo $(, $argument:ident: $kind:ty)*
    ) -> $reply:ty;)*) => {
        $(fn $name(&self, request: &Request, $ino: INodeNo, $($argument: $kind,)* reply: $reply) {
            let _ = ($($argument,)*);
            reply.error(wire(self.ops().refuse(caller(request), op::$opcode, $ino.0)));
        })*
    };
}

impl Filesystem for DevFuse {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        self.negotiation.negotiate(config);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer!(reply, self.ops().lookup(caller(request), parent.0, name.as_bytes()), found => {
            let (attr, valid) = ops::entry(&found);
            reply.entry(&valid, &file_attr(attr), GENERATION);
        });
    }

    fn forget(&self, request: &Request, ino: INodeNo, lookups: u64) {
        self.ops().forget(caller(request), ino.0, lookups);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.ops().getattr(caller(request), ino.0), attr => {
            reply.attr(&FOREVER, &file_attr(&attr));
        });
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        answer!(reply, self.ops().open(caller(request), ino.0, flags.0), flags => {
            reply.opened(FileHandle(0), FopenFlags::from_bits_retain(flags));
        });
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        answer!(reply, self.ops().opendir(caller(request), ino.0), flags => {
            reply.opened(FileHandle(0), FopenFlags::from_bits_retain(flags));
        });
    }

    fn flush(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(wire(self.ops().not_needed(caller(request), op::FLUSH, ino.0)));
    }

    fn fsync(&self, request: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.error(wire(self.ops().not_needed(caller(request), op::FSYNC, ino.0)));
    }

    fn fsyncdir(&self, request: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.error(wire(self.ops().not_needed(caller(request), op::FSYNCDIR, ino.0)));
    }

    fn access(&self, request: &Request, ino: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.error(wire(self.ops().not_needed(caller(request), op::ACCESS, ino.0)));
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
        answer!(reply, self.ops().write(caller(request), ino.0, offset, data), bytes => {
            reply.written(bytes);
        });
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
        let what = [
            (mode.is_some(), valid::MODE),
            (uid.is_some(), valid::UID),
            (gid.is_some(), valid::GID),
            (size.is_some(), valid::SIZE),
        ];
        let what = what.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum();
        answer!(reply, self.ops().setattr(caller(request), ino.0, what), attr => {
            reply.attr(&FOREVER, &file_attr(&attr));
        });
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
        let (caller, length) = (caller(request), u64::from(size));
        let traced = self.ops().trace(caller, Operation::Read, ino.0).range(offset, length);
        let read = ReadRequest { ino: ino.0, offset_bytes: offset, length_bytes: length };
        let job = Job { read, start: caller.start, traced, reply };
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
        let emit = &mut |entry: Listed| {
            let name = OsStr::from_bytes(entry.name);
            !reply.add(INodeNo(entry.ino), entry.next, kind(entry.kind), name)
        };
        let listed = self.ops().readdir(caller(request), ino.0, offset, emit);
        answer!(reply, listed, () => reply.ok());
    }

    fn readdirplus(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed =
            self.ops().readdirplus(caller(request), ino.0, offset, |entry, attr, valid| {
                let (name, attr) = (OsStr::from_bytes(entry.name), file_attr(attr));
                !reply.add(attr.ino, entry.next, name, &valid, &attr, GENERATION)
            });
        answer!(reply, listed, () => reply.ok());
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        answer!(reply, self.ops().readlink(caller(request), ino.0), target => {
            reply.data(&target);
        });
    }

    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let totals = self.ops().statfs(caller(request), ino.0);
        reply.statfs(
            totals.bytes.div_ceil(BLOCK_BYTES.into()),
            0,
            0,
            totals.files,
            0,
            PREFERRED_BLOCK_BYTES,
            MAX_NAME_BYTES,
            BLOCK_BYTES,
        );
    }

    fn getxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        reply_value(reply, self.ops().getxattr(caller(request), ino.0, name.as_bytes(), size));
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(wire(self.ops().not_needed(caller(request), op::LISTXATTR, ino.0)));
    }

    fn lseek(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let offset = offset.cast_unsigned();
        answer!(reply, self.ops().lseek(caller(request), ino.0, offset, whence), found => {
            reply.offset(found.cast_signed());
        });
    }

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
        answer!(reply, self.ops().ioctl(caller(request), ino.0, number, data), () => {
            reply.ioctl(0, &[]);
        });
    }

    read_only! {
        mknod, MKNOD(parent: INodeNo, name: &OsStr, mode: u32, mask: u32, rdev: u32) -> ReplyEntry;
        mkdir, MKDIR(parent: INodeNo, name: &OsStr, mode: u32, umask: u32) -> ReplyEntry;
        unlink, UNLINK(parent: INodeNo, name: &OsStr) -> ReplyEmpty;
        rmdir, RMDIR(parent: INodeNo, name: &OsStr) -> ReplyEmpty;
        symlink, SYMLINK(parent: INodeNo, name: &OsStr, target: &Path) -> ReplyEntry;
        rename, RENAME(
            parent: INodeNo, name: &OsStr, newparent: INodeNo, newname: &OsStr, flags: RenameFlags
        ) -> ReplyEmpty;
        link, LINK(ino: INodeNo, parent: INodeNo, name: &OsStr) -> ReplyEntry;
        create, CREATE(
            parent: INodeNo, name: &OsStr, mode: u32, umask: u32, flags: i32
        ) -> ReplyCreate;
        setxattr, SETXATTR(
            ino: INodeNo, name: &OsStr, value: &[u8], flags: i32, at: u32
        ) -> ReplyEmpty;
        removexattr, REMOVEXATTR(ino: INodeNo, name: &OsStr) -> ReplyEmpty;
        fallocate, FALLOCATE(
            ino: INodeNo, fh: FileHandle, offset: u64, length: u64, mode: i32
        ) -> ReplyEmpty;
    }
}

fn reply_value(reply: ReplyXattr, value: Result<Value, Errno>) {
    match value {
        Ok(Value::Length(bytes)) => reply.size(bytes),
        Ok(Value::Bytes(value)) => reply.data(&value),
        Err(errno) => reply.error(wire(errno)),
    }
}
