//! Fetches announced chunks into the cache in the background: far ahead of the readers, as fast as the limit of
//! requests allows, and after all demands. Imports the fetcher.

use super::fetch::Fetcher;
use crate::store::remote::engine::Flow;
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::runtime::Handle;

/// Announced chunks, in reading order.
pub(in crate::store::remote) struct Fill {
    flow: Arc<Flow>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    chunks: VecDeque<(Weak<Fetcher>, u64)>,
    is_running: bool,
}

impl Fill {
    pub(in crate::store::remote) fn new(flow: Arc<Flow>) -> Arc<Self> {
        Arc::new(Self { flow, queue: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a chunk.
    pub(super) fn add(self: &Arc<Self>, runtime: &Handle, fetcher: &Arc<Fetcher>, chunk: u64) {
        let mut queue = self.lock();
        queue.chunks.push_back((Arc::downgrade(fetcher), chunk));
        if !std::mem::replace(&mut queue.is_running, true) {
            runtime.spawn(Arc::clone(self).run());
        }
    }

    /// Begins one fetch after the other, each when it gets a permit.
    async fn run(self: Arc<Self>) {
        let (is_urgent, mut permit) = (Arc::new(AtomicBool::new(false)), None);
        loop {
            let turn = match permit.take() {
                Some(permit) => permit,
                None => self.flow.enter(&is_urgent).await,
            };
            let next = {
                let mut queue = self.lock();
                let next = queue.chunks.pop_front();
                queue.is_running = next.is_some();
                next
            };
            let Some((fetcher, chunk)) = next else { return };
            permit = match fetcher.upgrade() {
                Some(fetcher) => fetcher.fill(chunk, turn),
                None => Some(turn),
            };
        }
    }
}
