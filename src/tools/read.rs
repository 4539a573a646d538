//! Reading samples as a mount does, by threads that may wait.

use crate::io::File;
use crate::vfs::{ReadRequest, Reply, Vfs};
use std::sync::Arc;

/// Up to `length` bytes of a file, from `offset` on.
pub(crate) fn read_waiting(
    vfs: &Vfs,
    files: &[Arc<File>],
    ino: u64,
    offset: u64,
    length: u64,
) -> Reply {
    let request = ReadRequest { ino, offset_bytes: offset, length_bytes: length };
    vfs.read_blocking(request, |span| {
        let file = &files[span.part()];
        let (offset_bytes, target) = span.target(1);
        file.read(target, offset_bytes, target.len())
    })
}
