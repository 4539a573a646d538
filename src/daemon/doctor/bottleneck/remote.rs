//! Conclusions from the requests of a mount to a store: whether reads wait for the store, and what to change. Imports checks
//! and figures.

use super::super::check::Check;
use crate::store::remote::{RemoteFigures, TimeFigures};
use indicatif::HumanBytes;
use std::time::Duration;

/// The store is not the bottleneck if fewer than one read in this many goes to it.
const RARE: u64 = 10;
/// Fewer requests at a time leave a store idle between its answers.
const FEW_REQUESTS: f64 = 4.0;
/// A first byte that takes longer comes from another region, or from a store that is overloaded.
const FAR: Duration = Duration::from_millis(200);

/// Whether waiting reads wait for the store. Reads that found their bytes on this machine wait for its disk.
pub(super) fn is_waited_for(window: &RemoteFigures) -> bool {
    let away = window.misses + window.joins + window.in_flight;
    away > 0 && away * RARE >= window.hits
}

/// The requests under way at a time, on average; requests without an answer yet are in no sum.
fn at_a_time(window: &RemoteFigures, seconds: f64) -> f64 {
    (window.total.sum_micros as f64 / 1e6 / seconds.max(0.001)).max(window.in_flight as f64)
}

/// The advice where the store is the bottleneck, from the figures of this many seconds.
pub(super) fn advice(window: &RemoteFigures, seconds: f64) -> String {
    let kept = unused_cache(window).map(|(_, advice)| advice);
    let first_byte = window.first_byte.histogram().quantile(0.5);
    let is_far = first_byte.is_some_and(|micros| micros > FAR.as_micros() as f64);
    match () {
        () if window.retries_throttled > 0 => {
            "the store answers 429 or 503: ask its operator for more requests a second, or spread objects \
             over prefixes; max-in-flight=N asks for less"
        }
        () if window.retries() + window.failures > 0 => {
            "requests fail and are sent again: ffrfs trace --op get shows the errors; look at the network, \
             the endpoint and the store"
        }
        () if window.gets() == 0 && window.total.count() == 0 && window.in_flight > 0 => {
            "no answer comes: look at the network and the store; timeout= says when a request is sent again"
        }
        () if kept.is_some() => return kept.unwrap_or_default(),
        () if is_far => {
            "the first byte takes long: use a bucket in this region; announce the order of an epoch \
             (.ffrfs/prefetch), or run ffrfs warmup"
        }
        () if at_a_time(window, seconds) < FEW_REQUESTS => {
            "few requests are under way: use more readers at a time (DataLoader workers), announce the order \
             of an epoch (.ffrfs/prefetch), or run ffrfs warmup"
        }
        () => {
            "announce the order of an epoch (.ffrfs/prefetch) or run ffrfs warmup, so that whole ranges are \
             fetched; else the link or the store is at its limit (ffrfs doctor URL measures it)"
        }
    }
    .to_owned()
}

/// The reason why fetched bytes are not kept on disk, and the advice; `None` if they are kept.
fn unused_cache(window: &RemoteFigures) -> Option<(String, String)> {
    let state = &window.disk_cache;
    let (why, advice) = match (&state.directory, &state.unused_because) {
        (None, Some(why)) if why == "cache=none" => (
            "none (cache=none)".to_owned(),
            "every epoch is fetched anew: cache-dir=DIR on a local disk keeps it",
        ),
        (None, Some(why)) => {
            (format!("none: {why}"), "name a directory of a local disk with cache-dir=DIR")
        }
        (Some(directory), Some(why)) => {
            (format!("{directory} takes nothing now: {why}"), "make room on its file system")
        }
        (Some(directory), None) if window.no_room > 0 => (
            format!("{directory} has no room"),
            "blocks are fetched again in each epoch: use a larger disk or cache-max=, or remove what is not \
             needed (ffrfs cache ls, ffrfs cache rm --unused)",
        ),
        _ => return None,
    };
    Some((why, advice.to_owned()))
}

/// How the store answers, and whether fetched bytes are kept: `window` has the figures of `seconds`, `all` those since the
/// mount.
pub(super) fn checks(
    name: &str,
    window: &RemoteFigures,
    all: &RemoteFigures,
    seconds: f64,
) -> [Check; 2] {
    [store(name, window, all, seconds), cache(name, window, all)]
}

fn store(name: &str, window: &RemoteFigures, all: &RemoteFigures, seconds: f64) -> Check {
    let per_second = |count: u64| count as f64 / seconds.max(0.001);
    // If no request was answered in the window, the figures since the mount tell more than empty ones.
    let (times, when) = match window.total.count() {
        0 => (all, "since the mount"),
        _ => (window, "now"),
    };
    let found = format!(
        "{:.0} GET/s, {}/s; first byte {}, answers {} ({when}); in flight {:.1}; since the mount: {} GET, {} of \
         them again, {} a second time, failed {}, {} bytes fetched for each byte used, about ${:.4}",
        per_second(window.gets()),
        HumanBytes(per_second(window.fetched_bytes) as u64),
        quantiles(&times.first_byte),
        quantiles(&times.total),
        at_a_time(window, seconds),
        all.gets(),
        all.retries(),
        all.gets_hedge,
        all.failures,
        all.fetched_per_used().map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
        all.dollars(),
    );
    let check = format!("{name}: store");
    match window.retries() + window.failures {
        0 => Check::ok(check, found),
        _ => Check::note(check, found, advice(window, seconds)),
    }
}

fn cache(name: &str, window: &RemoteFigures, all: &RemoteFigures) -> Check {
    let check = format!("{name}: cache on disk");
    let hits = all.hit_rate().map_or("-".to_owned(), |rate| format!("{:.0}%", rate * 100.0));
    if let Some((why, advice)) = unused_cache(window) {
        return Check::note(check, format!("{why} (hit rate {hits})"), advice);
    }
    let place = all.disk_cache.directory.as_deref().unwrap_or("not used yet");
    let found = format!(
        "{place}; hit rate {hits}, blocks that another mount fetched: {}, evicted: {}, blocks: {}",
        all.lock_joins, all.evictions, all.evicted_blocks
    );
    Check::ok(check, found)
}

/// The median and the 99th percentile, each as the upper bound of its class.
fn quantiles(times: &TimeFigures) -> String {
    let histogram = times.histogram();
    let bound = |q| match histogram.quantile(q) {
        None => "-".to_owned(),
        Some(micros) if micros.is_finite() => format!("≤ {:.0} ms", (micros / 1e3).ceil()),
        Some(_) => "> 16 s".to_owned(),
    };
    format!("p50 {}, p99 {}", bound(0.5), bound(0.99))
}

#[cfg(test)]
mod tests {
    use super::super::super::check::State;
    use super::*;

    /// One second with `count` requests of 2^15 µs each.
    fn figures(count: u64) -> RemoteFigures {
        let mut classes = vec![0; 26];
        classes[15] = count;
        let times = TimeFigures { classes, sum_micros: count * 30_000 };
        let mut figures = RemoteFigures {
            gets_demand: count,
            misses: count,
            fetched_bytes: count << 20,
            used_bytes: count << 19,
            first_byte: times.clone(),
            total: times,
            ..RemoteFigures::default()
        };
        figures.disk_cache.directory = Some("/cache".to_owned());
        figures
    }

    #[test]
    fn reads_that_find_their_bytes_in_the_cache_do_not_wait_for_the_store() {
        assert!(is_waited_for(&figures(10)));
        assert!(!is_waited_for(&RemoteFigures { hits: 1000, ..figures(10) }));
        assert!(!is_waited_for(&figures(0)));
        assert!(is_waited_for(&RemoteFigures { in_flight: 1, ..figures(0) }), "it hangs");
    }

    #[test]
    fn the_advice_is_about_what_the_figures_show() {
        let says = |figures: &RemoteFigures, word: &str| {
            let advice = advice(figures, 1.0);
            assert!(advice.contains(word), "{word:?} is not in {advice:?}");
        };
        says(&figures(10), "few requests");
        says(&figures(1000), "the link or the store");
        says(&RemoteFigures { retries_throttled: 1, ..figures(10) }, "429 or 503");
        says(&RemoteFigures { retries_broken: 1, ..figures(10) }, "--op get");
        says(&RemoteFigures { in_flight: 3, ..figures(0) }, "no answer comes");
        says(&RemoteFigures { no_room: 3, ..figures(10) }, "cache-max");
        let mut slow = figures(10);
        slow.first_byte.classes = [vec![0; 20], vec![10]].concat();
        says(&slow, "region");
        let mut uncached = figures(10);
        uncached.disk_cache.directory = None;
        uncached.disk_cache.unused_because = Some("cache=none".to_owned());
        says(&uncached, "cache-dir=DIR");
    }

    #[test]
    fn the_figures_are_shown_and_what_is_wrong_is_noted() {
        let [store, cache] = checks("/mnt", &figures(10), &figures(20), 1.0);
        assert_eq!((store.state, cache.state), (State::Ok, State::Ok));
        for word in ["10 GET/s", "10.00 MiB/s", "p50 ≤ 33 ms", "20 GET", "2.00 bytes fetched"] {
            assert!(store.found.contains(word), "{word:?} is not in {:?}", store.found);
        }
        let mut full = RemoteFigures { retries_throttled: 2, ..figures(10) };
        full.disk_cache.unused_because = Some("No space left on device".to_owned());
        let [store, cache] = checks("/mnt", &full, &full, 1.0);
        assert_eq!((store.state, cache.state), (State::Note, State::Note));
        assert!(cache.found.contains("No space left"), "{}", cache.found);
        let [store, _] = checks("/mnt", &figures(0), &figures(7), 1.0);
        assert!(store.found.contains("(since the mount)"), "{}", store.found);
    }
}
