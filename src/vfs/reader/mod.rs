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

/// The largest alignment of [`Task::span`], in bytes.
const MAX_ALIGNMENT_BYTES: usize = 4096;

/// Reads samples.
pub(super) struct Reader {
    samples: Arc<Samples>,
    memory: Arc<Memory>,
    prefetch: Arc<Prefetch>,
    ahead: Ahead,
    /// The store that keeps checkpoints of large encoded samples.
    checkpoints: OnceLock<Arc<dyn CheckpointStore>>,
    /// The directory of the spools, to which samples without checkpoints are decoded.
    spool: OnceLock<PathBuf>,
    /// Four times the most memory of the kept checkpoints of one sample, in bytes.
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

    /// The intervals that are decoded ahead.
    pub(super) fn ahead(&self) -> &Ahead {
        &self.ahead
    }

    /// Sets the store that keeps checkpoints. The first call counts.
    pub(super) fn keep_checkpoints(&self, store: Arc<dyn CheckpointStore>) {
        let _ = self.checkpoints.set(store);
    }

    pub(super) fn finish_checkpoints(&self) {
        if let Some(store) = self.checkpoints.get() {
            store.finish();
        }
    }

    /// Sets the directory of the spools. The first call counts.
    pub(super) fn spool_to(&self, directory: PathBuf) {
        let _ = self.spool.set(directory);
    }

    /// Offers a task memory to fetch into, such as the memory that the answer is sent from. The task takes it if the
    /// bytes fit and are for this answer alone; otherwise the memory is dropped.
    pub(super) fn lend(&self, task: &mut Task, memory: Buffer) {
        // With the bytes before and behind the span that an aligned fetch may need.
        let fits = task.span.length() + 2 * MAX_ALIGNMENT_BYTES <= memory.capacity();
        if task.leader.is_none() && !matches!(task.state, State::Block(_)) && fits {
            self.samples.buffers().give(task.span.swap_buffer(memory));
        }
    }

    /// Takes the right to memory for the bytes that a task fetches; false if too many bytes are being fetched.
    pub(super) fn take_room(&self, task: &mut Task) -> bool {
        task.room = self.memory.fetching().reserve(task.span.length() as u64);
        task.room.is_some()
    }

    /// Gives a task's memory back while it waits in a queue.
    pub(super) fn shelve(&self, task: &mut Task) {
        self.samples.buffers().give(task.span.swap_buffer(Buffer::empty()));
    }

    /// Gives a task memory again, the buffer that this thread used last: new pages cost a fault each.
    pub(super) fn unshelve(&self, task: &mut Task) {
        task.span.put_buffer(self.samples.buffers().take_any());
    }
}
