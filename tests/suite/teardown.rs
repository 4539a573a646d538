//! Ends of all kinds, and a disk that breaks, while reads of the disk are under way: readers get the right
//! bytes or an error, nothing hangs, and nothing stays behind.

use crate::common::{
    Disk, Fusectl, Mount, Need, Transport, assert_errno, ffrfs, for_each_transport, have,
    is_mount_point, is_running, noise, offsets, temp_dir, umount, wait_until, write_container,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The time within which all must be over.
const IN_TIME: Duration = Duration::from_secs(20);
const DELAY: Duration = Duration::from_millis(150);
const READERS: usize = 32;

#[test]
fn a_mount_ends_with_the_process_of_its_test_that_is_killed() {
    const VICTIM: &str = "FFRFS_TEST_VICTIM";
    const TEST: &str = "teardown::a_mount_ends_with_the_process_of_its_test_that_is_killed";
    for_each_transport(|transport| {
        // This is the process that is to be killed.
        let own = format!("{transport:?}:");
        if let Ok(place) = std::env::var(VICTIM) {
            let Some(place) = place.strip_prefix(&own) else { return };
            let mount = Mount::with_samples(transport, &some()[..3], &[]);
            fs::write(place, mount.point().as_os_str().as_bytes()).unwrap();
            std::thread::sleep(Duration::from_secs(60));
            return;
        }
        let directory = temp_dir();
        let place = directory.path().join("place");
        let mut victim = Command::new(std::env::current_exe().unwrap());
        victim
            .args(["--exact", TEST])
            .env(VICTIM, format!("{own}{}", place.display()))
            .stdout(Stdio::null());
        let mut victim = victim.spawn().unwrap();
        let point = || PathBuf::from(fs::read_to_string(&place).unwrap_or_default());
        wait_until("it is mounted", IN_TIME, || point().join("000000").exists());
        let point = point();
        let info = fs::read(point.join(".ffrfs/info.json")).unwrap();
        let info: serde_json::Value = serde_json::from_slice(&info).unwrap();
        let daemon = info["pid"].as_i64().unwrap() as i32;
        // The daemon ends also if the test has stopped it.
        kill(Pid::from_raw(daemon), Signal::SIGSTOP).unwrap();
        victim.kill().unwrap();
        victim.wait().unwrap();
        wait_until("it is unmounted", IN_TIME, || !is_mount_point(&point));
        wait_until("it is removed", IN_TIME, || !point.parent().unwrap().exists());
        wait_until("the daemon ends", IN_TIME, || !is_running(daemon));
    });
}

/// Small samples, larger ones, and some that are read in many requests.
fn some() -> &'static [Vec<u8>] {
    static SOME: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
        let size = |i: u64| [3_000, 110_000, 5_000, 900_000][i as usize % 4] + i as usize;
        (0..200).map(|i| noise(i, size(i))).collect()
    });
    &SOME
}

/// The reads of 32 readers: right samples, and errors. Wrong bytes fail the test.
#[derive(Default)]
struct Got {
    right: AtomicUsize,
    failed: AtomicUsize,
}

fn read_until_it_fails(mount: &Mount, reader: usize, got: &Got) {
    for step in 0..some().len() {
        let number = (reader * 37 + step * 13) % some().len();
        match mount.read(format!("{number:06}")) {
            Ok(bytes) => {
                assert!(bytes == some()[number], "sample {number} is wrong");
                got.right.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {
                got.failed.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    }
}

/// Calls `end` with a mount on a slow disk while 32 readers wait for the disk; then checks that all readers
/// fail soon (or go on, if `they_finish`).
fn end_while_reading(options: &[&str], they_finish: bool, end: impl Fn(&Mount, &Disk)) {
    if !have(Need::Root) {
        return;
    }
    for_each_transport(|transport| {
        let disk = Disk::new(some());
        let mount = Mount::new(transport, disk.container(), options);
        disk.slow_down(DELAY);
        let got = Got::default();
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS)
                .map(|reader| {
                    let (mount, got) = (&mount, &got);
                    scope.spawn(move || read_until_it_fails(mount, reader, got))
                })
                .collect();
            wait_until("reads are under way", IN_TIME, || disk.waiting() > 0);
            end(&mount, &disk);
            if they_finish {
                disk.slow_down(Duration::ZERO);
            }
            let start = Instant::now();
            while start.elapsed() < IN_TIME && !readers.iter().all(|r| r.is_finished()) {
                std::thread::sleep(Duration::from_millis(10));
            }
            let hanging = readers.iter().filter(|reader| !reader.is_finished()).count();
            if hanging > 0 {
                let _ = kill(Pid::from_raw(mount.pid()), Signal::SIGKILL);
            }
            assert_eq!(hanging, 0, "readers hang, {options:?}");
        });
        assert!(they_finish || got.failed.load(Ordering::Relaxed) > 0, "nobody saw the end");
        disk.slow_down(Duration::ZERO);
        mount_again(mount, transport, &disk, options);
    });
}

/// Unmounts a mount that is left, and checks that its place can be used again.
fn mount_again(mut mount: Mount, transport: Transport, disk: &Disk, options: &[&str]) {
    if mount.is_mounted() {
        // The mount may go by itself at the same moment.
        let _ = umount(&[mount.point()]);
    }
    wait_until("the daemon ends", IN_TIME, || !mount.is_served());
    assert!(!mount.is_mounted());
    if fs::metadata(disk.container()).is_ok_and(|m| m.nlink() == 1)
        && fs::metadata(disk.real()).is_ok_and(|m| m.len() == size())
    {
        mount.again(transport, &[&disk.container()], options);
        assert!(mount.read("000003").unwrap() == some()[3]);
        mount.unmount();
    }
}

/// The size of the container in bytes.
fn size() -> u64 {
    *offsets(some()).last().unwrap()
}

const WAYS: [&[&str]; 2] = [&[], &["io=buffered", "memory=8M"]];

#[test]
fn a_lazy_unmount_lets_reads_under_way_end() {
    for options in WAYS {
        // After a lazy unmount paths lead nowhere: the next file is not there.
        end_while_reading(options, true, |mount, _| {
            ffrfs(&[Path::new("umount"), Path::new("-z"), mount.point()]).ok();
        });
    }
}

#[test]
fn sigterm_while_the_disk_is_waited_for_lets_reads_under_way_end() {
    for options in WAYS {
        end_while_reading(options, true, |mount, _| {
            kill(Pid::from_raw(mount.pid()), Signal::SIGTERM).unwrap();
        });
    }
}

#[test]
fn a_daemon_killed_while_it_waits_for_the_disk_hangs_nobody() {
    for options in WAYS {
        let options = [options, &["restarts=0"]].concat();
        end_while_reading(&options, false, |mount, _| {
            kill(Pid::from_raw(mount.pid()), Signal::SIGKILL).unwrap();
        });
    }
}

#[test]
fn an_abort_while_the_disk_is_waited_for_hangs_nobody() {
    if !have(Need::Fusectl) {
        return;
    }
    for options in WAYS {
        end_while_reading(options, false, |mount, _| {
            let connection = nix::sys::stat::minor(fs::metadata(mount.point()).unwrap().dev());
            Fusectl::new().unwrap().abort(connection).unwrap();
        });
    }
}

#[test]
fn a_container_cut_while_it_is_read_gives_errors_and_never_wrong_bytes() {
    for options in WAYS {
        end_while_reading(options, false, |_, disk| {
            let file = File::options().write(true).open(disk.real()).unwrap();
            file.set_len(size() / 2).unwrap();
        });
    }
}

#[test]
fn a_container_replaced_while_it_is_read_gives_errors_and_never_wrong_bytes() {
    end_while_reading(&[], false, |_, disk| {
        let new = disk.real().with_extension("new");
        write_container(&new, &some().iter().rev().collect::<Vec<_>>());
        fs::rename(new, disk.real()).unwrap();
    });
}

#[test]
fn a_container_deleted_while_it_is_read_gives_errors_and_never_wrong_bytes() {
    end_while_reading(&[], false, |_, disk| fs::remove_file(disk.real()).unwrap());
}

#[test]
fn unmounting_after_the_readers_waits_for_what_is_fetched_ahead() {
    if !have(Need::Root) {
        return;
    }
    for_each_transport(|transport| {
        let disk = Disk::new(some());
        let mount = Mount::new(transport, disk.container(), &["rw"]);
        disk.slow_down(DELAY);
        let numbers: Vec<u8> = (0..200u64).flat_map(u64::to_le_bytes).collect();
        fs::write(mount.path(".ffrfs/prefetch"), numbers).unwrap();
        wait_until("reads are under way", IN_TIME, || disk.waiting() > 0);
        let start = Instant::now();
        umount(&[mount.point()]).ok();
        wait_until("the daemon ends", IN_TIME, || !mount.is_served());
        assert!(start.elapsed() < IN_TIME);
        mount_again(mount, transport, &disk, &[]);
    });
}

#[test]
fn a_range_that_cannot_be_read_fails_the_samples_in_it_alone() {
    if !have(Need::Root) {
        return;
    }
    let samples: Vec<Vec<u8>> = (0..600u64)
        .map(|i| noise(i, if i % 100 == 50 { 110_000 } else { 1_000 + (i as usize * 37) % 8_000 }))
        .collect();
    let places = offsets(&samples);
    // Whole pages, in the middle of a block; reads past the page cache are no smaller.
    let start = places[300] / 4096 * 4096;
    let broken = start..start + 5 * 4096;
    let disk = Disk::new(&samples);
    for_each_transport(|transport| {
        for options in
            [&[][..], &["io=direct"], &["io=buffered"], &["cache_size=0"], &["verify=off"]]
        {
            disk.break_range(0..0);
            let mount = Mount::new(transport, disk.container(), options);
            disk.break_range(broken.clone());
            // Reads in order, so that a prefetch meets the broken range, too.
            for pass in 0..2 {
                for number in 0..samples.len() {
                    let place = places[number]..places[number + 1];
                    let read = mount.read(format!("{number:06}"));
                    let pages = place.start / 4096 * 4096..place.end.next_multiple_of(4096);
                    if pages.start < broken.end && broken.start < pages.end {
                        assert_errno(read, libc::EIO);
                    } else {
                        let read =
                            read.unwrap_or_else(|e| panic!("{options:?} {pass} {number}: {e}"));
                        assert!(read == samples[number], "{options:?}: sample {number} is wrong");
                    }
                }
            }
            assert!(mount.is_served() && !mount.bad().is_empty());
        }
    });
}
