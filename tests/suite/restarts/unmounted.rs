//! Mounts that are unmounted while nobody serves them: their processes end, and touch nothing else.

use super::opening::unserved;
use super::{LIMIT, children_of, name};
use crate::common::{
    FFRFS, Transport, container_in, for_each_transport, is_mount_point, is_running, mount_command,
    noise, run, temp_dir, unmount, wait_until,
};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{major, minor};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// The device number of what is mounted here.
fn device(point: &Path) -> String {
    let device = fs::metadata(point).unwrap().dev();
    format!("{}:{}", major(device), minor(device))
}

#[test]
fn a_supervisor_whose_mount_was_taken_away_leaves_the_next_one_in_its_place_alone() {
    for_each_transport(|transport| {
        let (source, mount, supervisor) = unserved(transport, "600");
        wait_until("another is started", LIMIT, || !children_of(supervisor).is_empty());
        let before = {
            let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
            let point = mount.point().display().to_string();
            let line = table.lines().find(|line| line.split(' ').nth(4) == Some(&point)).unwrap();
            line.split(' ').nth(2).unwrap().to_owned()
        };
        // It looks only when there is another mount.
        send(supervisor, Signal::SIGSTOP);
        unmount(mount.point(), true).unwrap();
        // Of no connection that lives, so that the number of the former one can be given to another.
        for worker in children_of(supervisor) {
            send(worker, Signal::SIGKILL);
        }
        let other = temp_dir();
        let container = container_in(&other, &[noise(77, 7_000)]);
        run(&mut mount_command(transport, &[&container], mount.point(), &["restarts=0"])).ok();
        let has_its_number = device(mount.point()) == before;
        send(supervisor, Signal::SIGTERM);
        send(supervisor, Signal::SIGCONT);
        wait_until("the supervisor ends", LIMIT, || !is_running(supervisor));
        assert!(is_mount_point(mount.point()), "same number: {has_its_number}; {}", mount.log());
        assert!(mount.read(name(0)).unwrap() == noise(77, 7_000));
        run(Command::new(FFRFS).arg("umount").arg(mount.point())).ok();
        source.go_on();
    });
}

/// The ways to unmount.
const WAYS: [&[&str]; 5] = [
    &[FFRFS, "umount"],
    &[FFRFS, "umount", "-z"],
    &[FFRFS, "umount", "--force"],
    &["umount", "-l"],
    &["fusermount3", "-u"],
];

#[test]
fn all_processes_of_a_mount_end_soon_after_it_is_unmounted_while_the_next_daemon_hangs() {
    for way in WAYS {
        for_each_transport(|transport| {
            let (source, mount, supervisor) = unserved(transport, "600");
            wait_until("another is started", LIMIT, || !children_of(supervisor).is_empty());
            // It opens its source, and hangs.
            std::thread::sleep(Duration::from_millis(300));
            let workers = children_of(supervisor);
            // A mount that can be handed over answers later, and is not unmounted by all ways meanwhile.
            let waits = transport == Transport::DevFuse && super::can_resume();
            if waits && way != ["umount", "-l"] && !way.contains(&"--force") {
                return source.go_on();
            }
            let start = Instant::now();
            run(Command::new(way[0]).args(&way[1..]).arg(mount.point())).ok();
            let whole = way == [FFRFS, "umount"];
            let limit = if whole { Duration::from_millis(50) } else { Duration::from_secs(5) };
            wait_until("the supervisor ends", limit, || !is_running(supervisor));
            wait_until("the next daemon ends", limit, || {
                !workers.iter().any(|&pid| is_running(pid))
            });
            assert!(start.elapsed() < Duration::from_secs(10), "{way:?}");
            assert!(!is_mount_point(mount.point()), "{way:?}");
            source.go_on();
        });
    }
}
