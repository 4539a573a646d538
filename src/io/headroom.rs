//! Address space that is left to the allocator where it is limited (`ulimit -v`): a small allocation that fails ends the
//! process without a word, and what is large can do without.

use memmap2::MmapMut;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use std::io;

/// What buffers and threads leave free: the stack of a thread, and what the allocator takes at a time, several times.
const HEADROOM_BYTES: usize = 8 << 20;

/// Looks whether there is room for more than small allocations.
///
/// # Errors
/// There is not (ENOMEM).
pub fn check() -> io::Result<()> {
    let (limit, _) = getrlimit(Resource::RLIMIT_AS)?;
    if limit != RLIM_INFINITY {
        drop(MmapMut::map_anon(HEADROOM_BYTES)?);
    }
    Ok(())
}
