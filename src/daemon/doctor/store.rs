//! Checks of a URL: whether its store can be reached with these credentials, how soon and how fast it answers, and
//! what a mount would use.

use super::check::{Check, mebibytes};
use crate::dataset::{self, Options};
use crate::failure::{Exit, Failure};
use crate::format::PartName;
use crate::io::ReadError;
use crate::store::Part;
use crate::store::remote::{CacheMax, CachePlace, ErrorKind, StoreError};
use crate::tools::progress::Terminal;
use indicatif::{HumanBytes, HumanCount};

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Requests by which the latency is measured.
const PROBES: u64 = 9;
/// Requests at a time by which the throughput is measured.
const CONCURRENCY: [u64; 3] = [1, 8, 32];
/// Bytes of each of them.
const READ_BYTES: u64 = 1 << 20;
/// How long each of these measurements takes.
const SPAN: Duration = Duration::from_millis(1500);
/// A clock may differ by so much: S3 refuses requests beyond 15 minutes.
const SKEW: Duration = Duration::from_secs(5);

/// The checks, and the exit code if the store cannot be used.
pub(crate) fn checks(name: &PartName, options: &Options) -> (Vec<Check>, Exit) {
    let shown = shown(name);
    // Bytes that are cached would tell nothing of the way to the store.
    let mut measured = options.clone();
    measured.remote.cache = CachePlace::None;
    let start = Instant::now();
    let parts = match dataset::parts(std::slice::from_ref(name), &measured) {
        Ok(parts) => parts,
        Err(failure) => {
            let advice = advice(&failure);
            let exit = if failure.exit == Exit::Usage { Exit::Mount } else { failure.exit };
            return (vec![Check::problem(shown, failure.to_string(), advice)], exit);
        }
    };
    let bytes: u64 = parts.iter().map(|part| part.len_bytes()).sum();
    let mut checks = vec![Check::ok(
        &shown,
        format!(
            "{} objects, {}; reached and allowed after {}",
            HumanCount(parts.len() as u64),
            HumanBytes(bytes),
            millis(start.elapsed())
        ),
    )];
    let Some(part) = parts.iter().max_by_key(|part| part.len_bytes()) else {
        return (checks, Exit::Ok);
    };
    checks.push(clock(&shown, part));
    if part.len_bytes() > 0 {
        checks.push(latency(&shown, part));
        checks.extend(throughput(&shown, part));
    }
    checks.push(cache(&shown, options, bytes));
    checks.push(container(&shown, name, options));
    (checks, Exit::Ok)
}

/// Without the query of a signed URL.
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

fn clock(name: &str, part: &Part) -> Check {
    let check = format!("{name}: clock");
    match part.modified().duration_since(SystemTime::now()) {
        Ok(ahead) if ahead > SKEW => Check::note(
            check,
            format!("the object was modified {} from now, by the store's clock", millis(ahead)),
            "set this machine's clock (timedatectl set-ntp true): signatures have a time",
        ),
        _ => Check::ok(check, "nothing says that it is wrong"),
    }
}

/// Fetches `length` bytes at probe `number` of `count`, spread over a part.
fn fetch(part: &Part, number: u64, count: u64, length: u64) -> Result<u64, ReadError> {
    let length = length.min(part.len_bytes());
    let last = u128::from(part.len_bytes() - length);
    let at = (last * u128::from(number) / u128::from(count.max(1))) as u64;
    let mut bytes = vec![0; length as usize];
    part.read(&mut bytes, at, length as usize)?;
    Ok(length)
}

fn latency(name: &str, part: &Part) -> Check {
    let check = format!("{name}: latency");
    let mut times = Vec::new();
    for number in 0..PROBES {
        let start = Instant::now();
        if let Err(error) = fetch(part, number, PROBES, 1) {
            return Check::problem(check, error.to_string(), "a mount would give read errors");
        }
        times.push(start.elapsed());
    }
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
    let check = format!("{name}: {requests} requests of {} at a time", mebibytes(READ_BYTES));
    let (start, next, bytes) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(0));
    let failed = std::thread::scope(|scope| {
        let run = || {
            while start.elapsed() < SPAN {
                // Not in order: what lies ahead must not be there already.
                let number = next.fetch_add(1, Ordering::Relaxed).wrapping_mul(617) % 1009;
                bytes.fetch_add(fetch(part, number, 1009, READ_BYTES)?, Ordering::Relaxed);
            }
            Ok(())
        };
        let threads: Vec<_> = (0..requests).map(|_| scope.spawn(run)).collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap_or(Ok(())));
        ended.filter_map(Result::<(), ReadError>::err).next()
    });
    if let Some(error) = failed {
        return Check::problem(check, error.to_string(), "a mount would give read errors");
    }
    let rate = bytes.into_inner() as f64 / start.elapsed().as_secs_f64();
    Check::ok(check, format!("{}/s", HumanBytes(rate as u64)))
}

fn cache(name: &str, options: &Options, bytes: u64) -> Check {
    let check = format!("{name}: cache");
    let remote = &options.remote;
    let place = match &remote.cache {
        CachePlace::None => {
            let advice = "each epoch is fetched anew; cache-dir=DIR keeps it on a disk";
            return Check::note(check, "none", advice);
        }
        CachePlace::Directory(directory) => directory.display().to_string(),
        CachePlace::User => "the user's cache directory".to_owned(),
    };
    let most = match remote.cache_max {
        Some(CacheMax::Bytes(most)) if most < bytes => {
            let found = format!("{place}, {} of {}", HumanBytes(most), HumanBytes(bytes));
            return Check::note(check, found, "a cache of the whole dataset saves most requests");
        }
        Some(CacheMax::Bytes(most)) => format!("at most {}", HumanBytes(most)),
        Some(CacheMax::Percent(percent)) => format!("at most {percent} % of its file system"),
        None => "as large as its file system allows".to_owned(),
    };
    Check::ok(check, format!("{place}, {most}; the sources have {}", HumanBytes(bytes)))
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
                "{samples} samples, opened in {} with {requests} requests and {}",
                millis(start.elapsed()),
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
        assert_eq!(latency("s", &part).state, State::Ok);
        let found = throughput_of("s", &part, 4);
        assert!(found.state == State::Ok && found.found.ends_with("/s"), "{found:?}");
        assert_eq!(fetch(&part, 8, 9, 9 << 20).unwrap(), 5 << 20);
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
    fn a_cache_that_cannot_hold_the_dataset_is_noted() {
        let mut options = Options::default();
        assert_eq!(cache("s", &options, 1 << 30).state, State::Ok);
        options.remote.cache_max = Some(CacheMax::Bytes(1 << 20));
        assert_eq!(cache("s", &options, 1 << 30).state, State::Note);
        options.remote.cache = CachePlace::None;
        assert_eq!(cache("s", &options, 1).found, "none");
    }
}
