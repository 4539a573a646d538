//! Mounts that are unmounted when their values are dropped.

use super::{
    FFRFS, Outcome, TempDir, Transport, container_in, flip_byte, is_running, run, temp_dir,
    wait_until,
};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A dataset mounted in the background by `ffrfs mount`; unmounted when it is dropped, come what may.
pub(crate) struct Mount {
    point: PathBuf,
    pid: i32,
    log: PathBuf,
    directory: TempDir,
    /// Whether the test kills daemons that are followed by others.
    may_die: bool,
}

impl Mount {
    /// Mounts one container or directory.
    #[track_caller]
    pub(crate) fn new(transport: Transport, source: impl AsRef<Path>, options: &[&str]) -> Self {
        Self::of(transport, &[source.as_ref()], options)
    }

    /// Writes these samples into a container, and mounts that.
    #[track_caller]
    pub(crate) fn with_samples(
        transport: Transport,
        samples: &[impl AsRef<[u8]>],
        options: &[&str],
    ) -> Self {
        let directory = temp_dir();
        let point = directory.path().join("mnt");
        fs::create_dir(&point).expect("a mount point");
        let container = container_in(&directory, samples);
        Self::at(transport, &[&container], options, directory, point)
    }

    /// Mounts several containers.
    #[track_caller]
    pub(crate) fn of(transport: Transport, sources: &[&Path], options: &[&str]) -> Self {
        Self::started(transport, sources, options, |command| command)
    }

    /// Mounts on a directory that the test has made, which must lie in `directory`.
    #[track_caller]
    pub(crate) fn at(
        transport: Transport,
        sources: &[&Path],
        options: &[&str],
        directory: TempDir,
        point: PathBuf,
    ) -> Self {
        Self::with_command(transport, sources, options, directory, point, |command| command)
    }

    /// Mounts with a command that the test changes before it is run.
    #[track_caller]
    pub(crate) fn started(
        transport: Transport,
        sources: &[&Path],
        options: &[&str],
        change: impl FnOnce(Command) -> Command,
    ) -> Self {
        let directory = temp_dir();
        let point = directory.path().join("mnt");
        fs::create_dir(&point).expect("a mount point");
        Self::with_command(transport, sources, options, directory, point, change)
    }

    #[track_caller]
    fn with_command(
        transport: Transport,
        sources: &[&Path],
        options: &[&str],
        directory: TempDir,
        point: PathBuf,
        change: impl FnOnce(Command) -> Command,
    ) -> Self {
        let attempt = Self::attempt(transport, sources, options, directory, point, change);
        attempt.unwrap_or_else(|outcome| panic!("ffrfs mount failed: {}", outcome.stderr))
    }

    /// As [`Mount::with_samples`], with a command that the test changes, and that may fail.
    pub(crate) fn attempt_with_samples(
        transport: Transport,
        samples: &[impl AsRef<[u8]>],
        options: &[&str],
        change: impl FnOnce(Command) -> Command,
    ) -> Result<Self, Outcome> {
        let directory = temp_dir();
        let point = directory.path().join("mnt");
        fs::create_dir(&point).expect("a mount point");
        let container = container_in(&directory, samples);
        Self::attempt(transport, &[&container], options, directory, point, change)
    }

    fn attempt(
        transport: Transport,
        sources: &[&Path],
        options: &[&str],
        directory: TempDir,
        point: PathBuf,
        change: impl FnOnce(Command) -> Command,
    ) -> Result<Self, Outcome> {
        let log = directory.path().join("log");
        // Made before the mount, so that any failure is cleaned up.
        let may_die = options.iter().any(|option| option.contains("restarts="));
        let mut mount = Self { point, pid: 0, log, directory, may_die };
        let outcome = run(&mut change(mount.command(transport, sources, options)));
        if outcome.code != 0 {
            return Err(outcome);
        }
        mount.pid = mount.pid_of_daemon();
        Ok(mount)
    }

    /// Lets daemons of this mount die, although no option allows restarts.
    pub(crate) fn with_deaths(mut self) -> Self {
        self.may_die = true;
        self
    }

    fn command(&self, transport: Transport, sources: &[&Path], options: &[&str]) -> Command {
        let mut command = mount_command(transport, sources, &self.point, options);
        command.arg("--log-file").arg(&self.log);
        command
    }

    fn pid_of_daemon(&self) -> i32 {
        let pid = self.info()["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        pid.expect("info.json names the process")
    }

    /// Mounts the same place again, after the mount that was here has gone.
    #[track_caller]
    pub(crate) fn again(&mut self, transport: Transport, sources: &[&Path], options: &[&str]) {
        let outcome = run(&mut self.command(transport, sources, options));
        assert_eq!(outcome.code, 0, "ffrfs mount failed: {}", outcome.stderr);
        self.pid = self.pid_of_daemon();
    }

    /// Takes over the mount that the test itself has made here since.
    #[track_caller]
    pub(crate) fn adopt(&mut self) {
        self.pid = self.pid_of_daemon();
    }

    /// The mount point.
    pub(crate) fn point(&self) -> &Path {
        &self.point
    }

    /// The path of a name in the mount.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.point.join(name)
    }

    /// The container of [`Mount::with_samples`].
    pub(crate) fn container(&self) -> PathBuf {
        self.directory.path().join("data.ffr")
    }

    /// A directory on disk for the test's own files.
    pub(crate) fn scratch(&self) -> &Path {
        self.directory.path()
    }

    /// The process that serves the mount.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// All bytes of a file.
    pub(crate) fn read(&self, name: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        fs::read(self.path(name))
    }

    /// The names in a directory, as listed.
    #[track_caller]
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(name)).expect("list a directory");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        entries.map(|entry| name(entry).into_string().expect("UTF-8")).collect()
    }

    /// A control file. A file that was opened at a daemon that has died is stale, and is opened again.
    fn json(&self, name: &str) -> Value {
        let text = ffrfs::io::mount::control_file::read(&self.path(Path::new(".ffrfs").join(name)));
        let text = text.expect("a control file");
        serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// `.ffrfs/info.json`.
    pub(crate) fn info(&self) -> Value {
        self.json("info.json")
    }

    /// `.ffrfs/stats.json`.
    pub(crate) fn stats(&self) -> Value {
        self.json("stats.json")
    }

    /// The requests so far, by kind; without those about dropped inodes, which come at any time.
    pub(crate) fn requests(&self) -> BTreeMap<String, u64> {
        let read = || -> BTreeMap<_, _> {
            let stats = self.stats();
            let all = stats["requests"].as_object().expect("requests by kind").iter();
            let kept = all.filter(|(kind, _)| *kind != "forget");
            kept.map(|(kind, n)| (kind.clone(), n.as_u64().expect("a count"))).collect()
        };
        // A request may be counted just after it is answered: wait until the counts stay the same for a while.
        let (mut before, mut same) = (read(), 0);
        while same < 5 {
            std::thread::sleep(Duration::from_millis(20));
            let after = read();
            same = if after == before { same + 1 } else { 0 };
            before = after;
        }
        before
    }

    /// The lines of `.ffrfs/bad`, each as its fields.
    pub(crate) fn bad(&self) -> Vec<Vec<String>> {
        let text = self.read(".ffrfs/bad").expect(".ffrfs/bad");
        let text = String::from_utf8(text).expect("UTF-8");
        text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    }

    /// The daemon's log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether something is mounted here.
    pub(crate) fn is_mounted(&self) -> bool {
        is_mount_point(&self.point)
    }

    /// Whether the daemon lives.
    pub(crate) fn is_served(&self) -> bool {
        is_running(self.pid)
    }

    /// As [`flip_byte`], in [`Mount::container`]. The daemon is stopped meanwhile: it looks at the container from time to
    /// time, and must not see the modification time that the container has for a moment.
    #[track_caller]
    pub(crate) fn flip_byte(&self, offset: u64) {
        self.flip_byte_in(&self.container(), offset);
    }

    /// As [`Mount::flip_byte`], in another container of this mount.
    #[track_caller]
    pub(crate) fn flip_byte_in(&self, container: &Path, offset: u64) {
        let _stopped = Stopped::new(self);
        flip_byte(container, offset);
    }

    /// Unmounts, and waits for the daemon to end by itself.
    #[track_caller]
    pub(crate) fn unmount(self) {
        unmount_soon(&self.point);
        self.wait_for_end();
    }

    /// After a change of the container: sends a request by which the change is noticed, about a file that was not read yet.
    /// An idle machine takes a quarter of a second to notice the change; a busy one may take longer.
    #[track_caller]
    pub(crate) fn wait_until_change_is_noticed(&self, file: &str) {
        let _ = fs::metadata(self.path(file));
        wait_until("the change is noticed", Duration::from_secs(30), || !self.bad().is_empty());
    }

    /// Stops the daemon: it answers nothing until SIGCONT.
    #[track_caller]
    pub(crate) fn stop(&self) {
        kill(Pid::from_raw(self.pid), Signal::SIGSTOP).unwrap();
        // The signal has been sent, and a thread that runs may answer a request before it takes it.
        wait_until("all threads have stopped", Duration::from_secs(60), || {
            let threads = fs::read_dir(format!("/proc/{}/task", self.pid)).unwrap().flatten();
            let states = threads.map(|thread| fs::read_to_string(thread.path().join("stat")));
            states.flatten().all(|stat| stat.rsplit_once(") ").unwrap().1.starts_with('T'))
        });
    }

    /// Waits until the daemon has ended.
    #[track_caller]
    pub(crate) fn wait_for_end(&self) {
        wait_until("the daemon ends", Duration::from_secs(60), || !self.is_served());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (point, log) = (self.point.display(), self.log());
            let last = log.lines().count().saturating_sub(40);
            let lines: Vec<_> = log.lines().skip(last).collect();
            let _ = writeln!(io::stderr(), "---- end of the log of {point}\n{}", lines.join("\n"));
        }
        clean_up(&self.point, self.pid);
        // Otherwise the next daemon would hide a crash from the test.
        if !self.may_die && !std::thread::panicking() {
            let log = self.log();
            assert!(!log.contains(" has died ("), "a daemon has died:\n{log}");
        }
    }
}

/// A daemon or another process that is stopped: it answers nothing. It goes on when this value is dropped.
pub(crate) struct Stopped(i32);

impl Stopped {
    pub(crate) fn process(pid: i32) -> Self {
        kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
        Self(pid)
    }

    #[track_caller]
    pub(crate) fn new(mount: &Mount) -> Self {
        let stopped = Self(mount.pid());
        mount.stop();
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0), Signal::SIGCONT);
    }
}

/// Unmounts if need be by force, and ends the daemon if it does not end itself.
pub(crate) fn clean_up(point: &Path, pid: i32) {
    let start = Instant::now();
    while is_mount_point(point) && start.elapsed() < Duration::from_secs(1) {
        if unmount(point, false).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    while is_mount_point(point) && unmount(point, true).is_ok() {}
    let start = Instant::now();
    while pid > 0 && is_running(pid) {
        if start.elapsed() > Duration::from_secs(20) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// `ffrfs mount` of these sources on `point`; the test runs it, and cleans up.
pub(crate) fn mount_command(
    transport: Transport,
    sources: &[&Path],
    point: &Path,
    options: &[&str],
) -> Command {
    let mut command = Command::new(FFRFS);
    command.arg("mount").args(sources).arg(point);
    for option in options.iter().copied().chain(transport.option()) {
        command.args(["-o", option]);
    }
    command
}

/// The lines of the mount table for exactly this mount point: source, type and options.
pub(crate) fn mounts_at(point: &Path) -> Vec<(String, String, String)> {
    let table = fs::read("/proc/thread-self/mounts").expect("the mount table");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let lines = table.split(|&byte| byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ').map(unescape);
        let (source, target) = (fields.next()?, fields.next()?);
        let is_here = Path::new(OsStr::from_bytes(&target)) == point;
        is_here.then(|| Some((text(source), text(fields.next()?), text(fields.next()?))))?
    });
    lines.collect()
}

/// Undoes the octal escapes of the mount table.
pub(super) fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|d| std::str::from_utf8(d).ok());
        match octal.and_then(|d| u8::from_str_radix(d, 8).ok()).filter(|_| byte == b'\\') {
            Some(value) => {
                out.push(value);
                rest = &tail[3..];
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    out
}

/// Whether something is mounted on exactly this path.
pub(crate) fn is_mount_point(point: &Path) -> bool {
    !mounts_at(point).is_empty()
}

/// Unmounts; a program that has just used the mount (to list all mounts, say) may keep it busy for a moment.
#[track_caller]
pub(crate) fn unmount_soon(point: &Path) {
    wait_until("it can be unmounted", Duration::from_secs(60), || unmount(point, false).is_ok());
}

/// As [`unmount_soon`], by `ffrfs umount`.
pub(crate) fn umount(points: &[&Path]) -> Outcome {
    unmount_with(Command::new(FFRFS).arg("umount").args(points))
}

/// As [`unmount_soon`], by a command, which has failed if the mount is still busy after a minute.
pub(crate) fn unmount_with(command: &mut Command) -> Outcome {
    let start = Instant::now();
    loop {
        let outcome = run(command);
        if !outcome.stderr.contains("busy") || start.elapsed() > Duration::from_secs(60) {
            return outcome;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Unmounts with the rights of the user who runs the tests.
pub(crate) fn unmount(point: &Path, lazy: bool) -> io::Result<()> {
    let mut flags = MntFlags::UMOUNT_NOFOLLOW;
    flags.set(MntFlags::MNT_DETACH, lazy);
    match umount2(point, flags) {
        Err(Errno::EPERM) => {
            let outcome = run(Command::new("fusermount3")
                .args(["-q", "-u"])
                .args(lazy.then_some("-z"))
                .arg(point));
            if outcome.code == 0 { Ok(()) } else { Err(io::Error::other(outcome.stderr)) }
        }
        other => other.map_err(io::Error::from),
    }
}
