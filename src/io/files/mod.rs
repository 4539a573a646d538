//! Files: positioned reads past the page cache and through it, guarded mappings, pools of open files, locks, and disk space.

pub mod beneath;
mod direct;
mod file;
mod free_name;
mod mapping;
mod pool;
pub mod probe;
mod range_lock;
mod read_fault;
mod reading;
mod residency;
mod space;
mod user_directory;
mod version;
mod writable;
mod write;

pub use direct::{Access, Io};
pub use file::{File, Held, ReadError};
pub use free_name::rename_to_free;
pub use mapping::Mapping;
pub use pool::Pool;
pub use range_lock::{is_range_locked, share_range, try_lock_range, unlock_range};
pub use reading::{Kept, Reading, wait_for_readings};
pub use space::{Space, space};
pub use user_directory::{cache_directory, user_cache_directory, user_state_directory};
pub use version::{Change, FileVersion};
pub use writable::{check_makeable, check_writable};
pub use write::{preallocate, punch_hole, start_writing};
