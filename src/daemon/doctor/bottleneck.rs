//! The bottleneck of a mount at present, from two samples of its counters and of the figures of the host.
//!
//! The decision is a function of figures alone, so that tests can pass any figures. `remote` looks at the figures of stores.

mod remote;

use super::check::Check;
use super::load::HostLoad;
use super::storage;
use crate::daemon::figures::requests;
use crate::daemon::live::Live;
use crate::io::mount::mounts::Mount;
use crate::io::process::cgroup;
use crate::vfs::report::{MountInfo, MountStats};
use indicatif::HumanBytes;
use std::time::Duration;

/// A CPU or device that is used for this share of the time is at its limit.
const SATURATED: f64 = 0.9;
/// Reads are bound by the disk if they wait for it for this share of the time of all requests …
const MAJORITY: f64 = 0.5;
/// … and this many of them wait at a time.
const NEGLIGIBLE: f64 = 0.1;
/// A dataset is read again if more than this many times its bytes were fetched.
const REREAD: f64 = 1.25;
/// The share of the memory that can hold a dataset.
const FITS: f64 = 0.75;
/// A share of the CPU time of requests that is worth a change.
const SIGNIFICANT: f64 = 0.3;
/// Fewer waiting readers leave a device idle between their reads.
const FEW_READERS: f64 = 2.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bottleneck {
    /// There are no requests.
    Idle,
    /// The mount waits for the next request.
    Readers,
    Cpu,
    Device,
    /// A store, or the network between it and the host.
    Store,
    /// All threads for reads that wait for the disk are in use.
    Workers,
    /// The dataset does not fit in memory.
    DatasetTooLarge,
    /// The dataset would fit, but is evicted from the page cache.
    PageCache,
}

/// The figures that the decision is made from.
#[derive(Debug, Clone, Default)]
struct Facts {
    info: MountInfo,
    /// The counters since the mount.
    since_mount: MountStats,
    /// The counters between the samples.
    window: MountStats,
    seconds: f64,
    /// How many CPUs the daemon used.
    daemon_cpus: Option<f64>,
    /// How many threads of the daemon waited for a CPU.
    cpu_waiters: Option<f64>,
    /// How many CPUs the host, or the cgroup, has.
    cpus: f64,
    /// The share of the CPU time of the host that was used.
    host_busy: Option<f64>,
    /// The share of the time in which the device had something to do.
    device_busy: Option<f64>,
    memory_bytes: u64,
}

impl Facts {
    fn requests(&self) -> u64 {
        requests(&self.window)
    }

    /// The requests under way at a time, on average, if all of them took `micros` together.
    fn at_a_time(&self, micros: u64) -> f64 {
        micros as f64 / 1e6 / self.seconds.max(0.001)
    }

    /// Reads that waited for disk reads of their own; reads that still wait are not in any sum.
    fn waiting_themselves(&self) -> f64 {
        let ended = self.at_a_time(self.window.counters.stage("disk").sum);
        ended.max(self.window.reads_waiting as f64)
    }

    /// Reads that waited for the disk, also for a disk read of another request, or for a prefetch that came too late.
    fn waiting(&self) -> f64 {
        let counters = &self.window.counters;
        let reads = counters.latency_us.get("read").map_or(0, |times| times.sum);
        let unverified = reads.saturating_sub(counters.stage("verify").sum);
        let own = self.waiting_themselves();
        let others = self.at_a_time(counters.stage("ahead").sum);
        (own + others).min(self.at_a_time(unverified)).max(own)
    }

    /// Requests under way, waiting or not.
    fn serving(&self) -> f64 {
        let sums = self.window.counters.latency_us.values().map(|times| times.sum);
        self.at_a_time(sums.sum()).max(self.waiting())
    }

    /// The share of the time of requests beside the disk that is spent on checksums.
    fn verifying(&self) -> f64 {
        let rest = (self.serving() - self.waiting()).max(0.001);
        self.at_a_time(self.window.counters.stage("verify").sum) / rest
    }

    fn is_disk_bound(&self) -> bool {
        self.waiting() >= NEGLIGIBLE && self.waiting() >= MAJORITY * self.serving()
    }

    fn is_device_full(&self) -> bool {
        self.device_busy.is_some_and(|busy| busy >= SATURATED)
    }

    fn is_cpu_full(&self) -> bool {
        let host = self.host_busy.is_some_and(|busy| busy >= SATURATED);
        host || self.daemon_cpus.is_some_and(|used| used >= SATURATED * self.cpus)
    }

    fn decide(&self) -> Bottleneck {
        let ahead = self.window.counters.stage("ahead").total();
        if self.requests() == 0 && ahead == 0 && self.window.reads_waiting == 0 {
            return Bottleneck::Idle;
        }
        // Where CPUs are short, a read that waits for the disk waits for a CPU, too.
        let is_ours = self.daemon_cpus.is_some_and(|used| used >= self.cpus * MAJORITY);
        let are_late = self.cpu_waiters.is_some_and(|late| late >= MAJORITY * self.waiting());
        let cpu_first = (is_ours || are_late) && !self.is_device_full();
        match (self.is_disk_bound(), self.is_cpu_full()) {
            (true, true) if cpu_first => Bottleneck::Cpu,
            (true, _) => self.decide_disk(),
            (false, true) => Bottleneck::Cpu,
            (false, false) => Bottleneck::Readers,
        }
    }

    fn decide_disk(&self) -> Bottleneck {
        if self.window.remote.as_ref().is_some_and(remote::is_waited_for) {
            return Bottleneck::Store;
        }
        let workers = self.info.workers as f64;
        let are_workers_full =
            self.info.transport == "devfuse" && self.waiting_themselves() >= SATURATED * workers;
        let dataset = self.info.dataset.bytes as f64;
        let is_read_again = self.since_mount.counters.bytes_fetched as f64 > REREAD * dataset;
        if are_workers_full && workers > 0.0 && !self.is_device_full() {
            Bottleneck::Workers
        } else if is_read_again && dataset > FITS * self.memory_bytes as f64 {
            Bottleneck::DatasetTooLarge
        } else if is_read_again {
            Bottleneck::PageCache
        } else {
            Bottleneck::Device
        }
    }

    /// The figures behind the decision.
    fn figures(&self) -> String {
        let counters = &self.window.counters;
        let per_second = |count: u64| count as f64 / self.seconds.max(0.001);
        let bytes = |count| HumanBytes(per_second(count) as u64);
        let mut words = vec![
            format!("{:.0} requests/s", per_second(self.requests())),
            format!("served {}/s", bytes(counters.bytes_served)),
            format!("fetched {}/s", bytes(counters.bytes_fetched)),
            format!("reads waiting for storage: {:.1}", self.waiting()),
        ];
        let percent = |name: &str, share: Option<f64>| {
            share.map(|share| format!("{name} {:.0}%", share * 100.0))
        };
        words.extend(percent("device busy", self.device_busy));
        words.extend(percent("all CPUs", self.host_busy));
        words.extend(percent("CPU of the daemon", self.daemon_cpus));
        let late = self.cpu_waiters.filter(|late| *late >= NEGLIGIBLE);
        words.extend(late.map(|late| format!("threads waiting for a CPU: {late:.1}")));
        words.join(", ")
    }

    fn advice(&self, bottleneck: Bottleneck) -> String {
        match bottleneck {
            Bottleneck::Idle | Bottleneck::Readers => String::new(),
            Bottleneck::Cpu => self.advice_on_cpus(),
            Bottleneck::Store => {
                let window = self.window.remote.as_ref();
                window.map_or_else(String::new, |window| remote::advice(window, self.seconds))
            }
            Bottleneck::Workers => "use transport=uring, which needs no thread for each read that waits \
                (ffrfs doctor says what keeps this host from it)"
                .to_owned(),
            Bottleneck::Device if self.waiting() < FEW_READERS && !self.is_device_full() => {
                "few readers take turns to wait: use more at a time (DataLoader workers), announce the order \
                 of an epoch (.ffrfs/prefetch), or run ffrfs warmup"
                    .to_owned()
            }
            Bottleneck::Device => "announce the order of an epoch (.ffrfs/prefetch), so that samples are read in \
                the order of their offsets, or use a faster device; more readers do not help"
                .to_owned(),
            Bottleneck::DatasetTooLarge => format!(
                "every epoch is read from storage again: {} of samples, {} of memory; use more memory, give each \
                 host a part of the dataset, or announce the order of an epoch (.ffrfs/prefetch)",
                HumanBytes(self.info.dataset.bytes),
                HumanBytes(self.memory_bytes)
            ),
            Bottleneck::PageCache => "the samples would fit: find what else takes memory (free, the \
                cgroup's limit) or drops caches; ffrfs warmup reads them into the page cache again"
                .to_owned(),
        }
    }

    fn advice_on_cpus(&self) -> String {
        if self.daemon_cpus.is_some_and(|used| used < self.cpus * SIGNIFICANT) {
            return "other programs use the CPUs: run fewer of these, or use more CPUs".to_owned();
        }
        if self.info.verify == "always" && self.verifying() >= SIGNIFICANT {
            return "checksums take much CPU time: ffrfs set MNT verify=once has each sample checked once"
                .to_owned();
        }
        match self.info.transport.as_ref() {
            "devfuse" => "use transport=uring, which takes less CPU time a request, or fewer and larger samples",
            _ => "use more CPUs, or fewer and larger samples, or run ffrfs warmup: reads from the page cache cost least",
        }
        .to_owned()
    }

    fn check(&self, name: &str) -> Check {
        let bottleneck = self.decide();
        let what = match bottleneck {
            Bottleneck::Idle => {
                "none, idle: no process reads anything that the page cache does not hold"
            }
            Bottleneck::Readers => "the readers: the mount waits for their next request",
            Bottleneck::Cpu => "CPU",
            Bottleneck::Device => "device",
            Bottleneck::Store => "the store: reads wait for its answers",
            Bottleneck::Workers => "too few workers",
            Bottleneck::DatasetTooLarge => "dataset larger than memory",
            Bottleneck::PageCache => "page cache: samples do not stay in it, and are read again",
        };
        let (check, found) =
            (format!("{name}: bottleneck"), format!("{what} ({})", self.figures()));
        match bottleneck {
            Bottleneck::Idle | Bottleneck::Readers => Check::ok(check, found),
            _ => Check::note(check, found, self.advice(bottleneck).replace("MNT", name)),
        }
    }
}

/// Samples a mount twice, with a pause between, and returns checks of its bottleneck and of its store's answers.
pub(crate) fn checks(name: &str, mount: &Mount, pause: Duration) -> Vec<Check> {
    // If root looks into a mount as its user, that user may have the mount name any path, and root must not look at that path.
    let is_trusted = mount.seen_as().is_none();
    let sample_twice = || {
        let mount = Live::at(&mount.target)?;
        let info = mount.info()?;
        let first = info.dataset.containers.first().filter(|_| is_trusted);
        let disk = first.and_then(|c| storage::disk_of(c.path.as_path()?));
        let (host, stats) = (HostLoad::sample(info.pid, disk.as_deref()), mount.stats()?);
        std::thread::sleep(pause);
        let (later, stats_later) = (HostLoad::sample(info.pid, disk.as_deref()), mount.stats()?);
        Ok::<_, crate::failure::Failure>(facts(info, &stats, stats_later, &host, &later))
    };
    match sample_twice() {
        Ok(facts) => {
            let figures = facts.window.remote.as_ref().zip(facts.since_mount.remote.as_ref());
            let store =
                figures.map(|(window, all)| remote::checks(name, window, all, facts.seconds));
            std::iter::once(facts.check(name)).chain(store.into_iter().flatten()).collect()
        }
        Err(failure) => {
            vec![Check::note(format!("{name}: bottleneck"), format!("unknown: {failure}"), "")]
        }
    }
}

fn facts(
    info: MountInfo,
    before: &MountStats,
    stats_later: MountStats,
    host: &HostLoad,
    later: &HostLoad,
) -> Facts {
    let seconds = later.at.duration_since(host.at).as_secs_f64().max(0.001);
    let since = |before: Option<u64>, after: Option<u64>| Some(after?.saturating_sub(before?));
    let busy = since(host.cpu.map(|(busy, _)| busy), later.cpu.map(|(busy, _)| busy));
    let all = since(host.cpu.map(|(_, all)| all), later.cpu.map(|(_, all)| all));
    let (daemon, daemon_later) = (host.daemon_nanos, later.daemon_nanos);
    let used = since(daemon.map(|(used, _)| used), daemon_later.map(|(used, _)| used));
    let late = since(daemon.map(|(_, late)| late), daemon_later.map(|(_, late)| late));
    let cpus = std::thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64);
    // A read that waits in only one of the samples may be answered the next moment.
    let reads_waiting = before.reads_waiting.min(stats_later.reads_waiting);
    Facts {
        window: MountStats { reads_waiting, ..stats_later.since(before) },
        since_mount: stats_later,
        info,
        seconds,
        daemon_cpus: used.map(|nanos| nanos as f64 / 1e9 / seconds),
        cpu_waiters: late.map(|nanos| nanos as f64 / 1e9 / seconds),
        cpus: cgroup::limits().cpus.map_or(cpus, |limit| limit.min(cpus)),
        host_busy: busy
            .zip(all)
            .filter(|(_, all)| *all > 0)
            .map(|(busy, all)| busy as f64 / all as f64),
        device_busy: since(host.device_millis, later.device_millis)
            .map(|millis| (millis as f64 / 1e3 / seconds).min(1.0)),
        memory_bytes: cgroup::total_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;
    use crate::store::remote::RemoteFigures;
    use crate::vfs::Histogram;

    const GIB: u64 = 1 << 30;

    fn times(count: u64, sum: u64) -> Histogram {
        Histogram { le: vec![1], count: vec![count, 0], sum }
    }

    /// One second in which 1000 reads took `serving` seconds together, `waiting` of them for the disk, on a
    /// host of 8 CPUs and 64 GiB.
    fn facts(serving: f64, waiting: f64) -> Facts {
        let micros = |seconds: f64| (seconds * 1e6) as u64;
        let mut facts =
            Facts { seconds: 1.0, cpus: 8.0, memory_bytes: 64 * GIB, ..Facts::default() };
        facts.info.dataset.bytes = 10 * GIB;
        facts.info.transport = "uring".into();
        facts.info.verify = "always".into();
        facts.info.workers = 8;
        let counters = &mut facts.window.counters;
        counters.requests.insert("read".to_owned(), 1000);
        counters.latency_us.insert("read".to_owned(), times(1000, micros(serving)));
        counters.stage_us.insert("disk".to_owned(), times(900, micros(waiting)));
        (facts.daemon_cpus, facts.host_busy, facts.device_busy) = (Some(0.5), Some(0.2), Some(0.5));
        facts
    }

    #[test]
    fn nobody_asks() {
        let mut facts = facts(0.0, 0.0);
        facts.window.counters.requests = [("read".to_owned(), 0), ("forget".to_owned(), 9)].into();
        assert_eq!(facts.decide(), Bottleneck::Idle);
        // What is being waited for has not been counted yet.
        facts.window.reads_waiting = 3;
        assert_eq!(facts.decide(), Bottleneck::Device);
    }

    #[test]
    fn requests_are_answered_at_once_and_the_readers_are_slow() {
        assert_eq!(facts(0.2, 0.01).decide(), Bottleneck::Readers);
        assert_eq!(facts(0.06, 0.05).decide(), Bottleneck::Readers, "hardly anybody waits");
    }

    #[test]
    fn reads_wait_for_the_device() {
        let mut facts = facts(4.0, 3.8);
        assert_eq!(facts.decide(), Bottleneck::Device);
        assert!(facts.advice(Bottleneck::Device).contains("faster device"));
        facts.host_busy = Some(0.99);
        assert_eq!(facts.decide(), Bottleneck::Device, "others use the CPUs");
        facts.cpu_waiters = Some(0.4);
        assert_eq!(facts.decide(), Bottleneck::Device, "and the daemon has one when it needs it");
        facts.cpu_waiters = Some(3.1);
        assert_eq!(facts.decide(), Bottleneck::Cpu, "and the daemon waits for one");
        (facts.device_busy, facts.cpu_waiters) = (None, None);
        assert_eq!(facts.decide(), Bottleneck::Device);
    }

    #[test]
    fn reads_of_a_remote_container_wait_for_its_store_unless_their_bytes_are_cached() {
        let mut facts = facts(4.0, 3.8);
        facts.window.remote = Some(RemoteFigures { misses: 900, ..RemoteFigures::default() });
        assert_eq!(facts.decide(), Bottleneck::Store);
        assert!(facts.check("/mnt").found.starts_with("the store"));
        facts.window.remote = Some(RemoteFigures { hits: 900, ..RemoteFigures::default() });
        assert_eq!(facts.decide(), Bottleneck::Device);
    }

    #[test]
    fn a_single_reader_waits_for_a_device_that_is_not_at_its_limit() {
        let facts = facts(0.9, 0.8);
        assert_eq!(facts.decide(), Bottleneck::Device);
        assert!(facts.advice(Bottleneck::Device).contains("few readers"));
    }

    #[test]
    fn reads_that_wait_for_what_is_fetched_ahead_wait_for_the_device() {
        let mut facts = facts(4.0, 0.5);
        assert_eq!(facts.decide(), Bottleneck::Readers);
        facts.window.counters.stage_us.insert("ahead".to_owned(), times(900, 9_000_000));
        assert!((facts.waiting() - 4.0).abs() < 1e-9, "no more than there are");
        assert_eq!(facts.decide(), Bottleneck::Device);
    }

    #[test]
    fn all_workers_wait_and_the_device_could_do_more() {
        let mut facts = facts(20.0, 7.9);
        facts.window.counters.stage_us.insert("disk".to_owned(), times(900, 19_000_000));
        facts.info.transport = "devfuse".into();
        assert_eq!(facts.decide(), Bottleneck::Workers);
        facts.device_busy = Some(1.0);
        assert_eq!(facts.decide(), Bottleneck::Device);
        facts.device_busy = Some(0.3);
        facts.info.transport = "uring".into();
        assert_eq!(facts.decide(), Bottleneck::Device, "it has no workers");
    }

    #[test]
    fn what_was_read_once_is_read_again() {
        let mut facts = facts(4.0, 3.8);
        facts.since_mount.counters.bytes_fetched = 30 * GIB;
        assert_eq!(facts.decide(), Bottleneck::PageCache);
        facts.memory_bytes = 8 * GIB;
        assert_eq!(facts.decide(), Bottleneck::DatasetTooLarge);
        let advice = facts.advice(Bottleneck::DatasetTooLarge);
        assert!(advice.contains("10.00 GiB") && advice.contains("8.00 GiB"), "{advice}");
        // The first epoch is no second one.
        facts.since_mount.counters.bytes_fetched = 9 * GIB;
        assert_eq!(facts.decide(), Bottleneck::Device);
    }

    #[test]
    fn requests_are_served_as_fast_as_the_cpus_can() {
        let mut facts = facts(8.0, 0.1);
        (facts.daemon_cpus, facts.host_busy) = (Some(7.5), Some(0.97));
        assert_eq!(facts.decide(), Bottleneck::Cpu);
        assert!(facts.advice(Bottleneck::Cpu).contains("more CPUs"));
        facts.window.counters.stage_us.insert("verify".to_owned(), times(900, 5_000_000));
        assert!(facts.advice(Bottleneck::Cpu).contains("verify=once"));
        facts.info.verify = "once".to_owned();
        facts.info.transport = "devfuse".into();
        assert!(facts.advice(Bottleneck::Cpu).contains("transport=uring"));
        // A cgroup's quota is full before the host is.
        (facts.cpus, facts.daemon_cpus, facts.host_busy) = (2.0, Some(1.9), Some(0.3));
        assert_eq!(facts.decide(), Bottleneck::Cpu);
    }

    #[test]
    fn cpus_that_others_use_up_are_said_to_be() {
        let mut facts = facts(2.0, 0.1);
        (facts.daemon_cpus, facts.host_busy) = (Some(0.4), Some(1.0));
        assert_eq!(facts.decide(), Bottleneck::Cpu);
        assert!(facts.advice(Bottleneck::Cpu).contains("other programs"));
    }

    #[test]
    fn the_check_has_the_figures_and_names_the_mount_in_what_to_do() {
        let mut facts = facts(8.0, 0.1);
        (facts.daemon_cpus, facts.host_busy) = (Some(7.5), Some(0.97));
        facts.window.counters.stage_us.insert("verify".to_owned(), times(900, 5_000_000));
        let check = facts.check("/mnt/ds");
        assert_eq!((check.state, check.check.as_str()), (State::Note, "/mnt/ds: bottleneck"));
        assert!(check.found.starts_with("CPU (1000 requests/s"), "{}", check.found);
        assert!(check.advice.contains("ffrfs set /mnt/ds verify=once"), "{}", check.advice);
    }
}
