//! Daemons that are started in place of dead ones, and cannot open their source, which hangs.

use super::{LIMIT, can_resume, children_of, content, name, next_after, perhaps_serving};
use crate::common::{
    Disk, FFRFS, Mount, Source, Transport, container_in, ffrfs, for_each_transport, is_mount_point,
    is_running, noise, parent_of, run, temp_dir, up_to_five_times, wait_until,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A mount whose source hangs, and whose daemon was killed. The next daemon may take `seconds` to start.
pub(super) fn unserved(transport: Transport, seconds: &str) -> (Source, Mount, i32) {
    let directory = temp_dir();
    let source = Source::of(&container_in(&directory, &content()));
    let mount = Mount::started(transport, &[&source.file()], &["restarts=5"], |mut command| {
        command.env("FFRFS_TEST_STARTING", seconds);
        command
    });
    let supervisor = parent_of(mount.pid());
    source.stop();
    kill(Pid::from_raw(mount.pid()), Signal::SIGKILL).unwrap();
    (source, mount, supervisor)
}

/// Reads a sample in a thread of its own, which may wait.
fn read_later(mount: &Mount) -> std::thread::JoinHandle<io::Result<Vec<u8>>> {
    let path = mount.path(name(3));
    std::thread::spawn(move || std::fs::read(path))
}

#[test]
fn a_mount_whose_daemons_all_hang_while_they_open_is_given_up_and_nobody_waits() {
    for_each_transport(|transport| {
        let (source, mount, supervisor) = unserved(transport, "8");
        let reader = read_later(&mount);
        wait_until("it is given up", 2 * LIMIT, || mount.log().contains("is given up"));
        let log = mount.log();
        assert_eq!(log.matches("too long to open its containers").count(), 2, "{log}");
        assert!(log.contains("no process has served it for 16 s"), "{log}");
        assert!(reader.join().unwrap().is_err());
        wait_until("the supervisor ends", LIMIT, || !is_running(supervisor));
        assert!(mount.read(name(4)).is_err());
        source.go_on();
    });
}

#[test]
fn a_daemon_that_hangs_while_it_opens_is_followed_by_another_that_serves() {
    for_each_transport(|transport| {
        let (source, mount, supervisor) = unserved(transport, "12");
        let waits = transport == Transport::DevFuse && can_resume();
        let reader = waits.then(|| read_later(&mount));
        wait_until("one is ended", LIMIT, || mount.log().contains("too long to open"));
        source.go_on();
        next_after(&mount, mount.pid());
        if let Some(reader) = reader {
            assert!(reader.join().unwrap().unwrap() == content()[3], "it was read meanwhile");
        }
        assert!(mount.read(name(5)).unwrap() == content()[5]);
        wait_until("one process is left", LIMIT, || children_of(supervisor).len() == 1);
    });
}

/// Kills the daemon of a mount on a slow disk. The next one serves, though it takes longer to open than one that hangs may. An
/// error: the next one was ended, as for want of a CPU it, or the disk, did nothing for so long.
fn serves_though_it_opens_slowly(
    transport: Transport,
    disk: &Disk,
    samples: &[Vec<u8>],
) -> Result<(), String> {
    let options = ["restarts=5", "index=none"];
    let mount = Mount::started(transport, &[&disk.container()], &options, |mut command| {
        command.env("FFRFS_TEST_STARTING", "2");
        command
    });
    disk.slow_down(Duration::from_millis(100));
    kill(Pid::from_raw(mount.pid()), Signal::SIGKILL).unwrap();
    let killed = Instant::now();
    let was_ended = || mount.log().contains("too long to open");
    wait_until("the next one serves, or was ended", LIMIT, || {
        was_ended() || perhaps_serving(&mount).is_some_and(|pid| pid != mount.pid())
    });
    let taken = killed.elapsed();
    disk.slow_down(Duration::ZERO);
    if was_ended() {
        return Err(mount.log());
    }
    assert!(taken > Duration::from_secs(4), "{taken:?}");
    let name = mount.list("").into_iter().find(|name| name.starts_with("003000")).unwrap();
    assert!(mount.read(name).unwrap() == samples[3_000]);
    Ok(())
}

#[test]
fn a_daemon_that_reads_on_while_it_opens_may_take_longer_than_one_that_hangs() {
    for_each_transport(|transport| {
        let samples: Vec<_> = (0..8_000).map(|number| noise(number, 1_000)).collect();
        let directory = temp_dir();
        let container = container_in(&directory, &samples);
        let tar = directory.path().join("data.tar");
        ffrfs(&[Path::new("convert"), &container, &tar]).ok();
        // All of the archive is read to find its members.
        let disk = Disk::showing(|path| assert!(fs::copy(&tar, path).is_ok()));
        up_to_five_times(|| serves_though_it_opens_slowly(transport, &disk, &samples));
    });
}

#[test]
fn whoever_unmounts_while_the_next_daemon_hangs_need_not_wait_for_it() {
    for_each_transport(|transport| {
        let (source, mount, supervisor) = unserved(transport, "600");
        wait_until("another is started", LIMIT, || !children_of(supervisor).is_empty());
        let start = Instant::now();
        run(Command::new(FFRFS).args(["umount", "--force"]).arg(mount.point())).ok();
        assert!(!is_mount_point(mount.point()));
        if transport == Transport::DevFuse && can_resume() {
            wait_until("the supervisor ends", LIMIT, || !is_running(supervisor));
        } else {
            source.go_on();
            wait_until("the supervisor ends", LIMIT, || !is_running(supervisor));
            assert!(!is_mount_point(mount.point()), "it is not mounted anew");
        }
        assert!(start.elapsed() < Duration::from_secs(60));
        source.go_on();
    });
}

#[test]
fn a_daemon_whose_supervisor_dies_while_it_opens_goes_on_alone() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let source = Source::of(&container_in(&directory, &content()));
        let mount = Mount::new(transport, source.file(), &["restarts=5"]);
        let supervisor = parent_of(mount.pid());
        source.stop();
        let reader = read_later(&mount);
        // The daemon takes the request.
        std::thread::sleep(Duration::from_millis(300));
        kill(Pid::from_raw(mount.pid()), Signal::SIGKILL).unwrap();
        let mut next = 0;
        wait_until("another is started", LIMIT, || {
            let children = children_of(supervisor).into_iter();
            next = children.filter(|&pid| pid != mount.pid()).max().unwrap_or(0);
            next != 0
        });
        kill(Pid::from_raw(supervisor), Signal::SIGKILL).unwrap();
        // Until the supervisor has ended, the next daemon can send it messages.
        wait_until("the supervisor ends", LIMIT, || !is_running(supervisor));
        source.go_on();
        assert_eq!(next_after(&mount, mount.pid()), next, "{}", mount.log());
        // The daemon answers before it logs.
        wait_until("it says so", LIMIT, || mount.log().contains("its supervisor has ended"));
        assert!(mount.read(name(5)).unwrap() == content()[5]);
        let read = reader.join().unwrap();
        if transport == Transport::DevFuse && can_resume() {
            assert!(read.unwrap() == content()[3], "what the dead daemon had taken");
        }
        mount.unmount();
        wait_until("the daemon ends", LIMIT, || !is_running(next));
    });
}

#[test]
fn the_next_daemon_calls_its_source_what_it_was_called_when_it_was_mounted() {
    if !can_resume() {
        return;
    }
    // The paths of sources are resolved at the mount: later they may hang.
    let (before, after) = (temp_dir(), temp_dir());
    let first = container_in(&before, &content());
    let link = before.path().join("link.ffr");
    symlink(&first, &link).unwrap();
    let mount = Mount::new(Transport::DevFuse, &link, &["restarts=5"]);
    fs::remove_file(&link).unwrap();
    symlink(container_in(&after, &content()[..5]), &link).unwrap();
    kill(Pid::from_raw(mount.pid()), Signal::SIGKILL).unwrap();
    wait_until("it is refused", LIMIT, || mount.log().contains("have changed since"));
    let log = mount.log();
    let refused = log.lines().find(|line| line.contains("have changed since")).unwrap();
    assert!(refused.contains(&format!("{} on ", first.display())), "{log}");
}
