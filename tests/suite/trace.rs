//! `.ffrfs/trace` and `ffrfs trace`: every request with the phases of its time, and only while a reader looks.

use crate::common::{
    Disk, FFRFS, Mount, Need, Transport, assert_errno, drop_cached, ffrfs, for_each_transport,
    have, noise, offsets, run, samples, wait_until,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// A page of `.ffrfs/trace`, as a reader of its own reads it: the first line, and the others.
pub(crate) fn page(mount: &Mount) -> (Value, Vec<Value>) {
    let text = mount.read(".ffrfs/trace.test").expect("a page");
    let mut lines = text.split(|&b| b == b'\n').filter(|line| !line.is_empty());
    let mut line = || lines.next().map(|line| serde_json::from_slice::<Value>(line).expect("JSON"));
    (line().expect("a first line"), std::iter::from_fn(line).collect())
}

/// Reads pages until `is_it` accepts one of the events.
pub(crate) fn event(mount: &Mount, is_it: impl Fn(&Value) -> bool) -> Value {
    let mut found = None;
    wait_until("the event comes", PATIENCE, || {
        let (_, events) = page(mount);
        found = events.into_iter().find(|event| is_it(event));
        found.is_some()
    });
    found.unwrap()
}

fn is(event: &Value, operation: &str, path: &str) -> bool {
    event["operation"] == operation && event["path"] == path
}

/// The thread that asks, as the kernel tells it.
fn thread_id() -> i32 {
    nix::unistd::gettid().as_raw()
}

/// The start and the end.
fn span(of: &Value) -> (u64, u64) {
    let number = |name: &str| of[name].as_u64().unwrap_or_else(|| panic!("{name} of {of}"));
    (number("start_ns"), number("start_ns") + number("duration_ns"))
}

pub(crate) fn phases(event: &Value) -> Vec<&str> {
    let phases = event["phases"].as_array().unwrap().iter();
    phases.map(|phase| phase["name"].as_str().unwrap()).collect()
}

#[track_caller]
pub(crate) fn assert_phases_lie_in(event: &Value) {
    let (start, end) = span(event);
    let mut before = start;
    for phase in event["phases"].as_array().unwrap() {
        let (start, until) = span(phase);
        assert!(before <= start && start <= until && until <= end, "{event}");
        before = until;
    }
}

/// The number of readers that trace the mount, or did so of late.
fn readers(mount: &Mount) -> u64 {
    mount.info()["trace_readers"].as_u64().unwrap()
}

/// `ffrfs trace` in the background, and the lines that it has printed.
pub(crate) struct Tracer {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Tracer {
    /// Begins to trace; returns once the mount is traced.
    pub(crate) fn new(mount: &Mount, args: &[&str]) -> Self {
        let others = readers(mount);
        let mut command = Command::new(FFRFS);
        command.arg("trace").arg(mount.point()).args(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (output, printed) = (child.stdout.take().unwrap(), Arc::clone(&lines));
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                printed.lock().unwrap().push(line);
            }
        });
        wait_until("tracing begins", PATIENCE, || readers(mount) > others);
        Self { child, lines }
    }

    fn wait_for(&self, what: &str) -> String {
        let found = || self.lines.lock().unwrap().iter().find(|l| l.contains(what)).cloned();
        wait_until(what, PATIENCE, || found().is_some());
        found().unwrap()
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Interrupts as Ctrl-C does, and returns the exit code.
    pub(crate) fn interrupt(&mut self) -> i32 {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGINT).unwrap();
        self.wait()
    }

    fn wait(&mut self) -> i32 {
        let status = self.child.wait().unwrap();
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_read_is_traced_with_its_phases_within_it() {
    for_each_transport(|transport| {
        let samples = samples(4, 60_000);
        let disk = Disk::new(&samples);
        let mount = Mount::new(transport, disk.container(), &["suffix=.bin"]);
        let (head, events) = page(&mount);
        assert_eq!((head["lost"].as_u64(), events.len()), (Some(0), 0));
        drop_cached(&File::open(disk.container()).unwrap());
        disk.slow_down(Duration::from_millis(30));
        assert!(mount.read("000003.bin").unwrap() == samples[3]);
        disk.slow_down(Duration::ZERO);
        let read = event(&mount, |event| is(event, "read", "000003.bin"));
        assert_phases_lie_in(&read);
        // If the lookup has begun to fetch the sample, the read waits for that fetch.
        let all = read["phases"].as_array().unwrap().iter();
        let of_disk = all.filter(|phase| phase["name"] == "disk" || phase["name"] == "wait");
        let longest = of_disk.map(|phase| phase["duration_ns"].as_u64().unwrap()).max();
        assert!(longest.is_some_and(|duration| duration >= 20_000_000), "{read}");
        assert!(phases(&read).contains(&"reply"), "{read}");
        assert_eq!((&read["bytes"], &read["errno"]), (&samples[3].len().into(), &0.into()));
        assert_eq!(read["pid"], thread_id());
        let ino = fs::metadata(mount.path("000003.bin")).unwrap().ino();
        assert_eq!(read["ino"], ino);
    });
}

#[test]
fn what_is_checked_and_given_shows_as_phases() {
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples(4, 60_000), &[]);
        page(&mount);
        mount.read("000002").unwrap();
        let read = event(&mount, |event| is(event, "read", "000002"));
        assert_phases_lie_in(&read);
        assert!(phases(&read).ends_with(&["verify", "reply"]), "{read}");
    });
}

#[test]
fn names_directories_and_failures_are_traced_by_path() {
    for_each_transport(|transport| {
        let contents = samples(30, 2_000);
        let mount = Mount::with_samples(transport, &contents, &["fanout=10"]);
        mount.flip_byte(offsets(&contents)[25] + 1);
        page(&mount);
        assert_errno(mount.read("002/000025"), libc::EIO);
        assert_errno(mount.read("002/none"), libc::ENOENT);
        assert_eq!(mount.list("001").len(), 10);
        let mut events = Vec::new();
        wait_until("all is traced", PATIENCE, || {
            events.extend(page(&mount).1);
            let has = |operation, path| events.iter().any(|e| is(e, operation, path));
            has("read", "002/000025")
                && has("lookup", "002/none")
                && (has("readdirplus", "001") || has("readdir", "001"))
        });
        let errno = |operation, path| {
            let event = events.iter().find(|event| is(event, operation, path));
            event.map(|event| event["errno"].as_i64().unwrap())
        };
        assert_eq!(errno("read", "002/000025"), Some(i64::from(libc::EIO)));
        assert_eq!(errno("lookup", "002/none"), Some(i64::from(libc::ENOENT)));
        assert_eq!(errno("lookup", "002/000025"), Some(0));
        assert!(events.iter().all(|event| !event["path"].to_string().contains(".ffrfs")));
    });
}

#[test]
fn tracing_ends_when_its_reader_has_ended() {
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples(20, 2_000), &[]);
        assert_eq!(readers(&mount), 0);
        let (head, _) = page(&mount);
        assert_eq!(readers(&mount), 1);
        mount.read("000000").unwrap();
        event(&mount, |event| is(event, "read", "000000"));
        let after = Duration::from_millis(head["traced_for_ms"].as_u64().unwrap());
        wait_until("tracing ends", after * 3, || readers(&mount) == 0);
        let forgotten = || mount.stats()["requests"]["forget"].as_u64().unwrap();
        let forgotten_before = forgotten();
        let (before, _) = page(&mount);
        // Reading the page has switched tracing on: waits once more.
        wait_until("tracing ends", after * 3, || readers(&mount) == 0);
        for sample in 1..20 {
            mount.read(format!("{sample:06}")).unwrap();
        }
        let (head, events) = page(&mount);
        assert_eq!(events.len(), 0);
        // While the second page kept tracing on, the kernel may have dropped inodes, if its caches were freed.
        let last = |page: &Value| page["last"].as_u64().unwrap();
        let traced = last(&head) - last(&before);
        assert!(traced <= forgotten() - forgotten_before, "{traced}: {head}, before {before}");
    });
}

#[test]
fn what_others_read_is_shown_to_the_owner_of_the_daemon_alone() {
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples(2, 100), &["uid=65533", "fmask=0"]);
        for name in [".ffrfs/trace", ".ffrfs/trace.x"] {
            let metadata = fs::metadata(mount.path(name)).unwrap();
            let me = nix::unistd::geteuid().as_raw();
            assert_eq!((metadata.mode() & 0o7777, metadata.uid()), (0o600, me));
            assert_errno(fs::write(mount.path(name), "x"), libc::EROFS);
        }
        // A look at the attributes is no read.
        assert_eq!(readers(&mount), 0);
        assert_errno(mount.read(".ffrfs/trace."), libc::ENOENT);
        assert_errno(mount.read(".ffrfs/tracex"), libc::ENOENT);
    });
}

#[test]
fn a_user_who_may_read_the_samples_may_not_trace() {
    if !have(Need::Root) {
        return;
    }
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples(2, 100), &["allow_other"]);
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(mount.scratch(), open).unwrap();
        let cat =
            |name: &str| run(Command::new("cat").arg(mount.path(name)).uid(65_534).gid(65_534));
        cat("000001").ok();
        let refused = cat(".ffrfs/trace");
        assert!(refused.stderr.contains("Permission denied"), "{refused:?}");
        assert_eq!(readers(&mount), 0);
    });
}

#[test]
fn pages_that_nobody_reads_do_not_pile_up() {
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples(2, 100), &[]);
        let first = File::open(mount.path(".ffrfs/trace.first")).unwrap();
        let _held: Vec<_> =
            (0..40).map(|i| File::open(mount.path(format!(".ffrfs/trace.{i}"))).unwrap()).collect();
        let mut byte = [0];
        assert_errno(std::os::unix::fs::FileExt::read_at(&first, &mut byte, 0), libc::ESTALE);
        // A new page is there all the same.
        assert_eq!(page(&mount).1.len(), 0);
    });
}

#[test]
fn the_access_log_shows_what_is_wanted_and_ends_with_ctrl_c() {
    for_each_transport(|transport| {
        let contents = samples(30, 2_000);
        let mount = Mount::with_samples(transport, &contents, &[]);
        mount.flip_byte(offsets(&contents)[18] + 1);
        let mut all = Tracer::new(&mount, &[]);
        let args = ["--op", "read,getattr", "--path", "*8", "--json"];
        let mut some = Tracer::new(&mount, &args);
        for name in ["000007", "000008"] {
            mount.read(name).unwrap();
        }
        assert_errno(mount.read("000018"), libc::EIO);
        let line = all.wait_for(" 000008");
        assert!(line.contains(" lookup ") || line.contains(" read "), "{line}");
        let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        wait_until("the failure is logged", PATIENCE, || {
            all.lines().iter().any(|line| fields(line).ends_with(&["EIO".into(), "000018".into()]))
        });
        // A read is noted after its answer, and by any thread: of two reads the second may be noted first.
        let is_read = |line: &&String| line.contains(" read ") && line.ends_with(" 000007");
        let read = || all.lines().iter().find(is_read).map(|line| fields(line));
        wait_until("the read is logged", PATIENCE, || read().is_some());
        let read = read().unwrap();
        let (pid, size) = (thread_id().to_string(), contents[7].len().to_string());
        assert_eq!([&read[1], &read[2], &read[3], &read[4]], [&pid, "read", "0", &size]);
        some.wait_for("000018");
        for line in some.lines() {
            let event: Value = serde_json::from_str(&line).unwrap();
            assert!(event["path"].as_str().unwrap().ends_with('8'), "{line}");
            // The kernel asks for attributes again if it is told that a sample is damaged.
            let operation = event["operation"].as_str().unwrap();
            assert!(["read", "getattr"].contains(&operation), "{line}");
            assert!(event["unix_ns"].as_u64().unwrap() > 1_700_000_000_000_000_000);
        }
        assert_eq!((all.interrupt(), some.interrupt()), (0, 0));
    });
}

#[test]
fn only_slow_requests_are_logged_if_that_is_asked_for() {
    for_each_transport(|transport| {
        let contents = samples(8, 60_000);
        let disk = Disk::new(&contents);
        let mount = Mount::new(transport, disk.container(), &[]);
        let mut tracer = Tracer::new(&mount, &["--slow", "25ms", "--json"]);
        page(&mount);
        mount.read("000000").unwrap();
        drop_cached(&File::open(disk.container()).unwrap());
        disk.slow_down(Duration::from_millis(40));
        mount.read("000005").unwrap();
        disk.slow_down(Duration::ZERO);
        tracer.wait_for("\"path\":\"000005\"");
        let (_, all) = page(&mount);
        let is_slow = |event: &Value| event["duration_ns"].as_u64().unwrap() >= 25_000_000;
        let lines = tracer.lines();
        let logged: Vec<Value> = lines.iter().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert!(logged.iter().all(is_slow) && !all.iter().all(is_slow), "{logged:?} of {all:?}");
        assert_eq!(tracer.interrupt(), 0);
    });
}

/// The records of each request in a trace for Perfetto: its own, and those of its phases.
fn records(path: &Path) -> Vec<(Value, Vec<Value>)> {
    let trace: Value = serde_json::from_slice(&fs::read(path).unwrap()).expect("JSON");
    let mut requests: Vec<(Value, Vec<Value>)> = Vec::new();
    for record in trace["traceEvents"].as_array().unwrap() {
        match (record["ph"].as_str().unwrap(), record["cat"].as_str()) {
            ("X", Some("request")) => requests.push((record.clone(), Vec::new())),
            ("X", Some("phase")) => requests.last_mut().unwrap().1.push(record.clone()),
            ("M", None) => assert!(record["args"]["name"].is_string()),
            _ => panic!("{record}"),
        }
    }
    requests
}

#[test]
fn a_trace_for_perfetto_has_every_read_with_its_phases_on_one_track() {
    for_each_transport(|transport| {
        let contents = samples(40, 30_000);
        let mount = Mount::with_samples(transport, &contents, &[]);
        let file = mount.scratch().join("trace.json");
        let mut tracer = Tracer::new(&mount, &["--chrome", file.to_str().unwrap()]);
        page(&mount);
        for (number, sample) in contents.iter().enumerate() {
            assert!(mount.read(format!("{number:06}")).unwrap() == *sample);
        }
        assert!(!file.exists(), "it is there as a whole or not at all");
        // The last read is answered before it is traced.
        event(&mount, |event| is(event, "read", "000039"));
        assert_eq!(tracer.interrupt(), 0);
        let requests = records(&file);
        for (number, sample) in contents.iter().enumerate() {
            let path = format!("{number:06}");
            let of = |(record, _): &&(Value, Vec<Value>)| {
                record["name"] == "read" && record["args"]["path"] == path
            };
            let found = requests.iter().find(of);
            let Some((read, phases)) = found else {
                assert!(sample.is_empty(), "{path} is not traced");
                continue;
            };
            assert_eq!(read["pid"], thread_id());
            assert_eq!(read["args"]["bytes"], sample.len());
            assert_eq!(read["args"]["sample"], number);
            let span = |record: &Value| {
                let start = record["ts"].as_f64().unwrap();
                (start, start + record["dur"].as_f64().unwrap())
            };
            let (start, end) = span(read);
            assert!(!phases.is_empty());
            for phase in phases {
                let (from, to) = span(phase);
                assert_eq!((&phase["tid"], &phase["pid"]), (&read["tid"], &read["pid"]));
                // Floating point: a nanosecond more or less.
                assert!(start - 0.002 <= from && to <= end + 0.002, "{read} {phase}");
            }
        }
        let left: Vec<_> =
            fs::read_dir(mount.scratch()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(
            !left.iter().any(|name| name.to_string_lossy().starts_with(".ffrfs-trace")),
            "{left:?}"
        );
    });
}

#[test]
fn what_is_fetched_ahead_has_tracks_of_its_own() {
    for_each_transport(|transport| {
        let contents = samples(40, 30_000);
        let mount = Mount::with_samples(transport, &contents, &["rw"]);
        let file = mount.scratch().join("trace.json");
        let mut tracer = Tracer::new(&mount, &["--chrome", file.to_str().unwrap()]);
        fs::write(mount.path(".ffrfs/prefetch"), "000011\n000030\n").unwrap();
        let done = || mount.stats()["prefetch"]["done"] == 2;
        wait_until("they are fetched", PATIENCE, done);
        assert_eq!(tracer.interrupt(), 0);
        let ahead: Vec<_> =
            records(&file).into_iter().filter(|(record, _)| record["name"] == "prefetch").collect();
        assert!(!ahead.is_empty());
        for (record, phases) in ahead {
            assert_eq!(record["pid"], mount.pid());
            let container = mount.container().canonicalize().unwrap();
            assert_eq!(record["args"]["container"].as_str().map(Path::new), Some(&*container));
            let names: Vec<_> =
                phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
            assert_eq!(names, ["disk", "verify"]);
        }
    });
}

#[test]
fn a_mount_that_goes_away_ends_a_trace_that_is_whole() {
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples(8, 3_000), &[]);
        let directory = crate::common::temp_dir();
        let file = directory.path().join("trace.json");
        let mut tracer = Tracer::new(&mount, &["--chrome", file.to_str().unwrap()]);
        mount.read("000003").unwrap();
        let has_seen = || {
            let mut files = fs::read_dir(directory.path()).unwrap().flatten();
            files.any(|file| fs::read_to_string(file.path()).is_ok_and(|t| t.contains("000003")))
        };
        let mut number = 0;
        wait_until("the tracer has seen it", PATIENCE, || {
            // The tracer writes once it has seen some kilobytes.
            number += 1;
            let _ = fs::metadata(mount.path(format!("none {number}")));
            has_seen()
        });
        mount.unmount();
        assert_eq!(tracer.wait(), 5);
        assert!(records(&file).iter().any(|(record, _)| record["args"]["path"] == "000003"));
    });
}

#[test]
fn what_cannot_be_traced_is_said() {
    let directory = crate::common::temp_dir();
    let at = |path: &Path, args: &[&str]| {
        let args =
            [OsStr::new("trace"), path.as_os_str()].into_iter().chain(args.iter().map(OsStr::new));
        ffrfs(&args.collect::<Vec<_>>())
    };
    let outcome = at(directory.path(), &[]);
    assert_eq!(outcome.code, 5);
    assert!(outcome.stderr.contains("no dataset of ffrfs is mounted"), "{}", outcome.stderr);
    for wrong in [
        ["--op", "nothing"],
        ["--slow", "10"],
        ["--path", "["],
        ["--seconds", "-1"],
        ["--seconds", "1e19"],
    ] {
        assert_eq!(at(directory.path(), &wrong).code, 1, "{wrong:?}");
    }
    let mount = Mount::with_samples(Transport::DevFuse, &[noise(1, 100)], &[]);
    let outcome = at(mount.point(), &["--seconds", "0.1", "--chrome", "/proc/nowhere/trace.json"]);
    assert_eq!(outcome.code, 6, "{}", outcome.stderr);
    let says = "there is no directory /proc/nowhere: make it, or name another output\n";
    assert!(outcome.stderr.ends_with(says), "{}", outcome.stderr);
}
