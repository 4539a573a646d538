//! `ffrfs upgrade`: another program serves, and readers notice nothing.

use super::{
    LIMIT, can_resume, children_of, content, name, next_after, parent_of, serving, with_readers,
};
use crate::common::{
    FFRFS, Mount, Need, TempDir, Transport, assert_errno, container_in, ffrfs, for_each_transport,
    have, is_running, run, temp_dir, umount, wait_until,
};
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A program that mounts are made with, and that can be replaced.
pub(super) struct Installed {
    pub(super) directory: TempDir,
}

impl Installed {
    pub(super) fn new() -> Self {
        let directory = temp_dir();
        symlink(FFRFS, directory.path().join("ffrfs")).unwrap();
        Self { directory }
    }

    pub(super) fn program(&self) -> PathBuf {
        self.directory.path().join("ffrfs")
    }

    pub(super) fn replace_by(&self, program: &Path) {
        let new = self.directory.path().join("new");
        symlink(program, &new).unwrap();
        fs::rename(new, self.program()).unwrap();
    }

    fn mount(&self, samples: &[Vec<u8>], options: &[&str]) -> Mount {
        self.mount_with(samples, options, |_| {})
    }

    pub(super) fn mount_with(
        &self,
        samples: &[Vec<u8>],
        options: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Mount {
        let directory = temp_dir();
        let container = container_in(&directory, samples);
        let mount = Mount::started(Transport::DevFuse, &[&container], options, |command| {
            let mut changed = Command::new(self.program());
            changed.args(command.get_args()).current_dir(self.directory.path());
            change(&mut changed);
            changed
        });
        // The directory must be there as long as the mount is.
        std::mem::forget(directory);
        mount
    }
}

pub(super) fn upgrade(mount: &Mount) -> crate::common::Outcome {
    ffrfs(&["upgrade".as_ref(), mount.point().as_os_str()])
}

#[test]
fn readers_see_no_error_however_often_the_program_is_replaced() {
    if !can_resume() {
        return;
    }
    let samples = content();
    let mount = Mount::with_samples(Transport::DevFuse, &samples, &["restarts=100"]);
    let supervisor = parent_of(mount.pid());
    with_readers(&mount, &samples, || {
        for turn in 0..8 {
            let before = serving(&mount);
            upgrade(&mount).ok();
            let after = serving(&mount);
            assert!(after != before, "{turn}: {}", mount.log());
            wait_until("the one before ends", LIMIT, || !is_running(before));
            assert_eq!(parent_of(after), supervisor);
            // The next process runs the program of the one that serves, not the supervisor's.
            if turn % 3 == 2 {
                kill(Pid::from_raw(after), Signal::SIGKILL).unwrap();
                next_after(&mount, after);
            }
            let _ = fs::write("/proc/sys/vm/drop_caches", "1");
        }
    });
    wait_until("one process is left", LIMIT, || children_of(supervisor).len() == 1);
    let last = serving(&mount);
    mount.unmount();
    wait_until("all processes end", LIMIT, || !is_running(last) && !is_running(supervisor));
}

#[test]
fn stats_that_are_watched_name_the_process_that_serves() {
    if !can_resume() {
        return;
    }
    let mount = Mount::with_samples(Transport::DevFuse, &content(), &["restarts=5"]);
    let is_named = || {
        let mut command = Command::new(FFRFS);
        command.args(["stats", "--watch", "0.2", "--json"]).arg(mount.point());
        let mut watch = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut pids = BufReader::new(watch.stdout.take().unwrap()).lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            line["info"]["pid"].as_i64().unwrap() as i32
        });
        assert_eq!(pids.next(), Some(serving(&mount)));
        upgrade(&mount).ok();
        let after = serving(&mount);
        let is_named = pids.take(50).any(|pid| pid == after);
        let _ = watch.kill();
        watch.wait().unwrap();
        is_named
    };
    // The command ends if no daemon answers for five seconds.
    assert!((0..3).any(|_| is_named()), "{}", mount.log());
}

/// A process that was started by the supervisor, and waits until it may go on.
struct Waiting {
    pid: i32,
    /// The process reads from the other end of this pipe.
    pipe: File,
}

impl Waiting {
    /// Waits until a process that `supervisor` has started, other than `but`, reads from a pipe.
    fn at(pipe: &Path, supervisor: i32, but: i32) -> Self {
        let mut opened = None;
        wait_until("a process reads from the pipe", LIMIT, || {
            // Opening fails as long as there is no reader.
            let flags = OFlag::O_NONBLOCK.bits();
            opened = File::options().write(true).custom_flags(flags).open(pipe).ok();
            opened.is_some()
        });
        let mut pid = None;
        wait_until("the process has opened it", LIMIT, || {
            let has_open = |pid: &i32| {
                let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
                let mut files = open.filter_map(|open| fs::read_link(open.path()).ok());
                files.any(|file| file == pipe)
            };
            let others = children_of(supervisor).into_iter().filter(|&pid| pid != but);
            pid = others.into_iter().find(has_open);
            pid.is_some()
        });
        Self { pid: pid.unwrap(), pipe: opened.unwrap() }
    }

    fn go_on(self) {
        drop(self.pipe);
    }
}

/// A mount whose daemon has died: another one of the same program and one of an upgrade both serve it, and have not told the
/// supervisor so.
struct Both {
    mount: Mount,
    supervisor: i32,
    restarted: i32,
    upgraded: i32,
    upgrade: Child,
    _directory: TempDir,
}

impl Both {
    /// Also gives the two processes.
    fn new(samples: &[Vec<u8>]) -> (Self, [Waiting; 2]) {
        let directory = temp_dir();
        let pause = directory.path().join("pause");
        let pipes = ["restarted", "upgraded"].map(|name| directory.path().join(name));
        pipes.iter().for_each(|pipe| mkfifo(pipe, Mode::S_IRWXU).unwrap());
        // Confined processes could not open the pipes.
        let options = ["restarts=5", "sandbox=no"];
        let mount =
            Mount::attempt_with_samples(Transport::DevFuse, samples, &options, |mut command| {
                command.env("FFRFS_TEST_BEFORE_TELLING", &pause);
                command
            });
        let mount = mount.unwrap();
        let supervisor = parent_of(mount.pid());
        symlink(&pipes[0], &pause).unwrap();
        kill(Pid::from_raw(mount.pid()), Signal::SIGKILL).unwrap();
        // The mount gets no request before: one that the first process has taken comes again only later.
        let restarted = Waiting::at(&pipes[0], supervisor, mount.pid());
        fs::remove_file(&pause).unwrap();
        symlink(&pipes[1], &pause).unwrap();
        let upgrade = Command::new(FFRFS).arg("upgrade").arg(mount.point()).spawn().unwrap();
        let upgraded = Waiting::at(&pipes[1], supervisor, restarted.pid);
        let both = Self {
            mount,
            supervisor,
            restarted: restarted.pid,
            upgraded: upgraded.pid,
            upgrade,
            _directory: directory,
        };
        (both, [restarted, upgraded])
    }

    fn assert_upgraded(mut self, samples: &[Vec<u8>]) {
        assert!(self.upgrade.wait().unwrap().success(), "{}", self.mount.log());
        assert_eq!(serving(&self.mount), self.upgraded, "{}", self.mount.log());
        wait_until("the other one has left", LIMIT, || {
            children_of(self.supervisor) == [self.upgraded]
        });
        assert!(self.mount.read(name(3)).unwrap() == samples[3]);
        assert!(is_running(self.supervisor) && !is_running(self.restarted));
    }
}

#[test]
fn a_process_that_tells_of_the_mount_while_another_program_starts_does_not_refuse_that() {
    if !can_resume() || !have(Need::Root) {
        return;
    }
    let samples = content();
    let (mut both, [restarted, upgraded]) = Both::new(&samples);
    restarted.go_on();
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(20));
        assert!(both.upgrade.try_wait().unwrap().is_none(), "{}", both.mount.log());
    }
    upgraded.go_on();
    both.assert_upgraded(&samples);
}

#[test]
fn a_process_that_tells_of_the_mount_after_another_program_serves_does_not_end_that() {
    if !can_resume() || !have(Need::Root) {
        return;
    }
    let samples = content();
    let (both, [restarted, upgraded]) = Both::new(&samples);
    upgraded.go_on();
    wait_until("the other program serves", LIMIT, || {
        both.mount.log().contains("another program serves")
    });
    restarted.go_on();
    both.assert_upgraded(&samples);
}

#[test]
fn a_program_that_does_not_serve_leaves_the_mount_to_the_one_before() {
    if !can_resume() {
        return;
    }
    let (samples, installed) = (content(), Installed::new());
    let mount = installed.mount(&samples, &["restarts=5"]);
    let (first, supervisor) = (mount.pid(), parent_of(mount.pid()));
    for broken in ["/bin/false", "/etc/hostname", "/no/such/program"] {
        installed.replace_by(Path::new(broken));
        let refused = upgrade(&mount);
        assert!(refused.code == 5 && refused.stderr.contains("before serves"), "{refused:?}");
        assert_eq!(serving(&mount), first, "{broken}");
        assert!(mount.read(name(3)).unwrap() == samples[3]);
    }
    kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
    next_after(&mount, first);
    installed.replace_by(FFRFS.as_ref());
    upgrade(&mount).ok();
    assert!(mount.read(name(4)).unwrap() == samples[4]);
    wait_until("one process is left", LIMIT, || children_of(supervisor).len() == 1);
}

#[test]
fn a_hangup_after_the_program_was_replaced_has_the_new_one_serve() {
    if !can_resume() {
        return;
    }
    let (samples, installed) = (content(), Installed::new());
    let mount = installed.mount(&samples, &["restarts=5"]);
    let supervisor = parent_of(mount.pid());
    let hang_up = || kill(Pid::from_raw(supervisor), Signal::SIGHUP).unwrap();
    hang_up();
    let copy = installed.directory.path().join("ffrfs-2");
    // Another process copies: a child that this one forks meanwhile would hold the new program open for writing.
    run(Command::new("cp").arg(FFRFS).arg(&copy)).ok();
    assert_eq!(serving(&mount), mount.pid(), "nothing was replaced");
    installed.replace_by(&copy);
    hang_up();
    let second = next_after(&mount, mount.pid());
    let program = |pid| fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_eq!(program(second), copy);
    // The first process answers the requests that it has taken, and would be found in place of the third.
    wait_until("the first one has left", LIMIT, || !is_running(mount.pid()));
    kill(Pid::from_raw(second), Signal::SIGKILL).unwrap();
    let third = next_after(&mount, second);
    assert_eq!(program(third), copy, "the next process is of the program that served");
    assert!(mount.read(name(5)).unwrap() == samples[5]);
}

#[test]
fn a_hangup_reaches_the_one_that_serves_on_if_the_new_program_does_not() {
    if !can_resume() {
        return;
    }
    let (samples, installed) = (content(), Installed::new());
    let (directory, config) = (temp_dir(), installed.directory.path().join("config"));
    let container = container_in(&directory, &samples);
    let mut lines = "restarts = 5\ntransport = devfuse\n".to_owned();
    let mount = Mount::started(Transport::DevFuse, &[&container], &[], |command| {
        let given: Vec<_> = command.get_args().map(|word| word.display().to_string()).collect();
        let (source, point, log) = (&given[1], &given[2], &given[given.len() - 1]);
        lines += &format!("source = {source}\nmountpoint = {point}\nlog-file = {log}\n");
        fs::write(&config, format!("{lines}log-level = warn\n")).unwrap();
        let mut changed = Command::new(installed.program());
        changed.args(["mount", "--config"]).arg(&config);
        changed
    });
    let (first, supervisor) = (mount.pid(), parent_of(mount.pid()));
    let hang_up = |wanted: &str| {
        fs::write(&config, format!("{lines}log-level = {wanted}\n")).unwrap();
        kill(Pid::from_raw(supervisor), Signal::SIGHUP).unwrap();
        let line = format!("log_level={wanted} (was ");
        wait_until(&line, LIMIT, || mount.log().contains(&line));
    };
    // The program before goes on, and reads the new settings.
    installed.replace_by(Path::new("/bin/false"));
    hang_up("info");
    assert_eq!(serving(&mount), first);
    installed.replace_by(FFRFS.as_ref());
    hang_up("debug");
    assert!(mount.read(name(4)).unwrap() == samples[4]);
}

#[test]
fn metrics_and_relative_paths_survive_an_upgrade() {
    if !can_resume() {
        return;
    }
    let directory = temp_dir();
    container_in(&directory, &content());
    let point = directory.path().join("mnt");
    fs::create_dir(&point).unwrap();
    let mut command = Command::new(FFRFS);
    let options = "restarts=5,transport=devfuse,metrics=unix:metrics";
    command.args(["mount", "data.ffr", "mnt", "-o", options]);
    run(command.current_dir(directory.path())).ok();
    run(Command::new(FFRFS).arg("upgrade").arg(&point)).ok();
    let socket = directory.path().join("metrics");
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());
    assert!(fs::read(point.join(name(3))).unwrap() == content()[3]);
    umount(&[&point]).ok();
    wait_until("the socket is removed", LIMIT, || !socket.exists());
}

#[test]
fn a_mount_that_cannot_be_handed_over_says_why_and_goes_on() {
    for_each_transport(|transport| {
        let plain = Mount::with_samples(transport, &content(), &["restarts=0"]);
        let refused = upgrade(&plain);
        let why = if transport == Transport::Uring { "io_uring" } else { "--restarts 0" };
        assert!(refused.code == 5 && refused.stderr.contains(why), "{refused:?}");
        assert_eq!(serving(&plain), plain.pid());
        if transport == Transport::Uring {
            let mount = Mount::with_samples(transport, &content(), &["restarts=5"]);
            let refused = upgrade(&mount);
            assert!(refused.code == 5 && refused.stderr.contains("io_uring"), "{refused:?}");
            assert_eq!(serving(&mount), mount.pid());
        }
    });
    let directory = temp_dir();
    let refused = ffrfs(&["upgrade".as_ref(), directory.path().as_os_str()]);
    assert!(refused.code == 5 && refused.stderr.contains("no dataset"), "{refused:?}");
}

#[test]
fn a_dataset_that_has_changed_is_not_handed_over() {
    if !can_resume() || !have(Need::Root) {
        return;
    }
    let mount = Mount::with_samples(Transport::DevFuse, &content(), &["restarts=5"]);
    let changed = fs::File::options().append(true).open(mount.container()).unwrap();
    changed.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(upgrade(&mount).code, 5);
    assert!(mount.log().contains("have changed"), "{}", mount.log());
    assert_eq!(serving(&mount), mount.pid());
    assert_errno(fs::read(mount.path("missing")), libc::ENOENT);
}
