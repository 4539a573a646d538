//! Reads of samples of a compressed stream: ranges of it, ranges behind a prefix, and files that are made from a range.
//!
//! What is made is cached whole; all else of a stream is cached by its intervals.

use super::Reader;
use super::interval_decode::IntervalSource;
use super::pieces::{Made, Pieces};
use super::task::{Step, Task};
use crate::format::{Content, Fault, shown};
use crate::vfs::memory::cache::{CacheAnswer, CacheKey, Cached};
use crate::vfs::memory::verified::Verified;
use std::sync::Arc;

impl Reader {
    /// Reads the wanted range of the file of a sample that lies in a compressed stream.
    pub(super) fn read_stream(&self, task: Task) -> Step {
        let container = self.samples.container(&task.located);
        match container.content_in_stream(task.located.index) {
            Ok(Content::Stored | Content::Sparse(_)) => {
                self.read_intervals(task, &IntervalSource::Container)
            }
            Ok(Content::Prefixed(_)) => self.read_behind_prefix(task),
            Ok(Content::Encoded(_)) => self.read_made(task),
            Err(error) => self.fail(task, error.into()),
        }
    }

    fn read_behind_prefix(&self, task: Task) -> Step {
        let prefix = match self.samples.container(&task.located).prefix(task.located.index) {
            Ok(prefix) => prefix,
            Err(error) => return self.fail(task, error.into()),
        };
        let mut pieces = match self.begin_pieces(&task.want) {
            Ok(pieces) => pieces,
            Err(fault) => return self.fail(task, fault),
        };
        let end = (prefix.len() as u64).min(task.want.end);
        if let Some(wanted) = prefix.get(task.want.start as usize..end as usize) {
            pieces.copy(&task.want, task.want.start, wanted);
        }
        self.next_interval(task, &IntervalSource::Container, pieces)
    }

    fn read_made(&self, mut task: Task) -> Step {
        let (key, asked) = (CacheKey::Sample(task.sample), task.want.end - task.want.start);
        let leader = match self.memory.cache().get_or_lead(key, asked) {
            CacheAnswer::Cached(Cached::Whole(made)) | CacheAnswer::Prefetched(made, _) => {
                return self.answer_shared(&task.located, made, &task.want);
            }
            CacheAnswer::InFlight(read) => return Step::Wait(read),
            CacheAnswer::Lead(leader) => leader,
            // Nothing else is cached of such a sample.
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
        pieces.made = Some(Made { want, leader });
        self.next_interval(task, &IntervalSource::Container, pieces)
    }

    /// Answers when the wanted range is complete, or what is made from it.
    pub(super) fn answer_intervals(&self, mut task: Task, mut pieces: Pieces) -> Step {
        // Used again at once: new pages cost a fault each.
        self.shelve(&mut task);
        let Some(Made { want, leader }) = pieces.made.take() else {
            return self.answer_pieces(&task.want, pieces);
        };
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
        let made = Arc::new(Verified::made(made, 0..size));
        leader.end_with(Cached::Whole(Arc::clone(&made)), want.end - want.start);
        self.answer_shared(&task.located, made, &want)
    }
}
