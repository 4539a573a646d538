//! Counters in Prometheus' text format: base units, seconds and bytes.

use crate::io::process::procfs;
use crate::store::remote::RemoteFigures;
use crate::vfs::Histogram;
use crate::vfs::report::{MountInfo, MountStats};
use std::fmt::{Display, Write};

pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const MICROS_A_SECOND: f64 = 1e6;

/// The system's figures of this process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Process {
    cpu_seconds: f64,
    resident_bytes: u64,
}

/// The figures of this process now; 0 resident bytes where /proc is not there.
pub(crate) fn process() -> Process {
    let status = procfs::status();
    let resident = procfs::status_field(&status, "VmRSS");
    let kilobytes = resident.and_then(|text| text.strip_suffix(" kB")?.parse::<u64>().ok());
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
    let seconds = |time: nix::sys::time::TimeVal| {
        time.tv_sec() as f64 + time.tv_usec() as f64 / MICROS_A_SECOND
    };
    Process {
        cpu_seconds: usage.map_or(0.0, |u| seconds(u.user_time()) + seconds(u.system_time())),
        resident_bytes: kilobytes.unwrap_or(0) << 10,
    }
}

/// `a="b",c="d"`.
pub(crate) fn labels(pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<_> =
        pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
    pairs.join(",")
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// All metrics, each series with `labels`.
pub(crate) fn render(
    labels: &str,
    info: &MountInfo,
    stats: &MountStats,
    process: Process,
) -> String {
    let mut page = Page { labels, out: String::new() };
    page.mount(info, stats, process);
    page.requests(stats);
    page.memory(info, stats);
    page.prefetch(stats);
    page.intervals(stats);
    page.ring(stats);
    if let Some(remote) = &stats.remote {
        page.stores(remote);
    }
    page.out
}

struct Page<'a> {
    labels: &'a str,
    out: String,
}

impl Page<'_> {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn series(&mut self, name: &str, more: &str, value: impl Display) {
        let comma = if more.is_empty() { "" } else { "," };
        let _ = writeln!(self.out, "{name}{{{}{comma}{more}}} {value}", self.labels);
    }

    fn counter(&mut self, name: &str, value: impl Display, help: &str) {
        self.family(name, "counter", help);
        self.series(name, "", value);
    }

    fn gauge(&mut self, name: &str, value: impl Display, help: &str) {
        self.family(name, "gauge", help);
        self.series(name, "", value);
    }

    /// Writes a histogram; `scale` of its units make a base unit.
    fn histogram(&mut self, name: &str, more: &str, times: &Histogram, scale: f64) {
        let comma = if more.is_empty() { "" } else { "," };
        let mut total = 0;
        for (bound, count) in times.le.iter().zip(&times.count) {
            total += count;
            let le = *bound as f64 / scale;
            self.series(&format!("{name}_bucket"), &format!("{more}{comma}le=\"{le}\""), total);
        }
        let total = times.total();
        self.series(&format!("{name}_bucket"), &format!("{more}{comma}le=\"+Inf\""), total);
        self.series(&format!("{name}_sum"), more, times.sum as f64 / scale);
        self.series(&format!("{name}_count"), more, total);
    }

    fn mount(&mut self, info: &MountInfo, stats: &MountStats, process: Process) {
        self.family("ffrfs_info", "gauge", "How the dataset is mounted; always 1.");
        let how = labels(&[
            ("version", &info.dataset.ffrfs_version),
            ("transport", &info.transport),
            ("io", &info.io),
            ("verify", &info.verify),
        ]);
        self.series("ffrfs_info", &how, 1);
        let uptime = stats.counters.uptime_seconds;
        self.gauge("ffrfs_uptime_seconds", uptime, "Seconds since this daemon began to serve.");
        self.gauge("ffrfs_samples", info.dataset.samples, "Samples of the dataset.");
        self.gauge("ffrfs_dataset_bytes", info.dataset.bytes, "Bytes of all samples.");
        self.gauge("ffrfs_bad_samples", stats.bad_samples, "Samples found bad: they give EIO.");
        let containers = stats.bad_containers;
        self.gauge("ffrfs_bad_containers", containers, "Containers that cannot be used any more.");
        let cpu = process.cpu_seconds;
        self.counter("process_cpu_seconds_total", cpu, "CPU time of the daemon.");
        let resident = process.resident_bytes;
        self.gauge("process_resident_memory_bytes", resident, "Resident memory of the daemon.");
    }

    fn requests(&mut self, stats: &MountStats) {
        let counters = &stats.counters;
        self.family(
            "ffrfs_requests_total",
            "counter",
            "Requests of the kernel for samples and directories.",
        );
        for (operation, count) in &counters.requests {
            self.series("ffrfs_requests_total", &labels(&[("operation", operation)]), count);
        }
        let waiting = stats.reads_waiting;
        self.gauge("ffrfs_reads_waiting", waiting, "Reads that wait for storage now.");
        for (name, value, help) in [
            ("ffrfs_control_requests_total", counters.control_requests, "Requests for /.ffrfs."),
            ("ffrfs_first_reads_total", counters.first_reads, "Reads of a sample's beginning."),
            (
                "ffrfs_served_bytes_total",
                counters.bytes_served,
                "Bytes of samples given to the kernel.",
            ),
            ("ffrfs_fetched_bytes_total", counters.bytes_fetched, "Bytes read from containers."),
            ("ffrfs_verified_samples_total", counters.samples_verified, "Checksums found right."),
            ("ffrfs_checksum_failures_total", counters.checksum_failures, "Checksums found wrong."),
            (
                "ffrfs_io_errors_total",
                counters.io_errors,
                "Reads that the system or a store failed.",
            ),
        ] {
            self.counter(name, value, help);
        }
        let name = "ffrfs_request_duration_seconds";
        // A family without series must not be listed.
        if !counters.latency_us.is_empty() {
            self.family(name, "histogram", "From when a request was taken until it was answered.");
        }
        for (operation, times) in &counters.latency_us {
            self.histogram(name, &labels(&[("operation", operation)]), times, MICROS_A_SECOND);
        }
        let name = "ffrfs_stage_duration_seconds";
        let help = "Where reads spend their time: waiting for the disk, verifying, fetching ahead.";
        self.family(name, "histogram", help);
        for (stage, times) in &counters.stage_us {
            self.histogram(name, &labels(&[("stage", stage)]), times, MICROS_A_SECOND);
        }
    }

    fn memory(&mut self, info: &MountInfo, stats: &MountStats) {
        let (cache, blocks) = (&stats.cache, &stats.blocks);
        for (name, value, help) in [
            (
                "ffrfs_memory_held_bytes",
                cache.bytes,
                "Held now: blocks, samples, what is fetched ahead.",
            ),
            ("ffrfs_memory_limit_bytes", cache.capacity_bytes, "Hard cap of what is held."),
            (
                "ffrfs_memory_request_bytes",
                info.request_bytes,
                "Held by requests through io_uring.",
            ),
            (
                "ffrfs_cache_entries",
                cache.entries,
                "Samples held because a part of them was asked for.",
            ),
            (
                "ffrfs_cache_ahead_entries",
                cache.ahead_entries,
                "Samples held because they were fetched ahead.",
            ),
            ("ffrfs_block_entries", blocks.entries, "Blocks held."),
            (
                "ffrfs_block_size_bytes",
                blocks.block_bytes,
                "Size of a block; 0: no blocks are used.",
            ),
        ] {
            self.gauge(name, value, help);
        }
        for (name, value, help) in [
            ("ffrfs_cache_hits_total", cache.hits, "Requests answered from the rest of a sample."),
            ("ffrfs_cache_misses_total", cache.misses, "Requests for a part that had to fetch."),
            (
                "ffrfs_cache_evictions_total",
                cache.evictions,
                "Samples dropped before they were used up.",
            ),
            ("ffrfs_block_hits_total", blocks.hits, "Samples answered from a cached block."),
            ("ffrfs_block_fetches_total", blocks.fetched, "Blocks fetched."),
            (
                "ffrfs_block_refusals_total",
                blocks.refused,
                "Samples fetched alone because no block had room.",
            ),
            (
                "ffrfs_block_evictions_total",
                blocks.evicted,
                "Blocks dropped before they were used up.",
            ),
        ] {
            self.counter(name, value, help);
        }
    }

    fn prefetch(&mut self, stats: &MountStats) {
        let figures = &stats.prefetch;
        for (name, value, help) in [
            ("ffrfs_prefetch_announced_total", figures.announced, "Samples announced."),
            ("ffrfs_prefetch_done_total", figures.done, "Announced samples finished."),
            (
                "ffrfs_prefetch_failed_total",
                figures.failed,
                "Announced samples that could not be fetched.",
            ),
            (
                "ffrfs_prefetch_skipped_total",
                figures.skipped,
                "Announced samples that are fetched only when they are read, or that the mount does not show.",
            ),
            (
                "ffrfs_prefetch_foreseen_total",
                figures.foreseen,
                "Samples and blocks that a pattern foresaw.",
            ),
            (
                "ffrfs_prefetch_looked_up_total",
                figures.looked_up,
                "Fetches begun when a sample was looked up.",
            ),
            ("ffrfs_prefetch_reads_total", figures.reads, "Reads for what is fetched ahead."),
            (
                "ffrfs_prefetch_merged_total",
                figures.merged,
                "Samples that came with another's read.",
            ),
            (
                "ffrfs_prefetch_used_total",
                figures.used,
                "Samples asked for after they had been fetched.",
            ),
            ("ffrfs_prefetch_fetched_bytes_total", figures.fetched_bytes, "Bytes fetched ahead."),
            (
                "ffrfs_prefetch_stored_bytes_total",
                figures.stored_bytes,
                "Bytes put into the page cache.",
            ),
            ("ffrfs_prefetch_unused_bytes_total", figures.unused_bytes, "Bytes dropped unused."),
        ] {
            self.counter(name, value, help);
        }
        self.gauge("ffrfs_prefetch_waiting", figures.waiting, "Samples announced and not begun.");
        self.gauge("ffrfs_prefetch_in_flight", figures.in_flight, "Samples being fetched ahead.");
    }

    fn intervals(&mut self, stats: &MountStats) {
        let (counters, cache) = (&stats.counters, &stats.cache);
        for (name, value, help) in [
            ("ffrfs_intervals_decoded_total", counters.intervals_decoded, "Intervals decoded."),
            (
                "ffrfs_intervals_decoded_ahead_total",
                counters.intervals_decoded_ahead,
                "Intervals decoded before they were asked for.",
            ),
            (
                "ffrfs_intervals_used_total",
                cache.intervals_used,
                "Intervals asked for after they had been decoded ahead.",
            ),
            (
                "ffrfs_intervals_unused_total",
                cache.intervals_unused,
                "Intervals decoded ahead and dropped unused.",
            ),
        ] {
            self.counter(name, value, help);
        }
        let ahead = cache.intervals_ahead;
        self.gauge("ffrfs_intervals_ahead", ahead, "Intervals held that were decoded ahead.");
    }

    fn stores(&mut self, remote: &RemoteFigures) {
        let requests = "ffrfs_store_requests_total";
        self.family(requests, "counter", "Requests to stores, by kind and cause.");
        for (kind, cause, value) in [
            ("head", "open", remote.heads),
            ("list", "open", remote.lists),
            ("get", "demand", remote.gets_demand),
            ("get", "prefetch", remote.gets_prefetch),
            ("get", "open", remote.gets_open),
            ("get", "hedge", remote.gets_hedge),
        ] {
            self.series(requests, &labels(&[("kind", kind), ("cause", cause)]), value);
        }
        let retries = "ffrfs_store_retries_total";
        self.family(retries, "counter", "Requests sent again, by what was wrong.");
        for (cause, value) in [
            ("throttled", remote.retries_throttled),
            ("unavailable", remote.retries_unavailable),
            ("broken", remote.retries_broken),
            ("timed_out", remote.retries_timed_out),
            ("other", remote.retries_other),
        ] {
            self.series(retries, &labels(&[("cause", cause)]), value);
        }
        for (name, value, help) in [
            ("ffrfs_store_failures_total", remote.failures, "Requests that failed for good."),
            ("ffrfs_store_hedges_won_total", remote.hedges_won, "Second requests that won."),
            ("ffrfs_store_fetched_bytes_total", remote.fetched_bytes, "Bytes of answers."),
            ("ffrfs_store_used_bytes_total", remote.used_bytes, "Bytes that were asked for."),
            ("ffrfs_disk_cache_hits_total", remote.hits, "Reads answered by the cache on disk."),
            ("ffrfs_disk_cache_misses_total", remote.misses, "Reads that waited for a store."),
            ("ffrfs_store_joins_total", remote.joins, "Reads that joined a fetch under way."),
            (
                "ffrfs_disk_cache_lock_joins_total",
                remote.lock_joins,
                "Blocks that another mount fetched.",
            ),
            ("ffrfs_disk_cache_no_room_total", remote.no_room, "Blocks that had no room."),
            ("ffrfs_disk_cache_evictions_total", remote.evictions, "Objects removed for room."),
            (
                "ffrfs_disk_cache_evicted_blocks_total",
                remote.evicted_blocks,
                "Blocks of objects in use removed for blocks with more announced reads.",
            ),
        ] {
            self.counter(name, value, help);
        }
        self.counter("ffrfs_store_cost_dollars_total", remote.dollars(), "Requests at S3's price.");
        self.gauge("ffrfs_store_in_flight", remote.in_flight, "Requests without a whole answer.");
        for (name, times, help) in [
            ("ffrfs_store_first_byte_seconds", &remote.first_byte, "Time to the first byte."),
            ("ffrfs_store_answer_seconds", &remote.total, "Time to the last byte."),
        ] {
            self.family(name, "histogram", help);
            self.histogram(name, "", &times.histogram(), MICROS_A_SECOND);
        }
    }

    fn ring(&mut self, stats: &MountStats) {
        let ring = &stats.counters.ring;
        self.counter("ffrfs_ring_submits_total", ring.submits, "Calls of io_uring_enter.");
        self.counter(
            "ffrfs_ring_entries_total",
            ring.entries,
            "Answers and reads submitted to io_uring.",
        );
        let name = "ffrfs_ring_completions";
        self.family(name, "histogram", "Requests and reads that completed together.");
        self.histogram(name, "", &ring.batches, 1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_cumulative_and_in_seconds() {
        let times = Histogram { le: vec![1, 2_000_000], count: vec![3, 2, 1], sum: 5_000_000 };
        let mut page = Page { labels: "mount=\"m\"", out: String::new() };
        page.histogram("t_seconds", "operation=\"read\"", &times, MICROS_A_SECOND);
        let expected = "\
t_seconds_bucket{mount=\"m\",operation=\"read\",le=\"0.000001\"} 3
t_seconds_bucket{mount=\"m\",operation=\"read\",le=\"2\"} 5
t_seconds_bucket{mount=\"m\",operation=\"read\",le=\"+Inf\"} 6
t_seconds_sum{mount=\"m\",operation=\"read\"} 5
t_seconds_count{mount=\"m\",operation=\"read\"} 6
";
        assert_eq!(page.out, expected);
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(labels(&[("a", "x\"y\\z\n"), ("b", "")]), r#"a="x\"y\\z\n",b="""#);
    }
}
