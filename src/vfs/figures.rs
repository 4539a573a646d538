//! Figures from counters: differences between two copies of them, quantiles, shares.

use super::report::MountStats;
use super::stats::{Histogram, RingFigures, Snapshot};
use super::{BlockFigures, CacheFigures, PrefetchFigures};
use crate::store::remote::{RemoteFigures, TimeFigures};
use std::collections::BTreeMap;

impl Histogram {
    /// The number of events in all buckets.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.count.iter().sum()
    }

    /// The value that the share `q` of the events does not exceed: the bound of a bucket, or infinity for the last one.
    /// `None` if no event was counted.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let total = self.total();
        let rank = ((total as f64 * q).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        let bucket = self.count.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(self.le.get(bucket).map_or(f64::INFINITY, |&bound| bound as f64))
    }

    /// The events that were counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |bucket: usize| earlier.count.get(bucket).copied().unwrap_or(0);
        let count = self.count.iter().enumerate();
        Self {
            le: self.le.clone(),
            count: count.map(|(bucket, now)| now.saturating_sub(before(bucket))).collect(),
            sum: self.sum.saturating_sub(earlier.sum),
        }
    }
}

/// `$now.field - $before.field` for each field that is named; the other fields are those of `$now`.
macro_rules! since {
    ($type:ident, $now:expr, $before:expr, $($field:ident)*) => {
        $type { $($field: $now.$field.saturating_sub($before.$field),)* ..$now.clone() }
    };
}

fn histograms(
    now: &BTreeMap<String, Histogram>,
    before: &BTreeMap<String, Histogram>,
) -> BTreeMap<String, Histogram> {
    let none = Histogram::default();
    let since = |(name, now): (&String, &Histogram)| {
        (name.clone(), now.since(before.get(name).unwrap_or(&none)))
    };
    now.iter().map(since).collect()
}

impl Snapshot {
    /// The counters' increase since `earlier`; `uptime_seconds` is the time between the two.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let requests = self.requests.iter().map(|(name, now)| {
            (name.clone(), now.saturating_sub(earlier.requests.get(name).copied().unwrap_or(0)))
        });
        let (ring, before) = (&self.ring, &earlier.ring);
        let counted = since!(Snapshot, self, earlier, control_requests first_reads bytes_served
            bytes_fetched samples_verified checksum_failures io_errors intervals_decoded
            intervals_decoded_ahead);
        Snapshot {
            uptime_seconds: (self.uptime_seconds - earlier.uptime_seconds).max(0.0),
            requests: requests.collect(),
            latency_us: histograms(&self.latency_us, &earlier.latency_us),
            stage_us: histograms(&self.stage_us, &earlier.stage_us),
            ring: RingFigures {
                batches: ring.batches.since(&before.batches),
                ..since!(RingFigures, ring, before, submits entries completions)
            },
            ..counted
        }
    }

    /// The number of requests for an operation, by its name.
    #[must_use]
    pub fn requests_of(&self, operation: &str) -> u64 {
        self.requests.get(operation).copied().unwrap_or(0)
    }

    /// The times of a stage of reads, by its name.
    #[must_use]
    pub fn stage(&self, name: &str) -> Histogram {
        self.stage_us.get(name).cloned().unwrap_or_default()
    }

    /// The share of reads that did not have to wait for a fetch of their own: their bytes were in memory, or on
    /// their way. `None` without reads.
    #[must_use]
    pub fn without_waiting(&self) -> Option<f64> {
        let reads = self.requests_of("read");
        let waited = self.stage("disk").total().min(reads);
        (reads > 0).then(|| 1.0 - waited as f64 / reads as f64)
    }
}

impl TimeFigures {
    /// The times that were counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |class: usize| earlier.classes.get(class).copied().unwrap_or(0);
        let classes = self.classes.iter().enumerate();
        Self {
            classes: classes.map(|(class, now)| now.saturating_sub(before(class))).collect(),
            sum_micros: self.sum_micros.saturating_sub(earlier.sum_micros),
        }
    }

    /// The times as a histogram of microseconds.
    #[must_use]
    pub fn histogram(&self) -> Histogram {
        let bounds = 0..self.classes.len().saturating_sub(1) as u32;
        Histogram {
            le: bounds.map(|class| 1 << class.min(63)).collect(),
            count: self.classes.clone(),
            sum: self.sum_micros,
        }
    }
}

/// The price in dollars of 1,000 requests for bytes or attributes, and of 1,000 pages of a listing (S3, us-east-1, standard).
const DOLLARS: (f64, f64) = (0.0004, 0.005);

impl RemoteFigures {
    /// The counters' increase since `earlier`; `in_flight` and the state of the cache on disk are as in `self`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            first_byte: self.first_byte.since(&earlier.first_byte),
            total: self.total.since(&earlier.total),
            ..since!(RemoteFigures, self, earlier, heads lists gets_demand gets_prefetch gets_open
                gets_hedge retries_throttled retries_unavailable retries_broken retries_timed_out
                retries_other failures hedges_won fetched_bytes used_bytes hits misses joins
                lock_joins no_room evictions evicted_blocks)
        }
    }

    /// Bytes fetched for each byte used. `None` if no byte was used.
    #[must_use]
    pub fn fetched_per_used(&self) -> Option<f64> {
        (self.used_bytes > 0).then(|| self.fetched_bytes as f64 / self.used_bytes as f64)
    }

    /// The share of reads that found their bytes in the cache. `None` without reads.
    #[must_use]
    pub fn hit_rate(&self) -> Option<f64> {
        let reads = self.hits + self.misses;
        (reads > 0).then(|| self.hits as f64 / reads as f64)
    }

    /// The approximate cost of the requests at the list price of S3, in dollars, without the bytes that leave its region.
    #[must_use]
    pub fn dollars(&self) -> f64 {
        ((self.gets() + self.heads) as f64 * DOLLARS.0 + self.lists as f64 * DOLLARS.1) / 1000.0
    }
}

impl MountStats {
    /// The counters' increase since `earlier`; levels are as in `self`. If another process counts now, it began at zero,
    /// and its counters are returned unchanged.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        if self.pid != earlier.pid {
            return self.clone();
        }
        Self {
            pid: self.pid,
            counters: self.counters.since(&earlier.counters),
            cache: since!(CacheFigures, self.cache, earlier.cache, hits misses evictions
                intervals_used intervals_unused),
            blocks: since!(BlockFigures, self.blocks, earlier.blocks, fetched hits refused evicted),
            prefetch: since!(PrefetchFigures, self.prefetch, earlier.prefetch, announced done failed
                skipped foreseen looked_up reads merged fetched_bytes stored_bytes unused_bytes used),
            reads_waiting: self.reads_waiting,
            bad_samples: self.bad_samples,
            bad_containers: self.bad_containers,
            remote: self.remote.as_ref().map(|now| match &earlier.remote {
                Some(before) => now.since(before),
                None => now.clone(),
            }),
        }
    }
}

impl PrefetchFigures {
    /// The share of the bytes fetched ahead that were not dropped unused; `None` if no bytes were fetched ahead.
    #[must_use]
    pub fn efficiency(&self) -> Option<f64> {
        let unused = self.unused_bytes.min(self.fetched_bytes);
        (self.fetched_bytes > 0).then(|| 1.0 - unused as f64 / self.fetched_bytes as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(count: &[u64]) -> Histogram {
        let le = (0..count.len() - 1).map(|bucket| 1 << bucket).collect();
        Histogram { le, count: count.to_vec(), sum: count.iter().sum() }
    }

    #[test]
    fn a_quantile_is_the_bound_of_its_bucket() {
        let times = histogram(&[0, 50, 40, 9, 1]);
        let quantiles = [0.0, 0.5, 0.51, 0.9, 0.99, 1.0].map(|q| times.quantile(q).unwrap());
        assert_eq!(quantiles, [2.0, 2.0, 4.0, 4.0, 8.0, f64::INFINITY]);
        assert_eq!(histogram(&[0, 0]).quantile(0.5), None);
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn counters_are_those_between_two_looks_and_levels_those_of_the_second() {
        let look = |n: u64| MountStats {
            counters: Snapshot {
                uptime_seconds: n as f64,
                requests: [("read".to_owned(), 10 * n)].into(),
                latency_us: [("read".to_owned(), histogram(&[10 * n, 0]))].into(),
                stage_us: [("disk".to_owned(), histogram(&[n, 0]))].into(),
                bytes_served: 100 * n,
                ..Snapshot::default()
            },
            cache: CacheFigures { hits: n, bytes: n, ..CacheFigures::default() },
            prefetch: PrefetchFigures {
                waiting: n,
                fetched_bytes: 8 * n,
                unused_bytes: 2 * n,
                ..Default::default()
            },
            ..MountStats::default()
        };
        let between = look(5).since(&look(3));
        assert!((between.counters.uptime_seconds - 2.0).abs() < 1e-9);
        assert_eq!(between.counters.requests_of("read"), 20);
        assert_eq!(between.counters.latency_us["read"], histogram(&[20, 0]));
        assert_eq!(
            (between.counters.bytes_served, between.cache.hits, between.cache.bytes),
            (200, 2, 5)
        );
        assert_eq!((between.prefetch.waiting, between.prefetch.efficiency()), (5, Some(0.75)));
        assert_eq!(between.counters.without_waiting(), Some(0.9));
        // A mount that was made anew meanwhile has counted less.
        assert_eq!(look(1).since(&look(2)).counters.bytes_served, 0);
        let by_another = MountStats { pid: 7, ..look(5) };
        assert_eq!(by_another.since(&look(3)).counters.bytes_served, 500);
    }
}
