//! Reads files with several threads, and delivers them in order.

use crate::failure::Failure;
use crate::format::{Checksum, Fault};
use crate::interrupt::Interrupt;
use crate::io::Buffer;
use crate::tools::entries::Entries;
use crate::tools::reader::{Chunk, OrderedWork, Scratch, Stop, WholeFile, in_order, reserve};
use crossbeam_channel::{Receiver, Sender};
use crossbeam_queue::ArrayQueue;

/// The number of chunks of one large file that may wait to be written.
const CHUNKS: usize = 3;
/// The number of batches of files, or of large files, that may wait.
const AHEAD: usize = 16;

/// Passes the files `files` of `entries` to `consume` in order, read by `threads` threads.
pub(crate) fn read_ordered<T>(
    entries: &dyn Entries,
    files: &[usize],
    threads: usize,
    interrupt: &Interrupt,
    consume: impl FnOnce(&mut Ordered) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let ahead = AHEAD.max(2 * threads);
    let buffers = ArrayQueue::new(ahead + 2 * threads);
    let mut rest = files;
    let mut next = || {
        if rest.is_empty() {
            return None;
        }
        let (batch, behind) = rest.split_at(entries.batch_len(rest));
        rest = behind;
        Some(batch)
    };
    let work = |batch: &[usize], scratch: &mut Scratch, messages: &Sender<Message>| match batch {
        [one] => send_chunks(entries, *one, scratch, &buffers, messages),
        several => {
            if scratch.buffer.capacity() == 0 {
                scratch.buffer = buffers.pop().unwrap_or(Buffer::empty());
            }
            let Ok(files) = entries.read_batch(several, scratch) else { return false };
            let buffer = std::mem::replace(&mut scratch.buffer, Buffer::empty());
            messages.send(Message::Batch(files, buffer)).is_ok()
        }
    };
    let how = OrderedWork { threads, ahead, messages: CHUNKS, work: &work };
    in_order(&how, interrupt, &mut next, |receiver| {
        consume(&mut Ordered { receiver, buffers: &buffers, batch: None })
    })?
}

enum Message {
    /// Files that were read together, and the buffer that holds them.
    Batch(Vec<Result<WholeFile, Fault>>, Buffer),
    Chunk(Buffer, usize),
    Hole(u64),
    End(Result<(), Fault>),
}

/// Sends one file chunk by chunk; false if the receiver is gone.
fn send_chunks(
    entries: &dyn Entries,
    file: usize,
    scratch: &mut Scratch,
    buffers: &ArrayQueue<Buffer>,
    messages: &Sender<Message>,
) -> bool {
    let mut lacking = None;
    let read = entries.stream(file, scratch, &mut |chunk| {
        let message = match chunk {
            Chunk::Hole(length) => Message::Hole(length),
            Chunk::Data(bytes) => {
                let mut buffer = buffers.pop().unwrap_or(Buffer::empty());
                reserve(&mut buffer, bytes.len()).map_err(|fault| {
                    lacking = Some(fault);
                    Failure::interrupted()
                })?;
                buffer.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
                Message::Chunk(buffer, bytes.len())
            }
        };
        messages.send(message).map_err(|_| Failure::interrupted())
    });
    match read.map_err(|stop| lacking.map_or(stop, Stop::Bad)) {
        Ok(()) => messages.send(Message::End(Ok(()))).is_ok(),
        Err(Stop::Bad(fault)) => messages.send(Message::End(Err(fault))).is_ok(),
        Err(Stop::Failed(_)) => false,
    }
}

/// Files in order.
pub(crate) struct Ordered<'a> {
    receiver: &'a Receiver<Receiver<Message>>,
    buffers: &'a ArrayQueue<Buffer>,
    batch: Option<(std::vec::IntoIter<Result<WholeFile, Fault>>, Buffer)>,
}

/// Takes a file: first its checksum, if it is known, then its bytes.
pub(crate) trait Sink {
    fn begin(&mut self, checksum: Option<Checksum>) -> Result<(), Failure>;
    fn chunk(&mut self, chunk: &Chunk) -> Result<(), Failure>;
}

impl Ordered<'_> {
    /// Passes the next file to `sink`. The inner error says that the file is bad, which may only show at its end.
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
                    return Ok(Ok(sink.chunk(&Chunk::Data(whole.bytes.get(buffer)))?));
                }
                let buffer = std::mem::replace(buffer, Buffer::empty());
                self.batch = None;
                self.give_back(buffer);
            }
            let interrupted = |_| Failure::interrupted();
            let messages = self.receiver.recv().map_err(interrupted)?;
            match messages.recv().map_err(interrupted)? {
                Message::Batch(files, buffer) => self.batch = Some((files.into_iter(), buffer)),
                first => return self.chunks(first, &messages, stored, sink),
            }
        }
    }

    fn chunks(
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
                Message::Chunk(buffer, length) => {
                    sink.chunk(&Chunk::Data(&buffer.as_slice()[..length]))?;
                    self.give_back(buffer);
                }
                Message::Hole(length) => sink.chunk(&Chunk::Hole(length))?,
                Message::End(result) => return Ok(result),
                // A receiver gets either one batch, or one file in chunks.
                Message::Batch(..) => return Ok(Err(Fault::Damaged)),
            }
            message = messages.recv().map_err(interrupted)?;
        }
    }

    fn give_back(&self, buffer: Buffer) {
        // A buffer beyond the pool's capacity is freed.
        let _ = self.buffers.push(buffer);
    }
}
