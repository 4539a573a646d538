//! Settings that can be changed while a dataset is mounted.

use crate::vfs::Errno;
use crate::vfs::memory::Memory;
use crate::vfs::options::Verify;
use crate::vfs::prefetch::Prefetch;
use crate::vfs::samples::Samples;
use std::sync::{Arc, OnceLock};

/// Knows the settings by name: the control file `settings` only carries text to it and back.
pub trait Settings: Send + Sync {
    /// The present settings, in JSON.
    fn show(&self, tuning: &Tuning) -> Vec<u8>;

    /// Changes settings, lines `NAME=VALUE`: all of them, or none.
    ///
    /// # Errors
    /// One of the settings cannot be changed.
    fn change(&self, tuning: &Tuning, text: &[u8]) -> Result<(), Errno>;
}

/// The values of a mounted file system that settings change.
pub struct Tuning {
    samples: Arc<Samples>,
    memory: Arc<Memory>,
    prefetch: Arc<Prefetch>,
    /// The transport's name, and the memory that requests take until the unmount, in bytes.
    transport: OnceLock<(&'static str, u64)>,
}

impl Tuning {
    pub(super) fn new(samples: Arc<Samples>, memory: Arc<Memory>, prefetch: Arc<Prefetch>) -> Self {
        Self { samples, memory, prefetch, transport: OnceLock::new() }
    }

    /// When samples are compared with their checksums.
    #[must_use]
    pub fn verify(&self) -> Verify {
        self.samples.verify()
    }

    /// Sets when samples are checked from now on. Samples that were fetched unchecked are forgotten; those in the
    /// kernel's page cache stay there.
    pub fn set_verify(&self, verify: Verify) {
        if self.samples.set_verify(verify) == Verify::Off && verify != Verify::Off {
            self.memory.cache().clear();
        }
    }

    /// Hard cap of held memory, in bytes.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        self.memory.budget().cap_bytes()
    }

    /// Sets the cap of held memory. If it is lowered, memory above it is freed now; that of answers, after they are sent.
    pub fn set_cache_bytes(&self, bytes: u64) {
        self.memory.budget().set_cap_bytes(bytes);
        self.memory.cache().shrink();
        self.samples.buffers().clear();
        self.prefetch.set_cap_bytes(bytes);
    }

    /// Sets the cap of memory for samples that readers wait for, in bytes.
    pub fn set_fetching_bytes(&self, bytes: u64) {
        self.memory.fetching().set_cap_bytes(bytes);
    }

    pub(in crate::vfs) fn set_transport(&self, name: &'static str, request_bytes: u64) {
        let _ = self.transport.set((name, request_bytes));
    }

    /// The transport's name.
    pub(super) fn transport(&self) -> &'static str {
        self.transport.get().map_or("none", |&(name, _)| name)
    }

    /// Memory that requests take until the unmount, in bytes.
    #[must_use]
    pub fn request_bytes(&self) -> u64 {
        self.transport.get().map_or(0, |&(_, bytes)| bytes)
    }
}
