//! Counters and latencies, in shards, so that no two CPUs write to one cache line.

use crossbeam_utils::CachePadded;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SHARDS: usize = 16;

macro_rules! operations {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The operation that a request of the kernel asks for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Operation { $($(#[$doc])* $variant,)* }

        impl Operation {
            /// Every operation with the name that reports use.
            pub const ALL: &[(Self, &str)] = &[$((Self::$variant, $name),)*];

            /// The name that reports use.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

operations! {
    /// A name is looked up.
    Lookup = "lookup",
    /// The attributes of an inode.
    Getattr = "getattr",
    /// Bytes of a sample.
    Read = "read",
    /// Names of a directory.
    Readdir = "readdir",
    /// Names of a directory, with attributes.
    Readdirplus = "readdirplus",
    /// A file is opened (asked once at most).
    Open = "open",
    /// A directory is opened (asked once at most).
    Opendir = "opendir",
    /// A file is closed (asked once at most).
    Flush = "flush",
    /// The target of a symbolic link.
    Readlink = "readlink",
    /// Sizes and counts of the whole mount.
    Statfs = "statfs",
    /// An extended attribute.
    Getxattr = "getxattr",
    /// Names of extended attributes.
    Listxattr = "listxattr",
    /// Permissions (asked once at most).
    Access = "access",
    /// SEEK_DATA and SEEK_HOLE (asked once at most).
    Lseek = "lseek",
    /// The kernel drops inodes.
    Forget = "forget",
    /// Other requests: attempts to change the file system.
    Other = "other",
}

/// A stage whose time is measured, of a read that is not answered from memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The wait for the disk: from the decision to wait until the bytes are there.
    Disk,
    /// Checking and decoding the bytes after that wait.
    Verify,
    /// As `Disk`, for bytes that are fetched ahead.
    Ahead,
}

impl Stage {
    const ALL: [(Self, &str); 3] =
        [(Self::Disk, "disk"), (Self::Verify, "verify"), (Self::Ahead, "ahead")];
}

const OPERATIONS: usize = Operation::ALL.len();
/// The buckets of latencies: up to 1, 2, 4 … 2^24 µs, and one for longer latencies.
const BUCKETS: usize = 26;

/// The number of lookups that show whether reads follow them.
const LEARNT_FROM: u64 = 64;

/// The buckets of batches, by the completions that came together: 1, 2, 4 … 64, and more.
const BATCH_BUCKETS: usize = 8;

/// Counts of requests by their duration, and the sum of the durations.
#[derive(Default)]
struct Times {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

impl Times {
    fn add(&self, time: Duration) {
        add(&self.buckets[bucket(time)], 1);
        add(&self.nanos, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }
}

#[derive(Default)]
struct Shard {
    requests: [AtomicU64; OPERATIONS],
    control_requests: AtomicU64,
    first_reads: AtomicU64,
    bytes_served: AtomicU64,
    bytes_fetched: AtomicU64,
    samples_verified: AtomicU64,
    checksum_failures: AtomicU64,
    io_errors: AtomicU64,
    intervals_decoded: AtomicU64,
    intervals_decoded_ahead: AtomicU64,
    latencies: [Times; OPERATIONS],
    stages: [Times; Stage::ALL.len()],
    ring_submits: AtomicU64,
    ring_entries: AtomicU64,
    ring_completions: AtomicU64,
    ring_batches: [AtomicU64; BATCH_BUCKETS],
}

/// The counters of a mount.
pub struct Stats {
    shards: Vec<CachePadded<Shard>>,
    start: Instant,
}

impl Default for Stats {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| CachePadded::default()).collect();
        Self { shards, start: Instant::now() }
    }
}

/// A copy of the counters, as `stats.json` shows it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Time since the mount, in seconds.
    pub uptime_seconds: f64,
    /// Requests for samples and directories, by kind.
    pub requests: BTreeMap<String, u64>,
    /// Requests for the control directory.
    pub control_requests: u64,
    /// Reads of a sample's beginning: compared with lookups, they show how many lookups a read followed.
    pub first_reads: u64,
    /// Bytes of samples given to the kernel.
    pub bytes_served: u64,
    /// Bytes read from containers.
    pub bytes_fetched: u64,
    /// Whole samples whose checksum was found right.
    pub samples_verified: u64,
    /// Whole samples whose checksum was found wrong.
    pub checksum_failures: u64,
    /// Failures to read bytes, an index or a name, and requests that were refused since a container has changed.
    pub io_errors: u64,
    /// Intervals of encodings that were decoded.
    pub intervals_decoded: u64,
    /// Of these intervals, those that no read had asked for yet.
    pub intervals_decoded_ahead: u64,
    /// By kind of request: the number of requests that took up to `le` µs, and more than the bound before.
    pub latency_us: BTreeMap<String, Histogram>,
    /// The same for the stages of reads that had to wait.
    pub stage_us: BTreeMap<String, Histogram>,
    /// Calls and events of io_uring.
    pub ring: RingFigures,
}

/// The sums over the rings of all queues and the ring for fetching ahead.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RingFigures {
    /// Calls of `io_uring_enter`.
    pub submits: u64,
    /// Entries that were submitted with these calls: answers and reads.
    pub entries: u64,
    /// Completions that came back: requests and reads.
    pub completions: u64,
    /// Batches of completions that came together, by their number (up to `le`, and more than the bound before).
    pub batches: Histogram,
}

/// Counts by duration or size. Not cumulative; the last bucket is open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Histogram {
    /// Upper bounds (1, 2, 4 …), for all but the last bucket.
    pub le: Vec<u64>,
    /// The number of events in each bucket; there is one bucket more than bounds.
    pub count: Vec<u64>,
    /// The sum of all values, in the unit of the bounds.
    pub sum: u64,
}

impl Histogram {
    fn new(count: Vec<u64>, sum: u64) -> Self {
        Self { le: (1..count.len()).map(|bucket| 1 << (bucket - 1)).collect(), count, sum }
    }
}

impl Stats {
    fn shard(&self) -> &Shard {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static MINE: Cell<usize> = const { Cell::new(usize::MAX) });
        let mine = MINE.with(|mine| {
            if mine.get() == usize::MAX {
                mine.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
            }
            mine.get()
        });
        &self.shards[mine]
    }

    /// Counts a request that began at `start` and is answered now.
    pub fn request(&self, operation: Operation, control: bool, start: Instant) {
        let shard = self.shard();
        if control {
            add(&shard.control_requests, 1);
            return;
        }
        add(&shard.requests[operation as usize], 1);
        shard.latencies[operation as usize].add(start.elapsed());
    }

    /// Counts a stage of a read that began at `start` and has ended now.
    pub fn stage(&self, stage: Stage, start: Instant) {
        self.shard().stages[stage as usize].add(start.elapsed());
    }

    /// Counts the calls and entries that a ring has submitted, and the completions that came back together.
    pub fn ring(&self, submits: u64, entries: u64, completions: u64) {
        let shard = self.shard();
        add(&shard.ring_submits, submits);
        add(&shard.ring_entries, entries);
        if completions > 0 {
            add(&shard.ring_completions, completions);
            let bucket = (completions - 1).checked_ilog2().map_or(0, |log| log as usize + 1);
            add(&shard.ring_batches[bucket.min(BATCH_BUCKETS - 1)], 1);
        }
    }

    /// Counts a read of a sample's beginning.
    pub(super) fn first_read(&self) {
        add(&self.shard().first_reads, 1);
    }

    /// Whether samples that this thread looked up recently were usually read next; false where files are only listed.
    pub(super) fn reads_follow_lookups(&self) -> bool {
        thread_local!(static LEARNT: Cell<(u64, u64, bool)> = const { Cell::new((0, 0, false)) });
        let shard = self.shard();
        let lookups = shard.requests[Operation::Lookup as usize].load(Ordering::Relaxed);
        let reads = shard.first_reads.load(Ordering::Relaxed);
        let (lookups_before, reads_before, follow) = LEARNT.get();
        let looked_up = lookups.wrapping_sub(lookups_before);
        if looked_up < LEARNT_FROM {
            return follow;
        }
        let follow = reads.wrapping_sub(reads_before) >= looked_up / 4 * 3;
        LEARNT.set((lookups, reads, follow));
        follow
    }

    pub(super) fn served(&self, bytes: u64) {
        add(&self.shard().bytes_served, bytes);
    }

    pub(super) fn fetched(&self, bytes: u64) {
        add(&self.shard().bytes_fetched, bytes);
    }

    pub(super) fn verified(&self) {
        add(&self.shard().samples_verified, 1);
    }

    pub(super) fn checksum_failed(&self) {
        add(&self.shard().checksum_failures, 1);
    }

    pub(super) fn io_error(&self) {
        add(&self.shard().io_errors, 1);
    }

    pub(super) fn interval_decoded(&self, is_ahead: bool) {
        let shard = self.shard();
        add(&shard.intervals_decoded, 1);
        add(&shard.intervals_decoded_ahead, u64::from(is_ahead));
    }

    fn sum(&self, of: impl Fn(&Shard) -> &AtomicU64) -> u64 {
        self.shards.iter().map(|shard| of(shard).load(Ordering::Relaxed)).sum()
    }

    fn times(&self, of: impl Fn(&Shard) -> &Times) -> Histogram {
        let count = (0..BUCKETS).map(|bucket| self.sum(|s| &of(s).buckets[bucket]));
        Histogram::new(count.collect(), self.sum(|s| &of(s).nanos) / 1000)
    }

    /// Returns a copy of all counters.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut requests = BTreeMap::new();
        let mut latency_us = BTreeMap::new();
        for &(operation, name) in Operation::ALL {
            let number = operation as usize;
            let count = self.sum(|s| &s.requests[number]);
            requests.insert(name.to_owned(), count);
            if count > 0 {
                let times = self.times(|s| &s.latencies[number]);
                latency_us.insert(name.to_owned(), times);
            }
        }
        let stages = Stage::ALL
            .map(|(stage, name)| (name.to_owned(), self.times(|s| &s.stages[stage as usize])));
        let batches = (0..BATCH_BUCKETS).map(|b| self.sum(|s| &s.ring_batches[b]));
        let ring = RingFigures {
            submits: self.sum(|s| &s.ring_submits),
            entries: self.sum(|s| &s.ring_entries),
            completions: self.sum(|s| &s.ring_completions),
            batches: Histogram::new(batches.collect(), self.sum(|s| &s.ring_completions)),
        };
        Snapshot {
            uptime_seconds: self.start.elapsed().as_secs_f64(),
            requests,
            control_requests: self.sum(|s| &s.control_requests),
            first_reads: self.sum(|s| &s.first_reads),
            bytes_served: self.sum(|s| &s.bytes_served),
            bytes_fetched: self.sum(|s| &s.bytes_fetched),
            samples_verified: self.sum(|s| &s.samples_verified),
            checksum_failures: self.sum(|s| &s.checksum_failures),
            io_errors: self.sum(|s| &s.io_errors),
            intervals_decoded: self.sum(|s| &s.intervals_decoded),
            intervals_decoded_ahead: self.sum(|s| &s.intervals_decoded_ahead),
            latency_us,
            stage_us: stages.into_iter().collect(),
            ring,
        }
    }
}

/// Adds to a counter. Threads share a shard only if there are more threads than shards; the addition is atomic all the same.
fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

fn bucket(time: Duration) -> usize {
    let micros = u64::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX).max(1);
    ((micros - 1).checked_ilog2().map_or(0, |log| log as usize + 1)).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_fall_into_the_bucket_of_their_bound() {
        for (nanos, expected) in
            [(0, 0), (1_000, 0), (1_001, 1), (2_000, 1), (2_001, 2), (4_000, 2), (4_001, 3)]
        {
            assert_eq!(bucket(Duration::from_nanos(nanos)), expected, "{nanos} ns");
        }
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn reads_are_seen_to_follow_lookups_and_seen_to_stop() {
        let stats = Stats::default();
        let look_up = |read: bool| {
            stats.request(Operation::Lookup, false, Instant::now());
            if read {
                stats.first_read();
            }
            stats.reads_follow_lookups()
        };
        assert_eq!((0..200).filter(|_| look_up(false)).count(), 0);
        assert!((0..200).filter(|_| look_up(true)).count() > 60);
        assert!((0..200).filter(|_| look_up(false)).count() <= 64);
    }

    #[test]
    fn requests_of_all_threads_add_up_and_control_requests_stand_apart() {
        let stats = Stats::default();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| stats.request(Operation::Read, false, Instant::now()));
                scope.spawn(|| stats.request(Operation::Read, true, Instant::now()));
            }
        });
        let snapshot = stats.snapshot();
        assert_eq!(snapshot.requests["read"], 20);
        assert_eq!(snapshot.control_requests, 20);
        assert_eq!(snapshot.latency_us["read"].total(), 20);
    }

    #[test]
    fn the_times_of_requests_add_up() {
        let stats = Stats::default();
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        stats.request(Operation::Read, false, ago(1_000));
        stats.request(Operation::Read, false, ago(2_000));
        let sum = stats.snapshot().latency_us["read"].sum;
        assert!((3_000_000_000..6_000_000_000).contains(&sum), "{sum} µs");
    }
}
