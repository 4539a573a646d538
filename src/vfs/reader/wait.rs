//! A read that must wait for the disk fetches more bytes than it needs, or follows a read that fetches them.

use super::Reader;
use super::task::{State, Step, Task, Wait};
use crate::format::Content;
use crate::vfs::memory::blocks::BlockAnswer;
use crate::vfs::memory::cache::CacheKey;
use std::time::Instant;

impl Reader {
    /// Decides which fetch or other read a task waits for: its span is not in the page cache, so it must wait for the disk.
    pub(in crate::vfs) fn must_wait(&self, mut task: Task) -> Step {
        if std::mem::replace(&mut task.waits, true) {
            return Step::Read(task);
        }
        self.prefetch.demanded(task.sample, &task.located);
        let _waiting = self.prefetch.waiting_read();
        task.wait = Some(Box::new(Wait { since: Instant::now(), _waiting, leader: None }));
        let at = task.located.sample;
        if matches!(task.state, State::Header) && self.takes_whole(&at, &task.want) {
            task.state = State::Whole(None);
            task.span.set_range(at.extent());
        }
        // Only pieces or intervals of such a sample are fetched: neither a block around it nor the whole.
        if matches!(at.content, Content::Sparse(_)) || matches!(task.state, State::Interval(..)) {
            return Step::Read(task);
        }
        if !self.prefetch.takes_blocks() || !self.memory.is_small(&at) {
            return self.lead_alone(task);
        }
        let blocks = self.memory.blocks();
        let Some(id) = blocks.around(task.located.part, &at.extent()) else {
            return self.lead_alone(task);
        };
        match blocks.get_or_lead(id, at.stored_share(task.want.end - task.want.start)) {
            BlockAnswer::Lead(leader) => {
                let container_bytes = self.samples.bytes_of(task.located.part);
                task.span.set_range(blocks.range(id, container_bytes));
                task.state = State::Block(leader);
                self.shelve(&mut task);
                Step::Read(task)
            }
            BlockAnswer::InFlight(read) => {
                // The followers of this task go on with the block, too.
                self.shelve(&mut task);
                Step::Wait(read)
            }
            BlockAnswer::Held(chunk, _) => {
                let step = self.in_block(task.sample, &task.located, &task.want, (id, &chunk));
                step.unwrap_or_else(|| self.lead_alone(task))
            }
            BlockAnswer::Refused => self.lead_alone(task),
        }
    }

    /// Fetches the task's span; waits if the whole sample is wanted and another read fetches it already.
    fn lead_alone(&self, mut task: Task) -> Step {
        if task.leader.is_none() && self.takes_whole(&task.located.sample, &task.want) {
            match self.memory.cache().lead(CacheKey::Sample(task.sample)) {
                Ok(leader) => {
                    if let Some(wait) = &mut task.wait {
                        wait.leader = Some(leader);
                    }
                }
                Err(read) => {
                    self.shelve(&mut task);
                    return Step::Wait(read);
                }
            }
        }
        Step::Read(task)
    }
}
