//! The beginning of a read: with bytes in memory, behind another read, or with a first fetch.

use super::Reader;
use super::interval_decode::IntervalSource;
use super::task::{Payload, State, Step, Task};
use crate::catalog::Located;
use crate::format::{Checksum, Content, Sample};
use crate::vfs::memory::block_checksums::BlockChecksumBuilder;
use crate::vfs::memory::cache::{CacheAnswer, CacheKey, Cached, Leader};
use crate::vfs::samples::check::stored_range;
use crate::vfs::span::Span;
use std::ops::Range;

/// Copying this many bytes takes longer than a first fetch of the header bytes alone.
const WORTH_A_LOOK_BYTES: u64 = 32 << 10;

impl Reader {
    /// Begins to read up to `length` bytes of a sample from `offset`.
    pub(in crate::vfs) fn read(&self, sample: u64, offset: u64, length: u64) -> Step {
        match self.samples.locate(sample) {
            Ok(located) => self.begin(sample, located, offset..offset.saturating_add(length)),
            Err(errno) => Step::failed(errno),
        }
    }

    /// Begins to read a range of a sample, up to the end of the sample.
    pub(super) fn begin(&self, sample: u64, located: Located, range: Range<u64>) -> Step {
        let at = located.sample;
        self.samples.note(&located);
        if at.damaged {
            return Step::failed(self.samples.refuse_damaged(sample, located));
        }
        if self.samples.bad().is_hopeless(sample, located.part) {
            return Step::failed(self.samples.hopeless(located.part));
        }
        let end = range.end.min(at.size_bytes());
        let want = range.start.min(end)..end;
        if want.is_empty() {
            return self.answer_from_index(&located, |_| Step::done(Payload::Nothing));
        }
        if want.start == 0 {
            self.samples.stats().first_read();
        }
        let is_compressed = self.samples.container(&located).intervals(located.index).is_some();
        if is_compressed || matches!(at.content, Content::Sparse(_)) {
            let task = self.task(sample, located, want);
            return match is_compressed {
                true => self.read_stream(task),
                false => self.read_sparse(task),
            };
        }
        let stored = stored_range(&at, &want);
        if stored.is_empty() {
            return self.answer_from_index(&located, |reader| {
                reader.answer_behind_prefix(&located, &want, &[])
            });
        }
        if let Some(step) = self.in_memory(sample, &located, &want) {
            return self.check_resident(sample, &located, step);
        }
        self.prefetch.was_not_prefetched(sample, want == (0..at.size_bytes()));
        let is_encoded = matches!(at.content, Content::Encoded(_));
        let header = at.extent().start..at.offset_bytes;
        if !is_encoded && !self.samples.must_check(sample, &located) {
            let task = self.task(sample, located, want);
            return match header.is_empty() {
                true => task.fetch(State::Stored, stored),
                false => task.fetch(State::Header, header),
            };
        }
        if self.takes_whole(&at, &want) {
            let task = self.task(sample, located, want);
            // Bytes in the page cache are looked at twice rather than moved: they go to the memory that the
            // answer is sent from. If the disk must be waited for, one read fetches the header bytes and the data.
            let is_moved = !is_encoded && at.length_bytes >= WORTH_A_LOOK_BYTES;
            return match is_moved && !header.is_empty() {
                true => task.fetch(State::Header, header),
                false => task.fetch(State::Whole(None), at.extent()),
            };
        }
        self.begin_in_cache(sample, located, want)
    }

    /// Whether all of a sample is wanted and fetched. An encoding may be far larger than the decoded bytes.
    pub(super) fn takes_whole(&self, at: &Sample, want: &Range<u64>) -> bool {
        let is_encoded = matches!(at.content, Content::Encoded(_));
        *want == (0..at.size_bytes()) && (!is_encoded || self.memory.fits_whole(at))
    }

    /// Makes a task that fetches no bytes yet.
    fn task(&self, sample: u64, located: Located, want: Range<u64>) -> Task {
        let span = Span::new(located.part, 0..0, self.samples.buffers().take_any());
        Task {
            sample,
            located,
            want,
            span,
            state: State::Stored,
            leader: None,
            turn: None,
            room: None,
            waits: false,
            has_failed: false,
            is_distrusted: false,
            wait: None,
        }
    }

    /// Gives an answer that comes from the index alone: the index may be mapped, and belong to a rewritten file by now.
    fn answer_from_index(&self, located: &Located, answer: impl FnOnce(&Self) -> Step) -> Step {
        match self.samples.check_unchanged(located) {
            Ok(()) => answer(self),
            Err(errno) => Step::failed(errno),
        }
    }

    /// Begins to read a range of a sample that must be decoded or checked: the bytes that are fetched for it are cached.
    fn begin_in_cache(&self, sample: u64, located: Located, want: Range<u64>) -> Step {
        match self.memory.cache().get_or_lead(CacheKey::Sample(sample), want.end - want.start) {
            CacheAnswer::Prefetched(verified, ..)
            | CacheAnswer::Cached(Cached::Whole(verified)) => {
                self.answer_shared(&located, verified, &want)
            }
            CacheAnswer::Cached(Cached::Checksums(checksums)) => {
                let (start, end) =
                    checksums.around(want.start, want.end, located.sample.length_bytes);
                let task = self.task(sample, located, want);
                let range = task.in_container(start, end);
                task.fetch(State::CheckedBlocks(checksums), range)
            }
            CacheAnswer::Cached(Cached::Checkpoints(checkpoints)) => {
                let task = self.task(sample, located, want);
                self.read_intervals(task, &IntervalSource::Sample(checkpoints))
            }
            CacheAnswer::InFlight(read) => Step::Wait(read),
            CacheAnswer::Lead(leader) => {
                self.begin_as_leader(self.task(sample, located, want), leader)
            }
        }
    }

    fn begin_as_leader(&self, mut task: Task, leader: Leader) -> Step {
        let at = task.located.sample;
        let header = at.extent().start..at.offset_bytes;
        if self.memory.fits_whole(&at) {
            task.leader = Some(leader);
            return task.fetch(State::Whole(None), at.extent());
        }
        if !header.is_empty() {
            return task.fetch(State::Header, header);
        }
        task.leader = Some(leader);
        if !matches!(at.content, Content::Encoded(_)) {
            return self.begin_checksum(task);
        }
        if !self.must_decode_at_once(&task.located) {
            return self.begin_decode(task);
        }
        // One sample at a time: the memory for decoding it is not in the cache's budget.
        match self.memory.cache().lead(CacheKey::DecodeTurn) {
            Ok(turn) => task.fetch(State::Whole(Some(turn)), at.extent()),
            Err(read) => {
                self.shelve(&mut task);
                Step::Wait(read)
            }
        }
    }

    /// Begins to take the checksums of a large sample, or of one with holes.
    pub(super) fn begin_checksum(&self, task: Task) -> Step {
        let at = task.located.sample;
        // Only samples that have a checksum come here.
        let builder = BlockChecksumBuilder::new(at, at.checksum.unwrap_or(Checksum::Crc32(0)));
        let (start, end) = builder.next().unwrap_or_default();
        let range = task.in_container(start, end);
        task.fetch(State::Checksum(Box::new(builder)), range)
    }
}
