//! System calls: page-aligned buffers (`memory`), positioned reads and guarded mappings (`files`), the `ring`, processes
//! (`process`), the mount table (`mount`), and the confinement of a daemon (`confine`).
//!
//! Imports only from [`crate::format`]. The only room with `unsafe`; each block names its invariant and
//! who upholds it, and nothing unsafe is needed by callers.

mod announce;
pub mod confine;
pub mod files;
pub mod memory;
pub mod mount;
pub mod process;
pub mod ring;
pub mod spin;
#[cfg(test)]
pub(crate) mod testing;

pub use announce::{ControlRequest, MAX_ANNOUNCEMENT_BYTES, announce, drop_all, warm_up};
pub use files::{
    Access, Change, File, FileVersion, Held, Io, Kept, Mapping, Pool, ReadError, Reading, Space,
    cache_directory, check_makeable, check_writable, is_range_locked, preallocate, punch_hole,
    rename_to_free, share_range, space, start_writing, try_lock_range, unlock_range,
    user_cache_directory, user_state_directory, wait_for_readings,
};
pub use memory::{Buffer, BufferPool, give_back_idle, page_bytes};
pub use process::{Helper, LastingHelper};

/// The text of messages where the system starts no thread.
pub(crate) const NO_THREAD: &str =
    "no thread can be started (ulimit -u, ulimit -v, pids.max of the cgroup)";
