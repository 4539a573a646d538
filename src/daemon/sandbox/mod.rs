//! The confinement of the daemon: the user's choice, and a process outside that does what the confined daemon cannot do itself
//! ([`Unmounter`]). The rights of the daemon are in `mount/rules.rs`.
//!
//! Imports from [`crate::io`].

#[cfg(feature = "test-hooks")]
mod escape;
mod unmounter;

pub(crate) use unmounter::{Unmounter, unmount_dead};

/// Whether the daemon is confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Sandbox {
    /// The daemon is not confined.
    No,
    /// The daemon is confined as far as the kernel can.
    #[default]
    Auto,
    /// The daemon mounts nothing unless the whole confinement holds.
    Strict,
}

/// Tries the forbidden actions of the confinement's tests, in builds with the feature `test-hooks`.
pub(crate) fn try_to_escape() {
    #[cfg(feature = "test-hooks")]
    escape::try_all();
}
