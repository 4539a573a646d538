//! Daemons that are killed at any moment: whoever reads the cache after them reads no wrong byte.

use super::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;

/// Kills daemons that fill one cache, again and again; the last mount checks every byte.
fn killed_in_a_loop(transport: Transport, rounds: u64) {
    let samples = even_samples(300, 110_000);
    let remote = Remote::with_samples(&samples);
    remote.store.rule(Rule::gets(Fault::Latency { median_ms: 5.0, sigma: 0.5 }));
    remote.store.rule(Rule::gets(Fault::Bandwidth { bytes: 60_000_000 }));
    for round in 0..rounds {
        let mounts = [remote.data(transport, &[]), remote.data(transport, &[])];
        for (number, mount) in mounts.iter().enumerate() {
            announce(mount, &shuffled(300, round * 2 + number as u64));
        }
        std::thread::scope(|scope| {
            for (number, mount) in mounts.iter().enumerate() {
                let samples = &samples;
                scope.spawn(move || {
                    for sample in shuffled(300, round * 2 + number as u64) {
                        // It fails when the daemon is gone; what it gives before is right.
                        let Ok(bytes) = mount.read(name(sample)) else { return };
                        assert!(bytes == samples[sample], "round {round}, sample {sample}");
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(20 + round * 37 % 150));
            for mount in &mounts {
                let _ = kill(Pid::from_raw(mount.pid()), Signal::SIGKILL);
            }
        });
    }
    remote.store.heal();
    let mount = remote.data(transport, &[]);
    check(&mount, &samples, shuffled(300, 99));
    mount.unmount();
    remote.store.forget_requests();
    let mount = remote.data(transport, &[]);
    check(&mount, &samples, 0..300);
    assert_eq!(remote.sent(), 0, "{:#?}", remote.store.gets());
}

#[test]
fn daemons_that_are_killed_leave_no_wrong_byte_in_the_cache() {
    for_each_transport(|transport| killed_in_a_loop(transport, 3));
}

#[test]
fn another_daemon_fetches_what_a_killed_one_was_fetching() {
    for_each_transport(|transport| {
        let samples = even_samples(100, 110_000);
        let remote = Remote::with_samples(&samples);
        let (first, second) = (remote.data(transport, &[]), remote.data(transport, &[]));
        remote.store.rule(Rule::gets(Fault::Hang));
        announce(&first, &(0..100).collect::<Vec<_>>());
        wait_until("it fetches", Duration::from_secs(10), || remote.store.in_flight() > 0);
        kill(Pid::from_raw(first.pid()), Signal::SIGKILL).unwrap();
        wait_until("it is gone", Duration::from_secs(10), || !first.is_served());
        remote.store.heal();
        check(&second, &samples, shuffled(100, 1));
    });
}
