//! A panic of any thread that reads is logged and ends the process that serves, and another one serves.

use super::{Stop, content, name, next_after};
use crate::common::{
    FFRFS, Mount, Source, Transport, assert_errno, container_in, drop_cached, for_each_transport,
    noise, run, temp_dir,
};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// A daemon with this variable can be asked to panic, if it was built with the feature `test-hooks`.
const ALLOWS: &str = "FFRFS_TEST_PANIC";

fn read(mount: &Mount, number: usize) -> io::Result<Vec<u8>> {
    let bytes = mount.read(name(number))?;
    // So that the next read is a request again.
    drop_cached(&File::open(mount.path(name(number)))?);
    Ok(bytes)
}

/// Makes the first thread panic whose name begins with `thread`, while programs read all samples in order.
#[track_caller]
fn assert_another_serves_after_a_panic(
    transport: Transport,
    source: &Path,
    samples: &[Vec<u8>],
    thread: &str,
) {
    let options = ["restarts=5", "rw", "memory=256M"];
    let mount = Mount::started(transport, &[source], &options, |mut command| {
        command.env(ALLOWS, "1");
        command
    });
    let asked = fs::metadata(mount.path(format!("panic in {thread}")));
    assert_errno(asked, libc::ENOENT);
    // No interval is decoded ahead while several readers decode, nor one that is in memory.
    let is_to_decode = thread == "ffrfs-decode";
    let readers = if is_to_decode { 1 } else { 4 };
    let forget = || {
        for memory in ["memory=1M", "memory=256M"] {
            run(Command::new(FFRFS).arg("set").arg(mount.point()).arg(memory));
        }
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for (number, sample) in samples.iter().enumerate() {
                        match read(&mount, number) {
                            Ok(bytes) => assert!(bytes == *sample, "{thread}: sample {number}"),
                            // The mount is made anew.
                            Err(error) => assert_eq!(transport, Transport::Uring, "{error}"),
                        }
                    }
                    if is_to_decode {
                        forget();
                    }
                }
            });
        }
        let _stop = Stop(&stop);
        if thread == "ffrfs-ahead" {
            let hints: String = (0..samples.len()).map(|number| format!("{number}\n")).collect();
            // The daemon may end before it answers.
            let _ = fs::write(mount.path(".ffrfs/prefetch"), hints);
        }
        next_after(&mount, mount.pid());
        for (number, sample) in samples.iter().enumerate() {
            assert!(read(&mount, number).unwrap() == *sample, "{thread}: sample {number}");
        }
    });
    let log = mount.log();
    let panics: Vec<_> = log.lines().filter(|line| line.contains("panicked at")).collect();
    assert!(!panics.is_empty() && panics.iter().all(|line| line.contains(thread)), "{log}");
    assert_eq!(log.matches("has died (by SIGABRT)").count(), 1, "{log}");
    mount.unmount();
}

#[test]
fn after_a_panic_of_a_thread_that_takes_requests_another_process_serves() {
    let directory = temp_dir();
    let container = container_in(&directory, &content());
    for_each_transport(|transport| {
        let takes = if transport == Transport::Uring { "ffrfs-queue" } else { "ffrfs-fuse" };
        assert_another_serves_after_a_panic(transport, &container, &content(), takes);
    });
}

#[test]
fn after_a_panic_of_a_reading_thread_another_process_serves() {
    let directory = temp_dir();
    let container = container_in(&directory, &content());
    for_each_transport(|transport| {
        // With each transport, threads read a source on another mount.
        let source = Source::of(&container);
        assert_another_serves_after_a_panic(transport, &source.file(), &content(), "ffrfs-read");
    });
}

#[test]
fn after_a_panic_of_the_thread_that_prefetches_another_process_serves() {
    let directory = temp_dir();
    let container = container_in(&directory, &content());
    for_each_transport(|transport| {
        assert_another_serves_after_a_panic(transport, &container, &content(), "ffrfs-ahead");
    });
}

#[test]
fn after_a_panic_of_a_thread_that_decodes_ahead_another_process_serves() {
    let directory = temp_dir();
    // Several intervals, each of some MiB.
    let samples: Vec<_> = (0..40).map(|number| noise(number, 1 << 20)).collect();
    for (number, sample) in samples.iter().enumerate() {
        fs::write(directory.path().join(name(number)), sample).unwrap();
    }
    let mut pack = Command::new("tar");
    pack.current_dir(directory.path()).args(["-I", "gzip -1", "-cf", "x.tar.gz"]);
    run(pack.args((0..samples.len()).map(name))).ok();
    let archive = directory.path().join("x.tar.gz");
    for_each_transport(|transport| {
        assert_another_serves_after_a_panic(transport, &archive, &samples, "ffrfs-decode");
    });
}
