//! `ffrfs mount --config`, and a mount as a service: the messages to the service manager and to the journal.

use crate::common::{
    FFRFS, Mount, Need, Source, TempDir, Transport, clean_up, container_in, ffrfs, flip_byte,
    for_each_transport, have, in_own_namespace, is_mount_point, offsets, run, samples, temp_dir,
    unmount_with, wait_for_end, wait_until,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, io};

const IN_TIME: Duration = Duration::from_secs(20);

fn some() -> Vec<Vec<u8>> {
    samples(3, 50_000)
}

/// A directory with a container, a mount point, and a config file for both.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new(transport: Transport, lines: &str) -> Self {
        let place = Self { directory: temp_dir() };
        container_in(&place.directory, &some());
        fs::create_dir(place.point()).unwrap();
        place.configure(transport, lines);
        place
    }

    fn configure(&self, transport: Transport, lines: &str) {
        let (container, point) = (self.path("data.ffr"), self.point());
        let transport = transport.option().unwrap_or_default();
        let text = format!(
            "# made by a test\nsource = {}\nmountpoint = {}\n{transport}\n{lines}\n",
            container.display(),
            point.display(),
        );
        fs::write(self.config(), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn point(&self) -> PathBuf {
        self.path("mnt")
    }

    fn config(&self) -> PathBuf {
        self.path("ds.conf")
    }

    fn is_served(&self) -> bool {
        fs::metadata(self.point().join("000000")).is_ok()
    }

    /// The lines that `ffrfs set` prints, but for the size of the cache.
    fn settings(&self) -> Vec<String> {
        let text = run(Command::new(FFRFS).arg("set").arg(self.point())).ok().text();
        let lines = text.lines().filter(|line| !line.starts_with("cache_size"));
        lines.map(str::to_owned).collect()
    }

    /// Starts the mount as the unit does; the value receives its messages to the service manager.
    fn start(&self, change: impl FnOnce(&mut Command)) -> Started<'_> {
        let manager = UnixDatagram::bind(self.path("notify")).unwrap();
        manager.set_read_timeout(Some(IN_TIME)).unwrap();
        let mut command = Command::new(FFRFS);
        command.args(["mount", "--foreground", "--config"]).arg(self.config());
        command.env("NOTIFY_SOCKET", self.path("notify")).stderr(Stdio::piped());
        change(&mut command);
        Started { child: command.spawn().unwrap(), place: self, manager }
    }
}

struct Started<'a> {
    child: Child,
    place: &'a Place,
    manager: UnixDatagram,
}

impl Started<'_> {
    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// The next message, line by line.
    fn told(&self) -> Vec<String> {
        let mut bytes = [0; 4096];
        let length = self.manager.recv(&mut bytes).expect("a message in time");
        let text = String::from_utf8(bytes[..length].to_vec()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// The exit code, and the text on stderr.
    fn wait(&mut self) -> (i32, String) {
        wait_for_end(&mut self.child, IN_TIME)
    }
}

impl Drop for Started<'_> {
    fn drop(&mut self) {
        clean_up(&self.place.point(), 0);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// ---- config files --------------------------------------------------------------------------------

#[test]
fn a_config_file_mounts_in_the_background_and_flags_behind_it_count_more() {
    for_each_transport(|transport| {
        let place = Place::new(transport, "suffix = .bin\nfsname = of the file\nnoexec = yes");
        let file = place.config();
        let flags = ["mount", "--config", file.to_str().unwrap(), "-o", "suffix=.jpg"];
        let outcome = ffrfs(&flags);
        let read = fs::read(place.point().join("000001.jpg"));
        let source = crate::common::mounts_at(&place.point());
        let umount = unmount_with(Command::new(FFRFS).args(["umount", "--config"]).arg(&file));
        clean_up(&place.point(), 0);
        outcome.ok();
        umount.ok();
        assert_eq!(read.unwrap(), some()[1]);
        assert_eq!(source[0].0, "of the file");
        assert!(source[0].2.contains("noexec"), "{}", source[0].2);
    });
}

#[test]
fn a_config_file_that_is_wrong_is_refused_with_its_name_and_line() {
    let directory = temp_dir();
    let file = directory.path().join("ds.conf");
    let name = file.to_str().unwrap();
    for (text, line, says) in [
        ("source = a\nmountpoint = b\nfrobnicate = 1\n", ":3:", "frobnicate"),
        ("source = a\nmountpoint = b\n\nverify = sometimes\n", ":4:", "always, once, off"),
        ("source = a\n", "", "mountpoint"),
        ("mountpoint = a\n", "", "source"),
        ("mountpoint = a\nmountpoint = b\n", ":2:", "second mountpoint"),
    ] {
        fs::write(&file, text).unwrap();
        let outcome = ffrfs(&["mount", "--config", name]);
        assert_eq!(outcome.code, 1, "{text:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(&format!("{name}{line}")), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(says), "{text:?}: {}", outcome.stderr);
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    }
    let missing = ffrfs(&["mount", "--config", "/nowhere/ds.conf"]);
    assert_eq!((missing.code, missing.stderr.contains("/nowhere/ds.conf")), (2, true));
    fs::write(&file, "source = a\nmountpoint = b\n").unwrap();
    for both in [&["mount", "--config", name, "c", "d"][..], &["mount", "--config"]] {
        assert_eq!(ffrfs(both).code, 1, "{both:?}");
    }
    assert_eq!(ffrfs(&["mount", "--source", "a", "--mountpoint", "b"]).code, 1);
}

// ---- the service manager -------------------------------------------------------------------------

#[test]
fn the_service_manager_hears_of_the_mount_of_reloads_and_of_the_end() {
    for_each_transport(|transport| {
        let place = Place::new(transport, "verify = once");
        let mut service = place.start(|_| {});
        let ready = service.told();
        let status = format!("STATUS=3 samples of {}", place.path("data.ffr").display());
        assert_eq!(ready[0], "READY=1");
        assert!(ready[1].starts_with(&status) && ready[1].contains("/mnt"), "{ready:?}");
        assert!(place.is_served());

        place.configure(transport, "verify = once\nsuffix = .jpg\nfrobnicate = 1");
        kill(service.pid(), Signal::SIGHUP).unwrap();
        let reloading = service.told();
        assert_eq!(reloading[0], "RELOADING=1");
        let time = reloading[1].strip_prefix("MONOTONIC_USEC=").expect("the time");
        assert!(time.parse::<u64>().unwrap() > 0);
        assert_eq!(service.told(), ready, "wrong files change nothing");

        place.configure(transport, "memory = 200M\nsuffix = .jpg\nlog_level = debug");
        kill(service.pid(), Signal::SIGHUP).unwrap();
        assert_eq!(service.told()[0], "RELOADING=1");
        assert_eq!(service.told(), ready);
        assert!(place.is_served());
        assert_eq!(place.settings(), ["verify=always", "memory=200M", "log_level=debug"]);

        kill(service.pid(), Signal::SIGTERM).unwrap();
        assert_eq!(service.told()[0], "STOPPING=1");
        let (code, stderr) = service.wait();
        assert_eq!(code, 0, "{stderr}");
        let wrong = format!("{}:7: unknown mount option `frobnicate`", place.config().display());
        for line in [&*wrong, "no setting is changed", "the new value of suffix", "verify=always"] {
            assert!(stderr.contains(line), "{line:?} is not in: {stderr}");
        }
        assert!(!stderr.contains("memory has") && !is_mount_point(&place.point()), "{stderr}");
    });
}

#[test]
fn signs_of_life_are_given_as_long_as_the_mount_answers() {
    for_each_transport(|transport| {
        let place = Place::new(transport, "");
        let mut service = place.start(|command| {
            command.env("WATCHDOG_USEC", "1000000");
        });
        assert_eq!(service.told()[0], "READY=1");
        for _ in 0..3 {
            assert_eq!(service.told(), ["WATCHDOG=1"]);
        }
        kill(service.pid(), Signal::SIGTERM).unwrap();
        let (code, stderr) = service.wait();
        assert_eq!(code, 0, "{stderr}");
    });
}

#[test]
fn a_service_manager_that_reads_no_messages_does_not_delay_the_unmount() {
    for_each_transport(|transport| {
        let place = Place::new(transport, "");
        let mut service = place.start(|command| {
            command.env("WATCHDOG_USEC", "200000");
        });
        assert_eq!(service.told()[0], "READY=1");
        let filler = UnixDatagram::unbound().unwrap();
        filler.set_nonblocking(true).unwrap();
        let is_full = || filler.send_to(b"STATUS=full", place.path("notify")).is_err();
        wait_until("the socket takes no more messages", IN_TIME, is_full);
        kill(service.pid(), Signal::SIGTERM).unwrap();
        let (code, stderr) = service.wait();
        assert_eq!((code, is_mount_point(&place.point())), (0, false), "{stderr}");
        assert!(stderr.contains("cannot notify the service manager"), "{stderr}");
    });
}

#[test]
fn a_hangup_opens_the_log_file_anew() {
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &some(), &[]);
        let (log, moved) = (mount.scratch().join("log"), mount.scratch().join("log.1"));
        fs::rename(&log, &moved).unwrap();
        kill(Pid::from_raw(mount.pid()), Signal::SIGHUP).unwrap();
        wait_until("there is a new file", IN_TIME, || log.exists());
        crate::common::unmount_soon(mount.point());
        mount.wait_for_end();
        assert!(fs::read_to_string(&moved).unwrap().contains("mounted on"));
        assert!(mount.log().contains("unmounted from") && !mount.log().contains("mounted on"));
    });
}

#[test]
fn a_hangup_opens_the_log_file_of_a_service_anew() {
    for_each_transport(|transport| {
        for restarts in [0, 3] {
            let place = Place::new(transport, "");
            let (log, moved) = (place.path("log"), place.path("log.1"));
            place.configure(
                transport,
                &format!("log_file = {}\nrestarts = {restarts}", log.display()),
            );
            let service = place.start(|_| {});
            assert_eq!(service.told()[0], "READY=1");
            let info = fs::read(place.point().join(".ffrfs/info.json")).unwrap();
            let info: serde_json::Value = serde_json::from_slice(&info).unwrap();
            assert_eq!(info["log"], log.to_str().unwrap());
            fs::rename(&log, &moved).unwrap();
            let lines =
                format!("log_file = {}\nrestarts = {restarts}\nverify = once", log.display());
            place.configure(transport, &lines);
            kill(service.pid(), Signal::SIGHUP).unwrap();
            // The process that serves logs into the new file.
            let is_anew = || fs::read_to_string(&log).is_ok_and(|log| log.contains("verify"));
            wait_until("the service logs to a new file", IN_TIME, is_anew);
        }
    });
}

#[test]
fn what_a_killed_daemon_left_is_cleared_and_what_lives_is_not() {
    for_each_transport(|transport| {
        let place = Place::new(transport, "");
        let file = place.config();
        let clear = ["umount", "--dead", "--config", file.to_str().unwrap()];
        let mut service = place.start(|_| {});
        assert_eq!(service.told()[0], "READY=1");
        ffrfs(&clear).ok();
        assert!(place.is_served());
        service.child.kill().unwrap();
        service.child.wait().unwrap();
        let held = is_mount_point(&place.point());
        ffrfs(&clear).ok();
        assert!(held && !is_mount_point(&place.point()));
        ffrfs(&clear).ok();
    });
}

// ---- the journal ---------------------------------------------------------------------------------

/// A journald of the test's own, to which commands write that it runs.
struct Journal {
    socket: UnixDatagram,
    directory: TempDir,
}

impl Journal {
    /// `None` if this machine cannot have a journal.
    fn new() -> Option<Self> {
        if !have(Need::Root) {
            return None;
        }
        let directory = temp_dir();
        let socket = UnixDatagram::bind(directory.path().join("socket")).unwrap();
        Some(Self { socket, directory })
    }

    /// Runs a script with `$0` and `$@`, where the journal's socket is this one.
    fn run(&self, script: &str, args: &[&Path]) -> crate::common::Outcome {
        let script = format!(
            "mount -t tmpfs none /run && mkdir -p /run/systemd/journal &&
             mount --bind \"$1\" /run/systemd/journal && shift || exit 99
             {script}"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script, FFRFS]).arg(self.directory.path()).args(args);
        in_own_namespace(|| run(&mut command))
    }

    /// All messages up to the last one of a mount, by field: its daemon may outlive the script.
    fn messages_to_the_end(&self) -> Vec<BTreeMap<String, String>> {
        let mut all = Vec::new();
        let is_last = |m: &BTreeMap<_, String>| m["MESSAGE"].starts_with("unmounted from");
        wait_until("it says that it is unmounted", IN_TIME, || {
            all.extend(self.messages());
            all.iter().any(is_last)
        });
        all
    }

    /// All messages so far, by field.
    fn messages(&self) -> Vec<BTreeMap<String, String>> {
        self.socket.set_nonblocking(true).unwrap();
        let mut all = Vec::new();
        let mut bytes = vec![0; 1 << 16];
        loop {
            match self.socket.recv(&mut bytes) {
                Ok(0) => {}
                Ok(length) => all.push(fields(&bytes[..length])),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return all,
                Err(e) => panic!("{e}"),
            }
        }
    }
}

/// `NAME=value`, or `NAME`, a length of eight bytes and a value of any bytes.
fn fields(mut rest: &[u8]) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
        let line = &rest[..end];
        rest = &rest[end + 1..];
        if let Some(at) = line.iter().position(|&byte| byte == b'=') {
            out.insert(text(&line[..at]), text(&line[at + 1..]));
        } else {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            out.insert(text(line), text(&rest[8..8 + length]));
            rest = &rest[8 + length + 1..];
        }
    }
    out
}

#[test]
fn the_journal_gets_fields_for_mount_source_and_bad_samples() {
    let Some(journal) = Journal::new() else { return };
    for_each_transport(|transport| {
        let place = Place::new(transport, "");
        let bad = offsets(&some())[1];
        flip_byte(&place.path("data.ffr"), bad + 10);
        let script = "\"$0\" mount --config \"$1\" || exit; cat \"$2/000001\"; cat \"$2/000002\";
            \"$0\" umount \"$2\"";
        let outcome = journal.run(script, &[&place.config(), &place.point()]);
        outcome.ok();
        let messages = journal.messages_to_the_end();
        let container = place.path("data.ffr").canonicalize().unwrap().display().to_string();
        let point = place.point().canonicalize().unwrap().display().to_string();
        for message in &messages {
            assert_eq!(message["SYSLOG_IDENTIFIER"], "ffrfs", "{message:?}");
            assert_eq!(message["FFRFS_MOUNT"], point, "{message:?}");
            assert_eq!(message["FFRFS_SOURCE"], container, "{message:?}");
        }
        let find = |text: &str| messages.iter().find(|message| message["MESSAGE"].contains(text));
        let mounted = find("mounted on").unwrap_or_else(|| panic!("{messages:?}"));
        assert_eq!((mounted["PRIORITY"].as_str(), mounted["FFRFS_SAMPLES"].as_str()), ("5", "3"));
        let mismatch = find("checksum mismatch").unwrap_or_else(|| panic!("{messages:?}"));
        assert_eq!(mismatch["PRIORITY"], "3");
        assert_eq!(mismatch["FFRFS_SAMPLE"], "1");
        assert_eq!(mismatch["FFRFS_CONTAINER"], container);
        assert_eq!(mismatch["FFRFS_OFFSET"], bad.to_string());
        assert!(mismatch["FFRFS_EXPECTED"].starts_with("0x"), "{mismatch:?}");
        assert!(mismatch["MESSAGE"].contains("sample 1:"), "{mismatch:?}");
        assert!(mismatch["MESSAGE"].contains(&container), "{mismatch:?}");
    });
}

#[test]
fn a_service_in_the_foreground_writes_to_the_journal_itself_where_stderr_is_the_journal() {
    let Some(journal) = Journal::new() else { return };
    let place = Place::new(Transport::DevFuse, "");
    // The variable as a service manager sets it, and as a process has it that inherited it with another stderr.
    for (stream, is_journal) in [("$(stat -L -c %d:%i /proc/self/fd/2)", true), ("1:2", false)] {
        let script = format!(
            "exec 2>\"$2/../stderr\"; export JOURNAL_STREAM=\"{stream}\"
             \"$0\" mount -f --config \"$1\" & until [ -e \"$2/000000\" ]; do sleep 0.05; done
             kill $! && wait $!"
        );
        journal.run(&script, &[&place.config(), &place.point()]).ok();
        let messages = journal.messages();
        assert_eq!(!messages.is_empty(), is_journal, "{messages:?}");
        let stderr = fs::read_to_string(place.path("stderr")).unwrap();
        assert_eq!(stderr.contains("mounted on"), !is_journal, "{stderr}");
    }
    // A failure before the program has a log is an error in the journal, too.
    let script =
        "exec 2>\"$1/stderr\"; export JOURNAL_STREAM=\"$(stat -L -c %d:%i /proc/self/fd/2)\"
        \"$0\" mount -f --config /nowhere || true";
    journal.run(script, &[place.directory.path()]).ok();
    let stderr = fs::read_to_string(place.path("stderr")).unwrap();
    assert!(stderr.starts_with("<3>ffrfs: /nowhere"), "{stderr}");
}

#[test]
fn a_signal_to_end_unmounts_though_the_file_system_of_the_config_file_hangs_in_a_reload() {
    for_each_transport(|transport| {
        for restarts in [0, 5] {
            let place = Place::new(transport, &format!("verify = once\nrestarts = {restarts}"));
            let source = Source::of(&place.config());
            let mut supervisor = Command::new(FFRFS)
                .args(["mount", "--foreground", "--config"])
                .arg(source.file())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            wait_until("it is mounted", IN_TIME, || place.is_served());
            source.stop();
            let pid = Pid::from_raw(supervisor.id().cast_signed());
            kill(pid, Signal::SIGHUP).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            kill(pid, Signal::SIGTERM).unwrap();
            wait_until("it is unmounted", IN_TIME, || !is_mount_point(&place.point()));
            source.go_on();
            assert_eq!(supervisor.wait().unwrap().code(), Some(0), "restarts: {restarts}");
        }
    });
}
