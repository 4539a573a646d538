//! Kernel ↔ vfs. Thin: what a request means is decided in [`crate::vfs`].
//!
//! [`devfuse`] serves requests from /dev/fuse through fuser, a thread a CPU. [`Mounted`] is a mount with
//! its transport, whichever it is.

pub mod devfuse;
mod mount;
mod workers;

pub use mount::{MountError, MountOptions, Mounted};
