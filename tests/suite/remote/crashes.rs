//! Daemons that are killed at any moment: mounts that read the cache after them read no wrong byte.

use super::*;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

/// Kills a daemon. A daemon that dies while it puts pages into the kernel's cache may leave readers waiting for ever, and
/// the mount has to be aborted then: see docs/troubleshooting.md.
fn kill_daemon(mount: &Mount) {
    let tasks = format!("/proc/{}/task", mount.pid());
    let is_dead = |task: &fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with(['Z', 'X']))
    };
    let _ = kill(Pid::from_raw(mount.pid()), Signal::SIGKILL);
    let start = Instant::now();
    while fs::read_dir(&tasks).is_ok_and(|tasks| !tasks.flatten().all(|task| is_dead(&task))) {
        if start.elapsed() > Duration::from_secs(5) {
            let aborted = umount2(mount.point(), MntFlags::MNT_FORCE);
            eprintln!("the killed daemon hangs; its mount was aborted: {aborted:?}");
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Kills daemons that fill one cache, again and again; the last mount checks every byte.
fn killed_in_a_loop(transport: Transport, rounds: u64) {
    let samples = even_samples(300, 110_000);
    let remote = Remote::with_samples(&samples);
    remote.store.rule(Rule::gets(Fault::Latency { median_ms: 5.0, sigma: 0.5 }));
    remote.store.rule(Rule::gets(Fault::Bandwidth { bytes: 60_000_000 }));
    for round in 0..rounds {
        let mounts = [(); 2].map(|()| remote.data(transport, &["restarts=0"]));
        for (number, mount) in mounts.iter().enumerate() {
            announce(mount, &shuffled(300, round * 2 + number as u64));
        }
        std::thread::scope(|scope| {
            for (number, mount) in mounts.iter().enumerate() {
                let samples = &samples;
                scope.spawn(move || {
                    for sample in shuffled(300, round * 2 + number as u64) {
                        // A read fails when the daemon is gone; bytes from before are right.
                        let Ok(bytes) = mount.read(name(sample)) else { return };
                        assert!(bytes == samples[sample], "round {round}, sample {sample}");
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(20 + round * 37 % 150));
            mounts.iter().for_each(kill_daemon);
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
        let first = remote.data(transport, &["restarts=0"]);
        let second = remote.data(transport, &[]);
        remote.store.rule(Rule::gets(Fault::Hang));
        announce(&first, &(0..100).collect::<Vec<_>>());
        wait_until("it fetches", Duration::from_secs(30), || remote.store.in_flight() > 0);
        kill(Pid::from_raw(first.pid()), Signal::SIGKILL).unwrap();
        wait_until("it is gone", Duration::from_secs(30), || !first.is_served());
        remote.store.heal();
        check(&second, &samples, shuffled(100, 1));
    });
}

#[test]
fn a_daemon_that_dies_while_its_store_is_down_is_followed_by_another_once_that_is_up() {
    for_each_transport(|transport| {
        let samples = even_samples(50, 110_000);
        let remote = Remote::with_samples(&samples);
        // With the cache, the container could be opened without the store.
        let url = remote.s3("data.ffr");
        let options = ["cache=none", "timeout=1", "restarts=5"];
        let mount = remote.mount_with(transport, &[&url], &options);
        remote.store.set_down(true);
        kill(Pid::from_raw(mount.pid()), Signal::SIGKILL).unwrap();
        let again = "its source cannot be reached now";
        wait_until("it is away", Duration::from_secs(60), || mount.log().contains(again));
        let reader = (transport == Transport::DevFuse).then(|| {
            let path = mount.path(name(7));
            std::thread::spawn(move || fs::read(path))
        });
        std::thread::sleep(Duration::from_secs(2));
        assert!(!mount.log().contains("given up:"), "{}", mount.log());
        remote.store.set_down(false);
        wait_until("another one serves", Duration::from_secs(60), || {
            fs::read(mount.path(".ffrfs/info.json")).is_ok()
        });
        if let Some(reader) = reader {
            assert!(reader.join().unwrap().unwrap() == samples[7], "{}", mount.log());
        }
        check(&mount, &samples, shuffled(50, 3));
    });
}
