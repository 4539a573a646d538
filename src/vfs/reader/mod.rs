//! Reads: the step machine over the samples, the caches and the prefetcher.

mod ahead;
mod answer;
mod begin;
mod decode;
mod in_memory;
mod interval_decode;
mod intervals;
mod machine;
mod pieces;
mod sparse;
mod stream;
mod task;
mod wait;

pub use ahead::{Ahead, DecodeAhead};
pub(super) use task::Payload;
pub use task::{Reply, Step, Task};

use super::Trace;
use super::checkpoints::CheckpointStore;
use super::memory::Memory;
use super::prefetch::Prefetch;
use super::samples::Samples;
use crate::io::Buffer;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use task::State;

/// The most that [`Task::span`] is aligned to.
const MAX_ALIGNMENT_BYTES: usize = 4096;

/// Reads samples.
pub(super) struct Reader {
    samples: Arc<Samples>,
    memory: Arc<Memory>,
    prefetch: Arc<Prefetch>,
    ahead: Ahead,
    /// Where checkpoints of large encoded samples are kept.
    checkpoints: OnceLock<Arc<dyn CheckpointStore>>,
    /// Where samples are decoded to that have no checkpoints.
    spool: OnceLock<PathBuf>,
    /// Four times what kept checkpoints of one sample may take, in bytes.
    checkpoint_bytes: u64,
}

impl Reader {
    pub(super) fn new(
        samples: Arc<Samples>,
        memory: Arc<Memory>,
        prefetch: Arc<Prefetch>,
        trace: Arc<Trace>,
    ) -> Self {
        let (checkpoints, spool) = (OnceLock::new(), OnceLock::new());
        let checkpoint_bytes = memory.budget().cap_bytes();
        let ahead = Ahead::new(Arc::clone(&samples), Arc::clone(&memory), trace);
        Self { samples, memory, prefetch, ahead, checkpoints, spool, checkpoint_bytes }
    }

    /// What is decoded ahead.
    pub(super) fn ahead(&self) -> &Ahead {
        &self.ahead
    }

    /// Says where checkpoints are kept. The first call counts.
    pub(super) fn keep_checkpoints(&self, store: Arc<dyn CheckpointStore>) {
        let _ = self.checkpoints.set(store);
    }

    /// Says in which directory samples are spooled. The first call counts.
    pub(super) fn spool_to(&self, directory: PathBuf) {
        let _ = self.spool.set(directory);
    }

    /// Offers a task memory to fetch into, such as where the answer must lie. It is taken if the bytes fit
    /// and are for this answer alone; otherwise it is dropped.
    pub(super) fn lend(&self, task: &mut Task, memory: Buffer) {
        // With what the fetch may have to begin before and end behind it.
        let fits = task.span.length() + 2 * MAX_ALIGNMENT_BYTES <= memory.capacity();
        if task.leader.is_none() && !matches!(task.state, State::Block(_)) && fits {
            self.samples.buffers().give(task.span.swap_buffer(memory));
        }
    }

    /// Takes the right to memory for what a task fetches; false if too much is being fetched.
    pub(super) fn take_room(&self, task: &mut Task) -> bool {
        task.room = self.memory.fetching().reserve(task.span.length() as u64);
        task.room.is_some()
    }

    /// Gives a task's memory back while it waits in a queue.
    pub(super) fn shelve(&self, task: &mut Task) {
        self.samples.buffers().give(task.span.swap_buffer(Buffer::empty()));
    }

    /// Gives it memory again, what this thread used last: new pages cost a fault each.
    pub(super) fn unshelve(&self, task: &mut Task) {
        task.span.put_buffer(self.samples.buffers().take_any());
    }
}
