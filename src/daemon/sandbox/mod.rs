//! The confinement of the daemon: what a user asks for, and a process outside that does what the daemon then cannot do
//! itself ([`Unmounter`]). What it may do is in `mount/rules.rs`.
//!
//! Imports from [`crate::io`].

#[cfg(feature = "test-hooks")]
mod escape;
mod unmounter;

pub(crate) use unmounter::{Unmounter, unmount_dead};

/// Whether the daemon is confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Sandbox {
    /// It is not.
    No,
    /// As far as the kernel can.
    #[default]
    Auto,
    /// It mounts nothing unless the whole confinement holds.
    Strict,
}

/// Tries what the tests of the confinement ask for, in builds with the feature `test-hooks`.
pub(crate) fn try_to_escape() {
    #[cfg(feature = "test-hooks")]
    escape::try_all();
}
