//! The thread of a queue: it takes the requests that come through its ring, and answers them. Their reads are in `read`.

mod read;

use super::dispatch::{self, Exchange};
use super::interrupts::{Interruptible, Interrupts, Reader};
use super::ops::{Caller, Ops};
use super::reads::{self, Progress, Submitted};
use super::wire::op;
use super::workers::Workers;
use crate::io::Buffer;
use crate::io::ring::{self, Event, InHeader, Ring};
use crate::vfs::{Errno, Fetch, Operation, Task, Vfs};
use read::{Job, Ready, State};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use zerocopy::{FromBytes, IntoBytes};

/// How many samples a thread may be fetching because they were looked up.
pub(super) const AHEAD: usize = 16;

/// A thread that serves one queue, or all queues whose CPUs this process may not use: its ring, and the state of each
/// slot.
pub(super) struct QueueThread {
    ring: Ring,
    ops: Arc<Ops>,
    vfs: Arc<Vfs>,
    slots: Vec<State>,
    /// Slots whose reads are in the ring.
    reading: usize,
    /// Reads that wait until those in the ring give memory back, with their slots and requests; empty if no read is in the
    /// ring.
    held: VecDeque<(usize, u64, Box<Task>)>,
    /// Fetches that no request waits for yet, and how many bytes of each have arrived. Their numbers in the ring follow
    /// those of the slots.
    ahead: Vec<Option<(Fetch, usize)>>,
    /// How many more such fetches the threads for reads that may hang have.
    ahead_slowly: Arc<AtomicUsize>,
    ready: Arc<Ready>,
    /// A thread for file I/O that the ring does not do; it starts with the first such I/O.
    workers: Workers,
    /// Threads for reads that may hang, which all queues share.
    slow: Arc<Workers>,
    /// When the event that is being handled came, if a trace is on.
    arrived: Option<Instant>,
}

impl QueueThread {
    pub(super) fn new(
        ring: Ring,
        ops: Arc<Ops>,
        slow: Arc<Workers>,
        interrupts: &Interrupts,
    ) -> Self {
        let vfs = Arc::clone(ops.vfs());
        let slots = (0..ring.slots()).map(|_| State::Free).collect();
        let ready = Arc::new(Ready::new(ring.waker(), interrupts.table()));
        interrupts.watch(Arc::clone(&ready) as Arc<dyn Interruptible>);
        let ahead = (0..AHEAD).map(|_| None).collect();
        let workers = Workers::new(1);
        let ahead_slowly = Arc::default();
        let held = VecDeque::new();
        Self {
            ring,
            ops,
            vfs,
            slots,
            reading: 0,
            held,
            ahead,
            ahead_slowly,
            ready,
            workers,
            slow,
            arrived: None,
        }
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
            #[cfg(feature = "test-hooks")]
            super::provoked::fail_if_asked()?;
        }
        Ok(())
    }

    fn request(&mut self, slot: usize) {
        let InHeader { opcode, unique, pid, .. } = self.ring.request(slot).header;
        let caller = Caller { pid, start: Instant::now(), arrived: self.arrived };
        let exchange = &mut SlotExchange { ring: &mut self.ring, slot };
        match opcode {
            op::READ => {
                let (read, is_direct) = dispatch::read_request(exchange);
                let traced = self.ops.trace(caller, Operation::Read, read.ino);
                let traced = traced.range(read.offset_bytes, read.length_bytes);
                let reader = Reader { pid, slot, is_direct };
                let job = Job { read, unique, reader, start: caller.start, traced, waits: false };
                self.begin(slot, job);
            }
            op::LOOKUP => {
                let (answer, found) = dispatch::lookup(&self.ops, caller, exchange);
                self.answer(slot, answer);
                if let Some(ino) = found {
                    self.fetch_looked_up(ino);
                }
            }
            _ => {
                let answer = dispatch::answer(&self.ops, caller, exchange);
                self.answer(slot, answer);
            }
        }
    }

    /// Sends the first bytes of the payload, or the error.
    fn answer(&mut self, slot: usize, answer: Result<usize, Errno>) {
        self.ring.answer(slot, answer.map_err(|errno| errno.0));
    }

    /// Fetches a sample that was looked up, if the vfs expects it to be read.
    fn fetch_looked_up(&mut self, ino: u64) {
        let Some(free) = self.ahead.iter().position(Option::is_none) else { return };
        if self.ahead_slowly.load(Ordering::Relaxed) >= AHEAD {
            return;
        }
        let store = self.vfs.store();
        let Some(mut fetch) = self.vfs.looked_up(ino, |part| store.part(part).is_cold()) else {
            return;
        };
        if !reads::may_hang(store, fetch.span()) {
            return self.fetch_ahead(free, fetch, 0);
        }
        // To begin a read of such a file, the ring asks the program or machine that serves it, and waits for the answer.
        let (vfs, count) = (Arc::clone(&self.vfs), Arc::clone(&self.ahead_slowly));
        count.fetch_add(1, Ordering::Relaxed);
        self.slow.run(move || {
            reads::fetch_looked_up(&vfs, fetch);
            count.fetch_sub(1, Ordering::Relaxed);
        });
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
}

/// A request in a slot; its answer is written over the request's payload.
struct SlotExchange<'a> {
    ring: &'a mut Ring,
    slot: usize,
}

impl Exchange for SlotExchange<'_> {
    fn header(&self) -> InHeader {
        self.ring.request(self.slot).header
    }

    fn operation<T: FromBytes + IntoBytes>(&self) -> (T, &[u8]) {
        let request = self.ring.request(self.slot);
        (ring::prefix(request.operation), request.payload)
    }

    fn out(&mut self) -> &mut [u8] {
        self.ring.payload(self.slot)
    }
}
