//! A store that hangs: readers can be killed, the mount can be unmounted, and it goes on when the store does.

use super::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The time that a killed program may stay, also on a busy machine; one that waits for the store stays for a minute.
const PROMPT: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(20);

/// Starts to read a sample with `cat`, kills that while the store hangs, and returns how long it stays.
fn killed_reader(remote: &Remote, mount: &Mount, sample: usize, signal: Signal) -> Duration {
    let mut cat = Command::new("cat");
    cat.arg(mount.path(name(sample)));
    killed(remote, cat, signal)
}

/// Starts a reader, kills it while the store hangs, and returns how long it stays.
fn killed(remote: &Remote, mut reader: Command, signal: Signal) -> Duration {
    let before = remote.store.gets().len();
    let mut reader = reader.stdout(Stdio::null()).spawn().unwrap();
    wait_until("the store is asked", LIMIT, || remote.store.gets().len() > before);
    std::thread::sleep(Duration::from_millis(50));
    let start = Instant::now();
    kill(Pid::from_raw(reader.id() as i32), signal).unwrap();
    wait_until("it is gone", LIMIT, || reader.try_wait().unwrap().is_some());
    start.elapsed()
}

#[test]
fn a_killed_reader_goes_away_at_once_while_the_store_hangs() {
    for_each_transport(|transport| {
        let samples = even_samples(200, 110_000);
        let remote = Remote::with_samples(&samples);
        for options in [&["cache=none", "timeout=60"][..], &["timeout=60"]] {
            let url = remote.s3("data.ffr");
            let mount = match options.len() {
                2 => remote.mount_with(transport, &[&url], options),
                _ => remote.mount(transport, &[&url], options),
            };
            remote.store.rule(Rule::gets(Fault::Hang));
            // Each sample lies in a block of its own, none in those that were fetched to open the container, and
            // their order can't be foreseen.
            let turns = [
                (Signal::SIGKILL, [10, 131, 52, 173, 94]),
                (Signal::SIGTERM, [111, 32, 153, 74, 190]),
            ];
            for (signal, samples) in turns {
                let times = samples.map(|sample| killed_reader(&remote, &mount, sample, signal));
                // Other processes may use the CPUs: the best of several times counts.
                let best = times.into_iter().min().unwrap();
                assert!(best < PROMPT, "{transport:?}, {signal:?}: {best:?}");
            }
            remote.store.heal();
            check(&mount, &samples, [1, 41, 199]);
            mount.unmount();
        }
    });
}

#[test]
fn the_daemon_outlives_readers_past_the_page_cache_that_are_killed_while_the_store_hangs() {
    for_each_transport(|transport| {
        let samples = even_samples(200, 110_000);
        let remote = Remote::with_samples(&samples);
        let url = remote.s3("data.ffr");
        let mount = remote.mount_with(transport, &[&url], &["cache=none", "timeout=60"]);
        remote.store.rule(Rule::gets(Fault::Hang));
        for sample in [10, 131, 52] {
            let mut dd = Command::new("dd");
            dd.arg(format!("if={}", mount.path(name(sample)).display()));
            dd.args(["of=/dev/null", "bs=1M", "iflag=direct"]).stderr(Stdio::null());
            killed(&remote, dd, Signal::SIGKILL);
        }
        assert!(crate::common::is_running(mount.pid()), "{}", mount.log());
        remote.store.heal();
        check(&mount, &samples, [1, 41, 199]);
        mount.unmount();
    });
}

#[test]
fn a_mount_whose_store_hangs_can_be_unmounted() {
    for_each_transport(|transport| {
        let samples = even_samples(200, 30_000);
        let remote = Remote::with_samples(&samples);
        let mount =
            remote.mount_with(transport, &[&remote.s3("data.ffr")], &["cache=none", "timeout=60"]);
        remote.store.rule(Rule::gets(Fault::Hang));
        announce(&mount, &(100..200).collect::<Vec<_>>());
        killed_reader(&remote, &mount, 1, Signal::SIGKILL);
        mount.unmount();
    });
}

#[test]
fn a_request_that_hangs_is_sent_again_when_its_time_is_over() {
    for_each_transport(|transport| {
        let samples = even_samples(20, 300_000);
        let remote = Remote::with_samples(&samples);
        for fault in [Fault::Hang, Fault::HangAfter { after: 100_000 }] {
            let options = ["cache=none", "timeout=1", "hedge=no"];
            let mount = remote.mount_with(transport, &[&remote.s3("data.ffr")], &options);
            remote.store.rule(Rule::gets(fault).times(1));
            check(&mount, &samples, [7]);
            remote.store.heal();
            mount.unmount();
        }
    });
}
