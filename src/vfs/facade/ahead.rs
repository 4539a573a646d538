//! What is fetched before it is read.

use super::Vfs;
use crate::io::ReadError;
use crate::vfs::Errno;
use crate::vfs::prefetch::{Delivery, Fetch, PrefetchFigures, UNNAMED};
use crate::vfs::reader::Ahead;

/// What is fetched before it is read.
impl Vfs {
    /// Queues samples, by number, to be fetched in this order: all of them or none.
    ///
    /// # Errors
    /// ENOSPC: too many are waiting. Try again later.
    pub fn announce(&self, samples: &[u64]) -> Result<(), Errno> {
        self.prefetch.announce(UNNAMED, samples)
    }

    /// Calls `waker` whenever [`Vfs::next_fetch`] may have something new.
    pub fn when_there_is_something_to_fetch(&self, waker: impl Fn() + Send + Sync + 'static) {
        self.prefetch.when_there_is_something_to_fetch(waker);
    }

    /// Whether a reader waits for the disk: what is fetched ahead should leave it room.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.prefetch.is_waited_for()
    }

    /// Whether what is announced waits for room: then look now and then whether there is some.
    #[must_use]
    pub fn lacks_room(&self) -> bool {
        self.prefetch.lacks_room()
    }

    /// What became of the announced samples.
    #[must_use]
    pub fn prefetch_figures(&self) -> PrefetchFigures {
        self.prefetch.figures()
    }

    /// What is decoded before it is read.
    #[must_use]
    pub fn ahead(&self) -> &Ahead {
        self.reader.ahead()
    }

    /// What to fetch next; `None` if nothing is to be, or there is no room for it now.
    pub fn next_fetch(&self) -> Option<Fetch> {
        self.prefetch.next_fetch()
    }

    /// What to fetch because a sample was looked up, if reads follow lookups, it lies in a part that
    /// `is_cold`, and it is not in flight.
    pub fn looked_up(&self, ino: u64, is_cold: impl Fn(usize) -> bool) -> Option<Fetch> {
        self.prefetch.looked_up(ino, is_cold)
    }

    /// Takes what was fetched, or not. What it gives is for the kernel's page cache; it can be read
    /// meanwhile.
    pub fn land(&self, fetch: Fetch, fetched: Result<(), ReadError>) -> Vec<Delivery> {
        self.prefetch.land(fetch, fetched)
    }

    /// Whether a sample has not been read yet. A reader may still hold its pages locked, and must not be
    /// waited for.
    #[must_use]
    pub fn may_store(&self, delivery: &Delivery) -> bool {
        self.prefetch.may_store(delivery)
    }

    /// A sample was put into the kernel's page cache, or not: then it stays here.
    pub fn stored(&self, delivery: Delivery, is_stored: bool) {
        self.prefetch.stored(delivery, is_stored);
    }
}
