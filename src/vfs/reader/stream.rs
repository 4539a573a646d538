//! Reads of samples of a compressed stream: ranges of it, ranges behind a prefix, and files that are made from a range.
//!
//! A made file is cached whole; all other bytes of a stream are cached as intervals. Intervals of a compressed stream have
//! checksums of their own; a sample that is decoded from other intervals, and has a checksum in a sidecar, is compared whole by
//! its first read.

use super::Reader;
use super::interval_decode::IntervalSource;
use super::pieces::{Made, Pieces};
use super::task::{Step, Task};
use crate::format::checksum::Hasher;
use crate::format::{Checksum, Content, Fault, shown};
use crate::vfs::memory::cache::{CacheAnswer, CacheKey, Cached, Leader};
use crate::vfs::memory::verified::Verified;
use std::ops::Range;
use std::sync::Arc;

impl Reader {
    /// Reads the wanted range of the file of a sample that lies in a compressed stream.
    pub(super) fn read_stream(&self, task: Task) -> Step {
        let container = self.samples.container(&task.located);
        match container.content_in_stream(task.located.index) {
            Ok(Content::Stored | Content::Sparse(_) | Content::Prefixed(_))
                if self.to_compare(&task).is_some() =>
            {
                self.begin_compare(task)
            }
            Ok(Content::Stored | Content::Sparse(_)) => {
                self.read_intervals(task, &IntervalSource::Container)
            }
            Ok(Content::Prefixed(_)) => self.read_behind_prefix(task),
            Ok(Content::Encoded(_)) => self.read_made(task),
            Err(error) => self.fail(task, error.into()),
        }
    }

    fn read_behind_prefix(&self, task: Task) -> Step {
        let pieces = self.begin_pieces(&task.want);
        match pieces.and_then(|pieces| self.begin_with_prefix(&task, pieces)) {
            Ok(pieces) => self.next_interval(task, &IntervalSource::Container, pieces),
            Err(fault) => self.fail(task, fault),
        }
    }

    /// Copies the bytes of the prefix that lie in the wanted range to pieces.
    fn begin_with_prefix(
        &self,
        task: &Task,
        mut pieces: Box<Pieces>,
    ) -> Result<Box<Pieces>, Fault> {
        let prefix = self.samples.container(&task.located).prefix(task.located.index)?;
        let end = (prefix.len() as u64).min(task.want.end);
        if let Some(wanted) = prefix.get(task.want.start as usize..end as usize) {
            pieces.copy(&task.want, task.want.start, wanted);
        }
        Ok(pieces)
    }

    /// The checksum that a sample is still to be compared with, as its intervals have no stored checksums.
    pub(super) fn to_compare(&self, task: &Task) -> Option<Checksum> {
        let Task { sample, located, .. } = task;
        let container = self.samples.container(located);
        let is_due = self.samples.must_check(*sample, located)
            && !self.samples.is_verified(*sample)
            && container.stream().is_none()
            && container.intervals(located.index).is_some();
        located.sample.checksum.filter(|_| is_due)
    }

    /// Begins a read again whose sample is to be compared: one of the sample's intervals has changed.
    pub(super) fn read_anew(&self, mut task: Task) -> Step {
        let (sample, located, want) = (task.sample, task.located, task.want.clone());
        self.shelve(&mut task);
        drop(task);
        self.begin(sample, located, want)
    }

    /// Begins to compare a sample with its checksum; other reads of it follow this one.
    fn begin_compare(&self, mut task: Task) -> Step {
        let (key, asked) = (CacheKey::Sample(task.sample), task.want.end - task.want.start);
        let leader = match self.memory.cache().get_or_lead(key, asked) {
            CacheAnswer::InFlight(read) => {
                self.shelve(&mut task);
                return Step::Wait(read);
            }
            CacheAnswer::Lead(leader) => leader,
            // Only the intervals of such a sample are cached.
            CacheAnswer::Cached(_) | CacheAnswer::Prefetched(..) => {
                return self.fail(task, Fault::Damaged);
            }
        };
        let Some(expected) = self.to_compare(&task) else {
            // Another read was faster.
            drop(leader);
            return self.begin(task.sample, task.located, task.want.clone());
        };
        let all = 0..task.located.sample.size_bytes();
        let want = std::mem::replace(&mut task.want, all);
        self.compare(task, (want, leader), expected)
    }

    fn compare(
        &self,
        task: Task,
        (want, leader): (Range<u64>, Leader),
        expected: Checksum,
    ) -> Step {
        // A quarter of the memory is left to intervals that are decoded ahead.
        let is_too_large = task.want.end > self.memory.budget().cap_bytes() / 4 * 3;
        let compared = Some((expected, expected.hasher()));
        let generation = self.samples.generation();
        let made = Made { want, leader, compared, generation, is_too_large };
        match self.begin_with_prefix(&task, Pieces::compared(made)) {
            Ok(pieces) => self.next_interval(task, &IntervalSource::Container, pieces),
            Err(fault) => self.fail(task, fault),
        }
    }

    /// Compares a sample of which all pieces have come; then it is read as any other sample.
    fn after_compared(
        &self,
        mut task: Task,
        made: Made,
        (expected, hasher): (Checksum, Hasher),
    ) -> Step {
        let Made { want, leader, generation, .. } = made;
        // The followers of a read that failed find the fault in the list: the leader goes last.
        if let Err(mismatch) = expected.compare(hasher.finish()) {
            if self.distrusts_intervals(&mut task) {
                return self.compare(task, (want, leader), expected);
            }
            return self.fail(task, mismatch.into());
        }
        self.samples.stats().verified();
        self.samples.set_compared(task.sample, generation);
        drop(leader);
        self.begin(task.sample, task.located, want)
    }

    /// Forgets the intervals of a sample that does not match its checksum. Tells whether they may have come out of a cache, and
    /// should be fetched once more.
    fn distrusts_intervals(&self, task: &mut Task) -> bool {
        let (container, part) = (task.located.container, task.located.part);
        let is_second = std::mem::replace(&mut task.is_distrusted, true);
        let (mut at, mut may_be_cached, mut intervals) = (0, false, Vec::new());
        while let Ok(Some(found)) = self.part_at(task, &IntervalSource::Container, at) {
            intervals.push(found.number);
            self.memory.cache().forget(found.key);
            may_be_cached |= !is_second && self.samples.distrust(part, found.place.stored);
            at = found.file.end;
        }
        self.samples.forget_decoded(container, &intervals);
        may_be_cached
    }

    fn read_made(&self, mut task: Task) -> Step {
        let (key, asked) = (CacheKey::Sample(task.sample), task.want.end - task.want.start);
        let leader = match self.memory.cache().get_or_lead(key, asked) {
            CacheAnswer::Cached(Cached::Whole(made)) | CacheAnswer::Prefetched(made, ..) => {
                return self.answer_shared(&task.located, made, &task.want);
            }
            CacheAnswer::InFlight(read) => return Step::Wait(read),
            CacheAnswer::Lead(leader) => leader,
            // Such a sample is cached only whole.
            CacheAnswer::Cached(_) => return self.fail(task, Fault::Damaged),
        };
        let range = self.samples.container(&task.located).piece(task.located.index, 0);
        let length = match range {
            Ok(range) => range.map_or(0, |range| range.length_bytes),
            Err(error) => return self.fail(task, error.into()),
        };
        let want = std::mem::replace(&mut task.want, 0..length);
        let mut pieces = match self.begin_pieces(&task.want) {
            Ok(pieces) => pieces,
            Err(fault) => return self.fail(task, fault),
        };
        let generation = self.samples.generation();
        pieces.made = Some(Made { want, leader, compared: None, generation, is_too_large: false });
        self.next_interval(task, &IntervalSource::Container, pieces)
    }

    /// Answers with the complete range, or with the file that is made from it.
    pub(super) fn answer_intervals(&self, mut task: Task, mut pieces: Pieces) -> Step {
        // The memory is used again at once: new pages cost a fault each.
        self.shelve(&mut task);
        let Some(mut made) = pieces.made.take() else {
            if self.to_compare(&task).is_some() {
                return self.read_anew(task);
            }
            return self.answer_pieces(&task.want, pieces);
        };
        if let Some(compared) = made.compared.take() {
            return self.after_compared(task, made, compared);
        }
        let Made { want, leader, generation, .. } = made;
        let (length, size) = (task.want.end as usize, task.located.sample.size_bytes() as usize);
        let range = pieces.into_buffer();
        let mut made = match self.samples.buffer(size) {
            Ok(made) => made,
            Err(fault) => return self.fail(task, fault),
        };
        let decoded = shown::decode_in_stream(
            self.samples.container(&task.located),
            task.located.index,
            &range.as_slice()[..length],
            &mut made.as_mut_slice()[..size],
        );
        self.samples.buffers().give(range);
        // The followers of a read that failed find the fault in the list: the leader goes last.
        if let Err(fault) = decoded {
            return self.fail(task, fault);
        }
        if let Some(expected) = self.to_compare(&task) {
            if let Err(mismatch) = expected.check(&made.as_slice()[..size]) {
                return self.fail(task, mismatch.into());
            }
            self.samples.stats().verified();
            self.samples.set_compared(task.sample, generation);
        }
        let made = Arc::new(Verified::made(made, 0..size));
        leader.end_with(Cached::Whole(Arc::clone(&made)), want.end - want.start);
        self.answer_shared(&task.located, made, &want)
    }
}
