//! The values of the sample cache, which are also given to the followers of the read that brought them.

use super::block_checksums::BlockChecksums;
use super::verified::Verified;
use crate::vfs::checkpoints::Checkpoints;
use std::sync::Arc;

/// The value that is cached under a key.
#[derive(Clone)]
pub(in crate::vfs) enum Cached {
    /// All bytes of the sample, or of the interval.
    Whole(Arc<Verified>),
    /// The checksums of a large sample's blocks.
    Checksums(Arc<BlockChecksums>),
    /// The checkpoints of a large encoded sample.
    Checkpoints(Arc<Checkpoints>),
}

impl Cached {
    /// The memory that the value takes, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Cached::Whole(verified) => verified.capacity(),
            Cached::Checksums(checksums) => checksums.memory_bytes(),
            Cached::Checkpoints(checkpoints) => checkpoints.memory_bytes(),
        }
    }
}
