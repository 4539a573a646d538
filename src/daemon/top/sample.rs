//! A thread for each mount that samples its figures: a daemon that hangs blocks only the thread of its mount.

use crate::daemon::live::Live;
use crate::vfs::report::{MountInfo, MountStats};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::Thread;
use std::time::Duration;

/// The most lines of `bad` that are kept.
const MAX_BAD: usize = 100;

/// The figures of a mount at one time.
pub(crate) struct Sample {
    pub(crate) info: MountInfo,
    pub(crate) stats: MountStats,
    /// Names of bad samples with the reasons, oldest first.
    pub(crate) bad: Vec<String>,
}

/// The threads, one for each mount.
pub(crate) struct Samplers {
    interval_ms: Arc<AtomicU64>,
    threads: Vec<Thread>,
    samples: mpsc::Receiver<(usize, Result<Sample, String>)>,
}

impl Samplers {
    pub(crate) fn start(mounts: Vec<Live>, interval: Duration) -> Self {
        let interval_ms = Arc::new(AtomicU64::new(millis(interval)));
        let (send, samples) = mpsc::channel();
        let start = |(number, mount): (usize, Live)| {
            let (send, interval_ms) = (send.clone(), Arc::clone(&interval_ms));
            let look = move || {
                while send.send((number, sample(&mount))).is_ok() {
                    let pause = Duration::from_millis(interval_ms.load(Ordering::Relaxed));
                    std::thread::park_timeout(pause);
                }
            };
            std::thread::spawn(look).thread().clone()
        };
        let threads = mounts.into_iter().enumerate().map(start).collect();
        Self { interval_ms, threads, samples }
    }

    /// The samples since the last call, by number of the mount.
    pub(crate) fn take(&self) -> impl Iterator<Item = (usize, Result<Sample, String>)> {
        self.samples.try_iter()
    }

    pub(crate) fn set_interval(&self, interval: Duration) {
        self.interval_ms.store(millis(interval), Ordering::Relaxed);
        self.threads.iter().for_each(Thread::unpark);
    }
}

fn millis(interval: Duration) -> u64 {
    u64::try_from(interval.as_millis()).unwrap_or(u64::MAX)
}

fn sample(mount: &Live) -> Result<Sample, String> {
    let look = || {
        let (info, stats) = (mount.info()?, mount.stats()?);
        let bad = match stats.bad_samples + stats.bad_containers {
            0 => Ok(Vec::new()),
            _ => mount.read("bad").map(|text| bad(&String::from_utf8_lossy(&text))),
        };
        Ok(Sample { info, stats, bad: bad.unwrap_or_default() })
    };
    look().map_err(|failure: crate::failure::Failure| match mount.is_mounted() {
        true => failure.to_string(),
        false => "it was unmounted".to_owned(),
    })
}

/// Parses lines `PATH REASON CONTAINER …`, separated by tabs; the path of a whole container is `-`.
fn bad(text: &str) -> Vec<String> {
    let line = |line: &str| {
        let mut fields = line.split('\t');
        let (path, reason) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        match (path, fields.next()) {
            ("-", Some(container)) if container != "-" => format!("{container}: {reason}"),
            ("-", _) => reason.to_owned(),
            _ => format!("{path}: {reason}"),
        }
    };
    text.lines().take(MAX_BAD).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_samples_containers_and_those_unlisted_are_told_apart() {
        let text = "cat/1.jpg\tchecksum\t/a.ffr\t1\t2\t3\t4\t5\n\
                    -\tit was truncated\t/b.ffr\t-\t-\t-\t-\t-\n\
                    -\tand 7 more requests for bad samples\t-\t-\t-\t-\t-\t-\n";
        assert_eq!(
            bad(text),
            [
                "cat/1.jpg: checksum",
                "/b.ffr: it was truncated",
                "and 7 more requests for bad samples"
            ]
        );
        assert!(bad("").is_empty());
    }
}
