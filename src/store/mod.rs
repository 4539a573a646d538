//! Where the bytes of a dataset lie: one [`Store`] of all its parts.
//!
//! A part is one container file: a local file, or an object elsewhere that a [`Remote`] fetches. Everything above knows a part by its number in the store, its [`PartName`] in messages and
//! figures, its [`Version`], its length, and the [`Profile`] of what it likes. Only the reads of the transports
//! ask what a part is made of.
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

pub use arrival::{Arrival, Arrived, Cause, Pin, Remote};
pub use part::{Bytes, Part, Version};
pub use profile::Profile;

use crate::io::ReadError;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

/// All parts of a dataset, by number. A copy shares them.
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
    /// There is none of that number.
    #[must_use]
    pub fn part(&self, part: usize) -> &Part {
        &self.parts[part]
    }

    /// How many parts there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether there is no part.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// When the part that was modified last was modified.
    #[must_use]
    pub fn modified(&self) -> Option<SystemTime> {
        self.parts.iter().map(|part| part.modified()).max()
    }

    /// What a dataset of these parts is tuned for: the part that wants the most reads at a time decides.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        let profiles = self.parts.iter().map(|part| part.profile());
        profiles.max_by_key(|profile| profile.max_depth).unwrap_or(&Profile::DISK)
    }

    /// Whether some parts are objects, which may have to be waited for.
    #[must_use]
    pub fn has_objects(&self) -> bool {
        self.parts.iter().any(|part| part.remote_of().is_some())
    }

    /// Ends all waits for bytes of this store, as interrupted.
    pub fn give_up(&self) {
        arrival::give_up(self.parts.iter().filter_map(|part| part.remote_of()));
    }

    /// Nothing is read any more, and the process may end without dropping this.
    pub fn note_end(&self) {
        self.parts.iter().filter_map(|part| part.remote_of()).for_each(|remote| remote.note_end());
    }

    /// Begins to bring `range` of a part to this machine, and returns at once. `then` is called exactly once,
    /// on any thread, perhaps before this returns, and at the latest after the profile's `patience`: with the
    /// bytes or a pin, while which is held the range can be read, or with the reason why it does not come.
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
