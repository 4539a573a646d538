//! What is kept under a key of the sample cache, and given to those who followed the read that brought it.

use super::block_checksums::BlockChecksums;
use super::verified::Verified;
use crate::vfs::checkpoints::Checkpoints;
use std::sync::Arc;

/// What is cached under a key.
#[derive(Clone)]
pub(in crate::vfs) enum Cached {
    /// All bytes of the sample, or of the interval.
    Whole(Arc<Verified>),
    /// The checksums of a large sample's blocks.
    Checksums(Arc<BlockChecksums>),
    /// Where a large encoded sample can be decoded from.
    Checkpoints(Arc<Checkpoints>),
}

impl Cached {
    /// The memory that it takes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Cached::Whole(verified) => verified.capacity(),
            Cached::Checksums(checksums) => checksums.memory_bytes(),
            Cached::Checkpoints(checkpoints) => checkpoints.memory_bytes(),
        }
    }
}
