//! A mount that outlives the process that serves it.

mod ends;
mod follower;
mod hanging;
mod opening;
mod panics;
mod stored;
mod supervisor;
mod unmounted;
mod upgrade;

use crate::common::{
    FFRFS, Mount, Transport, container_in, for_each_transport, is_mount_point, is_running,
    mount_command, noise, parent_of, run, temp_dir, umount, wait_until, write_container,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) const LIMIT: Duration = Duration::from_secs(30);
const COUNT: usize = 60;

fn content() -> Vec<Vec<u8>> {
    (0..COUNT).map(|number| noise(number as u64, 20_000 + number * 4001)).collect()
}

fn name(number: usize) -> String {
    format!("{number:06}")
}

/// Whether the kernel can send requests again.
fn can_resume() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 9)
}

/// The process that serves the mount now, which may be another one than at first.
fn serving(mount: &Mount) -> i32 {
    mount.info()["pid"].as_i64().unwrap() as i32
}

/// The processes that a supervisor has started, and that have not ended.
fn children_of(supervisor: i32) -> Vec<i32> {
    let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().map(|pid| pid.parse().unwrap());
    children.filter(|&pid| is_running(pid)).collect()
}

/// As [`serving`], of a mount that perhaps no process serves.
fn perhaps_serving(mount: &Mount) -> Option<i32> {
    let info = fs::read(mount.path(".ffrfs/info.json")).unwrap_or_default();
    let info: serde_json::Value = serde_json::from_slice(&info).unwrap_or_default();
    info["pid"].as_i64().map(|pid| pid as i32)
}

/// Waits until another process serves than `before`, and gives its number.
pub(crate) fn next_after(mount: &Mount, before: i32) -> i32 {
    let mut pid = before;
    wait_until("another process serves", LIMIT, || {
        pid = perhaps_serving(mount).unwrap_or(before);
        pid != before
    });
    pid
}

fn kill_server(mount: &Mount, signal: Signal) {
    kill(Pid::from_raw(serving(mount)), signal).unwrap();
}

/// The reads of all readers, and whether they are to stop.
#[derive(Default)]
struct Readers {
    reads: AtomicUsize,
    stop: AtomicBool,
}

/// Reads samples again and again, in several ways, until it is to stop; panics at the first error or wrong byte.
fn read_on(mount: &Mount, samples: &[Vec<u8>], first: usize, readers: &Readers) {
    let mut open = File::open(mount.path(name(first))).unwrap();
    for reads in 0.. {
        if readers.stop.load(Ordering::Relaxed) {
            return;
        }
        let number = (first + reads * 7) % samples.len();
        let path = mount.path(name(number));
        match reads % 4 {
            0 => {
                // Past the page cache, so that each read is a request.
                let mut direct = File::options();
                let mut direct =
                    direct.read(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
                let mut bytes = Vec::new();
                direct.read_to_end(&mut bytes).unwrap();
                assert!(bytes == samples[number], "sample {number}");
            }
            1 => assert!(fs::read(&path).unwrap() == samples[number], "sample {number}"),
            2 => {
                let mut bytes = Vec::new();
                open.seek(SeekFrom::Start(0)).unwrap();
                open.read_to_end(&mut bytes).unwrap();
                assert!(bytes == samples[first], "a file that stays open");
            }
            _ => assert_eq!(mount.list("").len(), samples.len()),
        }
        readers.reads.fetch_add(1, Ordering::Relaxed);
    }
}

/// Stops the readers, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Eight readers verify samples while `disturb` runs; there is no error and no wrong byte.
fn with_readers(mount: &Mount, samples: &[Vec<u8>], disturb: impl FnOnce()) {
    let readers = &Readers::default();
    std::thread::scope(|scope| {
        for reader in 0..8 {
            scope.spawn(move || read_on(mount, samples, reader * 5, readers));
        }
        let _stop = Stop(&readers.stop);
        disturb();
        let enough = || readers.reads.load(Ordering::Relaxed) > 100;
        wait_until("the readers have read enough", LIMIT, enough);
    });
}

#[test]
fn readers_see_no_error_however_often_the_daemon_is_killed() {
    if !can_resume() {
        return;
    }
    let samples = content();
    let mount = Mount::with_samples(Transport::DevFuse, &samples, &["restarts=1000"]);
    let supervisor = parent_of(mount.pid());
    with_readers(&mount, &samples, || {
        let signals = [Signal::SIGKILL, Signal::SIGABRT, Signal::SIGKILL, Signal::SIGILL];
        for turn in 0..12 {
            let before = serving(&mount);
            kill(Pid::from_raw(before), signals[turn % signals.len()]).unwrap();
            wait_until("another process serves", LIMIT, || serving(&mount) != before);
            // Caches are dropped, so that requests are sent.
            let _ = fs::write("/proc/sys/vm/drop_caches", "1");
            std::thread::sleep(Duration::from_millis(37 * (turn as u64 % 5)));
        }
    });
    assert!(is_running(supervisor));
    assert!(mount.log().contains("has died"), "{}", mount.log());
    let last = serving(&mount);
    mount.unmount();
    wait_until("all processes end", LIMIT, || !is_running(last) && !is_running(supervisor));
}

#[test]
fn a_daemon_that_is_killed_while_it_is_read_from_is_followed_by_another() {
    for_each_transport(|transport| {
        let samples = content();
        // Restarts need no option.
        let mount = Mount::with_samples(transport, &samples, &[]).with_deaths();
        let supervisor = parent_of(mount.pid());
        for number in 0..2 {
            let before = if number == 0 { mount.pid() } else { serving(&mount) };
            kill(Pid::from_raw(before), Signal::SIGKILL).unwrap();
            wait_until("another process serves", LIMIT, || {
                fs::read(mount.path(".ffrfs/info.json")).is_ok() && serving(&mount) != before
            });
            for (number, sample) in samples.iter().enumerate() {
                assert!(mount.read(name(number)).unwrap() == *sample, "{transport:?}: {number}");
            }
        }
        let last = serving(&mount);
        mount.unmount();
        wait_until("all processes end", LIMIT, || !is_running(last) && !is_running(supervisor));
    });
}

#[test]
fn a_mount_whose_kernel_sends_nothing_again_is_made_anew() {
    let samples = content();
    let mount = Mount::attempt_with_samples(
        Transport::DevFuse,
        &samples,
        &["restarts=5"],
        |mut command| {
            command.env("FFRFS_TEST_NO_RESEND", "1");
            command
        },
    );
    let mount = mount.unwrap();
    let supervisor = parent_of(mount.pid());
    let refused = run(Command::new(FFRFS).arg("upgrade").arg(mount.point()));
    assert_eq!(refused.code, 5, "{refused:?}");
    let mut before = mount.pid();
    for _ in 0..2 {
        kill(Pid::from_raw(before), Signal::SIGKILL).unwrap();
        before = next_after(&mount, before);
        for (number, sample) in samples.iter().enumerate() {
            assert!(mount.read(name(number)).unwrap() == *sample, "{number}");
        }
    }
    assert_eq!(mount.log().matches("mounted anew").count(), 2, "{}", mount.log());
    mount.unmount();
    wait_until("all processes end", LIMIT, || !is_running(before) && !is_running(supervisor));
}

#[test]
fn after_too_many_deaths_everyone_gets_an_error_and_nobody_hangs() {
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &content(), &["restarts=2"]);
        let supervisor = parent_of(mount.pid());
        let mut before = 0;
        for _ in 0..3 {
            wait_until("another process serves", LIMIT, || {
                fs::read(mount.path(".ffrfs/info.json")).is_ok() && serving(&mount) != before
            });
            before = serving(&mount);
            kill(Pid::from_raw(before), Signal::SIGKILL).unwrap();
        }
        wait_until("the supervisor gives up", LIMIT, || !is_running(supervisor));
        fs::read(mount.path(name(1))).unwrap_err();
        assert!(mount.log().contains("given up"), "{}", mount.log());
    });
}

#[test]
fn a_container_that_has_changed_is_not_served_by_another_process() {
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &content(), &["restarts=5"]);
        let supervisor = parent_of(mount.pid());
        let touched = File::options().append(true).open(mount.container()).unwrap();
        touched.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        if transport == Transport::DevFuse && can_resume() {
            kill_server(&mount, Signal::SIGKILL);
            wait_until("the supervisor gives up", LIMIT, || !is_running(supervisor));
            fs::read(mount.path(name(1))).unwrap_err();
            assert!(mount.log().contains("have changed"), "{}", mount.log());
        }
    });
}

#[test]
fn signals_to_the_supervisor_or_the_daemon_unmount() {
    for_each_transport(|transport| {
        for to_supervisor in [true, false] {
            let mount = Mount::with_samples(transport, &content(), &["restarts=5"]);
            let supervisor = parent_of(mount.pid());
            let pid = if to_supervisor { supervisor } else { mount.pid() };
            kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
            mount.wait_for_end();
            wait_until("the supervisor ends", LIMIT, || !is_running(supervisor));
            assert!(!mount.is_mounted());
        }
    });
}

#[test]
fn a_mount_that_hides_its_container_is_supervised_only_if_one_insists_and_then_refused() {
    for_each_transport(|transport| {
        let samples = content();
        let directory = temp_dir();
        let point = directory.path().join("mnt");
        fs::create_dir(&point).unwrap();
        let inside = point.join("data.ffr");
        write_container(&inside, &samples);
        let refused = run(&mut mount_command(transport, &[&inside], &point, &["restarts=5"]));
        assert!(refused.code == 1 && refused.stderr.contains("would hide"), "{refused:?}");
        let mount = Mount::at(transport, &[&inside], &[], directory, point).with_deaths();
        assert!(mount.log().contains("no supervisor"), "{}", mount.log());
        assert!(mount.read(name(7)).unwrap() == samples[7]);
        kill(Pid::from_raw(mount.pid()), Signal::SIGKILL).unwrap();
        wait_until("the mount is dead", LIMIT, || {
            let asked = fs::read(mount.path(".ffrfs/info.json"));
            asked.is_err_and(|e| e.raw_os_error() == Some(libc::ENOTCONN))
        });
    });
}

#[test]
fn a_mount_that_hides_what_lists_patterns_and_links_stand_for_has_no_supervisor() {
    let directory = temp_dir();
    let point = directory.path().join("mnt");
    fs::create_dir(&point).unwrap();
    for name in ["t-0.ffr", "t-1.ffr"] {
        write_container(&point.join(name), &content());
    }
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&point, &link).unwrap();
    let beside = directory.path().join("beside.ffr");
    write_container(&beside, &content());
    let names = point.join("names");
    fs::write(&names, (0..COUNT).map(|number| format!("n{number}\n")).collect::<String>()).unwrap();
    let list = format!("{{{0}/t-0.ffr,{0}/t-1.ffr}}", point.display());
    let named = format!("names={}", names.display());
    let ways: [(&Path, &[&str]); 3] =
        [(list.as_ref(), &[]), (&link.join("t-*.ffr"), &[]), (&beside, &[&named])];
    for (source, options) in ways {
        let log = directory.path().join("log");
        let mut command = mount_command(Transport::DevFuse, &[source], &point, options);
        run(command.arg("--log-file").arg(&log)).ok();
        umount(&[&point]).ok();
        let said = fs::read_to_string(&log).unwrap();
        fs::remove_file(&log).unwrap();
        assert!(said.contains("no supervisor"), "{source:?}: {said}");
    }
}

#[test]
fn relative_paths_and_a_failing_mount_are_as_without_a_supervisor() {
    let directory = temp_dir();
    container_in(&directory, &content());
    let point = directory.path().join("mnt");
    fs::create_dir(&point).unwrap();
    let mount = |source: &str| {
        let mut command = Command::new(FFRFS);
        command.args(["mount", source, "mnt", "-o", "restarts=5,transport=devfuse"]);
        run(command.current_dir(directory.path()))
    };
    let missing = mount("missing.ffr");
    assert!(missing.code == 2 && missing.stderr.contains("missing.ffr"), "{missing:?}");
    mount("data.ffr").ok();
    let pid = || -> i32 {
        let info = fs::read(point.join(".ffrfs/info.json")).unwrap_or_default();
        let info: serde_json::Value = serde_json::from_slice(&info).unwrap_or_default();
        info["pid"].as_i64().unwrap_or(0) as i32
    };
    let first = pid();
    kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
    wait_until("another process serves", LIMIT, || ![0, first].contains(&pid()));
    assert!(fs::read(point.join(name(3))).unwrap() == content()[3]);
    umount(&[&point]).ok();
    wait_until("it is unmounted", LIMIT, || !is_mount_point(&point));
}

#[test]
fn the_figures_of_a_mount_are_shown_while_its_daemon_is_killed_again_and_again() {
    if !can_resume() {
        return;
    }
    let mount = Mount::with_samples(Transport::DevFuse, &content(), &["restarts=1000"]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (mount, stop) = (&mount, &stop);
        let _stop = Stop(stop);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let shown = run(Command::new(FFRFS).arg("stats").arg("--json").arg(mount.point()));
                assert_eq!(shown.code, 0, "{}", shown.stderr);
            }
        });
        for _ in 0..6 {
            let before = serving(mount);
            // After deaths within 250 ms, one after another, the pauses before the next start grow to seconds.
            let served = format!("process {before} of ffrfs");
            wait_until("the supervisor knows of it", LIMIT, || {
                before == mount.pid() || mount.log().contains(&served)
            });
            std::thread::sleep(Duration::from_millis(300));
            kill(Pid::from_raw(before), Signal::SIGKILL).unwrap();
            wait_until("another process serves", LIMIT, || serving(mount) != before);
        }
    });
}
