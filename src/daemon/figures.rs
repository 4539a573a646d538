//! Figures computed from a mount's counters, for `stats`, `top` and `doctor`.

use crate::vfs::report::MountStats;
use std::time::Duration;

/// Requests of all kinds that a process waits for; the kernel sends FORGET without an answer.
pub(crate) fn requests(stats: &MountStats) -> u64 {
    let requests = stats.counters.requests.iter();
    requests.filter(|(name, _)| *name != "forget").map(|(_, count)| count).sum()
}

/// For how long a mount is served. Who serves it may be any program: it can say nonsense.
pub(crate) fn uptime(stats: &MountStats) -> Duration {
    Duration::try_from_secs_f64(stats.counters.uptime_seconds).unwrap_or_default()
}

/// Requests whose bytes were in memory, of all that came for bytes.
fn hits(stats: &MountStats) -> u64 {
    stats.cache.hits + stats.blocks.hits + stats.prefetch.used
}

/// The share of [`hits`]; `None` without requests.
pub(crate) fn hit_rate(stats: &MountStats) -> Option<f64> {
    let hits = hits(stats);
    let all = hits + stats.counters.stage("disk").total();
    (all > 0).then(|| hits as f64 / all as f64)
}
