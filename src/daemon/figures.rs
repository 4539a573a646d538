//! Figures computed from a mount's counters, for `stats`, `top` and `doctor`.

use crate::vfs::report::MountStats;
use std::time::Duration;

/// Requests of all kinds that a process waits for; the kernel sends FORGET without an answer.
pub(crate) fn requests(stats: &MountStats) -> u64 {
    let requests = stats.counters.requests.iter();
    requests.filter(|(name, _)| *name != "forget").map(|(_, count)| count).sum()
}

/// For how long a mount is served; zero if the figure makes no sense, as any program may serve the mount.
pub(crate) fn uptime(stats: &MountStats) -> Duration {
    Duration::try_from_secs_f64(stats.counters.uptime_seconds).unwrap_or_default()
}

/// Requests for bytes that were in memory.
fn hits(stats: &MountStats) -> u64 {
    stats.cache.hits + stats.blocks.hits + stats.prefetch.used
}

/// The share of [`hits`] among the requests for bytes; `None` without requests.
pub(crate) fn hit_rate(stats: &MountStats) -> Option<f64> {
    let hits = hits(stats);
    let all = hits + stats.counters.stage("disk").total();
    (all > 0).then(|| hits as f64 / all as f64)
}
