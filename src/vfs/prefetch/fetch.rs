//! Prefetches and prefetched samples, as the transport holds them.

use super::queue::{Again, Counts, add};
use crate::catalog::{Located, Node};
use crate::vfs::inode::Inode;
use crate::vfs::memory::blocks::BlockLeader;
use crate::vfs::memory::cache::Leader;
use crate::vfs::memory::chunk::Rights;
use crate::vfs::memory::verified::Verified;
use crate::vfs::span::Span;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// A read to do ahead of its time. Owned by the thread that does it; dropped, it ends the in-flight reads that it
/// leads.
pub struct Fetch {
    pub(super) span: Span,
    pub(super) target: Target,
    pub(super) is_announced: bool,
    /// Whether the sample was looked up: its reader follows at once, so the kernel's page cache need not be given the sample.
    pub(super) is_looked_up: bool,
    pub(super) again: Again,
    pub(super) since: Instant,
    pub(super) _in_flight: InFlightCount,
}

/// The target of a fetch.
pub(super) enum Target {
    Samples(Vec<(u64, Located, Leader)>, Rights),
    Block(BlockLeader),
    /// The number of samples, for a cache of the node.
    Cache(u64),
}

impl Fetch {
    /// The range to fetch, and the memory for it.
    pub fn span(&mut self) -> &mut Span {
        &mut self.span
    }

    /// Whether the bytes belong into a cache of the node, and need not be read.
    #[must_use]
    pub fn is_fill(&self) -> bool {
        matches!(self.target, Target::Cache(_))
    }
}

/// Counts samples as being prefetched, as long as this lives.
pub(super) struct InFlightCount(Arc<Counts>, u64);

impl InFlightCount {
    pub(super) fn new(counts: &Arc<Counts>, samples: u64) -> Self {
        add(&counts.in_flight, samples);
        Self(Arc::clone(counts), samples)
    }
}

impl Drop for InFlightCount {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// A prefetched sample for the kernel's page cache.
pub struct Delivery {
    pub(super) sample: u64,
    pub(super) verified: Arc<Verified>,
    /// A warm-up is not over before the kernel has the sample.
    pub(super) _in_flight: InFlightCount,
}

impl Delivery {
    /// The sample's inode.
    #[must_use]
    pub fn ino(&self) -> u64 {
        Inode::Node(Node::Sample(self.sample)).number()
    }

    /// All bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.verified.bytes()
    }
}

/// A read that waits for the disk, as long as this lives.
pub(in crate::vfs) struct WaitingRead(Arc<Counts>);

impl WaitingRead {
    pub(super) fn new(counts: &Arc<Counts>) -> Self {
        add(&counts.waiting_reads, 1);
        Self(Arc::clone(counts))
    }
}

impl Drop for WaitingRead {
    fn drop(&mut self) {
        self.0.waiting_reads.fetch_sub(1, Ordering::Relaxed);
    }
}
