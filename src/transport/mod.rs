//! Kernel ↔ vfs. Thin: what a request means is decided in [`crate::vfs`].
//!
//! `devfuse` serves requests from /dev/fuse through fuser, a thread a CPU; `uring` serves them through
//! FUSE-over-io_uring, a queue a CPU; `offer` says what keeps a host from that. [`Mounted`] is a mount with
//! its transport, whichever it is.

mod devfuse;
mod lane;
mod mount;
pub mod offer;
mod prefetch;
mod reads;
mod undo;
mod uring;
mod wire;
mod workers;

pub use devfuse::MAX_BACKGROUND;
pub use mount::{MountError, MountOptions, Mounted, Readdirplus, Target, Transport};
pub use uring::offer as uring_offer;
