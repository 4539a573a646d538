//! Reads samples as a mount does, on threads that may block.

use crate::vfs::{ReadRequest, Reply, Vfs};

/// Reads up to `length` bytes of a file from `offset`.
pub(crate) fn read_waiting(vfs: &Vfs, ino: u64, offset: u64, length: u64) -> Reply {
    let request = ReadRequest { ino, offset_bytes: offset, length_bytes: length };
    vfs.read_blocking(request, |span| {
        let part = vfs.store().part(span.part());
        let (offset_bytes, target) = span.target(1)?;
        part.read(target, offset_bytes, target.len())
    })
}
