//! Requests from /dev/fuse, read by a thread for each CPU. Reads that must wait do so on threads of their own.

use super::connection::{ANSWER_HEADER_BYTES, Device, HEADER_BYTES};
use super::dispatch::{self, Exchange};
use super::interrupts::{Interruptible, Interrupts, Reader, Waiting};
use super::leaving::Leaving;
use super::ops::{Caller, Ops};
use super::reads;
use super::solo::{Solo, Taker};
use super::threads;
use super::wire::{BatchForgetIn, ForgetIn, ForgetOne, InterruptIn, op};
use super::workers::Workers;
use crate::io::ring::InHeader;
use crate::io::{Buffer, ReadError};
use crate::store::Cause;
use crate::vfs::{
    Driver, Errno, Fetch, InFlightRead, Operation, Phase, ReadRequest, Reply, Step, Task, Traced,
    Vfs, begin, drive,
};
use nix::poll::PollTimeout;
use std::io;
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;
use zerocopy::{FromBytes, IntoBytes};

/// How many samples may be fetched for one descriptor because they were looked up.
const MAX_AHEAD: usize = 8;

/// The state that the threads of a mount share.
pub(super) struct Shared {
    pub(super) ops: Arc<Ops>,
    pub(super) workers: Arc<Workers>,
    pub(super) interrupts: Arc<Interrupts>,
    pub(super) leaving: Arc<Leaving>,
    pub(super) solo: Solo,
    /// The only user whose requests are answered, besides those of the kernel; `None` if those of each user are.
    pub(super) owner: Option<u32>,
    /// Set once requests may be taken: all threads wait for it, so that each can be confined before.
    pub(super) is_open: OnceLock<()>,
}

/// A descriptor, and its requests that wait.
struct Channel {
    shared: Arc<Shared>,
    device: Arc<Device>,
    waiting: Waiting,
    /// Samples that are being fetched because they were looked up.
    ahead: AtomicUsize,
}

impl Interruptible for Channel {
    fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    fn interrupt(&self, unique: u64, _: &Reader) {
        if self.waiting.remove(unique) {
            self.device.answer(unique, Err(Errno::EINTR));
        }
    }
}

/// The threads that read requests from /dev/fuse.
pub(super) struct Channels {
    threads: Vec<JoinHandle<io::Result<()>>>,
    devices: Vec<Arc<Device>>,
}

impl Channels {
    /// Starts `threads` threads, which share the descriptors. They take requests of up to `max_request_bytes` bytes.
    ///
    /// # Errors
    /// There is no memory, or no thread can be started.
    pub(super) fn start(
        shared: &Arc<Shared>,
        devices: Vec<Arc<Device>>,
        threads: usize,
        max_request_bytes: u32,
    ) -> io::Result<Self> {
        let channels = devices.iter().map(|device| {
            let (device, waiting) = (Arc::clone(device), shared.interrupts.table());
            let ahead = AtomicUsize::new(0);
            let channel = Channel { shared: Arc::clone(shared), device, waiting, ahead };
            let channel = Arc::new(channel);
            shared.interrupts.watch(Arc::clone(&channel) as Arc<dyn Interruptible>);
            channel
        });
        let channels: Vec<_> = channels.collect();
        let buffers = (0..threads).map(|_| Device::buffer(max_request_bytes));
        let buffers = buffers.collect::<io::Result<Vec<_>>>()?;
        let mut started = Vec::new();
        for (number, buffer) in buffers.into_iter().enumerate() {
            let channel = Arc::clone(&channels[number % channels.len()]);
            started.push(threads::spawn(format!("ffrfs-fuse-{number}"), move || {
                channel.shared.is_open.wait();
                channel.serve(buffer)
            })?);
        }
        Ok(Self { threads: started, devices })
    }

    /// The descriptors that requests are taken from.
    pub(super) fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// Waits until the mount has ended.
    ///
    /// # Errors
    /// The connection broke.
    pub(super) fn join(self) -> io::Result<()> {
        let mut all = Ok(());
        for thread in self.threads {
            let ended = thread.join();
            all = all.and(ended.unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))));
        }
        all
    }
}

/// A request in a thread's buffer; its answer is written over it, behind the place of the answer's header.
struct Received<'a> {
    header: InHeader,
    buffer: &'a mut [u8],
    length: usize,
}

impl Exchange for Received<'_> {
    fn header(&self) -> InHeader {
        self.header
    }

    fn operation<T: FromBytes + IntoBytes>(&self) -> (T, &[u8]) {
        let bytes = &self.buffer[HEADER_BYTES..self.length];
        // The kernel sends whole requests.
        T::read_from_prefix(bytes).unwrap_or_else(|_| (T::new_zeroed(), &[]))
    }

    fn out(&mut self) -> &mut [u8] {
        &mut self.buffer[ANSWER_HEADER_BYTES..]
    }
}

impl Channel {
    /// Serves until the mount has ended.
    fn serve(self: Arc<Self>, mut buffer: Buffer) -> io::Result<()> {
        let buffer = buffer.as_mut_slice();
        let leaving = &self.shared.leaving;
        let _taking = leaving.taking();
        let mut taker = Taker::new(&self.shared.solo);
        loop {
            taker.wait(&self.device, leaving.has_begun());
            let Some(length) = self.device.read(buffer, leaving.has_begun())? else {
                if !leaving.has_begun().load(Ordering::Relaxed) {
                    self.shared.interrupts.interrupt_all();
                }
                return Ok(());
            };
            let Ok((header, _)) = InHeader::read_from_prefix(&buffer[..length]) else {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a request without header"));
            };
            taker.took(header.opcode, header.pid);
            let thread = if taker.is_alone() { Thread::Soloist } else { Thread::Taker };
            self.request(Received { header, buffer, length }, thread);
            #[cfg(feature = "test-hooks")]
            super::provoked::fail_if_asked()?;
        }
    }

    fn request(self: &Arc<Self>, mut received: Received<'_>, thread: Thread) {
        let InHeader { opcode, unique, nodeid, pid, .. } = received.header;
        let caller = Caller { pid, start: Instant::now(), arrived: None };
        if !self.admits(&received.header) {
            return self.device.answer(unique, Err(Errno::EACCES));
        }
        let ops = &self.shared.ops;
        let answer = match opcode {
            op::READ => return self.read(&received, caller, thread),
            op::LOOKUP => {
                let (answer, found) = dispatch::lookup(ops, caller, &mut received);
                // Begun before the answer: the read that follows it, perhaps on another thread, joins this fetch.
                let fetch = found.and_then(|ino| self.looked_up(ino));
                self.device.answer_from(unique, received.buffer, answer);
                if let Some(fetch) = fetch {
                    self.fetch_ahead(fetch, thread);
                }
                return;
            }
            // These have no answer.
            op::FORGET => {
                let (ForgetIn { nlookup }, _) = received.operation();
                return ops.forget(caller, nodeid, nlookup);
            }
            op::BATCH_FORGET => return self.forget(&received, caller),
            op::INTERRUPT => {
                let (InterruptIn { unique }, _) = received.operation();
                return self.shared.interrupts.interrupt(unique);
            }
            _ => dispatch::answer(ops, caller, &mut received),
        };
        self.device.answer_from(unique, received.buffer, answer);
    }

    /// Whether requests of this user are answered. The kernel sends some requests without a user.
    fn admits(&self, header: &InHeader) -> bool {
        self.shared.owner.is_none_or(|owner| owner == header.uid)
            || matches!(
                header.opcode,
                op::READ
                    | op::READDIR
                    | op::READDIRPLUS
                    | op::FORGET
                    | op::BATCH_FORGET
                    | op::INTERRUPT
                    | op::WRITE
                    | op::FSYNC
                    | op::FSYNCDIR
                    | op::RELEASE
                    | op::RELEASEDIR
                    | op::DESTROY
            )
    }

    fn forget(&self, received: &Received<'_>, caller: Caller) {
        let (BatchForgetIn { count, .. }, mut rest) = received.operation();
        for _ in 0..count {
            let Ok((one, behind)) = ForgetOne::read_from_prefix(rest) else { return };
            self.shared.ops.forget(caller, one.nodeid, one.nlookup);
            rest = behind;
        }
    }

    fn read(self: &Arc<Self>, received: &Received<'_>, caller: Caller, thread: Thread) {
        let (read, is_direct) = dispatch::read_request(received);
        let traced = self.shared.ops.trace(caller, Operation::Read, read.ino);
        let traced = traced.range(read.offset_bytes, read.length_bytes);
        let reader = Reader { pid: caller.pid, slot: 0, is_direct };
        let unique = received.header.unique;
        let job = Job { read, unique, reader, start: caller.start, traced, waits: false };
        begin(RequestRead { channel: self, job, thread });
    }

    /// The fetch of a sample because it was looked up, if the vfs expects it to be read.
    fn looked_up(&self, ino: u64) -> Option<Fetch> {
        if self.ahead.load(Ordering::Relaxed) >= MAX_AHEAD {
            return None;
        }
        let vfs = self.shared.ops.vfs();
        vfs.looked_up(ino, |part| vfs.store().part(part).is_cold())
    }

    fn fetch_ahead(self: &Arc<Self>, mut fetch: Fetch, thread: Thread) {
        let vfs = self.shared.ops.vfs();
        if thread == Thread::Soloist && reads::is_short(vfs.store(), fetch.span()) {
            // Its program makes no other request meanwhile. Waking another thread takes half as long as the read.
            return reads::fetch_looked_up(vfs, fetch);
        }
        self.ahead.fetch_add(1, Ordering::Relaxed);
        let channel = Arc::clone(self);
        self.shared.workers.run(move || {
            reads::fetch_looked_up(channel.shared.ops.vfs(), fetch);
            channel.ahead.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// A read that is not answered yet.
struct Job {
    read: ReadRequest,
    unique: u64,
    reader: Reader,
    start: Instant,
    traced: Traced,
    /// Whether the read is among the requests that wait, and may have been answered there with EINTR.
    waits: bool,
}

/// The kind of thread that goes on with a read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Thread {
    /// The thread takes requests.
    Taker,
    /// The only thread that takes requests: it may wait for a disk, since its program waits, too.
    Soloist,
    /// The thread may wait for anything.
    Worker,
}

/// A read of a request from /dev/fuse; steps that must wait go to a worker thread.
struct RequestRead<'a> {
    channel: &'a Arc<Channel>,
    job: Job,
    thread: Thread,
}

impl Driver for RequestRead<'_> {
    type Output = ();

    fn vfs(&self) -> &Vfs {
        self.channel.shared.ops.vfs()
    }

    fn request(&self) -> ReadRequest {
        self.job.read
    }

    fn fetch(mut self, mut task: Task) -> ControlFlow<(), (Self, Task, Result<(), ReadError>)> {
        let vfs = self.channel.shared.ops.vfs();
        let waits = task.waits();
        if (waits || task.is_long()) && !self.may_wait_for(&mut task) {
            vfs.shelve(&mut task);
            self.hand_over(Step::Read(task));
            return Break(());
        }
        self.job.traced.enter(if waits { Phase::Disk } else { Phase::Cache });
        let fetched = reads::fetch(vfs.store(), task.span(), waits);
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
        if self.thread != Thread::Worker {
            self.hand_over(Step::Work(task));
            return Break(());
        }
        task.work();
        Continue((self, task))
    }

    fn follow(self, read: Arc<InFlightRead>) -> ControlFlow<(), Self> {
        let (channel, mut job) = self.put_aside();
        job.traced.enter(Phase::Wait);
        // Held until this read has looked for its bytes. The leader ends it in any case, and so ends the circle of the two.
        let ended = Arc::clone(&read);
        read.when_ended(move || {
            let _ended = ended;
            job.traced.leave();
            if channel.waiting.has(job.unique) {
                begin(RequestRead { channel: &channel, job, thread: Thread::Taker });
            } else {
                channel.shared.ops.vfs().trace().end(job.traced, Err(Errno::EINTR));
            }
        });
        Break(())
    }

    fn await_turn(self, task: Task, turn: Arc<InFlightRead>) -> ControlFlow<(), (Self, Task)> {
        let (channel, mut job) = self.put_aside();
        job.traced.enter(Phase::Wait);
        turn.when_ended(move || {
            let vfs = channel.shared.ops.vfs();
            job.traced.leave();
            if channel.waiting.has(job.unique) {
                let step = vfs.worked(task);
                drive(RequestRead { channel: &channel, job, thread: Thread::Taker }, step);
            } else {
                // Reads that follow this one begin anew.
                vfs.trace().end(job.traced, Err(Errno::EINTR));
            }
        });
        Break(())
    }

    fn answer(self, reply: Reply) {
        let Self { channel, mut job, .. } = self;
        let vfs = channel.shared.ops.vfs();
        let is_answered = job.waits && !channel.waiting.remove(job.unique);
        // Counted first: a program that has the answer finds it in the counters.
        vfs.stats().request(Operation::Read, vfs.is_control(job.read.ino), job.start);
        job.traced.enter(Phase::Reply);
        let bytes = if is_answered { Err(Errno::EINTR) } else { reply.bytes() };
        if !is_answered {
            channel.device.answer(job.unique, bytes);
        }
        vfs.trace().end(job.traced, bytes.map(|bytes| bytes.len() as u64));
        vfs.finish(reply);
    }
}

impl RequestRead<'_> {
    /// Whether this thread may wait for the task's bytes, or work on the task for long.
    fn may_wait_for(&self, task: &mut Task) -> bool {
        let Channel { shared, device, .. } = &**self.channel;
        match self.thread {
            Thread::Taker => false,
            // Requests that come before others are answered are read ahead: those should wait together.
            Thread::Soloist => {
                !task.is_long()
                    && reads::is_short(shared.ops.vfs().store(), task.span())
                    && !device.has_request(PollTimeout::ZERO)
            }
            Thread::Worker => true,
        }
    }

    /// Has the read wait for another thread to go on with it.
    fn put_aside(self) -> (Arc<Channel>, Job) {
        let (channel, mut job) = (Arc::clone(self.channel), self.job);
        if !job.waits {
            job.waits = true;
            channel.waiting.add(job.unique, job.reader);
        }
        (channel, job)
    }

    /// Goes on with a task on a worker thread once its bytes are on this machine; no thread waits for them.
    fn bring(self, mut task: Task) {
        let store = self.channel.shared.ops.vfs().store().clone();
        let (channel, mut job) = self.put_aside();
        channel.shared.ops.vfs().shelve(&mut task);
        let (part, range) = (task.span().part(), task.span().range());
        store.begin(part, range, Cause::Demand, move |arrived| {
            let workers = Arc::clone(&channel.shared.workers);
            workers.run(move || {
                let vfs = channel.shared.ops.vfs();
                job.traced.enter(Phase::Verify);
                vfs.unshelve(&mut task);
                // The pin lasts until the bytes were read.
                let arrived = arrived.and_then(|arrived| reads::take(task.span(), arrived));
                let (_pin, step) = match arrived {
                    Ok(Some(pin)) => (Some(pin), Step::Read(task)),
                    fetched => (None, vfs.resume(task, fetched.map(drop))),
                };
                drive(RequestRead { channel: &channel, job, thread: Thread::Worker }, step);
            });
        });
    }

    /// Goes on with a step on a worker thread.
    fn hand_over(self, mut step: Step) {
        let (channel, mut job) = self.put_aside();
        job.traced.enter(Phase::Queue);
        let workers = Arc::clone(&channel.shared.workers);
        workers.run(move || {
            let vfs = channel.shared.ops.vfs();
            job.traced.leave();
            if !channel.waiting.has(job.unique) {
                // Reads that follow this one begin anew.
                return vfs.trace().end(job.traced, Err(Errno::EINTR));
            }
            if let Step::Read(task) = &mut step {
                vfs.unshelve(task);
            }
            drive(RequestRead { channel: &channel, job, thread: Thread::Worker }, step);
        });
    }
}
