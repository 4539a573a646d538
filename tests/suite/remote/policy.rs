//! The load on a store, by counts of requests and bytes.

use super::*;
use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;

const BLOCK: u64 = 8 << 20;

/// Ranges of all GETs since the store began to count.
fn ranges(remote: &Remote) -> Vec<Range<u64>> {
    remote.store.gets().into_iter().map(|get| get.range.expect("a GET has a range")).collect()
}

#[test]
fn an_announced_epoch_fetches_each_range_of_8_mib_once() {
    for_each_transport(|transport| {
        let samples = even_samples(1600, 110_000);
        let remote = Remote::new();
        let length = remote.put_samples(&samples);
        // With a limit, the room is known from the beginning.
        let mount = remote.data(transport, &["hedge=no", PATIENT, "cache-max=1G"]);
        remote.store.forget_requests();
        let order = shuffled(1600, 1);
        announce(&mount, &order);
        check(&mount, &samples, order);
        let summary = remote.store.summary();
        let (gets, sent) = (summary.gets as f64, summary.sent_bytes as f64);
        let used = samples.iter().map(Vec::len).sum::<usize>() as f64;
        assert!(gets <= 1.05 * length.div_ceil(BLOCK) as f64, "{:?}", ranges(&remote));
        assert!(sent <= 1.02 * used, "{sent} bytes for {used}");
        mount.unmount();
    });
}

#[test]
fn ranges_never_cross_a_boundary_of_8_mib_and_never_overlap() {
    for_each_transport(|transport| {
        let samples = even_samples(400, 110_000);
        let remote = Remote::with_samples(&samples);
        let mount = remote.data(transport, &ONCE);
        remote.store.forget_requests();
        announce(&mount, &shuffled(400, 2));
        check(&mount, &samples, shuffled(400, 3));
        let mut all = ranges(&remote);
        all.sort_by_key(|range| range.start);
        for range in &all {
            let (first, last) = (range.start / BLOCK, (range.end - 1) / BLOCK);
            assert_eq!(first, last, "{range:?} crosses a boundary");
        }
        for pair in all.windows(2) {
            assert!(pair[0].end <= pair[1].start, "{pair:?} overlap");
        }
        mount.unmount();
    });
}

#[test]
fn without_a_cache_random_reads_fetch_the_samples_and_little_else() {
    let samples = even_samples(600, 110_000);
    for_each_transport(|transport| {
        // A page that the host drops before its reader has come to it is read again, as no cache keeps it.
        undisturbed(|| {
            let remote = Remote::with_samples(&samples);
            let options = ["cache=none", "hedge=no", PATIENT];
            let mount = remote.mount_with(transport, &[&remote.s3("data.ffr")], &options);
            remote.store.forget_requests();
            let order = &shuffled(600, 5)[..120];
            check(&mount, &samples, order.iter().copied());
            let (used, sent) = (120.0 * 110_000.0, remote.sent() as f64);
            assert!(sent <= 1.05 * used, "{sent} bytes for {used}");
            assert!(remote.store.summary().gets <= 126, "{} GETs", remote.store.summary().gets);
            mount.unmount();
        });
    });
}

#[test]
fn random_reads_into_a_cache_with_room_fetch_a_mib_around_the_sample() {
    for_each_transport(|transport| {
        let samples = even_samples(900, 50_000);
        let remote = Remote::with_samples(&samples);
        let mount = remote.data(transport, &ONCE);
        remote.store.forget_requests();
        check(&mount, &samples, [800, 100, 500]);
        for range in ranges(&remote) {
            assert!(range.end - range.start <= 2 << 20, "{range:?}");
        }
        let gets = remote.store.summary().gets;
        // The neighbours of these samples came with them.
        check(&mount, &samples, [800, 100, 500].map(|sample| sample ^ 1));
        assert!(remote.store.summary().gets <= gets + 3, "{:?}", ranges(&remote));
        mount.unmount();
    });
}

#[test]
fn no_more_requests_are_under_way_than_the_option_allows() {
    for_each_transport(|transport| {
        let samples = even_samples(600, 110_000);
        let remote = Remote::with_samples(&samples);
        remote.store.rule(Rule::gets(Fault::Latency { median_ms: 20.0, sigma: 0.3 }));
        let mount = remote.data(transport, &["max-in-flight=3", "hedge=no", PATIENT]);
        let order = shuffled(600, 1);
        announce(&mount, &order);
        check(&mount, &samples, order);
        let most = remote.store.summary().most_in_flight;
        assert!(most <= 3, "{most} requests at a time");
        mount.unmount();
    });
}

#[test]
fn second_requests_for_slow_ones_are_at_most_a_twentieth() {
    for_each_transport(|transport| {
        let (samples, order) = (even_samples(500, 20_000), shuffled(500, 1));
        let remote = Remote::with_samples(&samples);
        remote.store.rule(Rule::gets(Fault::Latency { median_ms: 3.0, sigma: 0.2 }));
        let options = ["cache=none", PATIENT];
        let mount = remote.mount_with(transport, &[&remote.s3("data.ffr")], &options);
        check(&mount, &samples, order[..100].iter().copied());
        let counted = || {
            let mut counts = [0; 3];
            wait_until("no request is under way", Duration::from_secs(60), || {
                let stats = mount.stats();
                let count = |name: &str| stats["remote"][name].as_u64().unwrap();
                counts = ["gets_demand", "gets_prefetch", "gets_hedge"].map(count);
                count("in_flight") == 0
            });
            counts
        };
        let asked = || remote.store.gets().into_iter().map(|get| get.range);
        let before = counted();
        // The store may come to a request only after it has answered the second one, which had the same range.
        let early: HashSet<_> = asked().collect();
        // More requests stall than may be sent a second time.
        remote.store.rule(Rule::gets(Fault::Stall { ms: 500 }).percent(25.0));
        std::thread::scope(|scope| {
            for part in order[100..].chunks(50) {
                let (mount, samples) = (&mount, &samples);
                scope.spawn(move || check(mount, samples, part.iter().copied()));
            }
        });
        // A request is counted before it is sent.
        counted();
        let gets = asked().filter(|range| !early.contains(range)).count() as u64;
        let after = counted();
        let [demand, ahead, second] = [0, 1, 2].map(|kind| after[kind] - before[kind]);
        let first = demand + ahead;
        // At most ten second requests were earned before, and 24 are granted on credit.
        assert!(second <= first / 20 + 10 + 24, "{second} second requests for {first}");
        assert!(second > 0, "no request was sent a second time");
        assert!(gets <= first + second, "{gets} GETs, of {first} and {second} that are counted");
        mount.unmount();
    });
}

#[test]
fn hedging_can_be_switched_off() {
    for_each_transport(|transport| {
        let samples = even_samples(200, 20_000);
        // No cache keeps a page that the host drops.
        undisturbed(|| {
            let remote = Remote::with_samples(&samples);
            let options = ["cache=none", "hedge=no", PATIENT];
            let mount = remote.mount_with(transport, &[&remote.s3("data.ffr")], &options);
            remote.store.forget_requests();
            remote.store.rule(Rule::gets(Fault::Stall { ms: 300 }).percent(5.0));
            check(&mount, &samples, shuffled(200, 1));
            let gets = remote.store.summary().gets;
            assert!(gets <= 200, "{gets} GETs for 200 samples");
            mount.unmount();
        });
    });
}

#[test]
fn neighbours_that_are_asked_for_at_once_share_a_request() {
    for_each_transport(|transport| {
        let samples = even_samples(300, 20_000);
        let remote = Remote::with_samples(&samples);
        remote.store.rule(Rule::gets(Fault::Latency { median_ms: 50.0, sigma: 0.0 }));
        let mount = remote.data(transport, &ONCE);
        remote.store.forget_requests();
        std::thread::scope(|scope| {
            for reader in 0..16 {
                let (mount, samples) = (&mount, &samples);
                scope.spawn(move || check(mount, samples, [100 + reader]));
            }
        });
        // Sixteen neighbours lie in one or two MiB.
        let gets = remote.store.summary().gets;
        assert!(gets <= 4, "{:?}", ranges(&remote));
        mount.unmount();
    });
}
