//! Reads of encodings that have checkpoints: a range is put together from decoded intervals, which are cached
//! for the reads that follow.

use super::Reader;
use super::ahead::Seen;
use super::interval_decode::{IntervalDecode, IntervalSource, Place};
use super::pieces::Pieces;
use super::task::{AwaitedInterval, SpooledInterval, State, Step, Task};
use crate::format::Fault;
use crate::format::stream::Order;
use crate::io::Buffer;
use crate::vfs::memory::cache::{CacheAnswer, CacheKey, Cached};
use crate::vfs::memory::in_flight::InFlightRead;
use crate::vfs::memory::verified::Verified;
use std::ops::Range;
use std::sync::Arc;

/// The bytes of a file that lie in one interval.
pub(super) struct Part {
    pub(super) number: u64,
    pub(super) key: CacheKey,
    /// The range of the file.
    pub(super) file: Range<u64>,
    /// The place of the interval.
    pub(super) place: Place,
    /// The offset in the decoded bytes where the range begins.
    first: u64,
    /// The offset in the decoded bytes where the bytes of the file end that lie together.
    run_end: u64,
    /// The place of the interval in the order of reading, if that is known.
    order: Option<Order>,
}

impl Part {
    /// The number of decoded bytes of the interval.
    fn length(&self) -> u64 {
        self.place.decoded.end - self.place.decoded.start
    }

    /// The bytes of this range, up to byte `end` of the file.
    fn of<'a>(&self, decoded: &'a Verified, end: u64) -> &'a [u8] {
        let start = (self.first - self.place.decoded.start) as usize;
        &decoded.bytes()[start..start + (end - self.file.start) as usize]
    }
}

impl Reader {
    /// Reads the wanted range of a file whose intervals are known.
    pub(super) fn read_intervals(&self, mut task: Task, source: &IntervalSource) -> Step {
        let want = task.want.clone();
        let part = match self.part_at(&task, source, want.start) {
            Ok(Some(part)) if part.file.start == want.start && part.file.end >= want.end => part,
            Ok(_) => return self.read_from_pieces(task, source),
            Err(fault) => return self.fail(task, fault),
        };
        // All of the range lies in one interval: the answer comes out of that.
        self.observe(&task, source, &part, want.end);
        match self.memory.cache().get_or_lead(part.key, want.end - want.start) {
            // Another read may just have found that the interval has changed.
            CacheAnswer::Cached(_) | CacheAnswer::Prefetched(..)
                if self.to_compare(&task).is_some() =>
            {
                self.read_anew(task)
            }
            CacheAnswer::Cached(Cached::Whole(decoded)) | CacheAnswer::Prefetched(decoded, ..) => {
                let first = part.first - part.place.decoded.start;
                self.answer_decoded(task, decoded, first)
            }
            CacheAnswer::InFlight(read) => self.follow(task, read),
            CacheAnswer::Lead(leader) => {
                task.leader = Some(leader);
                match self.begin_pieces(&want) {
                    Ok(pieces) => self.begin_interval(task, source, &part, pieces),
                    Err(fault) => self.fail(task, fault),
                }
            }
            // Intervals are cached only as decoded bytes.
            CacheAnswer::Cached(_) => self.fail(task, Fault::Damaged),
        }
    }

    /// Waits for another read of an interval, without memory.
    fn follow(&self, mut task: Task, read: Arc<InFlightRead>) -> Step {
        self.shelve(&mut task);
        Step::Wait(read)
    }

    /// Puts a range together that lies in several intervals, or partly in holes.
    fn read_from_pieces(&self, task: Task, source: &IntervalSource) -> Step {
        match self.begin_pieces(&task.want) {
            Ok(pieces) => self.next_interval(task, source, pieces),
            Err(fault) => self.fail(task, fault),
        }
    }

    /// Reads the next interval that the wanted range lies in, or answers when the range is complete.
    pub(super) fn next_interval(
        &self,
        mut task: Task,
        source: &IntervalSource,
        mut pieces: Box<Pieces>,
    ) -> Step {
        let want = task.want.clone();
        loop {
            let at = pieces.end();
            let part = match self.part_at(&task, source, at) {
                Ok(Some(part)) if at < want.end && part.file.start < want.end => part,
                Ok(_) => return self.answer_intervals(task, *pieces),
                Err(fault) => return self.fail(task, fault),
            };
            let end = part.file.end.min(want.end);
            self.observe(&task, source, &part, end);
            let asked = pieces.asked(end - part.file.start, part.length());
            match self.memory.cache().get_or_lead(part.key, asked) {
                CacheAnswer::Cached(Cached::Whole(decoded))
                | CacheAnswer::Prefetched(decoded, ..) => {
                    pieces.copy(&want, part.file.start, part.of(&decoded, end));
                }
                // The pieces compared so far are not compared again: reads of threads that decode ahead are met often.
                CacheAnswer::InFlight(read) if pieces.is_compared() => {
                    self.shelve(&mut task);
                    let source = source.clone();
                    task.state = State::Follow { source, pieces, _read: Arc::clone(&read) };
                    return Step::Turn(task, read);
                }
                CacheAnswer::InFlight(read) => return self.follow(task, read),
                CacheAnswer::Lead(leader) => {
                    task.leader = Some(leader);
                    return self.begin_interval(task, source, &part, pieces);
                }
                // Intervals are cached only as decoded bytes.
                CacheAnswer::Cached(_) => return self.fail(task, Fault::Damaged),
            }
        }
    }

    /// Begins to fetch an interval when its turn has come, or to read it from the spool.
    fn begin_interval(
        &self,
        mut task: Task,
        source: &IntervalSource,
        part: &Part,
        pieces: Box<Pieces>,
    ) -> Step {
        let (number, stored) = (part.number, part.place.stored.clone());
        if let IntervalSource::Sample(checkpoints) = source
            && checkpoints.spool().is_some()
        {
            let (checkpoints, read) = (Arc::clone(checkpoints), Err(Fault::Damaged));
            let spooled = SpooledInterval { checkpoints, number, pieces, read };
            return task.block_on(State::Spooled(Box::new(spooled)));
        }
        let (turn, comes) = self.memory.turns().take(part.place.memory_bytes());
        task.turn = Some(turn);
        let Some(comes) = comes else {
            return task.fetch(State::Interval(source.clone(), number, pieces), stored);
        };
        // Many reads may wait: pieces that no byte was copied to are made again, unless they say how the range is used.
        let is_kept = pieces.end() > task.want.start || pieces.made.is_some();
        let pieces = Some(pieces).filter(|_| is_kept);
        self.shelve(&mut task);
        task.state = State::Turn(Box::new(AwaitedInterval {
            source: source.clone(),
            number,
            stored,
            pieces,
        }));
        Step::Turn(task, comes)
    }

    /// Fetches the interval whose turn has come.
    pub(super) fn after_turn(&self, task: Task, awaited: AwaitedInterval) -> Step {
        let AwaitedInterval { source, number, stored, pieces } = awaited;
        match pieces.map_or_else(|| self.begin_pieces(&task.want), Ok) {
            Ok(pieces) => task.fetch(State::Interval(source, number, pieces), stored),
            Err(fault) => self.fail(task, fault),
        }
    }

    /// Has the interval that was fetched decoded where no other read waits for that.
    pub(super) fn after_interval(
        &self,
        task: Task,
        source: IntervalSource,
        number: u64,
        pieces: Box<Pieces>,
    ) -> Step {
        let (samples, decoded) = (Arc::clone(&self.samples), Err(Fault::Damaged));
        let decode = IntervalDecode { source, number, pieces, samples, decoded };
        task.block_on(State::DecodeInterval(Box::new(decode)))
    }

    /// Goes on with the range from the interval that was decoded.
    pub(super) fn after_interval_decoded(&self, mut task: Task, decode: IntervalDecode) -> Step {
        let IntervalDecode { source, number, mut pieces, decoded, .. } = decode;
        let is_bad = decoded.as_ref().is_err_and(Fault::is_permanent);
        let (is_made, is_compared) = (pieces.made.is_some(), pieces.is_compared());
        if is_bad && !is_made && self.to_compare(&task).is_some() {
            return self.read_anew(task);
        }
        if is_bad
            && pieces.fetched_again.replace(number) != Some(number)
            && (self.samples.distrust(task.located.part, task.span.range()) || is_compared)
        {
            return task.fetch_again(State::Interval(source, number, pieces));
        }
        // The stored bytes are freed before the next task has its turn.
        drop(task.span.swap_buffer(Buffer::empty()));
        drop(task.turn.take());
        self.after_decoded_interval(task, &source, (number, decoded), pieces)
    }

    /// Takes the interval that was read from the spool.
    pub(super) fn after_spooled(&self, task: Task, spooled: SpooledInterval) -> Step {
        let SpooledInterval { checkpoints, number, pieces, read } = spooled;
        let source = IntervalSource::Sample(checkpoints);
        self.after_decoded_interval(task, &source, (number, read), pieces)
    }

    fn after_decoded_interval(
        &self,
        mut task: Task,
        source: &IntervalSource,
        (number, decoded): (u64, Result<Verified, Fault>),
        mut pieces: Box<Pieces>,
    ) -> Step {
        let decoded = match decoded {
            Ok(decoded) => Arc::new(decoded),
            Err(fault) => return self.fail(task, fault),
        };
        let part = match self.part_at(&task, source, pieces.end()) {
            Ok(Some(part)) if part.number == number => part,
            _ => return self.fail(task, Fault::Damaged),
        };
        let end = part.file.end.min(task.want.end);
        pieces.copy(&task.want, part.file.start, part.of(&decoded, end));
        if let Some(leader) = task.leader.take() {
            let (found, asked) = (Cached::Whole(decoded), end - part.file.start);
            match pieces.is_too_large() {
                true => leader.pass_on(found),
                false => leader.end_with(found, pieces.asked(asked, part.length())),
            }
        }
        self.next_interval(task, source, pieces)
    }

    /// The bytes of a file at or behind byte `at` that lie in one interval; `None` behind the wanted range, or if there is
    /// a hole up to the end of the file.
    pub(super) fn part_at(
        &self,
        task: &Task,
        source: &IntervalSource,
        at: u64,
    ) -> Result<Option<Part>, Fault> {
        let sample = task.located.sample;
        if at >= task.want.end {
            return Ok(None);
        }
        match source {
            IntervalSource::Sample(checkpoints) => {
                let number = checkpoints.number_at(at);
                let place = source.place(&self.samples, &task.located, number);
                let place = place.ok_or(Fault::Damaged)?;
                let short = u32::try_from(number).map_err(|_| Fault::Damaged)?;
                Ok(Some(Part {
                    number,
                    key: CacheKey::Interval { checkpoints: checkpoints.id(), number: short },
                    file: at..place.decoded.end,
                    place,
                    first: at,
                    run_end: sample.size_bytes(),
                    order: None,
                }))
            }
            IntervalSource::Container => self.part_of_container_at(task, at),
        }
    }

    fn part_of_container_at(&self, task: &Task, at: u64) -> Result<Option<Part>, Fault> {
        let located = &task.located;
        let container = self.samples.container(located);
        let piece = container.piece(located.index, at);
        let Some(piece) = piece.map_err(Fault::from)? else {
            return Ok(None);
        };
        let start = at.max(piece.at_bytes);
        let first = piece.offset_bytes + (start - piece.at_bytes);
        let stream = container.intervals(located.index).ok_or(Fault::Damaged)?;
        let interval = stream.interval(first).ok_or(Fault::Damaged)?;
        let left = (piece.at_bytes + piece.length_bytes).saturating_sub(start);
        let length = left.min(interval.decoded.end - first);
        let short = u32::try_from(located.container).map_err(|_| Fault::Damaged)?;
        let (number, order) = (interval.number, stream.order(interval.number));
        Ok(Some(Part {
            number,
            key: CacheKey::ContainerInterval { container: short, number },
            file: start..start + length,
            place: Place::in_container(&self.samples, located, interval),
            first,
            run_end: first + left,
            order,
        }))
    }

    /// Takes note of the read of `part` up to byte `end` of the file: the next intervals may be decoded ahead.
    fn observe(&self, task: &Task, source: &IntervalSource, part: &Part, end: u64) {
        let Range { start, end: interval_end } = part.place.decoded;
        let order = match (source, part.order) {
            (IntervalSource::Sample(_), _) => Order { start, last: u64::MAX },
            (IntervalSource::Container, Some(order)) => order,
            (IntervalSource::Container, None) => return,
        };
        let first = order.start + (part.first - start);
        let seen = Seen {
            key: part.key,
            interval_bytes: interval_end - start,
            read: first..first + (end - part.file.start),
            sample: task.sample,
            last: order.last,
        };
        self.ahead.observe(&seen, source, &task.located, part.run_end);
    }
}
