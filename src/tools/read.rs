//! Reading samples as a mount does, by threads that may wait.

use crate::io::File;
use crate::vfs::{Reply, Step, Vfs};
use std::sync::Arc;

/// Up to `length` bytes of a file, from `offset` on.
pub(crate) fn read_waiting(
    vfs: &Vfs,
    files: &[Arc<File>],
    ino: u64,
    offset: u64,
    length: u64,
) -> Reply {
    let mut step = vfs.read(ino, offset, length);
    loop {
        step = match step {
            Step::Done(reply) => return reply,
            Step::Read(mut task) => {
                let span = task.span();
                let file = &files[span.part()];
                let (offset_bytes, target) = span.target(1);
                let fetched = file.read(target, offset_bytes, target.len());
                vfs.resume(task, fetched)
            }
            Step::Wait(flight) => {
                let (landed, wait) = crossbeam_channel::bounded(1);
                flight.when_landed(move || {
                    let _ = landed.send(());
                });
                // It cannot be lost: a flight lands whatever becomes of who fetches.
                let _ = wait.recv();
                vfs.read(ino, offset, length)
            }
        }
    }
}
