//! The reads of a queue thread's slots: those that the page cache holds are answered at once, the others go through the
//! ring.

use super::QueueThread;
use crate::io::ring::Waker;
use crate::io::{Buffer, ReadError};
use crate::store::{Arrived, Cause};
use crate::transport::interrupts::{Interruptible, Reader, Waiting};
use crate::transport::reads::{self, Progress, Submitted};
use crate::vfs::{
    Driver, Errno, InFlightRead, Operation, Phase, ReadRequest, Reply, Step, Task, Traced, Vfs,
    begin, drive,
};
use std::io;
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The state of a slot and its request.
pub(super) enum State {
    /// Waiting for a request, or answering one at once.
    Free,
    /// Waiting for the disk; with the number of bytes of the task's span that have arrived.
    Reading(Job, Box<Task>, usize),
    /// Waiting for bytes that are not on this machine; with the same number.
    Bringing(Job, Box<Task>, usize),
    /// Waiting for another read to end, for its turn to decode, or for work on a worker thread.
    Parked(Job),
}

impl State {
    /// The request that waits for a message, if there is one.
    fn unique(&self) -> Option<u64> {
        match self {
            State::Bringing(job, ..) | State::Parked(job) => Some(job.unique),
            State::Free | State::Reading(..) => None,
        }
    }
}

/// A read that is not answered yet.
pub(super) struct Job {
    pub(super) read: ReadRequest,
    pub(super) unique: u64,
    pub(super) reader: Reader,
    pub(super) start: Instant,
    pub(super) traced: Traced,
    /// Whether the read is among the requests that can be interrupted.
    pub(super) waits: bool,
}

/// Requests that wait, and those whose wait has ended; any thread adds to these.
pub(super) struct Ready {
    slots: Mutex<Vec<(usize, u64, Awaited)>>,
    waiting: Waiting,
    waker: Waker,
}

/// The event that a slot has been waiting for.
enum Awaited {
    /// The end of another read, which is held until this one has looked for its bytes.
    InFlightRead { _ended: Arc<InFlightRead> },
    /// File I/O for its task, or its turn to decode.
    Work(Box<Task>),
    /// Bytes of a file that may hang, for its task.
    Fetched(Box<Task>, Result<(), ReadError>),
    /// Bytes that were not on this machine.
    Bytes(Result<Arrived, ReadError>),
    /// Its reader is dying.
    Interrupt,
}

impl Ready {
    pub(super) fn new(waker: Waker, waiting: Waiting) -> Self {
        Self { slots: Mutex::default(), waiting, waker }
    }

    /// Notes that the request `unique` in this slot need not wait any longer; if the slot has another request by now, this has
    /// no effect.
    fn add(&self, slot: usize, unique: u64, awaited: Awaited) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.push((slot, unique, awaited));
        drop(slots);
        self.waker.wake();
    }
}

impl Interruptible for Ready {
    fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    fn interrupt(&self, unique: u64, reader: &Reader) {
        self.add(reader.slot, unique, Awaited::Interrupt);
    }
}

impl QueueThread {
    /// Begins a slot's read.
    pub(super) fn begin(&mut self, slot: usize, job: Job) {
        begin(SlotRead { queue: self, slot, job });
    }

    /// Continues a slot's read from `step` on.
    fn drive(&mut self, slot: usize, job: Job, step: Step) {
        drive(SlotRead { queue: self, slot, job }, step);
    }

    /// Puts the bytes at the beginning of the payload. Often they are in the payload already.
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

    /// Notes that the request waits from now on, and can be interrupted.
    fn wait(&self, job: &mut Job) {
        if !job.waits {
            job.waits = true;
            self.ready.waiting.add(job.unique, job.reader);
        }
    }

    fn park(&mut self, slot: usize, mut job: Job, read: &Arc<InFlightRead>) {
        job.traced.enter(Phase::Wait);
        self.wait(&mut job);
        let (ready, unique, ended) = (Arc::clone(&self.ready), job.unique, Arc::clone(read));
        self.slots[slot] = State::Parked(job);
        // The leader ends the read whatever becomes of it, and so ends the circle of the two.
        read.when_ended(move || ready.add(slot, unique, Awaited::InFlightRead { _ended: ended }));
    }

    /// Does a task's file I/O on a worker thread.
    fn work(&mut self, slot: usize, mut job: Job, mut task: Task) {
        job.traced.enter(Phase::Queue);
        self.wait(&mut job);
        let (ready, unique) = (Arc::clone(&self.ready), job.unique);
        self.slots[slot] = State::Parked(job);
        self.workers.run(move || {
            task.work();
            ready.add(slot, unique, Awaited::Work(Box::new(task)));
        });
    }

    /// Reads a file that may hang, on a worker thread: a read in the ring could not be given up, and this thread must
    /// not look at the file.
    fn fetch_slowly(&mut self, slot: usize, mut job: Job, mut task: Task) {
        job.traced.enter(Phase::Disk);
        self.wait(&mut job);
        let (ready, unique) = (Arc::clone(&self.ready), job.unique);
        self.slots[slot] = State::Parked(job);
        let vfs = Arc::clone(&self.vfs);
        vfs.shelve(&mut task);
        self.slow.run(move || {
            if ready.waiting.has(unique) {
                vfs.unshelve(&mut task);
                let fetched = reads::fetch(vfs.store(), task.span(), true);
                ready.add(slot, unique, Awaited::Fetched(Box::new(task), fetched));
            }
        });
    }

    pub(super) fn go_on_with_ready(&mut self) {
        let slots = {
            let mut ready = self.ready.slots.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *ready)
        };
        for (slot, unique, awaited) in slots {
            // An interrupted request leaves messages behind.
            if self.slots[slot].unique() == Some(unique) {
                self.go_on(slot, awaited);
            }
        }
    }

    fn go_on(&mut self, slot: usize, awaited: Awaited) {
        match (std::mem::replace(&mut self.slots[slot], State::Free), awaited) {
            (State::Parked(mut job), Awaited::Work(task)) => {
                job.traced.leave();
                let step = self.vfs.worked(*task);
                self.drive(slot, job, step);
            }
            (State::Parked(mut job), Awaited::Fetched(task, fetched)) => {
                job.traced.enter(Phase::Verify);
                let step = self.vfs.resume(*task, fetched);
                self.drive(slot, job, step);
            }
            // The bytes are on their way to the payload: the message comes again.
            (State::Parked(job), Awaited::Interrupt) if self.ring.is_payload_lent(slot) => {
                self.slots[slot] = State::Parked(job);
            }
            (State::Parked(job), Awaited::Interrupt) => {
                SlotRead { queue: self, slot, job }.end(Err(Errno::EINTR));
            }
            (State::Bringing(job, task, _), Awaited::Interrupt) => {
                // The payload may be lent to the task, and is needed for the answer.
                drop(task);
                SlotRead { queue: self, slot, job }.end(Err(Errno::EINTR));
            }
            (State::Parked(mut job), _ended) => {
                job.traced.leave();
                self.begin(slot, job);
            }
            (State::Bringing(mut job, mut task, done), Awaited::Bytes(arrived)) => {
                job.traced.enter(Phase::Verify);
                let arrived = arrived.and_then(|arrived| reads::take(task.span(), arrived));
                match arrived {
                    // The pin lasts until the read is in the ring, which holds one of its own.
                    Ok(Some(_pin)) => self.fetch(slot, job, *task, done),
                    fetched => {
                        let step = self.vfs.resume(*task, fetched.map(drop));
                        self.drive(slot, job, step);
                    }
                }
            }
            (state, _) => self.slots[slot] = state,
        }
    }

    /// Asks the store for bytes that are not on this machine. Other slots go on meanwhile.
    fn bring(&mut self, slot: usize, mut job: Job, mut task: Task, done: usize) {
        job.traced.cancel();
        job.traced.enter(Phase::Store);
        task.give_room_back();
        self.wait(&mut job);
        let (ready, vfs, unique) = (Arc::clone(&self.ready), Arc::clone(&self.vfs), job.unique);
        let (part, range) = (task.span().part(), task.span().range());
        self.slots[slot] = State::Bringing(job, Box::new(task), done);
        vfs.store().begin(part, range, Cause::Demand, move |arrived| {
            ready.add(slot, unique, Awaited::Bytes(arrived));
        });
    }

    /// Reads through the ring, from byte `done` of the task's span: as soon as there is memory for it.
    fn fetch(&mut self, slot: usize, job: Job, mut task: Task, done: usize) {
        // A read that has begun keeps its memory; of those that are held the first one comes first.
        let has_room = done > 0
            || !task.needs_room()
            || (self.held.is_empty() && self.vfs.take_room(&mut task, self.reading == 0));
        match has_room {
            true => self.submit(slot, job, task, done),
            false => self.hold(slot, job, task),
        }
    }

    fn submit(&mut self, slot: usize, mut job: Job, mut task: Task, done: usize) {
        job.traced.enter(Phase::Disk);
        let part = self.vfs.store().part(task.span().part());
        match reads::submit(&mut self.ring, slot, part, task.span(), done) {
            Ok(Submitted::Reading) => {
                self.reading += 1;
                self.slots[slot] = State::Reading(job, Box::new(task), done);
            }
            Err(ReadError::Absent) => self.bring(slot, job, task, done),
            ended => {
                let step = self.vfs.resume(task, ended.map(|_| ()));
                self.drive(slot, job, step);
            }
        }
    }

    pub(super) fn read_ended(&mut self, slot: usize, buffer: Buffer, result: io::Result<usize>) {
        let State::Reading(mut job, mut task, done) =
            std::mem::replace(&mut self.slots[slot], State::Free)
        else {
            return;
        };
        self.reading -= 1;
        let part = self.vfs.store().part(task.span().part());
        match reads::ended(part, task.span(), done, buffer, result) {
            Progress::Partly(done) => self.fetch(slot, job, *task, done),
            Progress::Ended(fetched) => {
                job.traced.enter(Phase::Verify);
                let step = self.vfs.resume(*task, fetched);
                self.drive(slot, job, step);
            }
        }
        self.go_on_with_held();
    }

    /// Puts a read aside until others give memory back: its own memory would be too much.
    fn hold(&mut self, slot: usize, mut job: Job, mut task: Task) {
        job.traced.enter(Phase::Queue);
        self.wait(&mut job);
        self.vfs.shelve(&mut task);
        self.held.push_back((slot, job.unique, Box::new(task)));
        self.slots[slot] = State::Parked(job);
    }

    fn go_on_with_held(&mut self) {
        while let Some((slot, unique, mut task)) = self.held.pop_front() {
            // The reader was interrupted: the slot has another request, or no request.
            if self.slots[slot].unique() != Some(unique) {
                continue;
            }
            if !self.vfs.take_room(&mut task, self.reading == 0) {
                return self.held.push_front((slot, unique, task));
            }
            if let State::Parked(job) = std::mem::replace(&mut self.slots[slot], State::Free) {
                self.submit(slot, job, *task, 0);
            }
        }
    }
}

/// The read of a slot: steps that must wait go through the thread's ring.
struct SlotRead<'a> {
    queue: &'a mut QueueThread,
    slot: usize,
    job: Job,
}

impl Driver for SlotRead<'_> {
    type Output = ();

    fn vfs(&self) -> &Vfs {
        &self.queue.vfs
    }

    fn request(&self) -> ReadRequest {
        self.job.read
    }

    fn fetch(mut self, mut task: Task) -> ControlFlow<(), (Self, Task, Result<(), ReadError>)> {
        if reads::may_hang(self.queue.vfs.store(), task.span()) {
            if task.waits() {
                self.queue.fetch_slowly(self.slot, self.job, task);
                return Break(());
            }
            return Continue((self, task, Err(ReadError::WouldBlock)));
        }
        if !task.span().has_loan() {
            let payload = self.queue.ring.lend_payload(self.slot);
            self.queue.vfs.lend(&mut task, payload);
        }
        if task.waits() {
            self.queue.fetch(self.slot, self.job, task, 0);
            return Break(());
        }
        self.job.traced.enter(Phase::Cache);
        // A long pass must not keep other requests waiting.
        let fetched = match task.is_long() {
            true => Err(ReadError::WouldBlock),
            false => reads::fetch(self.queue.vfs.store(), task.span(), false),
        };
        match fetched {
            Err(ReadError::WouldBlock) => self.job.traced.cancel(),
            _ => self.job.traced.enter(Phase::Verify),
        }
        Continue((self, task, fetched))
    }

    fn work(self, task: Task) -> ControlFlow<(), (Self, Task)> {
        self.queue.work(self.slot, self.job, task);
        Break(())
    }

    fn follow(self, read: Arc<InFlightRead>) -> ControlFlow<(), Self> {
        self.queue.park(self.slot, self.job, &read);
        Break(())
    }

    fn await_turn(self, task: Task, turn: Arc<InFlightRead>) -> ControlFlow<(), (Self, Task)> {
        let Self { queue, slot, mut job } = self;
        job.traced.enter(Phase::Wait);
        queue.wait(&mut job);
        let (ready, unique) = (Arc::clone(&queue.ready), job.unique);
        queue.slots[slot] = State::Parked(job);
        turn.when_ended(move || ready.add(slot, unique, Awaited::Work(Box::new(task))));
        Break(())
    }

    fn answer(mut self, reply: Reply) {
        self.job.traced.enter(Phase::Reply);
        let answer = self.queue.place(self.slot, reply);
        self.end(answer);
    }
}

impl SlotRead<'_> {
    /// Answers with the first bytes of the payload, or the error.
    fn end(self, answer: Result<usize, Errno>) {
        let Self { queue, slot, job } = self;
        if job.waits {
            queue.ready.waiting.remove(job.unique);
        }
        queue.answer(slot, answer);
        queue.vfs.trace().end(job.traced, answer.map(|bytes| bytes as u64));
        let control = queue.vfs.is_control(job.read.ino);
        queue.vfs.stats().request(Operation::Read, control, job.start);
    }
}
