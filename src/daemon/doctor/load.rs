//! How busy the host, a process and a disk are, from /proc and /sys.

use super::check::text;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// How busy the host is: sums, of which two samples give rates.
pub(super) struct HostLoad {
    /// The time when the sums were read.
    pub(super) at: Instant,
    /// Ticks of all CPUs: the busy ticks, and all ticks.
    pub(super) cpu: Option<(u64, u64)>,
    /// CPU time that the daemon's threads have used, and for how long they have waited for a CPU.
    pub(super) daemon_nanos: Option<(u64, u64)>,
    /// Milliseconds in which the device had requests.
    pub(super) device_millis: Option<u64>,
}

impl HostLoad {
    /// Samples the load of the host, the process `pid`, and the disk that /sys describes in the directory `disk`.
    pub(super) fn sample(pid: u32, disk: Option<&Path>) -> Self {
        Self {
            at: Instant::now(),
            cpu: text("/proc/stat").as_deref().and_then(cpu_ticks),
            daemon_nanos: nanos_of(pid),
            device_millis: disk.and_then(|disk| device_millis(&text(disk.join("stat"))?)),
        }
    }
}

/// The first line of /proc/stat: user nice system idle iowait …, without guests, which are in `user`.
fn cpu_ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|n| n.parse().ok()).collect();
    let idle: u64 = ticks.get(3..5)?.iter().sum();
    let all = ticks.iter().sum();
    Some((all - idle, all))
}

/// Milliseconds in which a disk had requests: the tenth figure of its `stat`.
fn device_millis(stat: &str) -> Option<u64> {
    stat.split_whitespace().nth(9)?.parse().ok()
}

/// Nanoseconds of CPU time of all threads of a process, and nanoseconds in which they waited for a CPU.
fn nanos_of(pid: u32) -> Option<(u64, u64)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let nanos = |task: fs::DirEntry| {
        let schedstat = text(task.path().join("schedstat"))?;
        let mut figures = schedstat.split_whitespace().map_while(|n| n.parse::<u64>().ok());
        Some((figures.next()?, figures.next()?))
    };
    let all: Vec<_> = tasks.flatten().filter_map(nanos).collect();
    let sum = all.iter().fold((0, 0), |sum, thread| (sum.0 + thread.0, sum.1 + thread.1));
    (!all.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_the_host_are_read_and_odd_ones_are_not() {
        assert_eq!(cpu_ticks("cpu  10 1 5 70 14 0 0 0 3 0\ncpu0 1"), Some((16, 100)));
        assert_eq!(device_millis("  1 2 3 4 5 6 7 8 9 1234 11\n"), Some(1234));
        for odd in ["", "cpu", "cpu  1 2 3", "x"] {
            assert_eq!(cpu_ticks(odd), None, "{odd}");
            assert_eq!(device_millis(odd), None, "{odd}");
        }
        assert!(nanos_of(std::process::id()).is_some_and(|(used, _)| used > 0));
    }
}
