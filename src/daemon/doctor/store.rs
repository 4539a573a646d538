//! Checks of a URL: whether its store can be reached with these credentials, whether the clocks agree, how soon and how fast it
//! answers, and how a mount would cache and send requests.

use super::check::{Check, mebibytes};
use crate::dataset::{self, Options};
use crate::failure::{Exit, Failure};
use crate::format::PartName;
use crate::format::counted;
use crate::io::{self, ReadError};
use crate::store::remote::{CacheMax, CachePlace, Diagnosis, ErrorKind, RemoteFigures, StoreError};
use crate::store::{Cause, Part};
use crate::tools::progress::Terminal;
use indicatif::{HumanBytes, HumanCount};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Requests by which the latency is measured.
const PROBES: u64 = 9;
/// Requests at a time by which the throughput is measured.
const CONCURRENCY: [u64; 3] = [1, 8, 32];
/// Bytes of each of these requests; of small objects fewer, as no two requests may ask for the same bytes, which are fetched
/// once.
const READ_BYTES: u64 = 1 << 20;
/// Smaller requests do not show the throughput.
const LEAST_BYTES: u64 = 64 << 10;
/// How long each of these measurements takes.
const SPAN: Duration = Duration::from_millis(1500);
/// Clocks that differ by more than this are noted.
const SKEW_SECONDS: u64 = 5;
/// S3 and Azure refuse signed requests if the clocks differ by more than this.
const REFUSED_SKEW_SECONDS: u64 = 15 * 60;
/// Announced bytes are fetched in pieces of this size.
const PIECE_BYTES: u64 = 8 << 20;

/// The checks, and the exit code if the store cannot be used.
pub(crate) fn checks(name: &PartName, options: &Options) -> (Vec<Check>, Exit) {
    let shown = shown(name);
    // Cached bytes would not show the way to the store.
    let mut measured = options.clone();
    measured.remote.cache = CachePlace::None;
    // Nor would the faster of two requests.
    measured.remote.hedge = false;
    let start = Instant::now();
    let parts = match dataset::parts(std::slice::from_ref(name), &measured) {
        Ok(parts) => parts,
        Err(failure) => {
            let advice = advice(&failure);
            let exit = if failure.exit == Exit::Usage { Exit::Mount } else { failure.exit };
            let mut checks = vec![Check::problem(&shown, failure.to_string(), advice)];
            checks.extend(identity_and_clock(&shown, name, &measured));
            return (checks, exit);
        }
    };
    let bytes: u64 = parts.iter().map(|part| part.len_bytes()).sum();
    let mut checks = vec![Check::ok(
        &shown,
        format!(
            "{}, {}; reached and allowed after {}",
            counted(HumanCount(parts.len() as u64), "object"),
            HumanBytes(bytes),
            millis(start.elapsed())
        ),
    )];
    let Some(part) = parts.iter().max_by_key(|part| part.len_bytes()) else {
        return (checks, Exit::Ok);
    };
    checks.extend(identity_and_clock(&shown, name, &measured));
    if part.len_bytes() > 0 {
        checks.push(latency(&shown, part));
        checks.extend(throughput(&shown, part));
    }
    checks.push(cache(&shown, options, bytes));
    checks.push(requests(&shown, options, bytes));
    checks.push(container(&shown, name, options));
    (checks, Exit::Ok)
}

/// The name without the query of a signed URL.
fn shown(name: &PartName) -> String {
    name.to_string().split('?').next().unwrap_or_default().to_owned()
}

fn advice(failure: &Failure) -> &'static str {
    match failure.reason::<StoreError>().map(|error| error.kind) {
        Some(ErrorKind::NotFound) => {
            "look at the name of the bucket and the key, and at region= or endpoint="
        }
        Some(ErrorKind::Denied) => {
            "give credentials (environment, profile=, credentials=), or anonymous for a public bucket; a wrong clock has this effect, too"
        }
        Some(ErrorKind::Unavailable | ErrorKind::TimedOut | ErrorKind::Broken) => {
            "look at endpoint=, DNS, proxies and firewalls; under systemd at systemd/ffrfs-remote.conf"
        }
        Some(ErrorKind::Throttled) => "the store asks for fewer requests: max-in-flight=N",
        _ => "docs/remote.md says what URLs and options there are",
    }
}

/// Checks which identity asks, and whether the store's clock is ours.
fn identity_and_clock(shown: &str, name: &PartName, options: &Options) -> Vec<Check> {
    match dataset::diagnose(&name.to_string(), options) {
        Ok(Diagnosis { identity, clock_ahead_seconds }) => {
            vec![credentials(shown, identity), clock(shown, clock_ahead_seconds)]
        }
        // Another check has said already why no store can be asked.
        Err(_) => Vec::new(),
    }
}

fn credentials(name: &str, identity: Result<Option<String>, StoreError>) -> Check {
    let check = format!("{name}: credentials");
    match identity {
        Ok(Some(origin)) => Check::ok(check, origin),
        Ok(None) => Check::ok(check, "none: requests are not signed"),
        Err(error) => {
            Check::problem(check, error.message, "docs/remote.md says where they are found")
        }
    }
}

fn clock(name: &str, ahead_seconds: Option<i64>) -> Check {
    let check = format!("{name}: clock");
    let Some(ahead) = ahead_seconds else {
        return Check::note(check, "unknown: no answer of the store says what time it is", "");
    };
    let differs = ahead.unsigned_abs();
    // A date has no fractions of seconds, and the answer takes its time.
    if differs <= SKEW_SECONDS {
        return Check::ok(check, "as the store's, to a few seconds");
    }
    let direction = if ahead > 0 { "behind" } else { "ahead of" };
    let found = format!("{differs} s {direction} the store's");
    let advice =
        "set this machine's clock (timedatectl set-ntp true): requests are signed with the time";
    match differs < REFUSED_SKEW_SECONDS {
        true => Check::note(check, found, format!("{advice}, and S3 refuses more than 15 minutes")),
        false => Check::problem(check, found, format!("{advice}, and S3 refuses these")),
    }
}

/// Fetches a range of a part, which must be in it.
fn fetch(part: &Part, range: Range<u64>) -> Result<(), ReadError> {
    let length = (range.end - range.start) as usize;
    let mut bytes = vec![0; length];
    // As for a program: fetches exactly these bytes, and no others, which a later probe would find.
    if let Some(_pin) = part.wait(range.clone(), Cause::Demand)?.take(&mut bytes) {
        part.read(&mut bytes, range.start, length)?;
    }
    Ok(())
}

/// The ranges that the threads of a measurement ask for: each thread reads a stretch of its own.
struct Stretches {
    stretch_bytes: u64,
    read_bytes: u64,
}

impl Stretches {
    /// `None` if the object is too small.
    fn new(length_bytes: u64, threads: u64) -> Option<Self> {
        let stretch_bytes = length_bytes / threads;
        let read_bytes = READ_BYTES.min(stretch_bytes & !(LEAST_BYTES - 1));
        (read_bytes > 0).then_some(Self { stretch_bytes, read_bytes })
    }

    /// The range of read `number` of a thread. Reads are not in order, as the bytes ahead must not be fetched already.
    fn range(&self, thread: u64, number: u64) -> Range<u64> {
        let step = number.wrapping_mul(617) % (self.stretch_bytes / self.read_bytes);
        let start = thread * self.stretch_bytes + step * self.read_bytes;
        start..start + self.read_bytes
    }
}

fn latency(name: &str, part: &Part) -> Check {
    let check = format!("{name}: latency");
    let mut times = Vec::new();
    for number in 0..PROBES {
        let start = Instant::now();
        let last = u128::from(part.len_bytes() - 1);
        let at = (last * u128::from(number) / u128::from(PROBES)) as u64;
        if let Err(error) = fetch(part, at..at + 1) {
            return Check::problem(check, error.to_string(), "a mount would give read errors");
        }
        times.push(start.elapsed());
    }
    judged(check, times)
}

/// The check of the times that requests have taken, of which there is at least one.
fn judged(check: String, mut times: Vec<Duration>) -> Check {
    times.sort_unstable();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    let found = format!("{} a request, the slowest {}", millis(median), millis(worst));
    match median > Duration::from_millis(200) {
        true => Check::note(check, found, "is the bucket in another region? Announce what is read"),
        false => Check::ok(check, found),
    }
}

fn throughput(name: &str, part: &Part) -> Vec<Check> {
    CONCURRENCY.iter().map(|&requests| throughput_of(name, part, requests)).collect()
}

fn throughput_of(name: &str, part: &Part, requests: u64) -> Check {
    let Some(stretches) = Stretches::new(part.len_bytes(), requests) else {
        let found =
            format!("not measured: the largest object has {}", HumanBytes(part.len_bytes()));
        return Check::ok(format!("{name}: {} at a time", counted(requests, "request")), found);
    };
    let bytes_each = mebibytes(stretches.read_bytes);
    let check = format!("{name}: {} of {bytes_each} at a time", counted(requests, "request"));
    let (start, reads, stretches) = (Instant::now(), AtomicU64::new(0), &stretches);
    let failed: std::io::Result<Option<ReadError>> = std::thread::scope(|scope| {
        let reads = &reads;
        let run = move |thread| {
            for number in 0.. {
                // A thread that has had no CPU until now reads once, too.
                if number > 0 && start.elapsed() >= SPAN {
                    break;
                }
                fetch(part, stretches.range(thread, number))?;
                reads.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let begin = |thread| Builder::new().spawn_scoped(scope, move || run(thread));
        let threads: std::io::Result<Vec<_>> = (0..requests).map(begin).collect();
        let ended = threads?.into_iter().map(|thread| thread.join().unwrap_or(Ok(())));
        Ok(ended.filter_map(Result::<(), ReadError>::err).next())
    });
    match failed.map_err(Failure::no_thread) {
        Ok(None) => {}
        Ok(Some(error)) => {
            return Check::problem(check, error.to_string(), "a mount would give read errors");
        }
        Err(lacking) => return Check::note(check, format!("not measured: {lacking}"), ""),
    }
    let bytes = reads.into_inner() * stretches.read_bytes;
    let rate = bytes as f64 / start.elapsed().as_secs_f64();
    Check::ok(check, format!("{}/s", HumanBytes(rate as u64)))
}

fn cache(name: &str, options: &Options, bytes: u64) -> Check {
    let check = format!("{name}: cache");
    let remote = &options.remote;
    let directory = match &remote.cache {
        CachePlace::None => {
            let advice = "each epoch is fetched anew; cache-dir=DIR keeps it on a disk";
            return Check::note(check, "none", advice);
        }
        CachePlace::Directory(directory) => Some(directory.clone()),
        CachePlace::User => io::cache_directory(),
    };
    let Some(directory) = directory else {
        return Check::note(
            check,
            "none: there is no home directory",
            "name one with cache-dir=DIR",
        );
    };
    // The directory may not exist yet.
    let space = directory.ancestors().find_map(|path| io::space(path).ok());
    let most = space.map(|space| {
        let allowed = match remote.cache_max {
            Some(CacheMax::Bytes(most)) => most,
            Some(CacheMax::Percent(percent)) => space.total_bytes / 100 * u64::from(percent),
            None => u64::MAX,
        };
        // Blocks of this dataset in the cache count as room, too, but are not known here.
        space.available_bytes.saturating_sub(space.total_bytes / 20).min(allowed)
    });
    let directory = directory.display();
    let Some(most) = most else {
        return Check::note(check, format!("{directory}: its file system does not answer"), "");
    };
    let found = format!(
        "{directory}, room for {}; the sources have {}",
        HumanBytes(most),
        HumanBytes(bytes)
    );
    match most < bytes {
        true => Check::note(check, found, "a cache of the whole dataset saves most requests"),
        false => Check::ok(check, found),
    }
}

/// The requests that a mount would send, and the cost of an epoch that is announced and not cached.
fn requests(name: &str, options: &Options, bytes: u64) -> Check {
    let remote = &options.remote;
    let epoch = RemoteFigures { gets_prefetch: bytes.div_ceil(PIECE_BYTES), ..Default::default() };
    let found = format!(
        "at most {} at a time, sent again after {} s without progress{}; to fetch everything once: {} of {}, about \
         ${:.4} at the list price of S3",
        remote.max_in_flight,
        remote.timeout.as_secs_f64(),
        if remote.hedge { ", a second time if one takes long" } else { "" },
        HumanCount(epoch.gets_prefetch),
        mebibytes(PIECE_BYTES),
        epoch.dollars()
    );
    Check::ok(format!("{name}: requests"), found)
}

fn container(name: &str, source: &PartName, options: &Options) -> Check {
    let check = format!("{name}: container");
    let start = Instant::now();
    match dataset::open(std::slice::from_ref(source), options, &Terminal::watch()) {
        Err(failure) => Check::problem(check, failure.to_string(), "ffrfs verify lists the damage"),
        Ok(opened) => {
            let samples = HumanCount(opened.dataset.len());
            let figures = opened.counters.as_ref().map(|counters| counters.figures());
            let figures = figures.unwrap_or_default();
            let requests = figures.gets() + figures.heads + figures.lists;
            let found = format!(
                "{}, opened in {} with {} and {}",
                counted(samples, "sample"),
                millis(start.elapsed()),
                counted(requests, "request"),
                HumanBytes(figures.fetched_bytes)
            );
            Check::ok(check, found)
        }
    }
}

fn millis(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 10.0 => format!("{:.0} ms", seconds * 1e3),
        seconds => format!("{seconds:.0} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;
    use crate::store::testing::{Faraway, LONG_PATIENCE};
    use std::sync::Arc;

    fn part(length: usize) -> Arc<Part> {
        Arc::new(Faraway::part(LONG_PATIENCE, vec![7; length], &[]).0)
    }

    #[test]
    fn a_store_that_answers_has_latency_and_throughput() {
        let part = part(5 << 20);
        // All requests are answered, however long this thread waits for a CPU.
        assert_ne!(latency("s", &part).state, State::Problem);
        let judged = |times: [u64; 5]| {
            judged("s".to_owned(), times.map(Duration::from_millis).to_vec()).state
        };
        assert_eq!(judged([1, 900, 1, 900, 200]), State::Ok);
        assert_eq!(judged([1, 900, 1, 900, 201]), State::Note);
        let found = throughput_of("s", &part, 4);
        assert!(found.state == State::Ok && found.found.ends_with("/s"), "{found:?}");
        assert!(found.check.contains("4 requests of 1 MiB"), "{found:?}");
        let small = throughput_of("s", &self::part(100_000), 8);
        assert!(small.state == State::Ok && small.found.starts_with("not measured"), "{small:?}");
    }

    #[test]
    fn no_two_requests_at_a_time_ask_for_the_same_bytes() {
        for (length, threads, read_bytes) in [
            (100_000, 1, 64 << 10),
            (1 << 20, 8, 128 << 10),
            (5 << 20, 32, 128 << 10),
            (1 << 40, 32, 1 << 20),
        ] {
            let stretches = Stretches::new(length, threads).unwrap();
            assert_eq!(stretches.read_bytes, read_bytes, "{length} bytes, {threads} threads");
            let mut end = 0;
            for thread in 0..threads {
                let reads = (0..2000).map(|number| stretches.range(thread, number));
                let reads: Vec<_> = reads.collect();
                let first = reads.iter().map(|read| read.start).min().unwrap();
                assert!(end <= first, "{length} bytes: thread {thread} begins at {first}");
                end = reads.iter().map(|read| read.end).max().unwrap();
            }
            assert!(end <= length);
        }
        assert!(Stretches::new(1 << 20, 32).is_none() && Stretches::new(9, 1).is_none());
    }

    #[test]
    fn a_signed_url_is_shown_without_its_signature() {
        assert_eq!(shown(&PartName::Url("https://h/a?sig=x".to_owned())), "https://h/a");
    }

    #[test]
    fn what_cannot_be_reached_is_a_problem_with_advice_and_an_exit_code() {
        let name = PartName::Url("ftp://h/a".to_owned());
        let (checks, exit) = checks(&name, &Options::default());
        assert_eq!((checks[0].state, exit), (State::Problem, Exit::Mount));
        let advice_for = |kind| advice(&StoreError::new("s3://b/k", kind, "why").into());
        assert!(advice_for(ErrorKind::NotFound).contains("bucket"));
        assert!(advice_for(ErrorKind::Denied).contains("credentials"));
        let exit = |kind| Failure::from(StoreError::new("s3://b/k", kind, "why")).exit;
        assert_eq!(exit(ErrorKind::NotFound), Exit::Unreadable);
        assert_eq!(exit(ErrorKind::Denied), Exit::Denied);
        assert_eq!(exit(ErrorKind::Unavailable), Exit::Unreachable);
    }

    #[test]
    fn clocks_that_differ_are_noted_and_those_that_are_refused_are_a_problem() {
        assert_eq!(clock("s", Some(-2)).state, State::Ok);
        let ahead = clock("s", Some(-40));
        assert_eq!(ahead.state, State::Note);
        assert!(ahead.found.contains("40 s ahead of the store's"), "{}", ahead.found);
        let behind = clock("s", Some(7200));
        assert_eq!(behind.state, State::Problem);
        assert!(behind.found.contains("7200 s behind the store's"), "{}", behind.found);
        assert_eq!(clock("s", None).state, State::Note);
    }

    #[test]
    fn a_cache_that_cannot_hold_the_dataset_is_noted() {
        let mut options = Options::default();
        assert_eq!(cache("s", &options, 0).state, State::Ok);
        options.remote.cache_max = Some(CacheMax::Bytes(1 << 20));
        assert_eq!(cache("s", &options, 1 << 30).state, State::Note);
        options.remote.cache = CachePlace::None;
        assert_eq!(cache("s", &options, 1).found, "none");
    }
}
