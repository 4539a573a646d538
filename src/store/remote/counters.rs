//! Counts of what is asked of stores, and of what they answer. Imports the description of requests.

use super::requests::{Observer, Watch};
use crate::store::Cause;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, Weak};
use std::time::Duration;

/// Classes of the histograms: class `n` counts what took less than 2^n microseconds, the last one all else.
pub const TIME_CLASSES: usize = 26;

/// Counts since the process began. Each is only ever added to, but `in_flight`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests for the attributes of an object.
    pub heads: AtomicU64,
    /// Requests for pages of a listing.
    pub lists: AtomicU64,
    /// Requests for bytes, because a reader waited.
    pub gets_demand: AtomicU64,
    /// Requests for bytes, ahead of a reader.
    pub gets_prefetch: AtomicU64,
    /// Requests for bytes, to open a container.
    pub gets_open: AtomicU64,
    /// Requests for bytes, a second time because the first one took long.
    pub gets_hedge: AtomicU64,
    /// Requests, again after an error.
    pub retries_throttled: AtomicU64,
    /// As above: 5xx, or no connection.
    pub retries_unavailable: AtomicU64,
    /// As above: the connection or the body ended early.
    pub retries_broken: AtomicU64,
    /// As above: nothing came for too long.
    pub retries_timed_out: AtomicU64,
    /// As above: all other reasons.
    pub retries_other: AtomicU64,
    /// Requests that failed for good.
    pub failures: AtomicU64,
    /// Second requests that were faster than the first.
    pub hedges_won: AtomicU64,
    /// Bytes of bodies.
    pub fetched_bytes: AtomicU64,
    /// Bytes that readers and openings have asked for.
    pub used_bytes: AtomicU64,
    /// Reads that found all their bytes in the cache.
    pub hits: AtomicU64,
    /// Reads that did not.
    pub misses: AtomicU64,
    /// Reads that waited for a fetch that was under way.
    pub joins: AtomicU64,
    /// Blocks that another daemon on this machine was fetching.
    pub lock_joins: AtomicU64,
    /// Blocks that the cache had no room for.
    pub no_room: AtomicU64,
    /// Requests that have no complete answer yet.
    pub in_flight: AtomicU64,
    /// The time to the first byte of each answer.
    pub first_byte: Times,
    /// The time to the last byte of each answer.
    pub total: Times,
    /// What the cache tells of itself.
    pub(super) cache: CacheTells,
    pub(super) watch: Watch,
}

impl Counters {
    /// Tells `observer` of each request from now on, one by one. The first call counts.
    pub fn observe(&self, observer: Weak<dyn Observer>) {
        self.watch.set(observer);
    }

    /// The counter of requests for bytes for this reason.
    pub(super) fn gets_for(&self, cause: Cause) -> &AtomicU64 {
        match cause {
            Cause::Demand => &self.gets_demand,
            Cause::Prefetch | Cause::Fill => &self.gets_prefetch,
            Cause::Open => &self.gets_open,
        }
    }
}

/// The cache on disk, or why there is none, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskCacheState {
    /// Where fetched bytes are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Why they are not, or not for now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unused_because: Option<String>,
    /// Entries that were removed to make room.
    #[serde(skip)]
    pub evictions: u64,
}

/// Asks the cache, as soon as it is known whether there is one.
#[derive(Default)]
pub(super) struct CacheTells(OnceLock<Box<dyn Fn() -> DiskCacheState + Send + Sync>>);

impl CacheTells {
    pub(super) fn set(&self, tell: impl Fn() -> DiskCacheState + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(tell));
    }

    fn state(&self) -> DiskCacheState {
        self.0.get().map(|tell| tell()).unwrap_or_default()
    }
}

impl std::fmt::Debug for CacheTells {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:?}", self.state())
    }
}

/// A histogram of times.
#[derive(Debug, Default)]
pub struct Times {
    classes: [AtomicU64; TIME_CLASSES],
    sum_micros: AtomicU64,
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl Times {
    pub(super) fn add(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let class = (u64::BITS - micros.leading_zeros()) as usize;
        add(&self.classes[class.min(TIME_CLASSES - 1)], 1);
        add(&self.sum_micros, micros);
    }

    fn figures(&self) -> TimeFigures {
        TimeFigures {
            classes: self.classes.iter().map(|class| class.load(Ordering::Relaxed)).collect(),
            sum_micros: self.sum_micros.load(Ordering::Relaxed),
        }
    }
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeFigures {
    /// How many took less than 2^n microseconds and not less than half of that, by n; the last class has all else.
    pub classes: Vec<u64>,
    /// All times together, in microseconds.
    pub sum_micros: u64,
}

impl TimeFigures {
    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }
}

macro_rules! figures {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The counters at one moment; see [`Counters`] for what each means.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct RemoteFigures {
            $($(#[$doc])* pub $name: u64,)*
            /// Entries that were removed from the cache to make room.
            pub evictions: u64,
            /// The time to the first byte of each answer.
            pub first_byte: TimeFigures,
            /// The time to the last byte of each answer.
            pub total: TimeFigures,
            /// The cache on disk.
            pub disk_cache: DiskCacheState,
        }

        impl Counters {
            /// The counters now.
            #[must_use]
            pub fn figures(&self) -> RemoteFigures {
                let disk_cache = self.cache.state();
                RemoteFigures {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    evictions: disk_cache.evictions,
                    disk_cache,
                    first_byte: self.first_byte.figures(),
                    total: self.total.figures(),
                }
            }
        }
    };
}

figures! {
    /// Requests for attributes.
    heads,
    /// Requests for pages of a listing.
    lists,
    /// Requests for bytes on demand.
    gets_demand,
    /// Requests for bytes ahead of a reader.
    gets_prefetch,
    /// Requests for bytes to open a container.
    gets_open,
    /// Second requests for bytes.
    gets_hedge,
    /// Retries after 429 and 503.
    retries_throttled,
    /// Retries after 5xx, or without a connection.
    retries_unavailable,
    /// Retries after a broken answer.
    retries_broken,
    /// Retries after silence.
    retries_timed_out,
    /// Retries for other reasons.
    retries_other,
    /// Requests that failed for good.
    failures,
    /// Second requests that were faster.
    hedges_won,
    /// Bytes of bodies.
    fetched_bytes,
    /// Bytes asked for.
    used_bytes,
    /// Reads out of the cache.
    hits,
    /// Reads that had to wait for a store.
    misses,
    /// Reads that joined a fetch.
    joins,
    /// Blocks that another daemon fetched.
    lock_joins,
    /// Blocks without room in the cache.
    no_room,
    /// Requests under way.
    in_flight,
}

impl RemoteFigures {
    /// All requests for bytes, retries included.
    #[must_use]
    pub fn gets(&self) -> u64 {
        self.gets_demand + self.gets_prefetch + self.gets_open + self.gets_hedge + self.retries()
    }

    /// All retries.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.retries_throttled
            + self.retries_unavailable
            + self.retries_broken
            + self.retries_timed_out
            + self.retries_other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_classes_of_powers_of_two() {
        let times = Times::default();
        for micros in [0, 1, 2, 3, 4, 1 << 40] {
            times.add(Duration::from_micros(micros));
        }
        let figures = times.figures();
        assert_eq!(figures.classes[..4], [1, 1, 2, 1]);
        assert_eq!((figures.classes[TIME_CLASSES - 1], figures.count()), (1, 6));
    }
}
