//! The figures of a mount, now and over time.

use super::sample::Sample;
use crate::daemon::figures::{hit_rate, requests};
use crate::format::one_line;
use crate::vfs::report::{MountInfo, MountStats};
use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

/// The most looks that are kept: no screen has more columns.
const MAX_HISTORY: usize = 1024;

/// The known figures of a mount.
pub(crate) struct MountFigures {
    /// The mount point.
    pub(crate) point: String,
    pub(crate) info: MountInfo,
    /// The counters since the dataset was mounted.
    pub(crate) stats: Option<MountStats>,
    /// The counters between the last two looks.
    pub(crate) delta: MountStats,
    /// KB/s and files/s of each look, oldest first.
    pub(crate) kilobytes: VecDeque<u64>,
    pub(crate) files: VecDeque<u64>,
    /// Bad samples, with the reasons.
    pub(crate) bad: Vec<String>,
    /// The reason why the mount does not answer any more.
    pub(crate) gone: Option<String>,
    pub(crate) answered_at: Instant,
}

impl MountFigures {
    pub(crate) fn new(point: &Path) -> Self {
        Self {
            point: one_line(point.as_os_str().as_bytes()),
            info: MountInfo::default(),
            stats: None,
            delta: MountStats::default(),
            kilobytes: VecDeque::new(),
            files: VecDeque::new(),
            bad: Vec::new(),
            gone: None,
            answered_at: Instant::now(),
        }
    }

    /// Adds a look at the mount, or the reason why it failed.
    pub(crate) fn take(&mut self, sample: Result<Sample, String>) {
        self.answered_at = Instant::now();
        match sample {
            Ok(sample) => self.add(sample),
            Err(why) => self.gone = Some(one_line(why)),
        }
    }

    fn add(&mut self, sample: Sample) {
        let Sample { info, stats, bad } = sample;
        // After the dataset was mounted anew, all counters begin at 0.
        let is_same = |before: &MountStats| {
            before.counters.uptime_seconds <= stats.counters.uptime_seconds
                && self.info.pid == info.pid
        };
        self.delta = match self.stats.take_if(|before| is_same(before)) {
            Some(before) => stats.since(&before),
            None => MountStats::default(),
        };
        let (bytes, files) = (self.rate(self.delta.counters.bytes_served), self.files_a_second());
        push(&mut self.kilobytes, (bytes / 1e3).round() as u64);
        push(&mut self.files, files.round() as u64);
        self.bad = bad.iter().map(one_line).collect();
        (self.info, self.stats, self.gone) = (info, Some(stats), None);
    }

    /// A count between the last two looks, per second.
    pub(crate) fn rate(&self, count: u64) -> f64 {
        let seconds = self.delta.counters.uptime_seconds;
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }

    /// Samples a second whose beginning was read.
    pub(crate) fn files_a_second(&self) -> f64 {
        self.rate(self.delta.counters.first_reads)
    }

    /// Requests a second, of all kinds that a process waits for.
    pub(crate) fn requests_a_second(&self) -> f64 {
        self.rate(requests(&self.delta))
    }

    /// [`hit_rate`] between the last two looks.
    pub(crate) fn hit_rate(&self) -> Option<f64> {
        hit_rate(&self.delta)
    }
}

fn push(history: &mut VecDeque<u64>, value: u64) {
    if history.len() == MAX_HISTORY {
        history.pop_front();
    }
    history.push_back(value);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::vfs::Histogram;

    /// A look at a mount that has served so much in so many seconds.
    pub(crate) fn sample(seconds: u64, megabytes: u64, bad: &[&str]) -> Sample {
        let mut stats = MountStats::default();
        let counters = &mut stats.counters;
        counters.uptime_seconds = seconds as f64;
        counters.bytes_served = megabytes * 1_000_000;
        counters.first_reads = megabytes * 10;
        counters.requests = [("read", 10), ("lookup", 10), ("forget", 99)]
            .map(|(name, each)| (name.to_owned(), megabytes * each))
            .into();
        let times = |count: Vec<u64>| Histogram {
            le: (0..count.len() as u32 - 1).map(|bucket| 1 << bucket).collect(),
            count,
            sum: 0,
        };
        let read = times(vec![0, 0, 0, 0, megabytes * 9, 0, 0, 0, 0, 0, 0, megabytes, 0]);
        counters.latency_us = [("read".to_owned(), read)].into();
        counters.stage_us = [("disk".to_owned(), times(vec![0, megabytes, 0]))].into();
        stats.cache.bytes = 64 << 20;
        stats.cache.capacity_bytes = 256 << 20;
        stats.prefetch.used = megabytes * 3;
        stats.prefetch.fetched_bytes = megabytes * 1_000_000;
        stats.bad_samples = bad.len() as u64;
        let mut info = MountInfo { pid: 1, ..MountInfo::default() };
        info.transport = "uring".into();
        info.io = "direct".into();
        info.verify = "always".to_owned();
        info.dataset.samples = 123_456;
        info.dataset.bytes = 12_345_678_901;
        Sample { info, stats, bad: bad.iter().map(|&line| line.to_owned()).collect() }
    }
}
