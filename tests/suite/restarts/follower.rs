//! Programs that should take over and do not: they hang, crash, or are no programs.

use super::upgrade::{Installed, upgrade};
use super::{LIMIT, can_resume, children_of, content, name, next_after, serving};
use crate::common::{
    FFRFS, Mount, Need, Outcome, Transport, for_each_transport, have, is_mount_point, is_running,
    parent_of, run, wait_until,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// A program that should take over, and tells falsehoods: another mount point, and the device and ID of another mount. Each
/// time it writes down the message of its supervisor.
const LIAR: &str = r#"
import os, signal, socket, sys
descriptor = int(os.environ['FFRFS_WORKER'].split(':')[1])
supervisor = socket.socket(fileno=descriptor)
message, connection, _, _ = socket.recv_fds(supervisor, 16384, 251)
point, device, mount_id, seen = [word.encode() for word in sys.argv[1:4]] + sys.argv[4:]
number = len(os.listdir(seen))
with open(f'{seen}/.new', 'wb') as file:
    file.write(message)
os.rename(f'{seen}/.new', f'{seen}/{number}')
# Version, what was granted, the digest; then five texts.
head, texts = message[:44], message[44:].split(b'\0')
texts[0], texts[3], texts[4] = device, b'/elsewhere', mount_id
socket.send_fds(supervisor, [head + b'\0'.join(texts)], connection)
signal.pause()
"#;

/// A mount of a program that is replaced by a shell. The shell runs the file `mount`, called as the first word of the command
/// line, and stops.
struct Hanging {
    installed: Installed,
    mount: Mount,
    supervisor: i32,
}

impl Hanging {
    fn new(samples: &[Vec<u8>], seconds: &str) -> Self {
        let installed = Installed::new();
        let script = installed.directory.path().join("mount");
        fs::write(script, "kill -STOP $$\nsleep 1000\n").unwrap();
        let mount = installed.mount_with(samples, &["restarts=5"], |command| {
            command.env("FFRFS_TEST_STARTING", seconds);
        });
        installed.replace_by("/bin/sh".as_ref());
        let supervisor = parent_of(mount.pid());
        Self { installed, mount, supervisor }
    }

    /// Begins an upgrade, waits until the other program hangs, and returns the command and that process.
    fn begin(&self) -> (Child, i32) {
        let mut command = Command::new(FFRFS);
        command.arg("upgrade").arg(self.mount.point()).stderr(Stdio::piped());
        let upgrade = command.spawn().unwrap();
        let mut follower = 0;
        wait_until("the other program is stopped", LIMIT, || {
            let is_stopped = |pid: &i32| {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                stat.contains(") T ")
            };
            follower = children_of(self.supervisor).into_iter().find(is_stopped).unwrap_or(0);
            follower != 0
        });
        (upgrade, follower)
    }
}

fn outcome(child: Child) -> (i32, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_program_that_hangs_before_it_serves_is_ended_and_the_one_before_serves() {
    if !can_resume() {
        return;
    }
    let samples = content();
    // Enough seconds for the real program, too.
    let hanging = Hanging::new(&samples, "20");
    let (mount, first) = (&hanging.mount, hanging.mount.pid());
    let refused = upgrade(mount);
    let says = ["has not begun to serve in time", "the one before serves on"];
    assert!(refused.code == 5, "{refused:?}");
    assert!(says.iter().all(|text| refused.stderr.contains(text)), "{refused:?}");
    assert!(mount.log().contains("it has not served for 20 s"), "{}", mount.log());
    assert_eq!(serving(mount), first);
    wait_until("the program has ended", LIMIT, || children_of(hanging.supervisor) == [first]);
    hanging.installed.replace_by(FFRFS.as_ref());
    upgrade(mount).ok();
    assert!(mount.read(name(3)).unwrap() == samples[3]);
}

#[test]
fn if_the_daemon_dies_while_another_program_hangs_its_own_one_is_started_again() {
    if !can_resume() {
        return;
    }
    let samples = content();
    let hanging = Hanging::new(&samples, "600");
    let (mount, first) = (&hanging.mount, hanging.mount.pid());
    let (waiting, follower) = hanging.begin();
    send(first, Signal::SIGKILL);
    let second = next_after(mount, first);
    assert!(second != follower && is_running(follower));
    assert!(mount.read(name(4)).unwrap() == samples[4]);
    // A program in place of the hanging one need not wait for the end of that.
    hanging.installed.replace_by(FFRFS.as_ref());
    upgrade(mount).ok();
    let third = serving(mount);
    assert!(third != second && mount.read(name(5)).unwrap() == samples[5]);
    assert_eq!(outcome(waiting).0, 0, "the upgrade that was under way has ended well");
    wait_until("one process is left", LIMIT, || children_of(hanging.supervisor) == [third]);
}

#[test]
fn whoever_unmounts_while_another_program_hangs_leaves_no_process() {
    if !can_resume() {
        return;
    }
    for options in [&["umount"][..], &["umount", "--force"], &["umount", "--lazy"]] {
        let hanging = Hanging::new(&content(), "600");
        let (waiting, follower) = hanging.begin();
        send(waiting.id() as i32, Signal::SIGINT);
        let (code, says) = outcome(waiting);
        assert!(code == 130 && says.contains("the upgrade goes on"), "{code} {says}");
        let point = hanging.mount.point();
        run(Command::new(FFRFS).args(options).arg(point)).ok();
        let processes = [hanging.supervisor, hanging.mount.pid(), follower];
        wait_until("all processes end", LIMIT, || !processes.into_iter().any(is_running));
        assert!(!is_mount_point(point));
    }
}

#[test]
fn several_upgrades_at_once_all_tell_of_the_one_that_is_made() {
    if !can_resume() {
        return;
    }
    let samples = content();
    let mount = Mount::with_samples(Transport::DevFuse, &samples, &["restarts=5"]);
    let supervisor = parent_of(mount.pid());
    for _ in 0..3 {
        let before = serving(&mount);
        let all: Vec<Child> = (0..5)
            .map(|_| {
                let mut command = Command::new(FFRFS);
                command.arg("upgrade").arg(mount.point()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        for one in all {
            let (code, says) = outcome(one);
            assert!(code == 0 && says.contains("serves now"), "{code} {says}: {}", mount.log());
        }
        assert!(serving(&mount) != before && mount.read(name(2)).unwrap() == samples[2]);
    }
    wait_until("one process is left", LIMIT, || children_of(supervisor).len() == 1);
}

#[test]
fn what_is_no_whole_program_leaves_the_mount_to_the_one_before_and_is_called_so() {
    if !can_resume() {
        return;
    }
    let (samples, installed) = (content(), Installed::new());
    let mount = installed.mount_with(&samples, &["restarts=5"], |_| {});
    let first = mount.pid();
    let whole = fs::read(FFRFS).unwrap();
    let text = b"no program\n".to_vec();
    for (number, bytes) in
        [&whole[..whole.len() / 20], &whole[..40], &text[..], b""].iter().enumerate()
    {
        let file = installed.directory.path().join(format!("broken-{number}"));
        fs::write(&file, bytes).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        installed.replace_by(&file);
        let Outcome { code, stderr, .. } = upgrade(&mount);
        assert!(code == 5 && stderr.contains("serves on"), "{number}: {stderr}");
        assert!(stderr.contains("whole"), "{number}: {stderr}");
        assert_eq!(serving(&mount), first, "{number}");
        assert!(mount.read(name(3)).unwrap() == samples[3]);
    }
    installed.replace_by(FFRFS.as_ref());
    upgrade(&mount).ok();
}

#[test]
fn an_upgrade_that_is_refused_is_no_success_though_the_daemon_has_died_meanwhile() {
    if !can_resume() {
        return;
    }
    let (samples, installed) = (content(), Installed::new());
    let mount = installed.mount_with(&samples, &["restarts=5"], |_| {});
    let (first, supervisor) = (mount.pid(), parent_of(mount.pid()));
    installed.replace_by("/bin/false".as_ref());
    send(supervisor, Signal::SIGSTOP);
    let mut command = Command::new(FFRFS);
    let waiting = command.arg("upgrade").arg(mount.point()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the supervisor is asked", LIMIT, || {
        let status = fs::read_to_string(format!("/proc/{supervisor}/status")).unwrap();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
        u64::from_str_radix(pending.trim(), 16).unwrap() >> (Signal::SIGUSR2 as i32 - 1) & 1 == 1
    });
    send(first, Signal::SIGKILL);
    send(supervisor, Signal::SIGCONT);
    let (code, says) = outcome(waiting);
    assert!(code == 5 && says.contains("does not go on"), "{code} {says}: {}", mount.log());
    next_after(&mount, first);
    assert!(mount.read(name(3)).unwrap() == samples[3]);
}

#[test]
fn a_daemon_that_cannot_go_on_while_its_mount_lives_is_followed_by_another() {
    for_each_transport(|transport| {
        let samples = content();
        let mount =
            Mount::attempt_with_samples(transport, &samples, &["restarts=5"], |mut command| {
                command.env("FFRFS_TEST_PANIC", "1");
                command
            });
        let mount = mount.unwrap();
        let supervisor = parent_of(mount.pid());
        let mut number = 0;
        let _ = fs::metadata(mount.path("break"));
        // Each thread fails once it has answered.
        wait_until("the daemon ends", LIMIT, || {
            number += 1;
            let _ = fs::metadata(mount.path(format!("other {number}")));
            !is_running(mount.pid())
        });
        next_after(&mount, mount.pid());
        assert!(mount.log().contains("cannot go on"), "{}", mount.log());
        wait_until("it is read", LIMIT, || {
            mount.read(name(3)).is_ok_and(|bytes| bytes == samples[3])
        });
        assert!(is_running(supervisor));
    });
}

#[test]
fn a_mount_that_is_given_up_keeps_nobody_waiting_though_another_program_has_left_its_connection_to_a_child()
 {
    if !can_resume() {
        return;
    }
    let installed = Installed::new();
    let directory = installed.directory.path();
    fs::write(directory.join("mount"), "sleep 1000 & echo $! >child; exit 3\n").unwrap();
    let mount = installed.mount_with(&content(), &["restarts=2"], |_| {});
    let supervisor = parent_of(mount.pid());
    installed.replace_by("/bin/sh".as_ref());
    assert_eq!(upgrade(&mount).code, 5);
    let child = fs::read_to_string(directory.join("child")).unwrap();
    let child: i32 = child.trim().parse().unwrap();
    let mut before = mount.pid();
    for last in [false, false, true] {
        send(before, Signal::SIGKILL);
        if !last {
            before = next_after(&mount, before);
        }
    }
    wait_until("it is given up", LIMIT, || !is_running(supervisor));
    assert!(is_running(child), "it has the connection");
    let path = mount.path(name(7));
    let reader = std::thread::spawn(move || fs::read(path));
    wait_until("a reader has an answer", LIMIT, || reader.is_finished());
    send(child, Signal::SIGKILL);
    assert!(reader.join().unwrap().is_err());
    assert!(mount.log().contains("is given up"), "{}", mount.log());
}

/// The mount in the mount table: its number, and its device number.
fn numbers(mount: &Mount) -> (String, String) {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let point = mount.point().display().to_string();
    let line = table.lines().find(|line| line.split(' ').nth(4) == Some(&point)).unwrap();
    let mut fields = line.split(' ').map(str::to_owned);
    (fields.next().unwrap(), fields.nth(1).unwrap())
}

#[test]
fn what_a_daemon_tells_its_supervisor_is_believed_only_as_far_as_it_can_be_so() {
    if !can_resume() || !have(Need::Root) || !have(Need::Program("python3")) {
        return;
    }
    let victim = Mount::with_samples(Transport::DevFuse, &content(), &["restarts=5"]);
    let installed = Installed::new();
    let directory = installed.directory.path();
    let seen = directory.join("seen");
    fs::create_dir(&seen).unwrap();
    fs::write(directory.join("liar.py"), LIAR).unwrap();
    let mount = installed.mount_with(&content(), &["restarts=1"], |_| {});
    let ((id, device), (_, own)) = (numbers(&victim), numbers(&mount));
    let (liar, point) = (directory.join("liar.py"), mount.point().display().to_string());
    let (liar, seen_in) = (liar.display(), seen.display());
    let script = format!("exec python3 {liar} {point} {device} {id} {seen_in}\n");
    fs::write(directory.join("mount"), script).unwrap();
    let supervisor = parent_of(mount.pid());
    installed.replace_by("/bin/sh".as_ref());
    // The liar never serves, so that no daemon can be asked.
    send(supervisor, Signal::SIGUSR2);
    wait_until("the one before has left", LIMIT, || !is_running(mount.pid()));
    for turn in [1, 2] {
        let liars = children_of(supervisor);
        assert_eq!(liars.len(), 1, "{liars:?}");
        send(liars[0], Signal::SIGKILL);
        let is_over = || if turn == 1 { seen.join("1").exists() } else { !is_running(supervisor) };
        wait_until("the next one is started, or it is given up", LIMIT, is_over);
    }
    let told = fs::read(seen.join("1")).unwrap();
    let texts: Vec<_> = told[44..].split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
    assert_eq!(texts[3], point, "{texts:?}: {}", mount.log());
    assert_eq!(texts[0], own, "{texts:?}");
    assert!(victim.read(".ffrfs/info.json").is_ok() && victim.read(name(3)).is_ok());
}

#[test]
fn a_supervisor_that_may_open_few_files_goes_on_with_the_connection_that_it_has() {
    if !can_resume() || !have(Need::Program("prlimit")) {
        return;
    }
    let samples = content();
    let options = ["restarts=5", "threads=4"];
    let mount =
        Mount::attempt_with_samples(Transport::DevFuse, &samples, &options, |mut command| {
            // A daemon that has told nothing by then would be ended.
            command.env("FFRFS_TEST_STARTING", "6");
            command
        });
    let mount = mount.unwrap();
    let supervisor = parent_of(mount.pid());
    let is_open = |number: &u64| Path::new(&format!("/proc/{supervisor}/fd/{number}")).exists();
    let limit = |files: &str| {
        let limit = format!("--nofile={files}:");
        run(Command::new("prlimit").args(["--pid", &supervisor.to_string(), &limit])).ok();
    };
    // One more file: a process can be started, but not all descriptors of its message arrive.
    let open = (0..1000).filter(is_open).count() as u64;
    let few = (open..1000).find(|&most| most - (0..most).filter(is_open).count() as u64 == 1);
    limit(&few.unwrap().to_string());
    send(mount.pid(), Signal::SIGKILL);
    let next = next_after(&mount, mount.pid());
    assert!(mount.read(name(3)).unwrap() == samples[3]);
    std::thread::sleep(Duration::from_secs(14));
    assert!(is_running(next), "{}", mount.log());
    // The supervisor still holds the connection: a reader with an open file notices nothing.
    let mut file = File::open(mount.path(name(4))).unwrap();
    send(next, Signal::SIGKILL);
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert!(bytes == samples[4], "{}", mount.log());
    drop(file);
    next_after(&mount, next);
    limit("1024");
    mount.unmount();
    wait_until("the supervisor ends", LIMIT, || !is_running(supervisor));
}
