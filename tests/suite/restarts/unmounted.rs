//! Mounts that are unmounted while no daemon serves them: their processes end, and touch nothing else.

use super::opening::unserved;
use super::{LIMIT, can_resume, children_of, content, name, next_after, parent_of};
use crate::common::{
    Disk, FFRFS, Mount, Need, Outcome, Source, TempDir, Transport, container_in, ffrfs,
    for_each_transport, have, in_own_namespace, is_mount_point, is_running, mount_command, noise,
    own_namespace, run, temp_dir, umount, unmount, unmount_with, up_to_five_times, wait_until,
};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, major, minor};
use nix::unistd::{Pid, mkfifo};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// The device number of the mount on `point`.
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
        // The supervisor looks only when there is another mount.
        send(supervisor, Signal::SIGSTOP);
        unmount(mount.point(), true).unwrap();
        // Without workers the connection ends, so that its number can be given to another one.
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
        umount(&[mount.point()]).ok();
        source.go_on();
    });
}

#[test]
fn a_daemon_whose_mount_was_taken_away_leaves_the_next_one_in_its_place_alone() {
    for_each_transport(|transport| {
        for sandbox in ["sandbox=auto", "sandbox=no"] {
            let mut mount = Mount::with_samples(transport, &content(), &["restarts=5", sandbox]);
            let (daemon, supervisor) = (mount.pid(), parent_of(mount.pid()));
            let number = device(mount.point());
            send(supervisor, Signal::SIGSTOP);
            mount.stop();
            unmount(mount.point(), true).unwrap();
            let other = temp_dir();
            let container = container_in(&other, &[noise(77, 7_000)]);
            mount.again(transport, &[&container], &["restarts=0"]);
            let has_its_number = device(mount.point()) == number;
            send(daemon, Signal::SIGTERM);
            send(supervisor, Signal::SIGTERM);
            send(daemon, Signal::SIGCONT);
            wait_until("the daemon ends", LIMIT, || !is_running(daemon));
            send(supervisor, Signal::SIGCONT);
            wait_until("the supervisor ends", LIMIT, || !is_running(supervisor));
            let log = mount.log();
            assert!(is_mount_point(mount.point()), "same number: {has_its_number}; {log}");
            assert!(mount.read(name(0)).unwrap() == noise(77, 7_000));
            mount.unmount();
        }
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
            // The next daemon opens its source, and hangs.
            std::thread::sleep(Duration::from_millis(300));
            let workers = children_of(supervisor);
            // A mount that can be handed over answers later, and only some of the ways unmount it meanwhile.
            let waits = transport == Transport::DevFuse && can_resume();
            if waits && way != ["umount", "-l"] && !way.contains(&"--force") {
                return source.go_on();
            }
            unmount_with(Command::new(way[0]).args(&way[1..]).arg(mount.point())).ok();
            let all_have_ended =
                || !workers.iter().chain([&supervisor]).any(|&pid| is_running(pid));
            // `ffrfs umount` has waited for the processes.
            if way != [FFRFS, "umount"] {
                wait_until("its processes end", LIMIT, all_have_ended);
            }
            assert!(all_have_ended(), "{way:?}");
            assert!(!is_mount_point(mount.point()), "{way:?}");
            source.go_on();
        });
    }
}

#[test]
fn what_is_mounted_in_a_dead_mount_that_is_made_anew_is_named_as_lost() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let (tar, data) = (directory.path().join("outer.tar"), directory.path().join("data"));
        fs::create_dir_all(data.join("point")).unwrap();
        fs::write(data.join("file"), "text").unwrap();
        run(Command::new("tar").arg("-cf").arg(&tar).arg("-C").arg(&data).args(["point", "file"]))
            .ok();
        let outer = Mount::started(transport, &[&tar], &["restarts=5"], |mut command| {
            // The mount is made anew on any kernel.
            command.env("FFRFS_TEST_NO_RESEND", "1");
            command
        });
        let inner = outer.path("point");
        let container = container_in(&directory, &content());
        run(&mut mount_command(transport, &[&container], &inner, &[])).ok();
        let info = fs::read(inner.join(".ffrfs/info.json")).unwrap();
        let info: serde_json::Value = serde_json::from_slice(&info).unwrap();
        send(outer.pid(), Signal::SIGKILL);
        next_after(&outer, outer.pid());
        let log = outer.log();
        let lost = log.lines().find(|line| line.contains(&inner.display().to_string()));
        assert!(lost.is_some_and(|line| line.contains("ERROR")), "{log}");
        let inner_daemon = info["pid"].as_i64().unwrap() as i32;
        wait_until("its daemon ends", LIMIT, || !is_running(inner_daemon));
        assert!(!is_mount_point(&inner));
    });
}

/// The message of a command about a mount that does not answer.
fn said_of(mount: &Mount) -> String {
    let outcome = ffrfs(&[Path::new("stats"), mount.point()]);
    assert_eq!(outcome.code, 5, "{outcome:?}");
    outcome.stderr
}

#[test]
fn of_a_mount_that_does_not_answer_all_stopped_processes_are_named_or_the_daemon_that_hangs() {
    let mount = Mount::with_samples(Transport::DevFuse, &content(), &["restarts=5"]);
    let mut both = [parent_of(mount.pid()), mount.pid()];
    both.sort_unstable();
    for pid in both {
        send(pid, Signal::SIGSTOP);
    }
    let said = said_of(&mount);
    for pid in both {
        send(pid, Signal::SIGCONT);
    }
    let [first, second] = both;
    let named = format!("processes {first} and {second} are stopped: kill -CONT {first} {second}");
    assert!(said.contains(&named), "{said}");
    if can_resume() {
        let (source, mount, supervisor) = unserved(Transport::DevFuse, "600");
        wait_until("another is started", LIMIT, || !children_of(supervisor).is_empty());
        std::thread::sleep(Duration::from_millis(300));
        let (said, workers) = (said_of(&mount), children_of(supervisor));
        let named = workers.iter().any(|pid| said.contains(&format!("process {pid} hangs")));
        assert!(named, "{workers:?}: {said}");
        source.go_on();
    }
}

#[test]
fn a_stopped_process_of_a_former_mount_is_not_taken_for_one_of_a_mount_with_its_number() {
    let source = {
        let directory = temp_dir();
        Source::of(&container_in(&directory, &content()))
    };
    let mut former = Mount::new(Transport::DevFuse, source.file(), &["restarts=5"]);
    let (daemon, supervisor, number) =
        (former.pid(), parent_of(former.pid()), device(former.point()));
    for pid in [supervisor, daemon] {
        send(pid, Signal::SIGSTOP);
    }
    unmount(former.point(), true).unwrap();
    let directory = temp_dir();
    let container = container_in(&directory, &[noise(5, 5_000)]);
    former.again(Transport::DevFuse, &[&container], &["restarts=0"]);
    let has_its_number = device(former.point()) == number;
    former.stop();
    let said = said_of(&former);
    let forced = ffrfs(&[Path::new("umount"), Path::new("--force"), former.point()]);
    let is_stopped = |pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    };
    let left = [supervisor, daemon].map(is_stopped);
    for pid in [supervisor, daemon] {
        send(pid, Signal::SIGCONT);
    }
    let named = format!("process {} is stopped", former.pid());
    assert!(said.contains(&named), "same number: {has_its_number}: {said}");
    assert_eq!(left, [true, true], "same number: {has_its_number}");
    forced.ok();
    wait_until("all end", LIMIT, || ![supervisor, daemon].into_iter().any(is_running));
}

#[test]
fn a_daemon_ends_though_the_next_mount_in_its_place_has_its_number_and_is_stopped() {
    for sandbox in ["sandbox=auto", "sandbox=no"] {
        let mut mount =
            Mount::with_samples(Transport::DevFuse, &content(), &["restarts=0", sandbox]);
        let (daemon, number) = (mount.pid(), device(mount.point()));
        mount.stop();
        unmount(mount.point(), true).unwrap();
        let other = temp_dir();
        let container = container_in(&other, &[noise(77, 7_000)]);
        mount.again(Transport::DevFuse, &[&container], &["restarts=0"]);
        let has_its_number = device(mount.point()) == number;
        mount.stop();
        send(daemon, Signal::SIGCONT);
        let start = Instant::now();
        while is_running(daemon) && start.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(10));
        }
        let ended = !is_running(daemon);
        send(mount.pid(), Signal::SIGCONT);
        assert!(ended, "same number: {has_its_number}, {sandbox}");
        assert!(mount.read(name(0)).unwrap() == noise(77, 7_000));
        mount.unmount();
    }
}

/// Checks that `ffrfs umount` waits for a mount that is just made anew. An error: the command has waited for as long as it may,
/// as the daemon, or this process, had no CPU for so long.
fn umount_waits_for_the_next_mount(transport: Transport) -> Result<(), String> {
    let directory = temp_dir();
    let pipe = directory.path().join("pipe");
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    let (options, samples) = (["restarts=5"], content());
    let mount = Mount::attempt_with_samples(transport, &samples, &options, |mut command| {
        command.env("FFRFS_TEST_NO_RESEND", "1");
        command.env("FFRFS_TEST_BEFORE_MOUNTING_ANEW", &pipe);
        command
    });
    let mount = mount.unwrap();
    let supervisor = parent_of(mount.pid());
    send(mount.pid(), Signal::SIGKILL);
    wait_until("the dead mount is taken away", LIMIT, || !mount.is_mounted());
    let begun = Instant::now();
    let mut umount = Command::new(FFRFS);
    let umount = umount.arg("umount").arg(mount.point()).stderr(Stdio::piped()).spawn();
    let mut umount = umount.unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let waits = umount.try_wait().unwrap().is_none();
    drop(fs::File::options().write(true).open(&pipe).unwrap());
    let outcome = Outcome::from(umount.wait_with_output().unwrap());
    let has_waited = begun.elapsed() >= Duration::from_secs(10);
    if has_waited && outcome.stderr.contains("nothing is mounted there") {
        // The mount must be there to be cleaned up.
        next_after(&mount, mount.pid());
        return Err(outcome.stderr);
    }
    assert!(waits, "{transport:?}: it waits for the mount");
    assert_eq!(outcome.code, 0, "{}: {}", outcome.stderr, mount.log());
    assert!(!mount.is_mounted() && !is_running(supervisor), "{}", mount.log());
    Ok(())
}

#[test]
fn umount_waits_for_a_mount_that_is_just_made_anew() {
    // A list of all mounts, which another test makes, would hold the mount.
    own_namespace();
    for_each_transport(|transport| {
        up_to_five_times(|| umount_waits_for_the_next_mount(transport));
    });
}

/// A mount in the mount namespace of another process, which ends when the value is dropped.
struct Elsewhere {
    process: Child,
    point: TempDir,
}

impl Elsewhere {
    fn new(transport: Transport, container: &Path) -> Self {
        let process = in_own_namespace(|| Command::new("sleep").arg("1000").spawn().unwrap());
        let elsewhere = Self { process, point: temp_dir() };
        let helper = temp_dir();
        let helper = helper.path().join("mount.ffrfs");
        symlink(FFRFS, &helper).unwrap();
        let mut mount = Command::new(helper);
        mount.args([container, elsewhere.point.path()]).arg("-N").arg(elsewhere.namespace());
        let option = format!("restarts=5,{}", transport.option().unwrap());
        run(mount.args(["-o", &option])).ok();
        elsewhere
    }

    fn namespace(&self) -> PathBuf {
        format!("/proc/{}/ns/mnt", self.process.id()).into()
    }

    /// A command in that namespace, whose last word is a path in the mount.
    fn command(&self, words: &[&str], name: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount={}", self.namespace().display())).args(words);
        command.arg(self.point.path().join(name));
        command
    }

    fn says(&self, words: &[&str], name: &str) -> String {
        run(&mut self.command(words, name)).ok().text().trim().to_owned()
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.command(&["umount", "-l"], "").stderr(Stdio::null()).status();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_mount_in_another_namespace_that_was_unmounted_is_not_made_anew_nor_what_has_its_number_aborted()
 {
    if !have(Need::Root) || !have(Need::Program("nsenter")) {
        return;
    }
    for_each_transport(|transport| {
        let disk = Disk::new(&content());
        let elsewhere = Elsewhere::new(transport, &disk.container());
        let info = elsewhere.says(&["cat"], ".ffrfs/info.json");
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        let daemon = info["pid"].as_i64().unwrap() as i32;
        let (supervisor, number) = (parent_of(daemon), elsewhere.says(&["stat", "-c", "%d"], ""));
        disk.slow_down(Duration::from_secs(30));
        let mut reader = elsewhere.command(&["cat"], &name(40));
        let mut reader = reader.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("a read waits for the disk", LIMIT, || disk.waiting() > 0);
        disk.slow_down(Duration::ZERO);
        // The supervisor looks only when there is another mount.
        send(supervisor, Signal::SIGSTOP);
        send(daemon, Signal::SIGKILL);
        run(&mut elsewhere.command(&["umount", "-f", "-l"], "")).ok();
        assert!(!reader.wait().unwrap().success());
        let victim = Mount::with_samples(Transport::DevFuse, &content(), &["restarts=0"]);
        let same = fs::metadata(victim.point()).unwrap().dev().to_string() == number;
        send(supervisor, Signal::SIGCONT);
        wait_until("the supervisor ends", LIMIT, || !is_running(supervisor));
        assert!(victim.read(name(3)).is_ok_and(|bytes| bytes == content()[3]), "same: {same}");
        let table = elsewhere.command(&["cat", "/proc/self/mounts"], "").output().unwrap().stdout;
        let table = String::from_utf8_lossy(&table).into_owned();
        assert!(!table.contains(&*elsewhere.point.path().to_string_lossy()), "{table}");
        victim.unmount();
    });
}
