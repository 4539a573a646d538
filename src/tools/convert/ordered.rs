//! Files read by several threads, and given out in order.

use crate::failure::Failure;
use crate::format::Checksum;
use crate::io::Buffer;
use crate::tools::interrupt::Interrupt;
use crate::tools::origin::{Chunk, Fault, Origin, Scratch, Stop, Whole};
use crossbeam_channel::{Receiver, Sender, bounded};
use crossbeam_queue::ArrayQueue;
use std::sync::{Mutex, PoisonError};

/// Pieces of one large file that may wait to be written.
const PIECES: usize = 3;

/// Files read together, or large files, that may wait: on a busy machine threads must not wait for each other
/// at each of them.
const AHEAD: usize = 16;

/// Gives `consume` the files `items` of `origin` in order, read by `jobs` threads.
pub(crate) fn read_ordered<T>(
    origin: &dyn Origin,
    items: &[usize],
    jobs: usize,
    interrupt: &Interrupt,
    consume: impl FnOnce(&mut Ordered) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let ahead = AHEAD.max(2 * jobs);
    let buffers = ArrayQueue::new(ahead + 2 * jobs);
    let (sender, receiver) = bounded(ahead);
    let queue = Mutex::new(Queue { rest: items, sender: Some(sender) });
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| read(origin, &queue, &buffers, interrupt));
        }
        let mut ordered = Ordered { receiver, buffers: &buffers, batch: None };
        let consumed = consume(&mut ordered);
        // Threads whose files nobody wants any more must not wait for it: each ends when it is told so.
        ordered.receiver.iter().for_each(drop);
        consumed
    })
}

/// What the threads take from.
struct Queue<'a> {
    rest: &'a [usize],
    /// In the order of the files; `None` when there are no more.
    sender: Option<Sender<Receiver<Message>>>,
}

enum Message {
    /// Files that were read together, and the buffer in which they lie.
    Batch(Vec<Result<Whole, Fault>>, Buffer),
    Piece(Buffer, usize),
    Hole(u64),
    End(Result<(), Fault>),
}

fn read(
    origin: &dyn Origin,
    queue: &Mutex<Queue>,
    buffers: &ArrayQueue<Buffer>,
    interrupt: &Interrupt,
) {
    let _ended = Ended(queue);
    let mut scratch = Scratch::default();
    while let Some((items, sender)) = take(origin, queue, interrupt) {
        let is_sent = match items {
            [one] => stream(origin, *one, &mut scratch, buffers, &sender),
            several => {
                if scratch.buffer.capacity() == 0 {
                    scratch.buffer = buffers.pop().unwrap_or(Buffer::empty());
                }
                let read = origin.read(several, &mut scratch);
                let buffer = std::mem::replace(&mut scratch.buffer, Buffer::empty());
                sender.send(Message::Batch(read, buffer)).is_ok()
            }
        };
        if !is_sent {
            return;
        }
    }
}

/// When one thread ends there is no more to do, or nobody wants it: then there is nothing more to come.
struct Ended<'a, 'b>(&'a Mutex<Queue<'b>>);

impl Drop for Ended<'_, '_> {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).sender = None;
    }
}

/// The next files, and where they are to be sent. The place in the order is taken under the lock.
fn take<'a>(
    origin: &dyn Origin,
    queue: &Mutex<Queue<'a>>,
    interrupt: &Interrupt,
) -> Option<(&'a [usize], Sender<Message>)> {
    let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    if queue.rest.is_empty() || interrupt.requested() {
        return None;
    }
    let (items, rest) = queue.rest.split_at(origin.together(queue.rest));
    let (sender, receiver) = bounded(PIECES);
    queue.sender.as_ref()?.send(receiver).ok()?;
    queue.rest = rest;
    Some((items, sender))
}

/// Sends one file piece by piece; false if nobody wants it any more.
fn stream(
    origin: &dyn Origin,
    item: usize,
    scratch: &mut Scratch,
    buffers: &ArrayQueue<Buffer>,
    sender: &Sender<Message>,
) -> bool {
    let read = origin.stream(item, scratch, &mut |chunk| {
        let message = match chunk {
            Chunk::Hole(length) => Message::Hole(length),
            Chunk::Data(bytes) => {
                let mut buffer = buffers.pop().unwrap_or(Buffer::empty());
                buffer.reserve(bytes.len());
                buffer.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
                Message::Piece(buffer, bytes.len())
            }
        };
        let unwanted = |_| Failure::interrupted();
        sender.send(message).map_err(unwanted)
    });
    match read {
        Ok(()) => sender.send(Message::End(Ok(()))).is_ok(),
        Err(Stop::Bad(fault)) => sender.send(Message::End(Err(fault))).is_ok(),
        Err(Stop::Failed(_)) => false,
    }
}

/// Files in order.
pub(crate) struct Ordered<'a> {
    receiver: Receiver<Receiver<Message>>,
    buffers: &'a ArrayQueue<Buffer>,
    batch: Option<(std::vec::IntoIter<Result<Whole, Fault>>, Buffer)>,
}

/// Takes a file: first its checksum if it is known, then its bytes.
pub(crate) trait Sink {
    fn begin(&mut self, checksum: Option<Checksum>) -> Result<(), Failure>;
    fn data(&mut self, bytes: &[u8]) -> Result<(), Failure>;
    fn hole(&mut self, length: u64) -> Result<(), Failure>;
}

impl Ordered<'_> {
    /// Gives the next file to `sink`. The inner error: the file is bad, which may be known only at its end.
    pub(crate) fn next(
        &mut self,
        stored: Option<Checksum>,
        sink: &mut dyn Sink,
    ) -> Result<Result<(), Fault>, Failure> {
        loop {
            if let Some((batch, buffer)) = &mut self.batch {
                if let Some(next) = batch.next() {
                    let whole = match next {
                        Ok(whole) => whole,
                        Err(fault) => return Ok(Err(fault)),
                    };
                    sink.begin(whole.checksum)?;
                    return Ok(Ok(sink.data(whole.bytes.of(buffer))?));
                }
                let buffer = std::mem::replace(buffer, Buffer::empty());
                self.batch = None;
                self.give_back(buffer);
            }
            let interrupted = |_| Failure::interrupted();
            let messages = self.receiver.recv().map_err(interrupted)?;
            match messages.recv().map_err(interrupted)? {
                Message::Batch(files, buffer) => self.batch = Some((files.into_iter(), buffer)),
                first => return self.pieces(first, &messages, stored, sink),
            }
        }
    }

    fn pieces(
        &self,
        first: Message,
        messages: &Receiver<Message>,
        stored: Option<Checksum>,
        sink: &mut dyn Sink,
    ) -> Result<Result<(), Fault>, Failure> {
        let interrupted = |_| Failure::interrupted();
        sink.begin(stored)?;
        let mut message = first;
        loop {
            match message {
                Message::Piece(buffer, length) => {
                    sink.data(&buffer.as_slice()[..length])?;
                    self.give_back(buffer);
                }
                Message::Hole(length) => sink.hole(length)?,
                Message::End(result) => return Ok(result),
                // One receiver has either files that were read together, or one.
                Message::Batch(..) => return Ok(Err(Fault::Damaged)),
            }
            message = messages.recv().map_err(interrupted)?;
        }
    }

    fn give_back(&self, buffer: Buffer) {
        // One too many is not kept.
        let _ = self.buffers.push(buffer);
    }
}
