//! What can be changed while it is mounted.

use super::{Errno, Verify, Vfs};

/// Knows what can be changed, by name: the control file `settings` only carries text to it and back.
pub trait Settings: Send + Sync {
    /// The settings as they are, in JSON.
    fn show(&self, vfs: &Vfs) -> Vec<u8>;

    /// Changes settings, lines `NAME=VALUE`: all of them, or none.
    ///
    /// # Errors
    /// One of them cannot be.
    fn change(&self, vfs: &Vfs, text: &[u8]) -> Result<(), Errno>;
}

impl Vfs {
    /// Makes the control file `settings` work. What was said first counts.
    pub fn set_settings(&self, settings: impl Settings + 'static) {
        let _ = self.settings.set(Box::new(settings));
    }

    /// When samples are checked.
    #[must_use]
    pub fn verify(&self) -> Verify {
        self.verify.load()
    }

    /// Checks samples at other times from now on. What was fetched unchecked is forgotten; what the kernel's
    /// page cache was given stays there.
    pub fn set_verify(&self, verify: Verify) {
        if self.verify.swap(verify) == Verify::Off && verify != Verify::Off {
            self.cache.clear();
        }
    }

    /// Hard cap of what is held in memory, in bytes.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        self.budget.cap_bytes()
    }

    /// Moves that cap. Lowered, what is too much is freed now (what a request is being answered with, when it
    /// is).
    pub fn set_cache_bytes(&self, bytes: u64) {
        self.budget.set_cap_bytes(bytes);
        self.cache.shrink();
        self.prefetch.set_cap_bytes(bytes);
    }

    /// Memory that requests take for good, in bytes.
    #[must_use]
    pub fn request_bytes(&self) -> u64 {
        self.transport.get().map_or(0, |&(_, bytes)| bytes)
    }
}
