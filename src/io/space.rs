//! The space of a file system. Imports nothing of ours.

use std::io;
use std::path::Path;

/// The space of a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub total_bytes: u64,
    /// What a user other than root may still write.
    pub available_bytes: u64,
}

/// The space of the file system that holds `path`.
///
/// # Errors
/// The path does not exist, or the file system does not answer.
pub fn space(path: &Path) -> io::Result<Space> {
    let found = nix::sys::statvfs::statvfs(path)?;
    let block_bytes = found.fragment_size();
    Ok(Space {
        total_bytes: found.blocks().saturating_mul(block_bytes),
        available_bytes: found.blocks_available().saturating_mul(block_bytes),
    })
}
