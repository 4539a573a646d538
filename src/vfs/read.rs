//! `read` as a step machine: it says what to fetch, and goes on when that is there. It never waits.
//!
//! | the sample | what is fetched |
//! | --- | --- |
//! | was fetched ahead, or lies in a block that is there | nothing |
//! | is small, and must be waited for | a large block around it, if there is room; each sample is checked as it is given out |
//! | need not be checked (`verify=off`, or `once` and done) | the bytes that were asked for |
//! | is asked for whole | the sample; checked; given out; not kept |
//! | is small | the sample; checked; kept for the requests that follow |
//! | is encoded | all that is stored of it; decoded, checked; the rest kept for the requests that follow |
//! | has holes | piece by piece what was asked for; with a checksum as if it were large |
//! | is large | the sample in a pass of bounded memory that checks it and notes its blocks' checksums; then, for this and every further request, the blocks that were asked for, checked against the note |

use super::bad::{Bad, Fault};
use super::block::{self, BlockLead, Chunk};
use super::cache::{Entered, Known, Lead};
use super::content::{Unfit, stored_range};
use super::inode::Inode;
use super::pieces::Pieces;
use super::prefetch::Waited;
use super::span::Span;
use super::stream::{Pass, Streams};
use super::verify::{Digests, Memory, Scan, Verified};
use super::{Errno, InFlightRead, Stage, Verify, Vfs};
use crate::catalog::{Located, Node};
use crate::format::{Checksum, Content, Sample};
use crate::io::{Buffer, ReadError};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// The most that [`Task::span`] is aligned to.
const MAX_ALIGNMENT_BYTES: usize = 4096;

/// To move so many bytes takes longer than to look first where they lie.
const WORTH_A_LOOK_BYTES: u64 = 32 << 10;
/// A key of the sample cache, far above all sample numbers, for what only one task may do at a time.
const TURN: u64 = 1 << 61;

/// What to do next.
pub enum Step {
    /// Answer the request.
    Done(Reply),
    /// Fetch what the task says, then [`Vfs::resume`]. If that means to wait, [`Vfs::must_wait`] first.
    Read(Task),
    /// Another request fetches the same sample. When it has landed, call [`Vfs::read`] again.
    Wait(Arc<InFlightRead>),
}

/// An answer. Give it back with [`Vfs::finish`] so that its memory is used again.
pub struct Reply(pub(super) Result<Payload, Errno>);

pub(super) enum Payload {
    Nothing,
    Own(Vec<u8>),
    Fetched(Buffer, Range<usize>),
    Shared(Arc<Verified>, Range<usize>),
    Unchecked(Arc<Chunk>, Range<usize>),
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
            Ok(Payload::Own(bytes)) => Ok(bytes),
            Ok(Payload::Fetched(buffer, range)) => Ok(&buffer.as_slice()[range.clone()]),
            Ok(Payload::Shared(verified, range)) => Ok(&verified.bytes()[range.clone()]),
            Ok(Payload::Unchecked(chunk, range)) => Ok(&chunk.unchecked()[range.clone()]),
            Ok(Payload::Control(content, range)) => Ok(&content[range.clone()]),
            Err(errno) => Err(*errno),
        }
    }
}

/// A read in progress. Owned by whoever fetches for it; `Send`.
pub struct Task {
    sample: u64,
    pub(super) located: Located,
    /// The range of the file that was asked for.
    pub(super) want: Range<u64>,
    /// What to fetch now.
    pub(super) span: Span,
    pub(super) goal: Goal,
    /// If others may wait for what this task fetches.
    pub(super) lead: Option<Lead>,
    /// Whether [`Vfs::must_wait`] has decided what to wait for.
    waits: bool,
    /// Whether a fetch has failed before.
    has_failed: bool,
    /// Once the disk must be waited for.
    wait: Option<Box<Wait>>,
}

/// A reader waits for the disk.
struct Wait {
    since: Instant,
    _waited: Waited,
    /// Keeps others from fetching the sample, as long as this task does.
    claim: Option<Lead>,
}

pub(super) enum Goal {
    /// The wanted bytes as they are.
    Plain,
    /// What stands before the sample, to see where it lies.
    Lead,
    /// The whole sample; if it is large and encoded, with the turn to decode such a one.
    Whole(Option<Lead>),
    /// The pieces of a file with holes.
    Pieces(Box<Pieces>),
    /// A pass over a large sample that is encoded.
    Pass(Box<Pass>),
    /// An interval of such a sample.
    Interval(Streams, u64, Box<Pieces>),
    /// A pass over a large sample.
    Scan(Box<Scan>),
    /// Blocks of a large sample that was passed over.
    Blocks(Arc<Digests>),
    /// A block of the container, of which the sample is a part.
    Around(BlockLead),
}

impl Task {
    /// What to fetch now.
    pub fn span(&mut self) -> &mut Span {
        &mut self.span
    }

    /// Whether [`Vfs::must_wait`] has decided what to wait for.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Whether it will keep a thread busy for long.
    #[must_use]
    pub fn is_long(&self) -> bool {
        matches!(self.goal, Goal::Scan(_) | Goal::Pass(_))
    }

    pub(super) fn sample(&self) -> u64 {
        self.sample
    }

    /// Goes on to fetch a range of the container.
    pub(super) fn next(mut self, goal: Goal, range: Range<u64>) -> Step {
        self.goal = goal;
        self.span.set_range(range);
        Step::Read(self)
    }

    /// A range of the stored bytes as one of the container.
    pub(super) fn of_container(&self, start: u64, end: u64) -> Range<u64> {
        let first = self.located.sample.offset_bytes;
        first + start..first + end
    }

    fn is_wanted_whole(&self) -> bool {
        self.want == (0..self.located.sample.size_bytes())
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
                let end = offset.saturating_add(length);
                Step::Done(Reply(self.read_control(number, end).map(|bytes| {
                    let end = end.min(bytes.len() as u64);
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
        let end = offset.saturating_add(length).min(at.size_bytes());
        let want = offset.min(end)..end;
        if want.is_empty() {
            return Step::Done(Reply(Ok(Payload::Nothing)));
        }
        if want.start == 0 {
            self.stats.first_read();
        }
        let task = |goal, range, lead| {
            let span = Span::new(located.part, range, self.buffers.take(0));
            let (want, waits, has_failed) = (want.clone(), false, false);
            Task { sample, located, want, span, goal, lead, waits, has_failed, wait: None }
        };
        if self.container(&located).stream().is_some() {
            return self.read_stream(task(Goal::Plain, 0..0, None), &Streams::Container);
        }
        if let Content::Sparse(_) = at.content {
            return self.read_sparse(task(Goal::Plain, 0..0, None));
        }
        let stored = stored_range(&at, &want);
        if stored.is_empty() {
            return self.give_behind_prefix(&located, &want, &[]);
        }
        if let Some(step) = self.in_memory(sample, &located, &want) {
            return step;
        }
        let is_encoded = matches!(at.content, Content::Encoded(_));
        let lead_range = at.extent().start..at.offset_bytes;
        if !is_encoded && !self.must_check(sample, &located) {
            return Step::Read(match lead_range.is_empty() {
                true => task(Goal::Plain, stored, None),
                false => task(Goal::Lead, lead_range, None),
            });
        }
        if want == (0..at.size_bytes()) {
            // What the page cache holds is looked at twice rather than moved: the bytes go where they are
            // answered from. If the disk must be waited for, one read fetches both.
            let is_moved = !is_encoded && at.length_bytes >= WORTH_A_LOOK_BYTES;
            return Step::Read(match is_moved && !lead_range.is_empty() {
                true => task(Goal::Lead, lead_range, None),
                false => task(Goal::Whole(None), at.extent(), None),
            });
        }
        match self.cache.enter(sample, want.end - want.start) {
            Entered::Ahead(verified, _) | Entered::Hit(Known::Whole(verified)) => {
                self.give_shared(verified, &want)
            }
            Entered::Hit(Known::Digests(digests)) => {
                let (start, end) = digests.around(want.start, want.end, at.length_bytes);
                let range = at.offset_bytes + start..at.offset_bytes + end;
                Step::Read(task(Goal::Blocks(digests), range, None))
            }
            Entered::Join(flight) => Step::Wait(flight),
            Entered::Lead(lead) if self.fits_whole(&at) => {
                Step::Read(task(Goal::Whole(None), at.extent(), Some(lead)))
            }
            Entered::Hit(Known::Stream(stream)) => {
                self.read_stream(task(Goal::Plain, 0..0, None), &Streams::Sample(stream))
            }
            Entered::Lead(_) if !lead_range.is_empty() => {
                Step::Read(task(Goal::Lead, lead_range, None))
            }
            Entered::Lead(lead) if is_encoded => {
                let container = self.container(&located);
                if self.must_decode_at_once(container, located.index, &at) {
                    // One at a time: the memory for it is beside that of the cache.
                    return match self.cache.claim(TURN) {
                        Ok(turn) => {
                            Step::Read(task(Goal::Whole(Some(turn)), at.extent(), Some(lead)))
                        }
                        Err(flight) => Step::Wait(flight),
                    };
                }
                if let Some(stream) = self.kept_stream(&located) {
                    lead.land(Known::Stream(Arc::clone(&stream)), 0);
                    let task = task(Goal::Plain, 0..0, None);
                    return self.read_stream(task, &Streams::Sample(stream));
                }
                match self.begin_pass(container, located.index, &at) {
                    Ok((pass, stored)) => {
                        let range = at.offset_bytes + stored.start..at.offset_bytes + stored.end;
                        Step::Read(task(Goal::Pass(Box::new(pass)), range, Some(lead)))
                    }
                    Err(fault) => self.refuse(sample, located, fault),
                }
            }
            Entered::Lead(lead) => self.begin_scan(task(Goal::Plain, 0..0, Some(lead))),
        }
    }

    /// Begins the pass over a large sample, or one with holes.
    pub(super) fn begin_scan(&self, task: Task) -> Step {
        let at = task.located.sample;
        // What has no checksum is not scanned.
        let scan = Scan::new(at, at.checksum.unwrap_or(Checksum::Crc32(0)));
        let (start, end) = scan.next().unwrap_or_default();
        let range = task.of_container(start, end);
        task.next(Goal::Scan(Box::new(scan)), range)
    }

    /// Whether a sample is held in memory as a whole, as it is stored and as it is shown.
    pub(super) fn fits_whole(&self, at: &Sample) -> bool {
        at.length_bytes.max(at.size_bytes()) <= self.cache.max_whole_bytes()
    }

    /// Whether a sample is taken out of a block: what it decodes to counts, too.
    pub(super) fn is_small(&self, at: &Sample) -> bool {
        self.blocks.is_small(at.length_bytes)
            && (!matches!(at.content, Content::Encoded(_)) || self.fits_whole(at))
    }

    pub(super) fn must_check(&self, sample: u64, located: &Located) -> bool {
        let asked_for = match self.verify() {
            Verify::Always => true,
            Verify::Once => !self.verified.get(sample),
            Verify::Off => false,
        };
        asked_for && located.sample.checksum.is_some()
    }

    /// What the task wants is not in memory: the disk must be waited for. Decides what to wait for.
    pub fn must_wait(&self, mut task: Task) -> Step {
        if std::mem::replace(&mut task.waits, true) {
            return Step::Read(task);
        }
        self.demanded(task.sample, &task.located);
        let _waited = Waited::new(&self.prefetch);
        task.wait = Some(Box::new(Wait { since: Instant::now(), _waited, claim: None }));
        let at = task.located.sample;
        if matches!(task.goal, Goal::Lead) && task.is_wanted_whole() {
            task.goal = Goal::Whole(None);
            task.span.set_range(task.located.sample.extent());
        }
        // Of these only parts are files, or parts of files.
        if matches!(at.content, Content::Sparse(_)) || matches!(task.goal, Goal::Interval(..)) {
            return Step::Read(task);
        }
        if !self.takes_blocks() || !self.is_small(&at) {
            return self.claim(task);
        }
        let Some(id) = self.blocks.around(task.located.part, &at.extent()) else {
            return self.claim(task);
        };
        match self.blocks.enter(id, task.want.end - task.want.start) {
            block::Entered::Lead(lead) => {
                let container_bytes = self.store.part(task.located.part).len_bytes();
                task.span.set_range(self.blocks.range(id, container_bytes));
                task.goal = Goal::Around(lead);
                self.shelve(&mut task);
                Step::Read(task)
            }
            block::Entered::Join(flight) => {
                // Whoever waits for this sample goes on with the block, too.
                self.shelve(&mut task);
                Step::Wait(flight)
            }
            block::Entered::Hit(chunk, _) => {
                let step = self.in_block(task.sample, &task.located, &task.want, id, &chunk);
                step.unwrap_or_else(|| self.claim(task))
            }
            block::Entered::Refused => self.claim(task),
        }
    }

    /// Fetches a sample that is asked for whole, unless somebody else does already.
    fn claim(&self, mut task: Task) -> Step {
        if task.lead.is_none() && task.is_wanted_whole() {
            match self.cache.claim(task.sample) {
                Ok(claim) => {
                    if let Some(wait) = &mut task.wait {
                        wait.claim = Some(claim);
                    }
                }
                Err(flight) => {
                    self.shelve(&mut task);
                    return Step::Wait(flight);
                }
            }
        }
        Step::Read(task)
    }

    /// Goes on with a task whose bytes were fetched into [`Task::span`], or not.
    pub fn resume(&self, mut task: Task, fetched: Result<(), ReadError>) -> Step {
        if let Err(error) = fetched {
            return self.fetch_failed(task, error);
        }
        self.stats.fetched(task.span.length() as u64);
        if let Some(wait) = task.wait.take() {
            self.stats.stage(Stage::Disk, wait.since);
            let start = Instant::now();
            let step = self.check(task);
            self.stats.stage(Stage::Verify, start);
            drop(wait);
            return step;
        }
        self.check(task)
    }

    /// Goes on with what was fetched.
    fn check(&self, mut task: Task) -> Step {
        match std::mem::replace(&mut task.goal, Goal::Plain) {
            Goal::Plain => self.give(task),
            Goal::Lead => match self.check_lead(&task.located, task.span.bytes()) {
                Ok(()) | Err(Unfit::Moved) => self.restart(task),
                Err(Unfit::Fault(fault)) => self.fail(task, fault),
            },
            Goal::Whole(_turn) => self.check_whole(task),
            Goal::Pieces(pieces) => self.take_piece(task, pieces),
            Goal::Pass(pass) => self.take_pass(task, pass),
            Goal::Interval(streams, number, pieces) => {
                self.take_interval(task, &streams, number, pieces)
            }
            Goal::Scan(mut scan) => {
                scan.update(task.span.bytes());
                match scan.next() {
                    Some((start, end)) => {
                        let range = task.of_container(start, end);
                        task.next(Goal::Scan(scan), range)
                    }
                    None => self.end_scan(task, *scan),
                }
            }
            Goal::Blocks(digests) => {
                let start = task.span.range().start - task.located.sample.offset_bytes;
                match digests.check(start, task.span.bytes()) {
                    Ok(()) => self.give(task),
                    Err((_, mismatch)) => self.mismatch(task, Fault::Checksum(mismatch)),
                }
            }
            Goal::Around(lead) => self.end_block(task, lead),
        }
    }

    /// Gives out the wanted part of what was fetched and checked.
    fn give(&self, mut task: Task) -> Step {
        let stored = task.span.place_of(&stored_range(&task.located.sample, &task.want));
        if (stored.len() as u64) < task.want.end - task.want.start {
            let bytes = &task.span.unchecked()[stored];
            let step = self.give_behind_prefix(&task.located, &task.want, bytes);
            self.shelve(&mut task);
            return step;
        }
        self.stats.served(task.want.end - task.want.start);
        Step::Done(Reply(Ok(Payload::Fetched(task.span.swap_buffer(Buffer::empty()), stored))))
    }

    /// Gives out the end of what the view puts before the stored bytes, and the first of those.
    fn give_behind_prefix(&self, located: &Located, want: &Range<u64>, stored: &[u8]) -> Step {
        let bytes = self.prefix(located).map(|prefix| {
            let end = prefix.len().min(want.end as usize);
            let mut bytes = prefix[want.start as usize..end].to_vec();
            bytes.extend_from_slice(stored);
            self.stats.served(bytes.len() as u64);
            Payload::Own(bytes)
        });
        Step::Done(Reply(bytes.map_err(|_| Errno::EIO)))
    }

    fn check_whole(&self, mut task: Task) -> Step {
        let place = task.span.place();
        let memory = Memory::Own(task.span.swap_buffer(Buffer::empty()));
        let verified = match self.admit(task.sample, &task.located, memory, place) {
            Ok(verified) => verified,
            Err(Unfit::Moved) => return self.restart(task),
            Err(Unfit::Fault(fault)) => return self.fail(task, fault),
        };
        let Some(lead) = task.lead.take() else {
            self.stats.served(task.want.end - task.want.start);
            let (buffer, all) = verified.into_buffer();
            let range = all.start + task.want.start as usize..all.start + task.want.end as usize;
            return Step::Done(Reply(Ok(Payload::Fetched(buffer, range))));
        };
        let verified = Arc::new(verified);
        lead.land(Known::Whole(Arc::clone(&verified)), task.want.end - task.want.start);
        self.give_shared(verified, &task.want)
    }

    /// Begins anew, now that it is known where the sample lies.
    fn restart(&self, mut task: Task) -> Step {
        let (sample, want) = (task.sample, task.want.clone());
        let (before, part) = (task.located.sample, task.located.part);
        // Used again at once: new pages cost a fault each.
        self.shelve(&mut task);
        // First of all whoever waits for this task is let go.
        drop(task);
        match self.located(sample) {
            Ok(located) if located.sample != before => {
                self.read_sample(sample, located, want.start, want.end - want.start)
            }
            Ok(located) => {
                let why = format!("it is not at byte {} of part {part}", before.offset_bytes);
                self.refuse(sample, located, Fault::Structure(why))
            }
            Err(errno) => Step::Done(Reply(Err(errno))),
        }
    }

    fn end_scan(&self, mut task: Task, scan: Scan) -> Step {
        let at = task.located.sample;
        let digests = match scan.finish() {
            Ok(digests) => Arc::new(digests),
            Err(mismatch) => return self.mismatch(task, Fault::Checksum(mismatch)),
        };
        self.stats.verified(true);
        self.verified.set(task.sample);
        if let Some(lead) = task.lead.take() {
            lead.land(Known::Digests(Arc::clone(&digests)), 0);
        }
        if let Content::Sparse(_) = at.content {
            return self.read_pieces(task, Some(digests));
        }
        let (start, end) = digests.around(task.want.start, task.want.end, at.length_bytes);
        let range = task.of_container(start, end);
        task.next(Goal::Blocks(digests), range)
    }

    /// Keeps the block, and gives the sample out of it.
    fn end_block(&self, mut task: Task, lead: BlockLead) -> Step {
        let id = lead.id();
        let buffer = task.span.swap_buffer(Buffer::empty());
        let step = lead
            .land(buffer, task.span.place())
            .and_then(|chunk| self.in_block(task.sample, &task.located, &task.want, id, &chunk));
        step.unwrap_or_else(|| self.alone(task))
    }

    /// Fetches the sample without what lies around it.
    fn alone(&self, mut task: Task) -> Step {
        let at = task.located.sample;
        let is_whole = task.lead.is_some()
            || matches!(at.content, Content::Encoded(_))
            || self.must_check(task.sample, &task.located);
        self.unshelve(&mut task);
        match (is_whole, at.lead_bytes) {
            (true, _) => task.next(Goal::Whole(None), at.extent()),
            (false, 0) => {
                let range = stored_range(&at, &task.want);
                task.next(Goal::Plain, range)
            }
            (false, _) => task.next(Goal::Lead, at.extent().start..at.offset_bytes),
        }
    }

    pub(super) fn mismatch(&self, task: Task, fault: Fault) -> Step {
        self.stats.verified(false);
        self.fail(task, fault)
    }

    fn fetch_failed(&self, mut task: Task, error: ReadError) -> Step {
        let part = task.located.part;
        match &error {
            ReadError::Changed(_) => {
                self.bad.add_container(part, self.store.part(part).name(), error.to_string());
                Step::Done(Reply(Err(Errno::from(&error))))
            }
            ReadError::WouldBlock | ReadError::Absent | ReadError::Io(_) => {
                self.stats.io_error();
                if matches!(task.goal, Goal::Around(_)) {
                    // What cannot be read may lie elsewhere in the block.
                    self.shelve(&mut task);
                    return self.alone(task);
                }
                if !std::mem::replace(&mut task.has_failed, true) {
                    return Step::Read(task);
                }
                self.fail(task, Fault::Unreadable(error.to_string()))
            }
        }
    }

    pub(super) fn fail(&self, mut task: Task, fault: Fault) -> Step {
        // First the list, then (with the task) the lead: those who waited find the fault there.
        let step = self.refuse(task.sample, task.located, fault);
        self.buffers.give(task.span.swap_buffer(Buffer::empty()));
        step
    }

    fn refuse(&self, sample: u64, located: Located, fault: Fault) -> Step {
        self.bad.add(sample, self.store.part(located.part).name(), Bad { located, fault });
        Step::Done(Reply(Err(Errno::EIO)))
    }

    /// Offers a task memory to fetch into, such as where the answer must lie. It is taken if the bytes fit
    /// and are for this answer alone; otherwise it is dropped.
    pub fn lend(&self, task: &mut Task, memory: Buffer) {
        // With what the fetch may have to begin before and end behind it.
        let fits = task.span.length() + 2 * MAX_ALIGNMENT_BYTES <= memory.capacity();
        if task.lead.is_none() && !matches!(task.goal, Goal::Around(_)) && fits {
            self.buffers.give(task.span.swap_buffer(memory));
        }
    }

    /// Takes an answer back once it was sent.
    pub fn finish(&self, reply: Reply) {
        match reply.0 {
            Ok(Payload::Fetched(buffer, _)) => self.buffers.give(buffer),
            Ok(Payload::Shared(verified, _)) => {
                if let Some(verified) = Arc::into_inner(verified) {
                    self.buffers.give(verified.into_buffer().0);
                }
            }
            Ok(
                Payload::Nothing | Payload::Own(_) | Payload::Control(..) | Payload::Unchecked(..),
            )
            | Err(_) => {}
        }
    }

    /// Gives a task's memory back while it waits in a queue.
    pub fn shelve(&self, task: &mut Task) {
        self.buffers.give(task.span.swap_buffer(Buffer::empty()));
    }

    /// Gives it memory again, what this thread used last: new pages cost a fault each.
    pub fn unshelve(&self, task: &mut Task) {
        task.span.put_buffer(self.buffers.take(0));
    }
}
