//! The end of a read: the answer, or the sample listed as bad.

use super::Reader;
use super::pieces::Pieces;
use super::task::{Payload, Reply, Step, Task};
use crate::catalog::Located;
use crate::format::Fault;
use crate::io::Buffer;
use crate::vfs::Errno;
use crate::vfs::memory::verified::Verified;
use crate::vfs::samples::check::stored_range;
use std::ops::Range;
use std::sync::Arc;

impl Reader {
    /// Answers with the wanted part of the bytes that were fetched, and checked if a check was due.
    pub(super) fn answer_stored(&self, mut task: Task) -> Step {
        let stored = task.span.place_of(&stored_range(&task.located.sample, &task.want));
        if (stored.len() as u64) < task.want.end - task.want.start {
            let bytes = &task.span.unchecked()[stored];
            let step = self.answer_behind_prefix(&task.located, &task.want, bytes);
            self.shelve(&mut task);
            return step;
        }
        self.samples.stats().served(task.want.end - task.want.start);
        Step::done(Payload::Fetched(task.span.swap_buffer(Buffer::empty()), stored))
    }

    /// Answers with the end of the prefix that the view puts before the stored bytes, and the first stored bytes.
    pub(super) fn answer_behind_prefix(
        &self,
        located: &Located,
        want: &Range<u64>,
        stored: &[u8],
    ) -> Step {
        let Ok(prefix) = self.samples.prefix(located) else { return Step::failed(Errno::EIO) };
        let end = prefix.len().min(want.end as usize);
        let mut bytes = prefix[want.start as usize..end].to_vec();
        bytes.extend_from_slice(stored);
        self.samples.stats().served(bytes.len() as u64);
        Step::done(Payload::Own(bytes))
    }

    /// Answers with a sample that no other read follows.
    pub(super) fn answer_own(&self, task: &Task, verified: Verified) -> Step {
        self.samples.stats().served(task.want.end - task.want.start);
        let (buffer, all) = verified.into_buffer();
        let range = all.start + task.want.start as usize..all.start + task.want.end as usize;
        Step::done(Payload::Fetched(buffer, range))
    }

    pub(super) fn answer_shared(
        &self,
        located: &Located,
        verified: Arc<Verified>,
        want: &Range<u64>,
    ) -> Step {
        let range = want.start as usize..want.end as usize;
        if verified.bytes().len() as u64 != located.sample.size_bytes() {
            // The index tells another size than when the sample was fetched: the container was rewritten.
            self.samples.stats().io_error();
            return Step::failed(Errno::EIO);
        }
        self.samples.stats().served(want.end - want.start);
        Step::done(Payload::Shared(verified, range))
    }

    /// Answers with bytes of an interval.
    pub(super) fn answer_decoded(
        &self,
        mut task: Task,
        decoded: Arc<Verified>,
        first: u64,
    ) -> Step {
        let length = task.want.end - task.want.start;
        self.samples.stats().served(length);
        self.shelve(&mut task);
        let first = first as usize;
        Step::done(Payload::Shared(decoded, first..first + length as usize))
    }

    pub(super) fn answer_pieces(&self, want: &Range<u64>, pieces: Pieces) -> Step {
        let length = (want.end - want.start) as usize;
        self.samples.stats().served(length as u64);
        Step::done(Payload::Fetched(pieces.into_buffer(), 0..length))
    }

    /// Ends a read of a sample that is bad.
    pub(super) fn fail(&self, mut task: Task, fault: Fault) -> Step {
        // First the list, then (with the task) the leader: the followers find the fault in the list.
        let step = self.refuse(task.sample, task.located, fault);
        self.shelve(&mut task);
        step
    }

    /// Lists a sample as bad.
    pub(super) fn refuse(&self, sample: u64, located: Located, fault: Fault) -> Step {
        self.samples.add_bad(sample, located, fault);
        Step::failed(Errno::EIO)
    }

    /// Takes an answer back once it was sent.
    pub(in crate::vfs) fn finish(&self, reply: Reply) {
        match reply.0 {
            Ok(Payload::Fetched(buffer, _)) => self.samples.buffers().give(buffer),
            Ok(Payload::Shared(verified, _)) => {
                if let Some(verified) = Arc::into_inner(verified) {
                    self.samples.buffers().give(verified.into_buffer().0);
                }
            }
            Ok(
                Payload::Nothing | Payload::Own(_) | Payload::Control(..) | Payload::Unchecked(..),
            )
            | Err(_) => {}
        }
    }
}
