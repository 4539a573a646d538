//! A store that fails for a while: readers do not notice.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Reads all samples with several threads, and returns how many reads failed.
fn errors(mount: &Mount, samples: &[Vec<u8>], threads: usize) -> usize {
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(sample) = samples.get(index) else { return };
                    match mount.read(name(index)) {
                        Ok(bytes) => assert!(bytes == *sample, "sample {index} is wrong"),
                        Err(_) => drop(failed.fetch_add(1, Ordering::Relaxed)),
                    }
                }
            });
        }
    });
    failed.into_inner()
}

#[test]
fn passing_faults_reach_no_reader_and_no_byte_is_wrong() {
    for_each_transport(|transport| {
        let samples = even_samples(150, 40_000);
        let remote = Remote::with_samples(&samples);
        for fault in [
            Fault::Status { status: 500, retry_after: None },
            Fault::Status { status: 503, retry_after: None },
            Fault::Status { status: 429, retry_after: Some(0) },
            Fault::Reset { after: 0 },
            Fault::Reset { after: 15_000 },
            Fault::EndEarly { after: 15_000 },
        ] {
            let mount = remote.mount_with(transport, &[&remote.s3("data.ffr")], &["cache=none"]);
            remote.store.forget_requests();
            // As many faults as one GET has retries: should it meet all of them, it must still succeed.
            remote.store.rule(Rule::gets(fault.clone()).percent(25.0).times(8));
            assert_eq!(errors(&mount, &samples, 8), 0, "{fault:?}");
            assert!(remote.store.summary().faulty > 5, "{fault:?}");
            remote.store.heal();
            mount.unmount();
        }
    });
}

#[test]
fn a_tenth_of_503_and_a_twentieth_of_resets_give_no_reader_an_error() {
    for_each_transport(|transport| {
        let samples = even_samples(400, 60_000);
        let remote = Remote::with_samples(&samples);
        remote
            .store
            .rule(Rule::gets(Fault::Status { status: 503, retry_after: None }).percent(10.0));
        remote.store.rule(Rule::gets(Fault::Reset { after: 20_000 }).percent(5.0));
        let mount = remote.mount_with(transport, &[&remote.s3("data.ffr")], &["cache=none"]);
        assert_eq!(errors(&mount, &samples, 16), 0);
        let faulty = remote.store.summary().faulty;
        assert!(faulty > 5, "{faulty} requests suffered");
    });
}

#[test]
fn a_body_that_breaks_goes_on_at_its_byte() {
    for_each_transport(|transport| {
        let samples = even_samples(3, 4 << 20);
        // No cache keeps a page that the host drops.
        undisturbed(|| {
            let remote = Remote::with_samples(&samples);
            let options = ["cache=none", "hedge=no"];
            let mount = remote.mount_with(transport, &[&remote.s3("data.ffr")], &options);
            remote.store.forget_requests();
            remote.store.rule(Rule::gets(Fault::Reset { after: 1 << 20 }).times(1));
            check(&mount, &samples, [1]);
            let sent = remote.sent();
            // Few of the bytes that were sent before the break are lost on the way.
            assert!(sent < (4 << 20) + (1 << 20), "{sent} bytes: {:#?}", remote.store.gets());
        });
    });
}

#[test]
fn opening_survives_a_store_that_fails_for_now() {
    for_each_transport(|transport| {
        let samples = samples(50, 5000);
        let remote = Remote::with_samples(&samples);
        remote.store.rule(Rule::all(Fault::Status { status: 503, retry_after: None }).times(2));
        remote.store.rule(Rule::gets(Fault::Reset { after: 5 }).times(1));
        let mount = remote.data(transport, &[]);
        check(&mount, &samples, 0..50);
    });
}

#[test]
fn retry_after_is_honoured() {
    for_each_transport(|transport| {
        let samples = even_samples(2, 10_000);
        // No cache keeps a page that the host drops.
        undisturbed(|| {
            let remote = Remote::with_samples(&samples);
            // On a busy host an answer may be late.
            let options = ["cache=none", "hedge=no", "timeout=60"];
            let mount = remote.mount_with(transport, &[&remote.s3("data.ffr")], &options);
            remote.store.forget_requests();
            let busy = Fault::Status { status: 503, retry_after: Some(1) };
            remote.store.rule(Rule::gets(busy).times(1));
            check(&mount, &samples, [1]);
            let gets = remote.store.gets();
            assert_eq!(gets.len(), 2, "{gets:#?}");
            let pause = gets[1].came_at - gets[0].came_at;
            assert!(pause.as_millis() >= 990, "{pause:?}");
        });
    });
}
