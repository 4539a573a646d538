//! What a queue's thread does with the requests that come through its ring, and with the reads that they
//! need.

use super::reads::{self, Progress, Submitted};
use super::undo::Undo;
use super::wire::{self, ABSENT, Out, op, valid};
use crate::io::ring::{Event, Ring, Waker};
use crate::io::{Buffer, ReadError, is_announcement};
use crate::vfs::{
    Attr, Driver, Errno, FOREVER, Fetch, InFlightRead, Listed, Lookup, Operation, Phase,
    ReadRequest, Reply, Step, Task, Traced, Vfs, begin, drive,
};
use std::io;
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Samples that a CPU may fetch because they were looked up.
pub(super) const AHEAD: usize = 16;

/// A ring and what its slots are doing.
pub(super) struct Lane {
    ring: Ring,
    vfs: Arc<Vfs>,
    slots: Vec<State>,
    /// Fetches that no request waits for yet, numbered on from the slots; how much of each is there.
    ahead: Vec<Option<(Fetch, usize)>>,
    landed: Arc<Landed>,
    undo: Arc<Undo>,
    /// When what is being looked at came, if somebody wants to know.
    arrived: Option<Instant>,
}

/// What a slot is doing for its request.
enum State {
    /// Waiting for a request, or answering one at once.
    Free,
    /// Waiting for the disk: how much is there of what the task wants.
    Reading(Job, Box<Task>, usize),
    /// Waiting for another request's fetch.
    Parked(Job),
}

/// A read that is not answered yet.
struct Job {
    read: ReadRequest,
    start: Instant,
    traced: Traced,
}

/// Slots whose flights have landed, on whichever thread that was.
struct Landed {
    slots: Mutex<Vec<usize>>,
    waker: Waker,
}

impl Lane {
    pub(super) fn new(ring: Ring, vfs: Arc<Vfs>, undo: Arc<Undo>) -> Self {
        let slots = (0..ring.slots()).map(|_| State::Free).collect();
        let landed = Arc::new(Landed { slots: Mutex::default(), waker: ring.waker() });
        let ahead = (0..AHEAD).map(|_| None).collect();
        Self { ring, vfs, slots, ahead, landed, undo, arrived: None }
    }

    /// Until the kernel has let go of all slots.
    pub(super) fn serve(mut self) {
        let mut events = Vec::new();
        let mut open = self.slots.len();
        while open > 0 {
            if let Err(error) = self.ring.wait(&mut events, None) {
                // Without this queue the kernel would wait for ever; a dead mount is what everybody sees.
                tracing::error!("the ring broke: {error}");
                std::process::exit(5);
            }
            let counts = self.ring.counts();
            self.vfs.stats().ring(counts.submits, counts.entries, counts.completions);
            self.arrived = self.vfs.trace().is_on().then(Instant::now);
            for event in events.drain(..) {
                match event {
                    Event::Request(slot) => self.request(slot),
                    Event::Read(number, buffer, result) => {
                        match number.checked_sub(self.slots.len()) {
                            None => self.read_ended(number, buffer, result),
                            Some(ahead) => self.ahead_ended(ahead, buffer, result),
                        }
                    }
                    Event::Woken => self.go_on_with_landed(),
                    Event::Closed(_) => open -= 1,
                }
            }
        }
    }

    fn request(&mut self, slot: usize) {
        let start = Instant::now();
        let request = self.ring.request(slot);
        let (opcode, ino, operation) = (request.opcode, request.nodeid, *request.operation);
        let pid = request.pid;
        let (what, answer) = match opcode {
            op::READ => {
                let (offset, length) =
                    (wire::u64_at(&operation, 8), u64::from(wire::u32_at(&operation, 16)));
                let traced = self.begin(Operation::Read, ino, pid, start).range(offset, length);
                let read = ReadRequest { ino, offset_bytes: offset, length_bytes: length };
                return begin(SlotRead { lane: self, slot, job: Job { read, start, traced } });
            }
            op::LOOKUP => return self.lookup(slot, ino, pid, start),
            op::GETATTR => (Operation::Getattr, self.getattr(slot, ino)),
            op::READDIR => (Operation::Readdir, self.readdir(slot, ino, &operation, false)),
            op::READDIRPLUS => (Operation::Readdirplus, self.readdir(slot, ino, &operation, true)),
            op::READLINK => (Operation::Readlink, self.readlink(slot, ino)),
            op::STATFS => (Operation::Statfs, self.statfs(slot)),
            op::GETXATTR => (Operation::Getxattr, self.getxattr(slot, ino, &operation)),
            op::LISTXATTR => {
                let names = self.vfs.listxattr(ino);
                (Operation::Listxattr, self.sized(slot, &names, &operation))
            }
            op::WRITE => (Operation::Other, self.write(slot, ino, &operation)),
            op::IOCTL => (Operation::Other, self.ioctl(slot, ino, &operation)),
            op::SETATTR => (Operation::Other, self.setattr(slot, ino, &operation)),
            op::OPEN => (Operation::Open, Err(self.open(ino, &operation))),
            // Answered ENOSYS, the kernel does these itself from then on.
            op::OPENDIR => (Operation::Opendir, Err(Errno(libc::ENOSYS))),
            op::FLUSH => (Operation::Flush, Err(Errno(libc::ENOSYS))),
            op::ACCESS => (Operation::Access, Err(Errno(libc::ENOSYS))),
            op::LSEEK => (Operation::Lseek, self.lseek(slot, ino, &operation)),
            _ => (Operation::Other, Err(refusal(opcode))),
        };
        let traced = self.begin(what, ino, pid, start).range(offset_in(opcode, &operation), 0);
        self.ring.answer(slot, answer.map_err(|errno| errno.0));
        self.vfs.trace().end(traced, answer.map(|_| 0));
        self.vfs.stats().request(what, self.vfs.is_control(ino), start);
    }

    /// A request was looked at from `start` on: it is recorded if somebody wants to know.
    fn begin(&self, what: Operation, ino: u64, pid: u32, start: Instant) -> Traced {
        match self.arrived {
            Some(_) if !self.vfs.is_control(ino) => {
                self.vfs.trace().begin(what, ino, pid, start).arrived(self.arrived)
            }
            _ => Traced::NONE,
        }
    }

    fn lookup(&mut self, slot: usize, parent: u64, pid: u32, start: Instant) {
        let payload = self.ring.request(slot).payload;
        let name = payload.split(|&b| b == 0).next().unwrap_or_default();
        let control = self.vfs.is_control_name(parent, name);
        let found = self.vfs.lookup(parent, name);
        let mut traced = match control {
            true => Traced::NONE,
            false => self.begin(Operation::Lookup, parent, pid, start),
        };
        traced.looked_up(name, found.as_ref().ok().and_then(Lookup::ino));
        traced.enter(Phase::Reply);
        let mut out = Out::new(self.ring.payload(slot));
        let answer = found.as_ref().map(|found| {
            match found {
                Lookup::Found(attr) => out.entry(attr, FOREVER),
                Lookup::Passing(attr) => out.entry(attr, Duration::ZERO),
                Lookup::Absent => out.entry(&ABSENT, FOREVER),
            }
            out.length()
        });
        self.ring.answer(slot, answer.map_err(|errno| errno.0));
        self.vfs.trace().end(traced, found.map(|_| 0));
        self.vfs.stats().request(Operation::Lookup, control, start);
        if let Ok(Lookup::Found(attr)) = found {
            self.fetch_looked_up(attr.ino);
        }
    }

    /// A sample was looked up: it is fetched if it will be read.
    fn fetch_looked_up(&mut self, ino: u64) {
        let Some(free) = self.ahead.iter().position(Option::is_none) else { return };
        if let Some(fetch) = self.vfs.looked_up(ino, |part| self.vfs.store().part(part).is_cold()) {
            self.fetch_ahead(free, fetch, 0);
        }
    }

    fn fetch_ahead(&mut self, number: usize, mut fetch: Fetch, done: usize) {
        let part = self.vfs.store().part(fetch.span().part());
        let id = self.slots.len() + number;
        match reads::submit(&mut self.ring, id, part, fetch.span(), done) {
            Ok(Submitted::Reading) => self.ahead[number] = Some((fetch, done)),
            Ok(Submitted::Done) => drop(self.vfs.land(fetch, Ok(()))),
            Err(error) => drop(self.vfs.land(fetch, Err(error))),
        }
    }

    fn ahead_ended(&mut self, number: usize, buffer: Buffer, result: io::Result<usize>) {
        let Some((mut fetch, done)) = self.ahead[number].take() else { return };
        let part = self.vfs.store().part(fetch.span().part());
        match reads::ended(part, fetch.span(), done, buffer, result) {
            Progress::Partly(done) => self.fetch_ahead(number, fetch, done),
            Progress::Ended(fetched) => {
                // Its read is on the way: it need not be stored.
                self.vfs.land(fetch, fetched);
                self.go_on_with_landed();
            }
        }
    }

    fn getattr(&mut self, slot: usize, ino: u64) -> Result<usize, Errno> {
        let attr = self.vfs.getattr(ino)?;
        let mut out = Out::new(self.ring.payload(slot));
        out.attr_out(&attr, FOREVER);
        Ok(out.length())
    }

    /// Answered ENOSYS, the kernel opens files itself from then on.
    fn open(&self, ino: u64, operation: &[u8; 128]) -> Errno {
        let flags = wire::u32_at(operation, 0).cast_signed();
        let reads = flags & libc::O_ACCMODE == libc::O_RDONLY;
        let allowed = if reads { Ok(()) } else { self.vfs.open_for_writing(ino) };
        allowed.err().unwrap_or(Errno(libc::ENOSYS))
    }

    fn write(&mut self, slot: usize, ino: u64, operation: &[u8; 128]) -> Result<usize, Errno> {
        let (offset, size) = (wire::u64_at(operation, 8), wire::u32_at(operation, 16));
        let payload = self.ring.request(slot).payload;
        let bytes = payload.get(..size as usize).ok_or(Errno::EINVAL)?;
        self.vfs.write(ino, offset, bytes).inspect_err(|_| self.undo.write_to(&self.vfs, ino))?;
        let mut out = Out::new(self.ring.payload(slot));
        out.write_out(size);
        Ok(out.length())
    }

    /// Announcements and settings; and Python asks each file that it opens whether it is a terminal.
    fn ioctl(&mut self, slot: usize, ino: u64, operation: &[u8; 128]) -> Result<usize, Errno> {
        let (request, size) = (wire::u32_at(operation, 12), wire::u32_at(operation, 24));
        if !is_announcement(request) {
            return Err(Errno::ENOTTY);
        }
        let bytes = self.ring.request(slot).payload.get(..size as usize).ok_or(Errno::EINVAL)?;
        self.vfs.write_by_ioctl(ino, bytes)?;
        let mut out = Out::new(self.ring.payload(slot));
        out.ioctl_out();
        Ok(out.length())
    }

    fn setattr(&mut self, slot: usize, ino: u64, operation: &[u8; 128]) -> Result<usize, Errno> {
        let what = wire::u32_at(operation, 0);
        if what & valid::SIZE == 0 || what & (valid::MODE | valid::UID | valid::GID) != 0 {
            return Err(Errno::EROFS);
        }
        let attr = self.vfs.set_size(ino)?;
        let mut out = Out::new(self.ring.payload(slot));
        out.attr_out(&attr, FOREVER);
        Ok(out.length())
    }

    fn lseek(&mut self, slot: usize, ino: u64, operation: &[u8; 128]) -> Result<usize, Errno> {
        let (offset, whence) = (wire::u64_at(operation, 8), wire::u32_at(operation, 16));
        let found = self.vfs.seek(ino, offset, whence == libc::SEEK_DATA.cast_unsigned())?;
        let mut out = Out::new(self.ring.payload(slot));
        out.lseek_out(found);
        Ok(out.length())
    }

    fn readlink(&mut self, slot: usize, ino: u64) -> Result<usize, Errno> {
        let target = self.vfs.readlink(ino)?;
        let mut out = Out::new(self.ring.payload(slot));
        out.bytes(&target);
        Ok(out.length())
    }

    fn statfs(&mut self, slot: usize) -> Result<usize, Errno> {
        let totals = self.vfs.totals();
        let mut out = Out::new(self.ring.payload(slot));
        out.statfs(totals.bytes, totals.files);
        Ok(out.length())
    }

    fn getxattr(&mut self, slot: usize, ino: u64, operation: &[u8; 128]) -> Result<usize, Errno> {
        let payload = self.ring.request(slot).payload;
        let name = payload.split(|&b| b == 0).next().unwrap_or_default();
        let value = self.vfs.getxattr(ino, name)?;
        self.sized(slot, &value, operation)
    }

    /// Size 0 asks for the value's size.
    fn sized(&mut self, slot: usize, value: &[u8], operation: &[u8; 128]) -> Result<usize, Errno> {
        let size = wire::u32_at(operation, 0) as usize;
        let mut out = Out::new(self.ring.payload(slot));
        match size {
            0 => {
                out.u32(value.len() as u32);
                out.u32(0);
            }
            size if value.len() <= size => out.bytes(value),
            _ => return Err(Errno::ERANGE),
        }
        Ok(out.length())
    }

    fn readdir(
        &mut self,
        slot: usize,
        ino: u64,
        operation: &[u8; 128],
        plus: bool,
    ) -> Result<usize, Errno> {
        let (from, limit) = (wire::u64_at(operation, 8), wire::u32_at(operation, 16) as usize);
        let vfs = &self.vfs;
        let mut out = Out::new(self.ring.payload(slot));
        let mut failed = None;
        vfs.readdir(ino, from, &mut |entry: Listed| {
            let attr = match plus.then(|| vfs.attr_of_listed(ino, &entry)).transpose() {
                Ok(attr) => attr,
                Err(errno) => {
                    failed = Some(errno);
                    return false;
                }
            };
            let number = attr.map_or(entry.ino, |(attr, _)| attr.ino);
            let with: Option<(&Attr, Duration)> = attr.as_ref().map(|(attr, valid)| (attr, *valid));
            let fits = out.dirent(limit, entry.name, entry.next, number, entry.kind, with);
            if let (false, Some((attr, _))) = (fits, attr) {
                vfs.forget(attr.ino, 1);
            }
            fits
        })?;
        failed.map_or(Ok(out.length()), Err)
    }

    /// Follows a slot's read from `step` on.
    fn drive(&mut self, slot: usize, job: Job, step: Step) {
        drive(SlotRead { lane: self, slot, job }, step);
    }

    /// Brings the bytes to the beginning of the payload, where they often lie already.
    fn place(&mut self, slot: usize, reply: Reply) -> Result<usize, Errno> {
        let bytes = reply.bytes()?;
        let length = bytes.len();
        match self.ring.place_in_payload(slot, bytes) {
            Some(place) => {
                self.vfs.finish(reply);
                if place > 0 {
                    self.ring.payload(slot).copy_within(place..place + length, 0);
                }
            }
            None => {
                self.ring.payload(slot)[..length].copy_from_slice(bytes);
                self.vfs.finish(reply);
            }
        }
        Ok(length)
    }

    fn park(&mut self, slot: usize, mut job: Job, read: &InFlightRead) {
        job.traced.enter(Phase::Wait);
        self.slots[slot] = State::Parked(job);
        let landed = Arc::clone(&self.landed);
        read.when_ended(move || {
            landed.slots.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
            landed.waker.wake();
        });
    }

    fn go_on_with_landed(&mut self) {
        let mut landed = self.landed.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slots = std::mem::take(&mut *landed);
        drop(landed);
        for slot in slots {
            if let State::Parked(mut job) = std::mem::replace(&mut self.slots[slot], State::Free) {
                job.traced.leave();
                begin(SlotRead { lane: self, slot, job });
            }
        }
    }

    /// Reads through the ring, from byte `done` of what the task wants.
    fn fetch(&mut self, slot: usize, mut job: Job, mut task: Task, done: usize) {
        job.traced.enter(Phase::Disk);
        let part = self.vfs.store().part(task.span().part());
        match reads::submit(&mut self.ring, slot, part, task.span(), done) {
            Ok(Submitted::Reading) => {
                self.slots[slot] = State::Reading(job, Box::new(task), done);
            }
            ended => {
                let step = self.vfs.resume(task, ended.map(|_| ()));
                self.drive(slot, job, step);
            }
        }
    }

    fn read_ended(&mut self, slot: usize, buffer: Buffer, result: io::Result<usize>) {
        let State::Reading(mut job, mut task, done) =
            std::mem::replace(&mut self.slots[slot], State::Free)
        else {
            return;
        };
        let part = self.vfs.store().part(task.span().part());
        match reads::ended(part, task.span(), done, buffer, result) {
            Progress::Partly(done) => self.fetch(slot, job, *task, done),
            Progress::Ended(fetched) => {
                job.traced.enter(Phase::Verify);
                let step = self.vfs.resume(*task, fetched);
                self.drive(slot, job, step);
            }
        }
    }
}

/// The read of a slot: what must wait goes through the lane's ring.
struct SlotRead<'a> {
    lane: &'a mut Lane,
    slot: usize,
    job: Job,
}

impl Driver for SlotRead<'_> {
    type Output = ();

    fn vfs(&self) -> &Vfs {
        &self.lane.vfs
    }

    fn request(&self) -> ReadRequest {
        self.job.read
    }

    fn fetch(mut self, mut task: Task) -> ControlFlow<(), (Self, Task, Result<(), ReadError>)> {
        if !task.span().has_loan() {
            let payload = self.lane.ring.lend_payload(self.slot);
            self.lane.vfs.lend(&mut task, payload);
        }
        if task.waits() {
            self.lane.fetch(self.slot, self.job, task, 0);
            return Break(());
        }
        self.job.traced.enter(Phase::Cache);
        // A long pass must not keep other requests waiting.
        let fetched = match task.is_long() {
            true => Err(ReadError::WouldBlock),
            false => reads::fetch(self.lane.vfs.store(), task.span(), false),
        };
        match fetched {
            Err(ReadError::WouldBlock) => self.job.traced.cancel(),
            _ => self.job.traced.enter(Phase::Verify),
        }
        Continue((self, task, fetched))
    }

    fn follow(self, read: Arc<InFlightRead>) -> ControlFlow<(), Self> {
        self.lane.park(self.slot, self.job, &read);
        Break(())
    }

    fn answer(self, reply: Reply) {
        let Self { lane, slot, mut job } = self;
        job.traced.enter(Phase::Reply);
        let answer = lane.place(slot, reply);
        lane.ring.answer(slot, answer.map_err(|errno| errno.0));
        lane.vfs.trace().end(job.traced, answer.map(|bytes| bytes as u64));
        let control = lane.vfs.is_control(job.read.ino);
        lane.vfs.stats().request(Operation::Read, control, job.start);
    }
}

/// Where in a folder's listing, or in a file, an operation begins.
fn offset_in(opcode: u32, operation: &[u8; 128]) -> u64 {
    match opcode {
        op::READDIR | op::READDIRPLUS | op::LSEEK | op::WRITE => wire::u64_at(operation, 8),
        _ => 0,
    }
}

/// Whatever would change something is refused; what nobody has heard of is not there.
fn refusal(opcode: u32) -> Errno {
    // SYMLINK … RENAME, LINK, SETXATTR, REMOVEXATTR, CREATE, FALLOCATE, RENAME2.
    match opcode {
        6 | 8..=13 | 21 | 24 | 35 | 43 | 45 => Errno::EROFS,
        _ => Errno(libc::ENOSYS),
    }
}
