//! Samples and intervals that are fetched before they are read.

use super::Vfs;
use crate::io::ReadError;
use crate::vfs::Errno;
use crate::vfs::prefetch::{Delivery, Fetch, PrefetchFigures, UNNAMED};
use crate::vfs::reader::Ahead;

/// Samples and intervals that are fetched before they are read.
impl Vfs {
    /// Queues samples, by number, to be fetched in this order: all of them or none.
    ///
    /// # Errors
    /// ENOSPC: too many samples are waiting. Try again later.
    pub fn announce(&self, samples: &[u64]) -> Result<(), Errno> {
        self.prefetch.announce(UNNAMED, samples)
    }

    /// Sets the function that is called whenever [`Vfs::next_fetch`] may have a new fetch.
    pub fn when_there_is_something_to_fetch(&self, waker: impl Fn() + Send + Sync + 'static) {
        self.prefetch.when_there_is_something_to_fetch(waker);
    }

    /// Whether a reader waits for the disk: prefetching should leave it room.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.prefetch.is_waited_for()
    }

    /// Whether announced samples wait for room in memory: the caller then looks again from time to time.
    #[must_use]
    pub fn lacks_room(&self) -> bool {
        self.prefetch.lacks_room()
    }

    /// Counts of announced samples and their outcomes.
    #[must_use]
    pub fn prefetch_figures(&self) -> PrefetchFigures {
        self.prefetch.figures()
    }

    /// The intervals that are decoded before they are read.
    #[must_use]
    pub fn ahead(&self) -> &Ahead {
        self.reader.ahead()
    }

    /// The next fetch; `None` if no fetch is due, or memory has no room for it now.
    pub fn next_fetch(&self) -> Option<Fetch> {
        self.prefetch.next_fetch()
    }

    /// The fetch of a sample that was looked up, if reads follow lookups, the sample lies in a part that
    /// `is_cold`, and it is not in flight.
    pub fn looked_up(&self, ino: u64, is_cold: impl Fn(usize) -> bool) -> Option<Fetch> {
        self.prefetch.looked_up(ino, is_cold)
    }

    /// Takes the result of a fetch. Returns the samples for the kernel's page cache; they can be read
    /// meanwhile.
    pub fn land(&self, fetch: Fetch, fetched: Result<(), ReadError>) -> Vec<Delivery> {
        self.prefetch.land(fetch, fetched)
    }

    /// Whether a sample has not been read yet. The reader of a sample may still hold its pages locked, and the thread that
    /// stores samples must not wait for it.
    #[must_use]
    pub fn may_store(&self, delivery: &Delivery) -> bool {
        self.prefetch.may_store(delivery)
    }

    /// Notes whether a sample was put into the kernel's page cache. If not, it stays in the sample cache.
    pub fn stored(&self, delivery: Delivery, is_stored: bool) {
        self.prefetch.stored(delivery, is_stored);
    }
}
