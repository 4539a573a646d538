//! System calls: page-aligned buffers, positioned reads, guarded mappings, processes, the mount table.
//!
//! Imports only from [`crate::format`]. The only room with `unsafe`; each block names its invariant and
//! who upholds it, and nothing unsafe is needed by callers.

mod announce;
pub mod beneath;
mod buffer;
pub mod cgroup;
pub mod confine;
pub mod descriptor_store;
mod direct;
mod file;
pub mod footprint;
pub mod fuse_connection;
pub mod fusermount;
pub mod heap;
mod helper;
mod lasting_helper;
mod mapping;
pub mod mount_id;
pub mod mounts;
mod page;
pub mod passed_connection;
mod pool;
pub mod probe;
pub mod process;
pub mod procfs;
mod range_lock;
mod read_fault;
mod reading;
mod residency;
pub mod ring;
mod slab;
mod space;
pub mod spin;
#[cfg(test)]
pub(crate) mod testing;
mod user_directory;
pub mod workers;
mod write;

pub use announce::{ControlRequest, MAX_ANNOUNCEMENT_BYTES, announce, drop_orders, warm_up};
pub use buffer::{Buffer, BufferPool};
pub use direct::{Access, Io};
pub use file::{Change, File, FileVersion, Held, ReadError};
pub use helper::Helper;
pub use lasting_helper::LastingHelper;
pub use mapping::Mapping;
pub use page::page_bytes;
pub use pool::Pool;
pub use range_lock::{is_range_locked, share_range, try_lock_range, unlock_range};
pub use reading::{Kept, Reading, wait_for_readings};
pub use slab::give_back_idle;
pub use space::{Space, space};
pub use user_directory::{cache_directory, user_cache_directory, user_state_directory};
pub use write::{preallocate, punch_hole, start_writing};
