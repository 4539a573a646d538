//! Writes fetched bytes into the cache, on threads that may block, while the next bytes arrive. Imports the cache.

use crate::store::cache::Fetching;
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use tokio::task::{JoinHandle, spawn_blocking};

/// The number of bytes that are written at a time.
const BATCH_BYTES: u64 = 256 << 10;

/// Called for each block once it can be read from the file, on a thread that may block.
type Published = Arc<dyn Fn(Range<u64>) + Send + Sync>;

/// Caches the bytes of one fetch.
pub(super) struct Keeper {
    published: Published,
    batch: Vec<(u64, Bytes)>,
    batch_bytes: u64,
    /// `None` while a thread writes the blocks, or if the cache takes no blocks.
    blocks: Option<VecDeque<Fetching>>,
    writing: Option<JoinHandle<VecDeque<Fetching>>>,
}

impl Keeper {
    /// A keeper for these blocks, which are adjacent.
    pub(super) fn new(
        blocks: Vec<Fetching>,
        published: impl Fn(Range<u64>) + Send + Sync + 'static,
    ) -> Self {
        let blocks = (!blocks.is_empty()).then(|| blocks.into());
        let (published, batch) = (Arc::new(published), Vec::new());
        Self { published, batch, batch_bytes: 0, blocks, writing: None }
    }

    /// Takes the next bytes. Waits if the disk is slower than the store.
    pub(super) async fn push(&mut self, offset: u64, piece: Bytes) {
        if self.blocks.is_none() && self.writing.is_none() {
            return;
        }
        self.batch_bytes += piece.len() as u64;
        self.batch.push((offset, piece));
        if self.batch_bytes >= BATCH_BYTES {
            self.flush().await;
        }
    }

    async fn flush(&mut self) {
        if let Some(writing) = self.writing.take() {
            self.blocks = writing.await.ok().filter(|blocks| !blocks.is_empty());
        }
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let Some(mut blocks) = self.blocks.take().filter(|_| !batch.is_empty()) else { return };
        let published = Arc::clone(&self.published);
        self.writing = Some(spawn_blocking(move || {
            for (offset, piece) in batch {
                write(&published, &mut blocks, offset, &piece);
            }
            blocks
        }));
    }

    /// Writes the remaining bytes.
    pub(super) async fn finish(mut self) {
        while self.writing.is_some() || !self.batch.is_empty() {
            self.flush().await;
            if self.blocks.is_none() && self.writing.is_none() {
                return;
            }
        }
    }
}

/// Writes a piece into the blocks that it touches, and publishes those that are whole. If a write fails, the remaining
/// blocks stay absent.
fn write(published: &Published, blocks: &mut VecDeque<Fetching>, offset: u64, piece: &Bytes) {
    while let Some(block) = blocks.front_mut() {
        let range = block.range();
        if range.start >= offset + piece.len() as u64 {
            return;
        }
        if let Err(error) = block.write(offset, piece) {
            tracing::debug!("not cached: {error}");
            return blocks.clear();
        }
        if block.next() < range.end {
            return;
        }
        let Some(whole) = blocks.pop_front() else { return };
        if let Err(error) = whole.publish() {
            tracing::debug!("not cached: {error}");
            return blocks.clear();
        }
        published(range);
    }
}
