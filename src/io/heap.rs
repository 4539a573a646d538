//! The heap of the C library, and address space that is left to it where that is limited (`ulimit -v`): a small allocation
//! that fails ends the process without a word, and what is large can do without.

use memmap2::MmapMut;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use std::io;

/// What buffers and threads leave free: the stack of a thread, and what the heap grows by, several times.
const HEADROOM_BYTES: usize = 8 << 20;
/// What must be left, once a mount is made, for buffers of its reads and for samples that are kept.
const BUFFERS_BYTES: usize = 24 << 20;

/// Has large memory that is freed go back to the system at once, whichever thread frees it: what decoders use for a
/// moment would else stay with each thread that has ever decoded. Where address space is limited, all threads share one
/// heap: 64 MiB are reserved for another.
pub fn set_up() {
    #[cfg(target_env = "gnu")]
    {
        const LARGE_BYTES: i32 = 1 << 20;
        // SAFETY: it sets a number in the allocator, under the allocator's own lock.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) };
        if is_limited().unwrap_or(false) {
            // SAFETY: as above.
            unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
        }
    }
}

/// Looks whether there is room for more than small allocations.
///
/// # Errors
/// There is not (ENOMEM).
pub fn check_headroom() -> io::Result<()> {
    check(HEADROOM_BYTES)
}

/// Looks whether a mount whose threads have been started has room for what it reads.
///
/// # Errors
/// It has not (ENOMEM).
pub fn check_room_to_read() -> io::Result<()> {
    check(HEADROOM_BYTES + BUFFERS_BYTES)
}

/// As [`check_room_to_read`], of a mount that will also take so many bytes.
///
/// # Errors
/// It would not have (ENOMEM).
pub fn check_room_beside(bytes: usize) -> io::Result<()> {
    check(bytes.saturating_add(HEADROOM_BYTES + BUFFERS_BYTES))
}

fn check(bytes: usize) -> io::Result<()> {
    if is_limited()? {
        drop(MmapMut::map_anon(bytes)?);
    }
    Ok(())
}

/// Whether this process may only have so much address space.
///
/// # Errors
/// The limit cannot be read.
pub fn is_limited() -> io::Result<bool> {
    let (limit, _) = getrlimit(Resource::RLIMIT_AS)?;
    Ok(limit != RLIM_INFINITY)
}
