//! Kernel ↔ vfs. Thin: what a request means is decided in [`crate::vfs`].
//!
//! `ops` answers decoded requests. `devfuse` decodes those that come from /dev/fuse through fuser, a thread
//! a CPU, and encodes the answers; `uring` and `queue` do so for FUSE-over-io_uring, a queue a CPU; `support`
//! says what keeps a host from that. [`Mounted`] is a mount with its transport, whichever it is.
//!
//! Imports from [`crate::vfs`], [`crate::store`] and [`crate::io`]; `reads` also the trait of sources in
//! [`crate::format`].

mod devfuse;
mod ending;
mod invalidate;
mod mount;
mod negotiation;
mod ops;
mod options;
mod prefetch;
mod queue;
mod reads;
pub mod support;
mod uring;
mod watch;
pub mod wire;
mod workers;

pub use mount::{MountError, Mounted, ServeError, Target};
pub use negotiation::MAX_BACKGROUND;
pub use options::{MountOptions, Readdirplus, Transport};
pub use uring::uring_support;

#[cfg(test)]
mod tests;
