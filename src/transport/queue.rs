//! The thread of a queue: it decodes the requests that come through its ring, has the vfs answer them, and encodes the
//! answers. Their reads are in `read`.

mod read;

use super::ops::{self, Caller, Ops, Value};
use super::reads::{self, Progress, Submitted};
use super::wire::{
    AttrOut, EntryOut, GetxattrIn, GetxattrOut, IoctlIn, IoctlOut, LseekIn, LseekOut, OpenIn,
    OpenOut, Out, ReadIn, SetattrIn, StatfsOut, WriteIn, WriteOut, op,
};
use super::workers::Workers;
use crate::io::Buffer;
use crate::io::ring::{self, Event, Ring};
use crate::vfs::{Errno, FOREVER, Fetch, Listed, Lookup, Operation, ReadRequest, Vfs};
use read::{Job, Ready, State};
use std::io;
use std::sync::Arc;
use std::time::Instant;
use zerocopy::{Immutable, IntoBytes};

/// How many samples a thread may be fetching because they were looked up.
pub(super) const AHEAD: usize = 16;

/// A thread that serves one queue, or all queues whose CPUs this process may not use: its ring, and the state of each
/// slot.
pub(super) struct QueueThread {
    ring: Ring,
    ops: Arc<Ops>,
    vfs: Arc<Vfs>,
    slots: Vec<State>,
    /// Fetches that no request waits for yet, and how many bytes of each have arrived. Their numbers in the ring follow
    /// those of the slots.
    ahead: Vec<Option<(Fetch, usize)>>,
    ready: Arc<Ready>,
    /// A thread for file I/O that the ring does not do; it starts with the first such I/O.
    workers: Workers,
    /// When the event that is being handled came, if a trace is on.
    arrived: Option<Instant>,
}

impl QueueThread {
    pub(super) fn new(ring: Ring, ops: Arc<Ops>) -> Self {
        let vfs = Arc::clone(ops.vfs());
        let slots = (0..ring.slots()).map(|_| State::Free).collect();
        let ready = Arc::new(Ready::new(ring.waker()));
        let ahead = (0..AHEAD).map(|_| None).collect();
        let workers = Workers::new(1);
        Self { ring, ops, vfs, slots, ahead, ready, workers, arrived: None }
    }

    /// Serves until the kernel has closed all slots.
    ///
    /// # Errors
    /// The ring broke: the kernel then waits for ever for the answers of its queues.
    pub(super) fn serve(mut self) -> io::Result<()> {
        let mut events = Vec::new();
        let mut open = self.slots.len();
        while open > 0 {
            self.ring.wait(&mut events, None)?;
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
                    Event::Woken => self.go_on_with_ready(),
                    Event::Closed(_) => open -= 1,
                }
            }
        }
        Ok(())
    }

    fn request(&mut self, slot: usize) {
        let request = self.ring.request(slot);
        let (opcode, ino) = (request.opcode, request.nodeid);
        let caller = Caller { pid: request.pid, start: Instant::now(), arrived: self.arrived };
        let answer = match opcode {
            op::READ => return self.read(slot, ino, caller),
            op::LOOKUP => return self.lookup(slot, ino, caller),
            op::READDIR => self.readdir(slot, ino, caller),
            op::READDIRPLUS => self.readdirplus(slot, ino, caller),
            op::GETXATTR => self.getxattr(slot, ino, caller),
            op::WRITE => self.write(slot, ino, caller),
            op::IOCTL => self.ioctl(slot, ino, caller),
            op::GETATTR => {
                let attr = self.ops.getattr(caller, ino);
                self.put(slot, attr.map(|attr| AttrOut::new(&attr, FOREVER)))
            }
            op::SETATTR => {
                let SetattrIn { valid, .. } = self.header(slot);
                let attr = self.ops.setattr(caller, ino, valid);
                self.put(slot, attr.map(|attr| AttrOut::new(&attr, FOREVER)))
            }
            op::STATFS => {
                let totals = self.ops.statfs(caller, ino);
                self.put(slot, Ok(StatfsOut::new(&totals)))
            }
            op::READLINK => {
                let target = self.ops.readlink(caller, ino);
                self.put_value(slot, target.map(Value::Bytes))
            }
            op::OPEN => {
                let OpenIn { flags, .. } = self.header(slot);
                let opened = self.ops.open(caller, ino, flags.cast_signed());
                self.put_opened(slot, opened)
            }
            op::OPENDIR => {
                let opened = self.ops.opendir(caller, ino);
                self.put_opened(slot, opened)
            }
            op::LSEEK => {
                let LseekIn { offset, whence, .. } = self.header(slot);
                let found = self.ops.lseek(caller, ino, offset, whence.cast_signed());
                self.put(slot, found.map(|offset| LseekOut { offset }))
            }
            op::FLUSH | op::FSYNC | op::FSYNCDIR | op::ACCESS | op::LISTXATTR => {
                Err(self.ops.not_needed(caller, opcode, ino))
            }
            _ => Err(self.ops.refuse(caller, opcode, ino)),
        };
        self.answer(slot, answer);
    }

    /// Sends the first bytes of the payload, or the error.
    fn answer(&mut self, slot: usize, answer: Result<usize, Errno>) {
        self.ring.answer(slot, answer.map_err(|errno| errno.0));
    }

    /// The operation's header.
    fn header<T: zerocopy::FromBytes + IntoBytes>(&self, slot: usize) -> T {
        ring::prefix(self.ring.request(slot).operation)
    }

    /// The payload up to its first zero.
    fn name(&self, slot: usize) -> &[u8] {
        let payload = self.ring.request(slot).payload;
        payload.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// Writes a structure into the payload.
    fn put(
        &mut self,
        slot: usize,
        structure: Result<impl IntoBytes + Immutable, Errno>,
    ) -> Result<usize, Errno> {
        let structure = structure?;
        let mut out = Out::new(self.ring.payload(slot));
        out.structure(&structure);
        Ok(out.length())
    }

    fn put_opened(&mut self, slot: usize, flags: Result<u32, Errno>) -> Result<usize, Errno> {
        self.put(slot, flags.map(|open_flags| OpenOut { open_flags, ..OpenOut::default() }))
    }

    fn put_value(&mut self, slot: usize, value: Result<Value, Errno>) -> Result<usize, Errno> {
        match value? {
            Value::Length(size) => self.put(slot, Ok(GetxattrOut { size, padding: 0 })),
            Value::Bytes(bytes) => {
                let mut out = Out::new(self.ring.payload(slot));
                out.bytes(&bytes);
                Ok(out.length())
            }
        }
    }

    fn read(&mut self, slot: usize, ino: u64, caller: Caller) {
        let ReadIn { offset, size, .. } = self.header(slot);
        let length = u64::from(size);
        let traced = self.ops.trace(caller, Operation::Read, ino).range(offset, length);
        let read = ReadRequest { ino, offset_bytes: offset, length_bytes: length };
        let job = Job { read, start: caller.start, traced };
        self.begin(slot, job);
    }

    fn lookup(&mut self, slot: usize, parent: u64, caller: Caller) {
        let found = self.ops.lookup(caller, parent, self.name(slot));
        let entry = found.as_ref().map(|found| {
            let (attr, valid) = ops::entry(found);
            EntryOut::new(attr, valid)
        });
        let answer = self.put(slot, entry.map_err(|errno| *errno));
        self.answer(slot, answer);
        if let Ok(Lookup::Found(attr)) = found {
            self.fetch_looked_up(attr.ino);
        }
    }

    /// Fetches a sample that was looked up, if the vfs expects it to be read.
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
                // The program's read follows at once: the page cache need not be filled.
                self.vfs.land(fetch, fetched);
                self.go_on_with_ready();
            }
        }
    }

    fn write(&mut self, slot: usize, ino: u64, caller: Caller) -> Result<usize, Errno> {
        let WriteIn { offset, size, .. } = self.header(slot);
        let payload = self.ring.request(slot).payload;
        let bytes = payload.get(..size as usize).ok_or(Errno::EINVAL)?;
        let written = self.ops.write(caller, ino, offset, bytes);
        self.put(slot, written.map(|size| WriteOut { size, padding: 0 }))
    }

    fn ioctl(&mut self, slot: usize, ino: u64, caller: Caller) -> Result<usize, Errno> {
        let IoctlIn { cmd, in_size, .. } = self.header(slot);
        let payload = self.ring.request(slot).payload;
        let bytes = payload.get(..in_size as usize).ok_or(Errno::EINVAL)?;
        let taken = self.ops.ioctl(caller, ino, cmd, bytes);
        self.put(slot, taken.map(|()| IoctlOut::default()))
    }

    fn getxattr(&mut self, slot: usize, ino: u64, caller: Caller) -> Result<usize, Errno> {
        let GetxattrIn { size, .. } = self.header(slot);
        let value = self.ops.getxattr(caller, ino, self.name(slot), size);
        self.put_value(slot, value)
    }

    fn readdir(&mut self, slot: usize, ino: u64, caller: Caller) -> Result<usize, Errno> {
        let ReadIn { offset: from, size, .. } = self.header(slot);
        let mut out = Out::new(self.ring.payload(slot));
        let emit = &mut |entry: Listed| out.entry(size as usize, &entry, None);
        self.ops.readdir(caller, ino, from, emit)?;
        Ok(out.length())
    }

    fn readdirplus(&mut self, slot: usize, ino: u64, caller: Caller) -> Result<usize, Errno> {
        let ReadIn { offset: from, size, .. } = self.header(slot);
        let mut out = Out::new(self.ring.payload(slot));
        self.ops.readdirplus(caller, ino, from, |entry, attr, valid| {
            out.entry(size as usize, entry, Some((attr, valid)))
        })?;
        Ok(out.length())
    }
}
