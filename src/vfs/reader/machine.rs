//! The states of a read and the state that follows each. The machine says which span to fetch, and goes on when a
//! driver has fetched it; it never waits.
//!
//! | state | what is fetched | what follows |
//! | --- | --- | --- |
//! | (begin) | nothing | the answer, if memory has it; another read, if one is in flight; else the first state below that fits |
//! | `Stored` | the wanted bytes, as they are stored: no check is due | the answer |
//! | `Header` | the header bytes | begin, now that the container knows where the sample lies |
//! | `Whole` | the whole sample: it is asked for whole, or small enough to be cached | decoded, checked; the answer; the rest is cached if only a part was asked for |
//! | `Block` | a block around a small sample, on a wait for the disk | cached; the answer; else `Whole`, `Stored` or `Header` |
//! | `Checksum` | the next step of a large sample | `Checksum` until its end; the whole checked, the blocks' checksums cached; `CheckedBlocks`, or `Piece` if it has holes |
//! | `CheckedBlocks` | the blocks around the wanted bytes | checked against the cached checksums; the answer |
//! | `Piece` | the next piece of a file with holes | checked if due; `Piece` until the range is complete; the answer |
//! | `Load` | (work) checkpoints of a large encoded sample that an earlier mount kept | cached; `Interval`; or, if there are none, `Decode` |
//! | `Decode` | the next step of a large encoded sample | decoded; `Decode` until its end; the whole checked, checkpoints cached and kept; `Interval`. Without checkpoints from the start again, to the spool |
//! | `Spool` | (work) decodes the bytes that `Decode` has fetched and writes them to the spool | `Decode`, or `Spooled` |
//! | `Turn` | (waits) nothing, until it may decode an interval | `Interval` |
//! | `Follow` | (waits) nothing, until another read has brought an interval of a sample that is compared with its checksum | `Turn` or `Interval` until all intervals were compared; begin |
//! | `Interval` | the stored bytes of an interval | `DecodeInterval` |
//! | `DecodeInterval` | (work) decodes the interval | cached; `Turn` or `Interval` until the range is complete; the answer |
//! | `Spooled` | (work) an interval from the spool | as `DecodeInterval` |
//!
//! Every state can end in an error instead: the sample is listed as bad, its followers begin anew and find it in the
//! list. A fetch that fails is tried once more; after a `Block` that fails the sample is fetched alone. Bytes that fail their
//! check or cannot be decoded are fetched once more, too, if they may have come out of a cache.

use super::Reader;
use super::task::{State, Step, Task};
use crate::format::{Content, Fault};
use crate::io::{Buffer, ReadError};
use crate::store::remote::StoreError;
use crate::vfs::memory::block_checksums::BlockChecksumBuilder;
use crate::vfs::memory::blocks::BlockLeader;
use crate::vfs::memory::cache::Cached;
use crate::vfs::memory::verified::Bytes;
use crate::vfs::samples::check::{Unfit, stored_range};
use crate::vfs::{Errno, Stage};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

impl Reader {
    /// Goes on with a task whose span was fetched, or could not be.
    pub(in crate::vfs) fn resume(&self, mut task: Task, fetched: Result<(), ReadError>) -> Step {
        if let Err(error) = fetched {
            return self.fetch_failed(task, error);
        }
        let stats = self.samples.stats();
        stats.fetched(task.span.length() as u64);
        if let Some(wait) = task.wait.take() {
            stats.stage(Stage::Disk, wait.since);
            let start = Instant::now();
            let step = self.transition(task);
            stats.stage(Stage::Verify, start);
            drop(wait);
            return step;
        }
        self.transition(task)
    }

    /// Goes from a state whose fetch or work is done to the next step.
    pub(in crate::vfs) fn transition(&self, mut task: Task) -> Step {
        match std::mem::replace(&mut task.state, State::Stored) {
            State::Stored => self.answer_stored(task),
            State::Header => self.after_header(task),
            State::Whole(_turn) => self.after_whole(task),
            State::Block(leader) => self.after_block(task, leader),
            State::Checksum(builder) => self.after_checksum(task, builder),
            State::CheckedBlocks(checksums) => {
                let start = task.span.range().start - task.located.sample.offset_bytes;
                match checksums.check(start, task.span.bytes()) {
                    Ok(()) => self.answer_stored(task),
                    Err((_, mismatch)) => match self.distrusts_fetched(&mut task) {
                        true => task.fetch_again(State::CheckedBlocks(checksums)),
                        false => self.fail(task, Fault::Checksum(mismatch)),
                    },
                }
            }
            State::Piece(pieces) => self.after_piece(task, pieces),
            State::Load(load) => self.after_load(task, *load),
            State::Decode(decode) => self.after_decode(task, decode),
            State::Spool(spooling) => self.after_decoded(task, spooling.decode, spooling.taken),
            State::Turn(awaited) => self.after_turn(task, *awaited),
            State::Follow { source, pieces, _read } => self.next_interval(task, &source, pieces),
            State::Interval(source, number, pieces) => {
                self.after_interval(task, source, number, pieces)
            }
            State::DecodeInterval(decode) => self.after_interval_decoded(task, *decode),
            State::Spooled(spooled) => self.after_spooled(task, *spooled),
        }
    }

    fn after_header(&self, mut task: Task) -> Step {
        match self.samples.check_header(&task.located, task.span.bytes()) {
            Ok(()) | Err(Unfit::Moved) => self.begin_anew(task),
            Err(Unfit::Fault(_)) if self.distrusts_fetched(&mut task) => {
                task.fetch_again(State::Header)
            }
            Err(Unfit::Fault(fault)) => self.fail(task, fault),
        }
    }

    fn after_whole(&self, mut task: Task) -> Step {
        let place = task.span.place();
        let bytes = Bytes::Own(task.span.swap_buffer(Buffer::empty()));
        let verified = match self.samples.check_whole(task.sample, &task.located, bytes, place) {
            Ok(verified) => verified,
            Err(Unfit::Moved) => return self.begin_anew(task),
            Err(Unfit::Fault(_)) if self.distrusts_fetched(&mut task) => {
                return task.fetch_again(State::Whole(None));
            }
            Err(Unfit::Fault(fault)) => return self.fail(task, fault),
        };
        let Some(leader) = task.leader.take() else { return self.answer_own(&task, verified) };
        let verified = Arc::new(verified);
        let asked = task.want.end - task.want.start;
        leader.end_with(Cached::Whole(Arc::clone(&verified)), asked);
        self.answer_shared(&task.located, verified, &task.want)
    }

    /// Begins anew, now that the container knows where the sample lies.
    fn begin_anew(&self, mut task: Task) -> Step {
        let (sample, want) = (task.sample, task.want.clone());
        let (before, part) = (task.located.sample, task.located.part);
        // The memory is used again at once: new pages cost a fault each.
        self.shelve(&mut task);
        // The in-flight read ends first: this read might follow itself.
        drop(task);
        match self.samples.locate(sample) {
            Ok(located) if located.sample != before => self.begin(sample, located, want),
            Ok(located) => {
                let why = format!("it is not at byte {} of part {part}", before.offset_bytes);
                self.refuse(sample, located, Fault::Structure(why))
            }
            Err(errno) => Step::failed(errno),
        }
    }

    fn after_checksum(&self, mut task: Task, mut builder: Box<BlockChecksumBuilder>) -> Step {
        builder.update(task.span.bytes());
        if let Some((start, end)) = builder.next() {
            let range = task.in_container(start, end);
            return task.fetch(State::Checksum(builder), range);
        }
        let checksums = match builder.finish() {
            Ok(checksums) => Arc::new(checksums),
            Err(_) if self.distrusts_sample(&mut task) => return self.begin_checksum(task),
            Err(mismatch) => return self.fail(task, Fault::Checksum(mismatch)),
        };
        self.samples.stats().verified();
        self.samples.set_verified(task.sample);
        if let Some(leader) = task.leader.take() {
            leader.end_with(Cached::Checksums(Arc::clone(&checksums)), 0);
        }
        let at = task.located.sample;
        if let Content::Sparse(_) = at.content {
            return self.read_pieces(task, Some(checksums));
        }
        let (start, end) = checksums.around(task.want.start, task.want.end, at.length_bytes);
        let range = task.in_container(start, end);
        task.fetch(State::CheckedBlocks(checksums), range)
    }

    /// Keeps the block, and answers out of it.
    fn after_block(&self, mut task: Task, leader: BlockLeader) -> Step {
        let id = leader.id();
        let buffer = task.span.swap_buffer(Buffer::empty());
        let chunk = leader.end_with(buffer, task.span.place());
        let step = chunk
            .and_then(|chunk| self.in_block(task.sample, &task.located, &task.want, (id, &chunk)));
        step.unwrap_or_else(|| self.fetch_alone(task))
    }

    /// Fetches the sample without the bytes around it.
    fn fetch_alone(&self, mut task: Task) -> Step {
        let at = task.located.sample;
        let is_whole = task.leader.is_some()
            || matches!(at.content, Content::Encoded(_))
            || self.samples.must_check(task.sample, &task.located);
        self.unshelve(&mut task);
        match (is_whole, at.header_bytes) {
            (true, _) => task.fetch(State::Whole(None), at.extent()),
            (false, 0) => {
                let range = stored_range(&at, &task.want);
                task.fetch(State::Stored, range)
            }
            (false, _) => task.fetch(State::Header, at.extent().start..at.offset_bytes),
        }
    }

    /// Whether the bytes that were fetched last, and fail their check, may have come out of a cache: then they are fetched from
    /// the store, once.
    pub(super) fn distrusts_fetched(&self, task: &mut Task) -> bool {
        let range = task.span.range();
        self.distrusts(task, range)
    }

    /// As `distrusts_fetched`, for all bytes of a sample that were fetched step by step.
    pub(super) fn distrusts_sample(&self, task: &mut Task) -> bool {
        let range = task.located.sample.offset_bytes..task.span.range().end;
        self.distrusts(task, range)
    }

    fn distrusts(&self, task: &mut Task, range: Range<u64>) -> bool {
        !std::mem::replace(&mut task.is_distrusted, true)
            && self.samples.distrust(task.located.part, range)
    }

    /// Ends a read that a store has refused or given up: the store has tried again already, and another attempt would only
    /// double the wait.
    fn refused_by_store(&self, mut task: Task, error: &StoreError) -> Step {
        self.samples.stats().io_error();
        let errno = Errno::from(error);
        match error.is_gone() {
            true => self.samples.add_stale_part(task.located.part, error),
            false => {
                let fault = Fault::Unreadable(error.to_string());
                self.samples.add_bad(task.sample, task.located, fault);
            }
        }
        self.shelve(&mut task);
        Step::failed(errno)
    }

    fn fetch_failed(&self, mut task: Task, error: ReadError) -> Step {
        if let ReadError::Io(error) = &error
            && let Some(error) = StoreError::of(error)
        {
            return self.refused_by_store(task, error);
        }
        match &error {
            ReadError::Changed(change) => {
                self.samples.add_changed_part(task.located.part, *change);
                Step::failed(Errno::from(&error))
            }
            ReadError::WouldBlock | ReadError::Absent | ReadError::Io(_) => {
                self.samples.stats().io_error();
                if matches!(task.state, State::Block(_)) {
                    // The bytes that cannot be read may lie elsewhere in the block.
                    self.shelve(&mut task);
                    return self.fetch_alone(task);
                }
                if !std::mem::replace(&mut task.has_failed, true) {
                    return Step::Read(task);
                }
                self.fail(task, error.fault())
            }
        }
    }
}
