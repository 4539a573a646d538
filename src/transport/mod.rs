//! Kernel ↔ vfs. Thin: [`crate::vfs`] decides what a request means.
//!
//! `dispatch` decodes requests, has `ops` answer them, and encodes the answers. They come over /dev/fuse (`connection`,
//! `devfuse`), with a thread for each CPU, or by FUSE-over-io_uring (`uring`, `queue`), with a queue for each; `support` says
//! why a host cannot use the latter. Threads that serve no request fetch (`prefetch`) and decode (`decode`) ahead. `interrupts`
//! ends reads whose reader is killed. [`Mounted`] is a mount with its transport of either kind.
//!
//! Imports from [`crate::vfs`], [`crate::store`] and [`crate::io`]; `reads` also the trait of sources in
//! [`crate::format`].

mod connection;
mod decode;
mod devfuse;
mod dispatch;
mod ending;
mod handover;
mod interrupts;
mod invalidate;
mod leaving;
mod mount;
mod negotiation;
mod ops;
mod options;
mod prefetch;
#[cfg(feature = "test-hooks")]
mod provoked;
mod queue;
mod reads;
mod solo;
pub mod support;
mod threads;
mod uring;
mod watch;
pub mod wire;
mod workers;

pub use handover::Handover;
pub use leaving::Leaver;
pub use mount::{MountError, Mounted, ServeError, Target};
pub use negotiation::{Granted, MAX_BACKGROUND};
pub use options::{BeforeRequests, MountOptions, Readdirplus, Transport};
pub use uring::uring_support;

#[cfg(test)]
mod tests;
