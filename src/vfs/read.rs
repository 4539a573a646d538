//! `read` as a step machine: it says what to fetch, and goes on when that is there. It never waits.
//!
//! | the sample | what is fetched |
//! | --- | --- |
//! | need not be checked (`verify=off`, or `once` and done) | the bytes that were asked for |
//! | is asked for whole | the sample; checked; given out; not kept |
//! | is small | the sample; checked; kept for the requests that follow |
//! | is large | the sample in a pass of bounded memory that checks it and notes its blocks' checksums; then, for this and every further request, the blocks that were asked for, checked against the note |

use super::bad::{Bad, Fault};
use super::cache::{Entered, Known, Lead};
use super::inode::Inode;
use super::verify::{Digests, Scan, Verified};
use super::{Errno, Flight, Verify, Vfs};
use crate::catalog::{Located, Node};
use crate::io::{Buffer, ReadError};
use std::ops::Range;
use std::sync::Arc;

/// What to do next.
pub enum Step {
    /// Answer the request.
    Done(Reply),
    /// Fetch what the task says, then [`Vfs::resume`].
    Read(Task),
    /// Another request fetches the same sample. When it has landed, call [`Vfs::read`] again.
    Wait(Arc<Flight>),
}

/// An answer. Give it back with [`Vfs::finish`] so that its memory is used again.
pub struct Reply(Result<Payload, Errno>);

enum Payload {
    Nothing,
    Fetched(Buffer, Range<usize>),
    Shared(Arc<Verified>, Range<usize>),
    Control(Arc<[u8]>, Range<usize>),
}

impl Reply {
    /// The bytes, or what went wrong.
    ///
    /// # Errors
    /// What the reader is to be told.
    pub fn bytes(&self) -> Result<&[u8], Errno> {
        match &self.0 {
            Ok(Payload::Nothing) => Ok(&[]),
            Ok(Payload::Fetched(buffer, range)) => Ok(&buffer.as_slice()[range.clone()]),
            Ok(Payload::Shared(verified, range)) => Ok(&verified.bytes()[range.clone()]),
            Ok(Payload::Control(content, range)) => Ok(&content[range.clone()]),
            Err(errno) => Err(*errno),
        }
    }
}

/// A read in progress. Owned by whoever fetches for it; `Send`.
pub struct Task {
    sample: u64,
    located: Located,
    /// The range of the sample that was asked for.
    want: Range<u64>,
    /// The range of the sample to fetch now.
    fetch: Range<u64>,
    goal: Goal,
    /// If others may wait for what this task fetches.
    lead: Option<Lead>,
    buffer: Buffer,
}

enum Goal {
    /// The wanted bytes as they are.
    Plain,
    /// The whole sample.
    Whole,
    /// A pass over a large sample.
    Scan(Box<Scan>),
    /// Blocks of a large sample that was passed over.
    Blocks(Arc<Digests>),
}

impl Task {
    /// Which container to read.
    #[must_use]
    pub fn part(&self) -> usize {
        self.located.part
    }

    /// Where to read, from the start of the container, in bytes.
    #[must_use]
    pub fn offset_bytes(&self) -> u64 {
        self.located.sample.offset_bytes + self.fetch.start
    }

    /// Where to put what was read; its length is how much to read.
    pub fn target(&mut self) -> &mut [u8] {
        let length = (self.fetch.end - self.fetch.start) as usize;
        self.buffer.reserve(length);
        &mut self.buffer.as_mut_slice()[..length]
    }

    /// Whether it fetches into memory that was lent to it.
    #[must_use]
    pub fn has_loan(&self) -> bool {
        self.buffer.is_loan()
    }

    /// The memory of [`Task::target`], to be filled elsewhere, and how much of it is to be.
    #[must_use]
    pub fn take_buffer(&mut self) -> (Buffer, usize) {
        let length = self.target().len();
        (std::mem::replace(&mut self.buffer, Buffer::empty()), length)
    }

    /// Puts back what [`Task::take_buffer`] gave.
    pub fn put_buffer(&mut self, buffer: Buffer) {
        self.buffer = buffer;
    }

    /// Whether it will keep a thread busy for long.
    #[must_use]
    pub fn is_long(&self) -> bool {
        matches!(self.goal, Goal::Scan(_))
    }

    fn next(mut self, goal: Goal, fetch: Range<u64>) -> Step {
        self.goal = goal;
        self.fetch = fetch;
        Step::Read(self)
    }

    /// Where the wanted bytes lie in the buffer.
    fn wanted(&self) -> Range<usize> {
        (self.want.start - self.fetch.start) as usize..(self.want.end - self.fetch.start) as usize
    }
}

impl Vfs {
    /// Begins to read up to `length` bytes of an inode from `offset`.
    pub fn read(&self, ino: u64, offset: u64, length: u64) -> Step {
        match Inode::of(ino) {
            Inode::Node(Node::Sample(sample)) => match self.located(sample) {
                Ok(located) => self.read_sample(sample, located, offset, length),
                Err(errno) => Step::Done(Reply(Err(errno))),
            },
            Inode::Snapshot(number) => {
                Step::Done(Reply(self.control_content(number).map(|bytes| {
                    let end = offset.saturating_add(length).min(bytes.len() as u64);
                    let range = offset.min(end) as usize..end as usize;
                    Payload::Control(bytes, range)
                })))
            }
            Inode::Node(Node::Folder(_)) | Inode::ControlFolder => {
                Step::Done(Reply(Err(Errno::EISDIR)))
            }
        }
    }

    fn read_sample(&self, sample: u64, located: Located, offset: u64, length: u64) -> Step {
        let at = located.sample;
        if at.damaged {
            return self.refuse(sample, located, Fault::Damaged);
        }
        if self.bad.is_hopeless(sample, located.part) {
            return Step::Done(Reply(Err(Errno::EIO)));
        }
        let end = offset.saturating_add(length).min(at.length_bytes);
        let want = offset.min(end)..end;
        if want.is_empty() {
            return Step::Done(Reply(Ok(Payload::Nothing)));
        }
        let all = 0..at.length_bytes;
        let (goal, fetch, lead) = if !self.must_check(sample, &located) {
            (Goal::Plain, want.clone(), None)
        } else if want == all {
            (Goal::Whole, all, None)
        } else {
            match self.cache.enter(sample, want.end - want.start) {
                Entered::Hit(Known::Whole(verified)) => {
                    let range = want.start as usize..want.end as usize;
                    self.stats.served(want.end - want.start);
                    return Step::Done(Reply(Ok(Payload::Shared(verified, range))));
                }
                Entered::Hit(Known::Digests(digests)) => {
                    let (start, end) = digests.around(want.start, want.end, at.length_bytes);
                    (Goal::Blocks(digests), start..end, None)
                }
                Entered::Join(flight) => return Step::Wait(flight),
                Entered::Lead(lead) if at.length_bytes <= self.cache.max_whole_bytes() => {
                    (Goal::Whole, all, Some(lead))
                }
                Entered::Lead(lead) => {
                    let scan = Scan::new(at);
                    let (start, end) = scan.next().unwrap_or_default();
                    (Goal::Scan(Box::new(scan)), start..end, Some(lead))
                }
            }
        };
        let buffer = self.buffers.take(0);
        Step::Read(Task { sample, located, want, fetch, goal, lead, buffer })
    }

    fn must_check(&self, sample: u64, located: &Located) -> bool {
        let asked_for = match self.options.verify {
            Verify::Always => true,
            Verify::Once => !self.verified.get(sample),
            Verify::Off => false,
        };
        asked_for && located.sample.crc32.is_some()
    }

    /// Goes on with a task whose bytes were fetched into [`Task::target`], or not.
    pub fn resume(&self, mut task: Task, fetched: Result<(), ReadError>) -> Step {
        if let Err(error) = fetched {
            return self.fetch_failed(task, error);
        }
        let length = (task.fetch.end - task.fetch.start) as usize;
        self.stats.fetched(length as u64);
        match std::mem::replace(&mut task.goal, Goal::Plain) {
            Goal::Plain => self.give(task),
            Goal::Whole => self.check_whole(task),
            Goal::Scan(mut scan) => {
                scan.update(&task.buffer.as_slice()[..length]);
                match scan.next() {
                    Some((start, end)) => task.next(Goal::Scan(scan), start..end),
                    None => self.end_scan(task, *scan),
                }
            }
            Goal::Blocks(digests) => {
                let start = task.fetch.start;
                match digests.check(start, &task.buffer.as_slice()[..length]) {
                    Ok(()) => self.give(task),
                    Err((_, expected, found)) => {
                        self.mismatch(task, Fault::Checksum { expected, found })
                    }
                }
            }
        }
    }

    /// Gives out the wanted part of what was fetched and checked.
    fn give(&self, task: Task) -> Step {
        self.stats.served(task.want.end - task.want.start);
        let range = task.wanted();
        Step::Done(Reply(Ok(Payload::Fetched(task.buffer, range))))
    }

    fn check_whole(&self, mut task: Task) -> Step {
        let at = task.located.sample;
        let expected = at.crc32.unwrap_or_default();
        let buffer = std::mem::replace(&mut task.buffer, Buffer::empty());
        let verified = match Verified::check(buffer, at.length_bytes as usize, expected) {
            Ok(verified) => verified,
            Err((buffer, found)) => {
                task.buffer = buffer;
                return self.mismatch(task, Fault::Checksum { expected, found });
            }
        };
        self.stats.verified(true);
        self.verified.set(task.sample);
        let Some(lead) = task.lead.take() else {
            task.buffer = verified.into_buffer();
            return self.give(task);
        };
        let verified = Arc::new(verified);
        let asked = task.want.end - task.want.start;
        lead.land(Known::Whole(Arc::clone(&verified)), asked);
        self.stats.served(asked);
        let range = task.wanted();
        Step::Done(Reply(Ok(Payload::Shared(verified, range))))
    }

    fn end_scan(&self, mut task: Task, scan: Scan) -> Step {
        let at = task.located.sample;
        let expected = at.crc32.unwrap_or_default();
        let digests = match scan.finish(expected) {
            Ok(digests) => Arc::new(digests),
            Err(found) => return self.mismatch(task, Fault::Checksum { expected, found }),
        };
        self.stats.verified(true);
        self.verified.set(task.sample);
        if let Some(lead) = task.lead.take() {
            lead.land(Known::Digests(Arc::clone(&digests)), 0);
        }
        let (start, end) = digests.around(task.want.start, task.want.end, at.length_bytes);
        task.next(Goal::Blocks(digests), start..end)
    }

    fn mismatch(&self, task: Task, fault: Fault) -> Step {
        self.stats.verified(false);
        self.fail(task, fault)
    }

    fn fetch_failed(&self, task: Task, error: ReadError) -> Step {
        let part = task.located.part;
        match &error {
            ReadError::Changed(_) => {
                self.bad.add_container(part, &self.parts[part].path, error.to_string());
                Step::Done(Reply(Err(Errno::from(&error))))
            }
            ReadError::WouldBlock | ReadError::Io(_) => {
                self.stats.io_error();
                self.fail(task, Fault::Io(error.to_string()))
            }
        }
    }

    fn fail(&self, task: Task, fault: Fault) -> Step {
        // First the list, then (with the task) the lead: those who waited find the fault there.
        let step = self.refuse(task.sample, task.located, fault);
        self.buffers.give(task.buffer);
        step
    }

    fn refuse(&self, sample: u64, located: Located, fault: Fault) -> Step {
        self.bad.add(sample, &self.parts[located.part].path, Bad { located, fault });
        Step::Done(Reply(Err(Errno::EIO)))
    }

    /// Offers a task memory to fetch into, such as where the answer must lie. It is taken if the bytes fit
    /// and are for this answer alone; otherwise it is dropped.
    pub fn lend(&self, task: &mut Task, memory: Buffer) {
        let fits = task.fetch.end - task.fetch.start <= memory.capacity() as u64;
        if task.lead.is_none() && fits {
            self.buffers.give(std::mem::replace(&mut task.buffer, memory));
        }
    }

    /// Takes an answer back once it was sent.
    pub fn finish(&self, reply: Reply) {
        match reply.0 {
            Ok(Payload::Fetched(buffer, _)) => self.buffers.give(buffer),
            Ok(Payload::Shared(verified, _)) => {
                if let Some(verified) = Arc::into_inner(verified) {
                    self.buffers.give(verified.into_buffer());
                }
            }
            Ok(Payload::Nothing | Payload::Control(..)) | Err(_) => {}
        }
    }

    /// Gives a task's memory back while it waits in a queue.
    pub fn shelve(&self, task: &mut Task) {
        self.buffers.give(std::mem::replace(&mut task.buffer, Buffer::empty()));
    }

    /// Gives it memory again, what this thread used last: new pages cost a fault each.
    pub fn unshelve(&self, task: &mut Task) {
        task.buffer = self.buffers.take(0);
    }
}
