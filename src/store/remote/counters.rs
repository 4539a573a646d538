//! Counts of requests to stores and of their responses. Imports the description of requests.

use super::requests::{Observer, Watch};
use crate::store::Cause;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, Weak};
use std::time::Duration;

/// The number of classes of the histograms: class `n` counts times under 2^n microseconds, the last class all longer
/// times.
pub const TIME_CLASSES: usize = 26;

/// Counters since the process began. All but `in_flight` only grow.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests for the attributes of an object.
    pub heads: AtomicU64,
    /// Requests for pages of a listing.
    pub lists: AtomicU64,
    /// Requests for bytes that a reader waits for.
    pub gets_demand: AtomicU64,
    /// Requests for bytes that are prefetched.
    pub gets_prefetch: AtomicU64,
    /// Requests for bytes to open a container.
    pub gets_open: AtomicU64,
    /// Second requests for bytes (hedges), because the first one took long.
    pub gets_hedge: AtomicU64,
    /// Retries because the store asked for fewer requests (429, 503).
    pub retries_throttled: AtomicU64,
    /// Retries after 5xx, or without a connection.
    pub retries_unavailable: AtomicU64,
    /// Retries because the connection or the body ended early.
    pub retries_broken: AtomicU64,
    /// Retries after a timeout.
    pub retries_timed_out: AtomicU64,
    /// Retries for all other reasons.
    pub retries_other: AtomicU64,
    /// Requests that failed for good.
    pub failures: AtomicU64,
    /// Second requests that were faster than the first.
    pub hedges_won: AtomicU64,
    /// Bytes of response bodies.
    pub fetched_bytes: AtomicU64,
    /// Bytes that readers and openings requested.
    pub used_bytes: AtomicU64,
    /// Reads that found all their bytes in the cache.
    pub hits: AtomicU64,
    /// Reads that did not find all their bytes in the cache.
    pub misses: AtomicU64,
    /// Reads that waited for a fetch in flight.
    pub joins: AtomicU64,
    /// Blocks that another daemon on this machine was fetching.
    pub lock_joins: AtomicU64,
    /// Blocks that the cache had no room for.
    pub no_room: AtomicU64,
    /// Requests without a complete response.
    pub in_flight: AtomicU64,
    /// The time to the first byte of each response.
    pub first_byte: Times,
    /// The time to the last byte of each response.
    pub total: Times,
    /// Where the cache's statistics come from.
    pub(super) cache: CacheTells,
    pub(super) watch: Watch,
}

impl Counters {
    /// Reports each request from now on to `observer`. Only the first call has an effect.
    pub fn observe(&self, observer: Weak<dyn Observer>) {
        self.watch.set(observer);
    }

    /// The counter of requests for bytes with this cause.
    pub(super) fn gets_for(&self, cause: Cause) -> &AtomicU64 {
        match cause {
            Cause::Demand => &self.gets_demand,
            Cause::Prefetch | Cause::Fill => &self.gets_prefetch,
            Cause::Open => &self.gets_open,
        }
    }
}

/// The state of the cache on disk at one moment, or the reason why there is no cache.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskCacheState {
    /// The cache directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The reason why the cache is not used, or not at the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unused_because: Option<String>,
    /// Entries that were removed to make room.
    #[serde(skip)]
    pub evictions: u64,
    /// Blocks of open entries that were removed to make room for others.
    #[serde(skip)]
    pub evicted_blocks: u64,
}

/// Queries the cache, once it is known whether there is a cache.
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
    /// By n, the number of times under 2^n microseconds that belong to no earlier class; the last class has all longer
    /// times.
    pub classes: Vec<u64>,
    /// The sum of all times, in microseconds.
    pub sum_micros: u64,
}

impl TimeFigures {
    /// The number of times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }
}

macro_rules! figures {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The values of the counters at one moment; see [`Counters`] for their meaning.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct RemoteFigures {
            $($(#[$doc])* pub $name: u64,)*
            /// Entries that were removed from the cache to make room.
            pub evictions: u64,
            /// Blocks of objects in use that were removed from the cache to make room for others.
            pub evicted_blocks: u64,
            /// The time to the first byte of each response.
            pub first_byte: TimeFigures,
            /// The time to the last byte of each response.
            pub total: TimeFigures,
            /// The cache on disk.
            pub disk_cache: DiskCacheState,
        }

        impl Counters {
            /// The values of the counters now.
            #[must_use]
            pub fn figures(&self) -> RemoteFigures {
                let disk_cache = self.cache.state();
                RemoteFigures {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    evictions: disk_cache.evictions,
                    evicted_blocks: disk_cache.evicted_blocks,
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
    /// Requests for bytes that a reader waits for.
    gets_demand,
    /// Requests for bytes that are prefetched.
    gets_prefetch,
    /// Requests for bytes to open a container.
    gets_open,
    /// Second requests for bytes (hedges).
    gets_hedge,
    /// Retries because the store asked for fewer requests (429, 503).
    retries_throttled,
    /// Retries after 5xx, or without a connection.
    retries_unavailable,
    /// Retries after a broken response.
    retries_broken,
    /// Retries after a timeout.
    retries_timed_out,
    /// Retries for other reasons.
    retries_other,
    /// Requests that failed for good.
    failures,
    /// Second requests that were faster than the first.
    hedges_won,
    /// Bytes of response bodies.
    fetched_bytes,
    /// Bytes that readers and openings requested.
    used_bytes,
    /// Reads that found all their bytes in the cache.
    hits,
    /// Reads that did not find all their bytes in the cache.
    misses,
    /// Reads that waited for a fetch in flight.
    joins,
    /// Blocks that another daemon on this machine was fetching.
    lock_joins,
    /// Blocks that the cache had no room for.
    no_room,
    /// Requests without a complete response.
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
