//! The slots of a ring: their parts, and the memory that idle ones give back. Imports the headers and buffers.

use super::header::ReqHeader;
use crate::io::memory::Buffer;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::FromZeros;

/// The bytes of a payload beyond the largest answer.
pub(super) const MARGIN_BYTES: usize = 8192;
/// The most bytes that the kernel may be allowed to send in a WRITE (`max_write` of INIT): all bytes of a request that are read
/// then lie in the memory that a slot always keeps. A SETXATTR may be longer, but is refused by its name, which stands first.
pub const MOST_WRITTEN_BYTES: u32 = 16 << 10;
const KEPT_BYTES: usize = MOST_WRITTEN_BYTES as usize;
/// A slot that was not used for this long gives its memory back.
const IDLE: Duration = Duration::from_secs(1);

/// The number of slots of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth {
    /// All slots.
    pub all: usize,
    /// The slots that keep their memory when they are idle.
    pub keeping: usize,
}

/// All slots of a ring.
#[derive(Default)]
pub(super) struct Slots {
    pub(super) all: Vec<Slot>,
    /// How many slots may keep the memory of large answers.
    keeping: usize,
    /// How many slots have such memory now.
    large: usize,
    /// When idle slots were last looked for.
    looked: Option<Instant>,
}

/// A place for one request.
pub(super) struct Slot {
    pub(super) queue: u16,
    /// On the heap: the kernel keeps its address.
    pub(super) header: Box<ReqHeader>,
    /// Never replaced: the kernel keeps its address. Lent to a read that goes straight into the answer.
    pub(super) payload: Arc<Buffer>,
    pub(super) address: usize,
    pub(super) payload_bytes: usize,
    pub(super) vectors: Box<[libc::iovec; 2]>,
    /// Whether the header and payload are ours at the moment.
    pub(super) ours: bool,
    /// Whether a large answer was put into the slot since it gave its memory back.
    is_large: bool,
    /// Whether a request was answered since the last look.
    is_used: bool,
}

impl Slots {
    /// The slots of these queues, with payloads of `payload_bytes`.
    ///
    /// # Errors
    /// There is no memory for the slots.
    pub(super) fn new(queues: &[u16], depth: Depth, payload_bytes: usize) -> io::Result<Self> {
        let of_queue = |&queue| (0..depth.all).map(move |_| Slot::new(queue, payload_bytes));
        let all = queues.iter().flat_map(of_queue).collect::<io::Result<_>>()?;
        Ok(Self { all, keeping: depth.keeping * queues.len(), ..Self::default() })
    }

    /// Notes that a slot was answered with this many bytes, or with an error after any number.
    pub(super) fn note(&mut self, slot: usize, bytes: usize) {
        let slot = &mut self.all[slot];
        slot.is_used = true;
        if bytes > KEPT_BYTES && !slot.is_large {
            slot.is_large = true;
            self.large += 1;
        }
    }

    /// When to look for idle slots, if there may be any.
    pub(super) fn next_look(&self) -> Option<Duration> {
        (self.large > self.keeping).then_some(IDLE)
    }

    /// Has slots give back memory that was not used for a while, if the kernel has the slot. The kernel must have taken all
    /// answers.
    pub(super) fn give_back(&mut self) {
        if self.large <= self.keeping || self.looked.is_some_and(|at| at.elapsed() < IDLE) {
            return;
        }
        // From the first look on, it is known whether a slot is used.
        let is_first = self.looked.replace(Instant::now()).is_none();
        for slot in &mut self.all {
            let was_used = std::mem::take(&mut slot.is_used) || is_first;
            let is_idle = slot.is_large && !slot.ours && !was_used;
            if let (true, Some(payload)) =
                (is_idle && self.large > self.keeping, Arc::get_mut(&mut slot.payload))
            {
                payload.give_back(KEPT_BYTES);
                slot.is_large = false;
                self.large -= 1;
            }
        }
        if self.large <= self.keeping {
            self.looked = None;
        }
    }
}

impl Slot {
    fn new(queue: u16, payload_bytes: usize) -> io::Result<Self> {
        let mut header = Box::new(ReqHeader::new_zeroed());
        // More than the kernel is told: a read past the page cache may begin before the answer.
        let mut payload = Buffer::with_capacity(payload_bytes + MARGIN_BYTES)?;
        let vectors = Box::new([
            libc::iovec {
                iov_base: std::ptr::from_mut(header.as_mut()).cast(),
                iov_len: size_of::<ReqHeader>(),
            },
            libc::iovec {
                iov_base: payload.as_mut_slice().as_mut_ptr().cast(),
                iov_len: payload_bytes,
            },
        ]);
        let address = payload.as_slice().as_ptr() as usize;
        let payload = Arc::new(payload);
        Ok(Self {
            queue,
            header,
            payload,
            address,
            payload_bytes,
            vectors,
            ours: false,
            is_large: false,
            is_used: false,
        })
    }
}

// SAFETY: the raw pointers in `vectors` point to heap memory that the slot itself owns, so they stay good
// on any thread that the slot is moved to.
unsafe impl Send for Slot {}
