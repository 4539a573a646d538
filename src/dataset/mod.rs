//! Names on a command line → an open dataset: expand, recognise, nest, kept indexes, checkpoints, sidecars,
//! digests. The daemon, the tools, the benches and the tests open containers with this room, and with nothing
//! else.
//!
//! Imports from [`crate::format`], [`crate::catalog`], [`crate::io`] and [`crate::vfs`].

pub(crate) mod checkpoints;
pub(crate) mod checksums;
pub(crate) mod digest;
pub(crate) mod expand;
pub(crate) mod hash;
pub(crate) mod kept;
pub(crate) mod names;
pub(crate) mod nest;
pub(crate) mod open;
