//! The confinement of the daemon: what a user asks for, and a process outside that does what the daemon then cannot do
//! itself ([`Unmounter`]). What it may do is in `mount/rules.rs`.
//!
//! Imports from [`crate::io`].

#[cfg(debug_assertions)]
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

/// Tries what the tests of the confinement ask for, in debug builds.
pub(crate) fn try_to_escape() {
    #[cfg(debug_assertions)]
    escape::try_all();
}
