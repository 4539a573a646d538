//! An io_uring that carries FUSE requests and disk reads together.
//!
//! The kernel delivers a FUSE request by completing a command that holds two buffers, header and payload,
//! and takes the answer from the same buffers with the next command (COMMIT_AND_FETCH), which at the same
//! time asks for the next request (kernel ≥ 6.14, `Documentation/filesystems/fuse/fuse-io-uring.rst` and
//! `include/uapi/linux/fuse.h`).
//!
//! Ownership:
//!
//! * A slot's header and payload belong to the kernel from REGISTER or COMMIT until the completion that
//!   brings a request, and to the slot's user from then until COMMIT. [`Ring::request`] and
//!   [`Ring::payload`] hand them out only in that time.
//! * A payload may be lent to a read in between; `answer` insists that it is back.
//! * A read's buffer belongs to the ring from [`Ring::read`] until [`Event::Read`] gives it back.
//! * `user_data` is the slot's number with the kind of completion above it; no other code sets it.
//! * Dropping a ring waits until no read is under way; then the ring is closed, which ends the kernel's
//!   hold on the slots; then the buffers are freed.

mod header;
mod slot;

pub use header::{CmdReq, EntInOut, InHeader, OutHeader, ReqHeader, prefix};
pub use slot::{Depth, MOST_WRITTEN_BYTES};

use super::files::Held;
use super::memory::Buffer;
use super::spin::Spin;
use io_uring::{IoUring, cqueue, opcode, register::Restriction, squeue, types};
use slot::{MARGIN_BYTES, Slot, Slots};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};
use zerocopy::IntoBytes;

/// `FUSE_IO_URING_CMD_REGISTER` and `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// The pause before the kernel is asked again after it had no memory.
const MEMORY_PAUSE: Duration = Duration::from_millis(1);

const KIND_SHIFT: u32 = 32;
const KIND_COMMAND: u64 = 0;
const KIND_READ: u64 = 1;
const KIND_WAKE: u64 = 2;

/// A FUSE request as it came.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The header of every request.
    pub header: InHeader,
    /// The operation's header, padded with anything.
    pub operation: &'a [u8; 128],
    /// The data that comes with the request, such as a name.
    pub payload: &'a [u8],
}

/// An event that [`Ring::wait`] brings.
pub enum Event {
    /// A request has come in this slot.
    Request(usize),
    /// The read of this number has ended: with its buffer, and the number of bytes that were read.
    Read(usize, Buffer, io::Result<usize>),
    /// [`Waker::wake`] was called.
    Woken,
    /// The kernel will not use this slot again.
    Closed(usize),
}

/// A read under way: the memory that the kernel writes to must stay where it is.
struct Read {
    buffer: Buffer,
    _held: Held,
}

/// The system calls of a ring since the last call of [`Ring::counts`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Calls of `io_uring_enter`.
    pub submits: u64,
    /// Entries that were submitted.
    pub entries: u64,
    /// Completions that were taken.
    pub completions: u64,
}

/// Wakes a thread that waits in [`Ring::wait`].
#[derive(Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Makes the ring's thread see [`Event::Woken`].
    pub fn wake(&self) {
        // The counter can only be full if the thread has 2^64 wake-ups to see.
        let _ = nix::unistd::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// A ring with slots for requests of some queues.
pub struct Ring {
    // Dropped first: closes the ring before the slots' memory goes.
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    slots: Slots,
    /// The reads by number: those of the slots, then spare ones.
    reads: Vec<Option<Read>>,
    device: Option<OwnedFd>,
    wake: Arc<OwnedFd>,
    /// The place where the kernel puts the counter of `wake`.
    wake_count: Box<[u8; 8]>,
    reading: usize,
    counts: Counts,
    spin: Spin,
    backlog: Vec<squeue::Entry128>,
    completed: Vec<(u64, i32)>,
}

impl Ring {
    /// A ring for the FUSE connection `device`, with `depth` slots of `payload_bytes` for each of `queues`; besides the reads
    /// that have a slot's number it takes `spare_reads` with numbers above those.
    ///
    /// # Errors
    /// The system has no io_uring, or forbids it; there is no memory for the slots.
    pub fn new(
        device: &impl AsFd,
        queues: &[u16],
        depth: Depth,
        payload_bytes: usize,
        spare_reads: usize,
    ) -> io::Result<Self> {
        let mut this = Self::with(Slots::new(queues, depth, payload_bytes)?, spare_reads)?;
        this.device = Some(device.as_fd().try_clone_to_owned()?);
        for slot in 0..this.slots() {
            this.command(slot, REGISTER);
        }
        this.register()?;
        Ok(this)
    }

    /// A ring that only reads, `reads` at a time, numbered from 0.
    ///
    /// # Errors
    /// The system has no io_uring, or forbids it.
    pub fn for_reads(reads: usize) -> io::Result<Self> {
        Self::with(Slots::default(), reads)
    }

    fn with(slots: Slots, spare_reads: usize) -> io::Result<Self> {
        // A command and a read for each slot, spare reads, and the wake-up.
        let entries = slots.all.len() * 2 + spare_reads + 1;
        let entries = u32::try_from(entries).map_err(io::Error::other)?;
        let ring = build(entries.next_power_of_two())?;
        let wake =
            nix::sys::eventfd::EventFd::from_flags(nix::sys::eventfd::EfdFlags::EFD_CLOEXEC)?;
        let mut this = Self {
            ring,
            reads: (0..slots.all.len() + spare_reads).map(|_| None).collect(),
            slots,
            device: None,
            wake: Arc::new(OwnedFd::from(wake)),
            wake_count: Box::new([0; 8]),
            reading: 0,
            counts: Counts::default(),
            spin: Spin::default(),
            backlog: Vec::new(),
            completed: Vec::new(),
        };
        this.expect_wake();
        Ok(this)
    }

    /// Submits the first commands. The kernel refuses a slot at once, with a completion; for a slot that it accepts there is
    /// none yet, but for the first requests: these are kept for [`Ring::wait`].
    fn register(&mut self) -> io::Result<()> {
        self.flush()?;
        self.ring.submit()?;
        self.completed.extend(self.ring.completion().map(|c| (c.user_data(), c.result())));
        match self.completed.iter().find(|(_, result)| *result < 0) {
            None => Ok(()),
            Some((_, refusal)) => Err(io::Error::from_raw_os_error(-refusal)),
        }
    }

    /// The number of slots.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.all.len()
    }

    /// A handle that wakes this ring's thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.wake))
    }

    /// The system calls since the last call.
    pub fn counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// Submits all entries and waits for at least one event, but no longer than `at_most`.
    ///
    /// # Errors
    /// The ring is broken.
    pub fn wait(&mut self, events: &mut Vec<Event>, at_most: Option<Duration>) -> io::Result<()> {
        self.flush()?;
        let at_most = at_most.into_iter().chain(self.slots.next_look()).min();
        let wanted = usize::from(self.completed.is_empty());
        // A disk read takes longer than a thread takes to sleep and wake.
        let may_come_soon = wanted > 0 && self.reading == 0 && !self.slots.all.is_empty();
        if may_come_soon && self.spin.is_worthwhile() {
            passing(self.ring.submit())?;
            self.counts.submits += 1;
            let ring = &mut self.ring;
            let _ = self.spin.until(|| !ring.completion().is_empty());
        }
        let wanted = usize::from(wanted > 0 && self.ring.completion().is_empty());
        self.counts.submits += 1;
        let waited = match at_most {
            None => self.ring.submit_and_wait(wanted),
            Some(time) => {
                let time = types::Timespec::from(time);
                let limit = types::SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(wanted, &limit)
            }
        };
        passing(waited)?;
        // All completions are taken first, then acted upon: the entries that this submits are not mixed up with them.
        let mut completed = std::mem::take(&mut self.completed);
        completed.extend(self.ring.completion().map(|c| (c.user_data(), c.result())));
        self.counts.completions += completed.len() as u64;
        for (user_data, result) in completed.drain(..) {
            events.extend(self.complete(user_data, result));
        }
        self.completed = completed;
        self.give_back();
        Ok(())
    }

    /// Has idle slots give their memory back. The kernel puts requests into slots while this thread is in the kernel, so
    /// perhaps before the first page was given back: requests fit into the memory that a slot keeps, see
    /// [`MOST_WRITTEN_BYTES`].
    fn give_back(&mut self) {
        if self.ring.submission().is_empty() {
            self.slots.give_back();
        }
    }

    fn complete(&mut self, user_data: u64, result: i32) -> Option<Event> {
        let number = (user_data & u64::from(u32::MAX)) as usize;
        match user_data >> KIND_SHIFT {
            KIND_COMMAND if result == 0 => {
                self.slots.all[number].ours = true;
                Some(Event::Request(number))
            }
            KIND_COMMAND => {
                if !matches!(-result, libc::ENOTCONN | libc::ECANCELED | libc::ECONNABORTED) {
                    let error = io::Error::from_raw_os_error(-result);
                    tracing::warn!("queue {}: {error}", self.slots.all[number].queue);
                }
                Some(Event::Closed(number))
            }
            KIND_READ => {
                self.reading -= 1;
                let Read { buffer, .. } = self.reads[number].take()?;
                let result = match usize::try_from(result) {
                    Ok(bytes) => Ok(bytes),
                    Err(_) => Err(io::Error::from_raw_os_error(-result)),
                };
                Some(Event::Read(number, buffer, result))
            }
            _ => {
                self.expect_wake();
                Some(Event::Woken)
            }
        }
    }

    /// The request that came in a slot, after [`Event::Request`] and before [`Ring::answer`].
    ///
    /// # Panics
    /// There is no request in the slot.
    #[must_use]
    pub fn request(&self, slot: usize) -> Request<'_> {
        let Slot { header, payload, ours, .. } = &self.slots.all[slot];
        assert!(*ours && Arc::strong_count(payload) == 1, "no request in this slot");
        let bytes = (header.ring_ent_in_out.payload_sz as usize).min(payload.capacity());
        let (operation, payload) = (&header.op_in, &payload.as_slice()[..bytes]);
        Request { header: header.in_header(), operation, payload }
    }

    /// The memory for the answer's bytes, after [`Event::Request`] and before [`Ring::answer`].
    ///
    /// # Panics
    /// There is no request.
    pub fn payload(&mut self, slot: usize) -> &mut [u8] {
        assert!(self.slots.all[slot].ours, "no request in this slot");
        let payload = Arc::get_mut(&mut self.slots.all[slot].payload);
        payload.expect("the payload is not lent").as_mut_slice()
    }

    /// Lends the payload to a task that fills it. The loan must be dropped before [`Ring::payload`] and [`Ring::answer`].
    ///
    /// # Panics
    /// There is no request, or the payload is lent already.
    pub fn lend_payload(&mut self, slot: usize) -> Buffer {
        assert!(self.slots.all[slot].ours, "no request in this slot");
        Buffer::lend(&mut self.slots.all[slot].payload).expect("the payload is not lent")
    }

    /// Whether the payload is lent to a task.
    #[must_use]
    pub fn is_payload_lent(&self, slot: usize) -> bool {
        Arc::strong_count(&self.slots.all[slot].payload) > 1
    }

    /// The place of `bytes` in the payload, if they lie there.
    #[must_use]
    pub fn place_in_payload(&self, slot: usize, bytes: &[u8]) -> Option<usize> {
        let start = self.slots.all[slot].address;
        let place = (bytes.as_ptr() as usize).checked_sub(start)?;
        (place + bytes.len() <= self.slots.all[slot].payload_bytes + MARGIN_BYTES).then_some(place)
    }

    /// Answers the request with the first bytes of the payload, or an error number, and asks for the next request.
    ///
    /// # Panics
    /// There is no request.
    pub fn answer(&mut self, slot: usize, result: Result<usize, i32>) {
        let Slot { header, payload, payload_bytes, ours, .. } = &mut self.slots.all[slot];
        assert!(std::mem::take(ours), "no request in this slot");
        assert!(Arc::get_mut(payload).is_some(), "the payload is lent");
        let (bytes, error) = match result {
            Ok(bytes) => (bytes.min(*payload_bytes) as u32, 0),
            Err(errno) => (0, -errno),
        };
        header.answer(bytes, error);
        // The bytes that a read has brought before it failed are not known.
        self.slots.note(slot, result.unwrap_or(usize::MAX));
        self.command(slot, COMMIT_AND_FETCH);
    }

    /// Reads into a range of `buffer`, by a number that has no read under way.
    ///
    /// # Panics
    /// The number has a read under way, or the range is not within the buffer.
    pub fn read(
        &mut self,
        number: usize,
        held: Held,
        offset_bytes: u64,
        mut buffer: Buffer,
        range: Range<usize>,
    ) {
        assert!(self.reads[number].is_none(), "one read at a time for a number");
        let target = &mut buffer.as_mut_slice()[range];
        // Callers go on after a short read.
        let length = target.len().min(1 << 30) as u32;
        let address = target.as_mut_ptr();
        let (descriptor, flags) = held.descriptor();
        let entry = opcode::Read::new(types::Fd(descriptor), address, length)
            .offset(offset_bytes)
            .rw_flags(flags)
            .build()
            .user_data(number as u64 | KIND_READ << KIND_SHIFT);
        self.reads[number] = Some(Read { buffer, _held: held });
        self.reading += 1;
        self.backlog.push(entry.into());
    }

    fn expect_wake(&mut self) {
        let address = self.wake_count.as_mut_ptr();
        let entry = opcode::Read::new(types::Fd(self.wake.as_raw_fd()), address, 8)
            .build()
            .user_data(KIND_WAKE << KIND_SHIFT);
        self.backlog.push(entry.into());
    }

    fn command(&mut self, slot: usize, operation: u32) {
        let Slot { queue, header, vectors, .. } = &self.slots.all[slot];
        let commit_id = header.ring_ent_in_out.commit_id;
        let request = CmdReq { flags: 0, commit_id, qid: *queue, padding: [0; 6] };
        let mut command = [0; 80];
        command[..size_of::<CmdReq>()].copy_from_slice(request.as_bytes());
        let device = self.device.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let mut entry = opcode::UringCmd80::new(types::Fd(device), operation)
            .cmd(command)
            .addr((operation == REGISTER).then_some(vectors.as_ptr() as u64))
            .build()
            .user_data(slot as u64 | KIND_COMMAND << KIND_SHIFT);
        if operation == REGISTER {
            set_length(&mut entry, 2);
        }
        self.backlog.push(entry);
    }

    /// Moves the backlog into the submission queue.
    fn flush(&mut self) -> io::Result<()> {
        self.counts.entries += self.backlog.len() as u64;
        for entry in self.backlog.drain(..) {
            loop {
                // SAFETY: the memory that an entry points to outlives its operation: headers, payloads and vectors are owned by
                // `slots` and never moved or resized, a read's buffer by `reads` until the completion, the wake counter by
                // `self`; all of them are freed after the ring is closed, and `drop` first waits for the reads.
                if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                    break;
                }
                self.ring.submit()?;
            }
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut events = Vec::new();
        while self.reading > 0 {
            if self.wait(&mut events, None).is_err() {
                // The kernel may still write to these buffers: leaked, not freed.
                for read in &mut self.reads {
                    std::mem::forget(read.take());
                }
                break;
            }
            events.clear();
        }
    }
}

fn build(entries: u32) -> io::Result<IoUring<squeue::Entry128, cqueue::Entry>> {
    let mut ring = IoUring::builder();
    ring.setup_coop_taskrun().setup_single_issuer().setup_r_disabled();
    let ring = ring.build(entries)?;
    // No filter of system calls sees the operations of a ring: it can do only those that it is for.
    let operations = [opcode::Read::CODE, opcode::UringCmd80::CODE];
    ring.submitter().register_restrictions(&mut operations.map(Restriction::sqe_op))?;
    ring.submitter().register_enable_rings()?;
    Ok(ring)
}

/// Whether this process may make an io_uring with the features that this module needs.
///
/// # Errors
/// The reason why not.
pub fn probe() -> io::Result<()> {
    build(2).map(drop)
}

/// Passes on the error of a system call of the ring, unless it is one of the moment: interrupted, out of time, or the kernel is
/// short of memory or of room for completions. Entries that were not submitted stay in the queue.
fn passing(result: io::Result<usize>) -> io::Result<()> {
    let Err(error) = result else { return Ok(()) };
    match error.raw_os_error() {
        Some(libc::EINTR | libc::ETIME | libc::EBUSY) => Ok(()),
        Some(libc::EAGAIN | libc::ENOMEM) => {
            std::thread::sleep(MEMORY_PAUSE);
            Ok(())
        }
        _ => Err(error),
    }
}

/// Sets the number of vectors that REGISTER comes with, for which the builder has no setter.
fn set_length(entry: &mut squeue::Entry128, length: u32) {
    let entry = std::ptr::from_mut(entry).cast::<u8>();
    // SAFETY: an `Entry128` is a `struct io_uring_sqe` of 128 bytes (the crate declares it `repr(C)`, the
    // kernel takes it as such), in which `len` is the u32 at byte 24.
    unsafe { entry.add(24).cast::<u32>().write_unaligned(length) };
}

/// Whether the fuse module lets file systems use io_uring; an error says why this cannot be known.
///
/// # Errors
/// The module has no such parameter: the kernel is too old, or has no fuse.
pub fn is_enabled() -> io::Result<bool> {
    let value = fs::read_to_string("/sys/module/fuse/parameters/enable_uring")?;
    Ok(value.trim_start().starts_with(['Y', '1']))
}
