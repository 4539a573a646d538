//! A read on its way: the types that the machine and its drivers pass to each other.

use super::interval_decode::{IntervalDecode, IntervalSource};
use super::pieces::Pieces;
use crate::catalog::Located;
use crate::format::Fault;
use crate::io::Buffer;
use crate::vfs::Errno;
use crate::vfs::checkpoints::decode::{FullDecode, Stop};
use crate::vfs::checkpoints::{CheckpointKey, CheckpointStore, Checkpoints};
use crate::vfs::memory::block_checksums::{BlockChecksumBuilder, BlockChecksums};
use crate::vfs::memory::blocks::BlockLeader;
use crate::vfs::memory::budget::Reservation;
use crate::vfs::memory::cache::Leader;
use crate::vfs::memory::chunk::Chunk;
use crate::vfs::memory::in_flight::InFlightRead;
use crate::vfs::memory::turns::Turn;
use crate::vfs::memory::verified::Verified;
use crate::vfs::prefetch::WaitingRead;
use crate::vfs::span::Span;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

/// The next thing to do for a read.
pub enum Step {
    /// Answer the request.
    Done(Reply),
    /// Fetch the task's span, then [`crate::vfs::Vfs::resume`]. If that would block,
    /// [`crate::vfs::Vfs::must_wait`] first.
    Read(Task),
    /// Call [`Task::work`] where the thread may block, then [`crate::vfs::Vfs::worked`].
    Work(Task),
    /// Another read fetches the same bytes. When it has ended, begin anew.
    Wait(Arc<InFlightRead>),
    /// Other tasks decode. When the in-flight read has ended it is this task's turn: go on with [`crate::vfs::Vfs::worked`].
    Turn(Task, Arc<InFlightRead>),
}

impl Step {
    pub(in crate::vfs) fn failed(errno: Errno) -> Self {
        Step::Done(Reply(Err(errno)))
    }

    pub(in crate::vfs) fn done(payload: Payload) -> Self {
        Step::Done(Reply(Ok(payload)))
    }
}

/// An answer. Give it back with [`crate::vfs::Vfs::finish`] so that its memory is used again.
pub struct Reply(pub(in crate::vfs) Result<Payload, Errno>);

/// The memory that holds the bytes of an answer.
pub(in crate::vfs) enum Payload {
    Nothing,
    Own(Vec<u8>),
    Fetched(Buffer, Range<usize>),
    Shared(Arc<Verified>, Range<usize>),
    Unchecked(Arc<Chunk>, Range<usize>),
    Control(Arc<[u8]>, Range<usize>),
}

impl Reply {
    /// The bytes of the answer.
    ///
    /// # Errors
    /// The error number that the reader gets.
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

/// A read in progress. Owned by its driver; `Send`.
pub struct Task {
    pub(super) sample: u64,
    pub(super) located: Located,
    /// The range of the file that was asked for.
    pub(super) want: Range<u64>,
    /// The range to fetch now, and the memory for it.
    pub(super) span: Span,
    pub(super) state: State,
    /// The leader, if other reads may follow this one.
    pub(super) leader: Option<Leader>,
    /// The turn, while an interval is fetched and decoded, or waits for that.
    pub(super) turn: Option<Turn>,
    /// The right to the memory that the span is fetched into, where no other right covers it.
    pub(super) room: Option<Reservation>,
    /// Whether the machine has decided what the task waits for.
    pub(super) waits: bool,
    /// Whether a fetch has failed before.
    pub(super) has_failed: bool,
    /// Whether bytes have failed their check before, and were fetched again if they may have come out of a cache.
    pub(super) is_distrusted: bool,
    /// Set once the disk must be waited for.
    pub(super) wait: Option<Box<Wait>>,
}

/// A read that waits for the disk.
pub(super) struct Wait {
    pub(super) since: Instant,
    pub(super) _waiting: WaitingRead,
    /// The leader that keeps other reads from fetching the sample while this task does.
    pub(super) leader: Option<Leader>,
}

/// The state of a task: see the table in `machine.rs`.
pub(super) enum State {
    /// Fetches the bytes that were asked for, as they are stored.
    Stored,
    /// Fetches the header bytes, which say where the sample lies.
    Header,
    /// Fetches the whole sample; a large encoded one with the turn to decode it.
    Whole(Option<Leader>),
    /// Fetches a block of the part with the sample in it.
    Block(BlockLeader),
    /// Fetches a large sample, step by step, for its checksums.
    Checksum(Box<BlockChecksumBuilder>),
    /// Fetches blocks of a large sample whose checksums are known.
    CheckedBlocks(Arc<BlockChecksums>),
    /// Fetches a piece of a file with holes.
    Piece(Box<Pieces>),
    /// Loads checkpoints that an earlier mount kept.
    Load(Box<Load>),
    /// Fetches a large encoded sample, step by step, and decodes it.
    Decode(Box<FullDecode>),
    /// Decodes the fetched bytes to the spool.
    Spool(Box<Spooling>),
    /// Waits for the turn to fetch and decode an interval of an encoding.
    Turn(Box<AwaitedInterval>),
    /// Waits for another read of an interval; that read is held until this one has looked for the decoded interval.
    Follow { source: IntervalSource, pieces: Box<Pieces>, _read: Arc<InFlightRead> },
    /// Decodes the interval that was fetched.
    DecodeInterval(Box<IntervalDecode>),
    /// Fetches an interval of an encoding.
    Interval(IntervalSource, u64, Box<Pieces>),
    /// Reads an interval from the spool.
    Spooled(Box<SpooledInterval>),
}

/// Checkpoints that an earlier mount may have kept.
pub(super) struct Load {
    pub(super) store: Arc<dyn CheckpointStore>,
    pub(super) key: CheckpointKey,
    pub(super) found: Option<Vec<u8>>,
}

/// A step of decoding to the spool, and its result.
pub(super) struct Spooling {
    pub(super) decode: Box<FullDecode>,
    pub(super) taken: Result<usize, Stop>,
}

/// An interval whose turn has not come yet.
pub(super) struct AwaitedInterval {
    pub(super) source: IntervalSource,
    pub(super) number: u64,
    /// The stored bytes of the interval, as a range of the part.
    pub(super) stored: Range<u64>,
    /// `None` if no byte of the wanted range is there yet.
    pub(super) pieces: Option<Box<Pieces>>,
}

/// An interval of a spooled sample, and the result of reading it.
pub(super) struct SpooledInterval {
    pub(super) checkpoints: Arc<Checkpoints>,
    pub(super) number: u64,
    pub(super) pieces: Box<Pieces>,
    pub(super) read: Result<Verified, Fault>,
}

impl Task {
    /// The range to fetch now, and the memory for it.
    pub fn span(&mut self) -> &mut Span {
        &mut self.span
    }

    /// Whether the machine has decided what the task waits for: the span is to be fetched from storage.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Whether the task will keep a thread busy for long.
    #[must_use]
    pub fn is_long(&self) -> bool {
        matches!(self.state, State::Checksum(_) | State::Decode(_))
    }

    /// Whether the span will be fetched into memory that no right covers yet: neither a block's, a turn's nor a loan's.
    #[must_use]
    pub fn needs_room(&self) -> bool {
        let has_right = self.room.is_some() || self.turn.is_some() || self.span.has_loan();
        !has_right && !matches!(self.state, State::Block(_))
    }

    /// Gives up the right that [`crate::vfs::Vfs::take_room`] gave: the bytes are not on this machine, and come later.
    pub fn give_room_back(&mut self) {
        self.room = None;
    }

    /// Does the file I/O or the decoding of a [`Step::Work`]: the thread may block, or be busy for long.
    pub fn work(&mut self) {
        match &mut self.state {
            State::Load(load) => {
                let found = catch_unwind(AssertUnwindSafe(|| load.store.load(&load.key)));
                load.found = found.unwrap_or_default();
            }
            State::Spool(spooling) => {
                let is_last = self.span.range().end == self.located.sample.end_bytes();
                spooling.taken = take_guarded(&mut spooling.decode, self.span.bytes(), is_last);
            }
            State::DecodeInterval(decode) => decode.run(&self.located, &self.span),
            State::Spooled(spooled) => {
                let SpooledInterval { checkpoints, number, .. } = &**spooled;
                let read = catch_unwind(AssertUnwindSafe(|| checkpoints.read_spooled(*number)));
                let read = read.unwrap_or(Err(Fault::Damaged));
                spooled.read = read.map(|(buffer, length)| Verified::made(buffer, 0..length));
            }
            _ => {}
        }
    }

    /// Goes on to fetch a range of the part.
    pub(super) fn fetch(mut self, state: State, range: Range<u64>) -> Step {
        self.state = state;
        self.span.set_range(range);
        Step::Read(self)
    }

    /// Goes on to fetch the same range once more.
    pub(super) fn fetch_again(mut self, state: State) -> Step {
        self.state = state;
        Step::Read(self)
    }

    /// Goes on with file I/O.
    pub(super) fn block_on(mut self, state: State) -> Step {
        self.state = state;
        Step::Work(self)
    }

    /// Converts a range of the stored bytes to a range of the part.
    pub(super) fn in_container(&self, start: u64, end: u64) -> Range<u64> {
        let first = self.located.sample.offset_bytes;
        first + start..first + end
    }
}

/// Decodes `bytes`; a bug of a decoder must not end the whole mount.
pub(super) fn take_guarded(
    decode: &mut FullDecode,
    bytes: &[u8],
    is_last: bool,
) -> Result<usize, Stop> {
    let taken = catch_unwind(AssertUnwindSafe(|| decode.take(bytes, is_last)));
    taken.unwrap_or_else(|_| Err(Stop::from("the decoder failed")))
}
