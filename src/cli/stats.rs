//! `ffrfs stats`: the figures of a mount so far, or in each interval.

use super::print::to_stdout;
use crate::daemon::figures::{hit_rate, uptime};
use crate::daemon::live::Live;
use crate::daemon::memory::in_words;
use crate::failure::{Exit, Failure};
use crate::format::{counted, one_line};
use crate::store::remote::RemoteFigures;
use crate::vfs::Histogram;
use crate::vfs::report::{self, Info, MountInfo, MountStats};
use clap::Args;
use indicatif::{HumanBytes, HumanCount, HumanDuration};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Print what a mount has done
#[derive(Debug, Args)]
pub(super) struct StatsArgs {
    /// Where the dataset is mounted [default: all mounts, one per line, as `ffrfs list`]
    #[arg(value_name = "MOUNTPOINT")]
    target: Option<PathBuf>,
    /// Print one JSON object; with --watch one per line
    #[arg(long)]
    json: bool,
    /// Print a line every SECONDS, with what was done since the line before; needs MOUNTPOINT
    #[arg(long, value_name = "SECONDS", value_parser = super::seconds::seconds, requires = "target")]
    watch: Option<Duration>,
}

/// The object that `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(serialize_with = "report::lossy")]
    mountpoint: &'a Path,
    info: &'a MountInfo,
    stats: &'a MountStats,
}

pub(super) fn run(args: &StatsArgs) -> Result<Exit, Failure> {
    let Some(target) = &args.target else { return super::list::print(args.json) };
    let mount = Live::at(target)?;
    if let Some(pause) = args.watch {
        return watch(&mount, pause, args.json);
    }
    let (info, stats) = (mount.info()?, mount.stats()?);
    let report = Report { mountpoint: mount.root(), info: &info, stats: &stats };
    to_stdout(&match args.json {
        true => report::json(&report),
        false => table(&report).into_bytes(),
    })?;
    Ok(Exit::Ok)
}

/// Prints a line for each interval, until the command is interrupted, or the mount goes.
fn watch(mount: &Live, pause: Duration, json: bool) -> Result<Exit, Failure> {
    const HEADER_EVERY: usize = 20;
    let mut before = mount.stats()?;
    for line in 0.. {
        std::thread::sleep(pause);
        let now = mount.stats()?;
        let stats = now.since(&before);
        before = now;
        if json {
            // Another daemon may serve by now.
            let info = mount.info()?;
            let report = Report { mountpoint: mount.root(), info: &info, stats: &stats };
            to_stdout(&report::json_line(&report))?;
        } else {
            let header = if line % HEADER_EVERY == 0 { WATCH_HEADER } else { "" };
            to_stdout(format!("{header}{}", watch_line(&stats)).as_bytes())?;
        }
    }
    Ok(Exit::Ok)
}

const WATCH_HEADER: &str =
    "  lookup/s    read/s    served/s   fetched/s    found  read p50  read p99  disk p99   bad\n";

fn watch_line(stats: &MountStats) -> String {
    let counters = &stats.counters;
    let seconds = counters.uptime_seconds.max(0.001);
    let rate = |count: u64| (count as f64 / seconds).round() as u64;
    let bytes = |count| format!("{}", HumanBytes(rate(count)));
    let read = counters.latency_us.get("read").cloned().unwrap_or_default();
    format!(
        "{:>10}{:>10}{:>12}{:>12}{:>9}{:>10}{:>10}{:>10}{:>6}\n",
        rate(counters.requests_of("lookup")),
        rate(counters.requests_of("read")),
        bytes(counters.bytes_served),
        bytes(counters.bytes_fetched),
        share(counters.without_waiting()),
        time(read.quantile(0.5)),
        time(read.quantile(0.99)),
        time(counters.stage("disk").quantile(0.99)),
        stats.bad_samples,
    )
}

/// The table for people.
fn table(report: &Report) -> String {
    let Report { mountpoint, info, stats } = report;
    let counters = &stats.counters;
    let mut out = String::new();
    let mut row = |name: &str, what: String| {
        let _ = writeln!(out, "{name:<15}{what}");
    };
    let dataset = &info.dataset;
    row("mount point", one_line(mountpoint.to_string_lossy().as_bytes()));
    row("dataset", size(dataset));
    row("uptime", HumanDuration(uptime(stats)).to_string());
    row("transport", format!("{}; reads: {}; verify: {}", info.transport, info.io, info.verify));
    row("served", bytes(counters.bytes_served));
    row("fetched", format!("{} from storage", bytes(counters.bytes_fetched)));
    row(
        "found",
        format!(
            "{} of the reads found their bytes in memory, or being fetched",
            share(counters.without_waiting())
        ),
    );
    row("cache", cache(stats));
    row("prefetch", prefetch(stats));
    row("", announced(stats));
    if let Some(remote) = &stats.remote {
        row("store", requests(remote));
        row("", store_bytes(remote));
        row("", retries(remote));
        row("", disk_cache(remote));
    }
    row("memory", memory(info, stats));
    row(
        "verified",
        format!(
            "{}; mismatches: {}; read errors: {}",
            counted(count(counters.samples_verified), "sample"),
            count(counters.checksum_failures),
            count(counters.io_errors)
        ),
    );
    row(
        "bad",
        match (stats.bad_samples, stats.bad_containers) {
            (0, 0) => "none".to_owned(),
            (samples, containers) => format!(
                "samples: {}, containers: {}; see {}/.ffrfs/bad",
                count(samples),
                count(containers),
                one_line(mountpoint.to_string_lossy().as_bytes()),
            ),
        },
    );
    out.push_str(&latencies(stats));
    out
}

/// The number of samples, and that of the files they are shown as: a sample that holds the names of the others is no file.
fn size(dataset: &Info) -> String {
    let (all, bytes) = (counted(count(dataset.samples), "sample"), bytes(dataset.bytes));
    match dataset.named_samples {
        named if named < dataset.samples => {
            format!("{all}, {bytes}; {} shown", counted(count(named), "file"))
        }
        _ => format!("{all}, {bytes}"),
    }
}

fn cache(stats: &MountStats) -> String {
    let (cache, blocks) = (&stats.cache, &stats.blocks);
    format!(
        "hit rate {} (samples: {}, blocks: {}, prefetched: {}); evicted: {}",
        share(hit_rate(stats)),
        count(cache.hits),
        count(blocks.hits),
        count(stats.prefetch.used),
        count(cache.evictions + blocks.evicted),
    )
}

fn prefetch(stats: &MountStats) -> String {
    let figures = &stats.prefetch;
    format!(
        "efficiency {}; foreseen: {}; {} fetched",
        share(figures.efficiency()),
        count(figures.foreseen),
        bytes(figures.fetched_bytes),
    )
}

fn announced(stats: &MountStats) -> String {
    let figures = &stats.prefetch;
    format!(
        "announced: {} (waiting: {}, done: {}, failed: {}, skipped: {})",
        count(figures.announced),
        count(figures.waiting),
        count(figures.done),
        count(figures.failed),
        count(figures.skipped),
    )
}

fn requests(remote: &RemoteFigures) -> String {
    format!(
        "{} GET (readers: {}, ahead: {}, opening: {}, second: {}, faster than the first: {}, again: {}), {} HEAD, \
         {} LIST, about ${:.4}; in flight: {}; failed: {}",
        count(remote.gets()),
        count(remote.gets_demand),
        count(remote.gets_prefetch),
        count(remote.gets_open),
        count(remote.gets_hedge),
        count(remote.hedges_won),
        count(remote.retries()),
        count(remote.heads),
        count(remote.lists),
        remote.dollars(),
        count(remote.in_flight),
        count(remote.failures),
    )
}

fn store_bytes(remote: &RemoteFigures) -> String {
    let first_byte = remote.first_byte.histogram();
    let ratio = remote.fetched_per_used();
    format!(
        "{} fetched for {} used ({} for each byte); first byte p50 {}, p99 {}",
        bytes(remote.fetched_bytes),
        bytes(remote.used_bytes),
        ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
        bound(first_byte.quantile(0.5)),
        bound(first_byte.quantile(0.99)),
    )
}

fn retries(remote: &RemoteFigures) -> String {
    format!(
        "sent again because of 429 or 503: {}, other errors: {}, broken answers: {}, silence: {}, else: {}",
        count(remote.retries_throttled),
        count(remote.retries_unavailable),
        count(remote.retries_broken),
        count(remote.retries_timed_out),
        count(remote.retries_other),
    )
}

fn disk_cache(remote: &RemoteFigures) -> String {
    let state = &remote.disk_cache;
    let place = match (&state.directory, &state.unused_because) {
        (Some(directory), None) => one_line(directory),
        (Some(directory), Some(why)) => {
            format!("{} takes nothing now ({})", one_line(directory), one_line(why))
        }
        (None, why) => {
            format!("none ({})", one_line(why.as_deref().unwrap_or("not asked for yet")))
        }
    };
    format!(
        "cache on disk: {place}; reads that found their bytes: {}; waited for another read: {}, for another \
         mount: {}; blocks without room: {}; objects evicted: {}, blocks: {}",
        share(remote.hit_rate()),
        count(remote.joins),
        count(remote.lock_joins),
        count(remote.no_room),
        count(remote.evictions),
        count(remote.evicted_blocks),
    )
}

fn memory(info: &MountInfo, stats: &MountStats) -> String {
    let held =
        format!("{} held of {}", bytes(stats.cache.bytes), in_words(stats.cache.capacity_bytes));
    match info.request_bytes {
        0 => held,
        requests => format!("{held}; requests: {}", in_words(requests)),
    }
}

/// A line for each kind of request and stage that occurred: their number, and the times they took.
fn latencies(stats: &MountStats) -> String {
    let counters = &stats.counters;
    let mut out = format!(
        "\n{:<15}{:>14}{:>10}{:>10}{:>10}{:>10}\n",
        "", "count", "mean", "p50", "p90", "p99"
    );
    let mut line = |name: &str, times: &Histogram| {
        let total = times.total();
        if total > 0 {
            let mean = Some(times.sum as f64 / total as f64);
            let quantiles = [0.5, 0.9, 0.99].map(|q| bound(times.quantile(q)));
            let [p50, p90, p99] = quantiles;
            let total = count(total);
            let _ =
                writeln!(out, "{name:<15}{total:>14}{:>10}{p50:>10}{p90:>10}{p99:>10}", time(mean));
        }
    };
    counters.latency_us.iter().for_each(|(name, times)| line(name, times));
    for (stage, name) in [("disk", "wait for disk"), ("verify", "verify"), ("ahead", "fetch ahead")]
    {
        line(name, &counters.stage(stage));
    }
    if let Some(remote) = &stats.remote {
        line("first byte", &remote.first_byte.histogram());
        line("store's answer", &remote.total.histogram());
    }
    out
}

pub(super) fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

pub(super) fn bytes(number: u64) -> String {
    HumanBytes(number).to_string()
}

pub(super) fn share(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.1}%", share * 100.0))
}

/// Microseconds in µs, ms or s.
pub(super) fn time(micros: Option<f64>) -> String {
    match micros {
        None => "-".to_owned(),
        Some(micros) if micros.is_infinite() => ">16 s".to_owned(),
        Some(micros) if micros < 1e3 => format!("{micros:.0} µs"),
        Some(micros) if micros < 1e6 => format!("{:.1} ms", micros / 1e3),
        Some(micros) => format!("{:.1} s", micros / 1e6),
    }
}

/// A quantile, of which only the upper bound of its bucket is known.
fn bound(micros: Option<f64>) -> String {
    match micros {
        Some(finite) if finite.is_finite() => format!("≤ {}", time(micros)),
        _ => time(micros),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_units() {
        let cases =
            [(Some(7.0), "7 µs"), (Some(1500.0), "1.5 ms"), (Some(2e6), "2.0 s"), (None, "-")];
        for (micros, text) in cases {
            assert_eq!(time(micros), text);
        }
        assert_eq!(bound(Some(64.0)), "≤ 64 µs");
        assert_eq!(bound(Some(f64::INFINITY)), ">16 s");
    }

    #[test]
    fn the_table_of_an_unused_mount_has_dashes_for_rates() {
        let (info, stats) = (MountInfo::default(), MountStats::default());
        let text = table(&Report { mountpoint: Path::new("/mnt\n"), info: &info, stats: &stats });
        assert!(text.starts_with("mount point    /mnt\\x0a\n"), "{text}");
        assert!(text.contains("hit rate -") && !text.contains("NaN"), "{text}");
    }

    #[test]
    fn what_was_fetched_ahead_of_millions_of_samples_fits_into_a_line() {
        let (info, mut stats) = (MountInfo::default(), MountStats::default());
        let figures = &mut stats.prefetch;
        (figures.announced, figures.done, figures.foreseen) = (12_345_678, 12_345_678, 12_345_678);
        (figures.waiting, figures.skipped) = (12_345_678, 12_345_678);
        figures.fetched_bytes = 1 << 50;
        let text = table(&Report { mountpoint: Path::new("/mnt"), info: &info, stats: &stats });
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(text.contains("100.0%") && longest <= Some(110), "{text}");
    }

    #[test]
    fn a_mount_that_tells_an_impossible_age_is_shown_all_the_same() {
        let info = MountInfo::default();
        for age in [-1.0, 1e300, f64::NAN] {
            let mut stats = MountStats::default();
            stats.counters.uptime_seconds = age;
            let report = Report { mountpoint: Path::new("/mnt"), info: &info, stats: &stats };
            assert!(table(&report).contains("uptime         0 seconds"));
        }
    }
}
