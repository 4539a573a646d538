//! Where the bytes of a dataset lie: one [`Store`] of all its parts.
//!
//! A part is one container file: a local file, or an object in a store, which a [`Remote`] fetches. The rooms above use
//! a part's number in the store, its [`PartName`] in messages and statistics, its [`Version`], its length, and the
//! [`Profile`] by which its reads are planned. Only the transports' reads ask whether a part is local or remote.
//!
//! Imports from [`crate::format`] and [`crate::io`].
//!
//! [`PartName`]: crate::format::PartName

mod arrival;
#[cfg(feature = "remote")]
pub mod cache;
mod part;
mod profile;
pub mod remote;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use arrival::{Arrival, Arrived, Cause, Pin, Place, Remote};
pub use part::{Bytes, Part, Version};
pub use profile::Profile;

use crate::io::ReadError;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

/// All parts of a dataset, by number. Clones share the parts.
#[derive(Clone)]
pub struct Store {
    parts: Arc<[Arc<Part>]>,
}

impl Store {
    /// A store of these parts, numbered from 0.
    #[must_use]
    pub fn new(parts: Vec<Arc<Part>>) -> Self {
        Self { parts: parts.into() }
    }

    /// The parts, in order.
    #[must_use]
    pub fn parts(&self) -> &[Arc<Part>] {
        &self.parts
    }

    /// Part number `part`.
    ///
    /// # Panics
    /// The store has no part of that number.
    #[must_use]
    pub fn part(&self, part: usize) -> &Part {
        &self.parts[part]
    }

    /// The number of parts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether the store has no parts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The latest modification time of any part.
    #[must_use]
    pub fn modified(&self) -> Option<SystemTime> {
        self.parts.iter().map(|part| part.modified()).max()
    }

    /// The profile for a dataset of these parts: that of the part with the largest `max_depth`.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        let profiles = self.parts.iter().map(|part| part.profile());
        profiles.max_by_key(|profile| profile.max_depth).unwrap_or(&Profile::DISK)
    }

    /// Whether some parts are objects, whose bytes may have to be fetched.
    #[must_use]
    pub fn has_objects(&self) -> bool {
        self.parts.iter().any(|part| part.remote_of().is_some())
    }

    /// Ends all waits for bytes of this store with the error `Interrupted`.
    pub fn give_up(&self) {
        arrival::give_up(self.parts.iter().filter_map(|part| part.remote_of()));
    }

    /// Notes that the announced reads with lower numbers than this one have begun or will not come.
    pub fn note_reached(&self, number: u64) {
        if let Some(remote) = self.cached_remote() {
            remote.note_reached(number);
        }
    }

    /// Notes that the announced reads that have not begun will not come.
    pub fn forget_announced(&self) {
        if let Some(remote) = self.cached_remote() {
            remote.forget_announced();
        }
    }

    /// A part with a cache: the parts of a dataset share their knowledge of the order.
    fn cached_remote(&self) -> Option<&Arc<dyn Remote>> {
        self.parts.iter().find(|part| part.has_cache()).and_then(|part| part.remote_of())
    }

    /// Notes that no more reads will come, and that the process may end without dropping this store.
    pub fn note_end(&self) {
        self.parts.iter().filter_map(|part| part.remote_of()).for_each(|remote| remote.note_end());
    }

    /// Begins to fetch `range` of a part, and returns at once. `then` is called exactly once, on any thread, possibly
    /// before this returns, and no later than the profile's `patience`: with the bytes, with a pin under which the
    /// range can be read from the part's file, or with the error.
    pub fn begin(
        &self,
        part: usize,
        range: Range<u64>,
        cause: Cause,
        then: impl FnOnce(Result<Arrived, ReadError>) + Send + 'static,
    ) {
        self.parts[part].begin(range, cause, then);
    }
}
