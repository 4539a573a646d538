//! Finds the checkpoints of large compressed members before the first mount.

use crate::catalog::{Catalog, Dataset};
use crate::dataset::{self, KeptCheckpoints, Opened};
use crate::failure::Failure;
use crate::format::{self, Content};
use crate::interrupt::Interrupt;
use crate::tools::progress;
use crate::tools::read::read_waiting;
use crate::vfs::{Options, inode_of_sample};
use std::sync::Arc;

/// Members up to this size are decoded as a whole, and need no checkpoints.
const DECODED_AT_ONCE_BYTES: u64 = 4 << 20;

/// Decodes each large compressed member once to find and write its checkpoints. A member that cannot be read is logged
/// with the reason. Returns the number of members whose checkpoints could not be written.
///
/// # Errors
/// A container was changed so that its index cannot be read; or the user has interrupted the work.
pub(crate) fn find_checkpoints(
    opened: Opened,
    catalog: Catalog,
    options: &dataset::Options,
    interrupt: &Interrupt,
) -> Result<u64, Failure> {
    let large = large_members(&opened.dataset)?;
    let vfs = opened.into_vfs(catalog, Options::default());
    let Some(kept) = KeptCheckpoints::new(vfs.store(), &options.indexes, &options.format) else {
        return Ok(0);
    };
    let kept = Arc::new(kept);
    vfs.keep_checkpoints(Arc::clone(&kept) as Arc<_>);
    let bytes = large.iter().map(|(_, size_bytes)| size_bytes).sum();
    let progress = progress::of_large_members(bytes);
    for (sample, size_bytes) in large {
        interrupt.check()?;
        // Reading the last byte decodes the whole member.
        vfs.finish(read_waiting(&vfs, inode_of_sample(sample), size_bytes - 1, 1));
        progress.inc(size_bytes);
    }
    progress.finish_and_clear();
    vfs.finish_checkpoints();
    Ok(kept.failures())
}

/// The samples that need checkpoints, with their sizes in bytes.
fn large_members(dataset: &Dataset) -> format::Result<Vec<(u64, u64)>> {
    let mut large = Vec::new();
    let containers = dataset.containers().iter().enumerate();
    for (number, container) in containers.filter(|(_, container)| container.has_decoders()) {
        for index in 0..container.len() {
            let at = container.sample(index)?;
            if matches!(at.content, Content::Encoded(size) if size > DECODED_AT_ONCE_BYTES)
                && container.intervals(index).is_none()
                && container.may_keep_checkpoints(index)
            {
                large.push((dataset.number(number, index), at.size_bytes()));
            }
        }
    }
    Ok(large)
}
