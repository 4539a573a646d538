//! `ffrfs doctor`: its findings, its advice, and its exit codes.

use crate::common::{
    FFRFS, Mount, NOTHING, Need, Outcome, Stopped, Transport, container_in, drop_cached, ffrfs,
    fixture, for_each_transport, have, noise, run, samples, temp_dir, wait_until,
};
use crate::user::{Sandbox, have_sandbox};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// `ffrfs doctor --json`: the exit code, and the checks.
fn doctor(places: &[&Path]) -> (i32, Vec<Value>) {
    let outcome = run(Command::new(FFRFS).args(["doctor", "--json"]).args(places));
    (outcome.code, parsed(&outcome))
}

fn parsed(outcome: &Outcome) -> Vec<Value> {
    match serde_json::from_slice(&outcome.stdout) {
        Ok(Value::Array(checks)) => checks,
        other => panic!("no JSON array: {other:?}; {}", outcome.stderr),
    }
}

/// The check whose name ends with `name`.
#[track_caller]
fn check<'a>(checks: &'a [Value], name: &str) -> &'a Value {
    let mut found = checks.iter().filter(|check| check["check"].as_str().unwrap().ends_with(name));
    found.next().unwrap_or_else(|| panic!("no check {name:?} in {checks:#?}"))
}

#[track_caller]
fn is(checks: &[Value], name: &str, state: &str, word: &str) {
    let check = check(checks, name);
    assert_eq!(check["state"], state, "{check:#}");
    assert!(check.to_string().contains(word), "{word:?} is not in {check:#}");
}

/// The line of the plain output that begins with `begin`.
#[track_caller]
fn line<'a>(text: &'a str, begin: &str) -> &'a str {
    let mut lines = text.lines();
    lines.find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("no {begin:?}: {text}"))
}

#[test]
fn where_a_mount_works_the_doctor_finds_no_problem() {
    if !have(Need::Fuse) {
        return;
    }
    let outcome = ffrfs(&["doctor"]).ok();
    let text = outcome.text();
    for line in text.lines() {
        assert!(line.starts_with("ok  ") || line.starts_with("note  "), "{line}");
    }
    for name in ["kernel: Linux", "/dev/fuse: ", "mounting: ", "io_uring: ", "memory: ", "CPUs: "] {
        assert!(text.contains(name), "{name:?} is not in: {text}");
    }
}

#[test]
fn the_json_has_the_same_checks_as_the_lines() {
    let text = ffrfs(&["doctor"]).text();
    let (_, checks) = doctor(&[]);
    assert_eq!(checks.len(), text.lines().count());
    for (check, line) in checks.iter().zip(text.lines()) {
        let Value::Object(fields) = check else { panic!("{check}") };
        assert_eq!(fields.keys().collect::<Vec<_>>(), ["advice", "check", "found", "state"]);
        assert!(line.contains(check["check"].as_str().unwrap()), "{line}");
        assert!(line.starts_with(check["state"].as_str().unwrap()), "{line}");
    }
}

#[test]
fn a_container_is_described_with_what_it_lies_on() {
    let directory = temp_dir();
    let container = container_in(&directory, &samples(10, 1_000));
    for place in [container.as_path(), directory.path()] {
        let (_, checks) = doctor(&[place]);
        is(&checks, place.to_str().unwrap(), "ok", "10 samples");
        let fs_type = run(Command::new("stat").args(["-f", "-c", "%T"]).arg(&container)).text();
        let found = check(&checks, ": file system")["found"].as_str().unwrap();
        let (is, said) = (found.trim_end_matches(['2', '3', '4']), fs_type.trim());
        assert!(
            said.starts_with(is) || said == "overlayfs" || said == "UNKNOWN",
            "{found}, {said}"
        );
        assert!(!check(&checks, ": O_DIRECT")["found"].as_str().unwrap().is_empty());
        assert!(!check(&checks, ": block device")["found"].as_str().unwrap().is_empty());
    }
}

#[test]
fn a_directory_of_containers_is_described_as_one_dataset() {
    let (_, checks) = doctor(&[&fixture("parts")]);
    is(&checks, "parts", "ok", "24 samples");
}

#[test]
fn what_cannot_be_mounted_is_a_problem() {
    let directory = temp_dir();
    let junk = directory.path().join("junk.ffr");
    fs::write(&junk, noise(1, 100)).unwrap();
    let missing = directory.path().join("missing\n\x1b[31m.ffr");
    for place in [&junk, &missing] {
        let (code, checks) = doctor(&[place]);
        assert_eq!(code, 5);
        let problem = checks.iter().find(|check| check["state"] == "problem").unwrap();
        assert!(!problem["advice"].as_str().unwrap().is_empty(), "{problem}");
    }
    // A foreign file is not damaged: its error says what to do.
    let foreign = directory.path().join("x.rar");
    fs::write(&foreign, b"Rar!\x1a\x07\x01\0 and more").unwrap();
    let (_, checks) = doctor(&[&foreign]);
    is(&checks, "x.rar", "problem", "is a RAR archive, which ffrfs does not mount: unpack it");
    assert_eq!(check(&checks, "x.rar")["advice"], "", "no word of damage");
    fs::remove_file(&foreign).unwrap();
    let outcome = run(Command::new(FFRFS).arg("doctor").arg(&missing));
    assert!(outcome.text().contains(r"missing\x0a\x1b[31m.ffr"), "{}", outcome.text());
    fs::remove_file(&junk).unwrap();
    let (_, checks) = doctor(&[directory.path()]);
    is(&checks, directory.path().to_str().unwrap(), "ok", "nothing is mounted");
}

#[test]
fn a_mount_is_described_with_its_transport() {
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples(10, 1_000), &["verify=once"]);
        let (_, checks) = doctor(&[mount.point()]);
        let name = mount.point().to_str().unwrap();
        is(&checks, name, "ok", "verify once");
        let word = match transport {
            Transport::DevFuse => "devfuse",
            Transport::Uring => "uring",
        };
        is(&checks, ": transport", "ok", word);
        assert!(
            check(&checks, ": read_ahead_kb")["found"].as_str().unwrap().parse::<u64>().is_ok()
        );
        mount.unmount();
    });
}

#[test]
fn a_mount_that_nobody_reads_is_said_to_be_idle_and_one_that_is_read_is_not() {
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples(50, 20_000), &[]);
        let bottleneck = || {
            let (code, checks) = doctor(&["--seconds=0.5".as_ref(), mount.point()]);
            assert_eq!(code, 0);
            check(&checks, ": bottleneck").clone()
        };
        let idle = bottleneck();
        assert_eq!(idle["state"], "ok");
        assert!(idle["found"].as_str().unwrap().starts_with("none, idle"), "{idle}");
        assert!(idle["found"].as_str().unwrap().contains("(0 requests/s"), "{idle}");
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    for number in 0..50 {
                        let file = fs::File::open(mount.path(format!("{number:06}"))).unwrap();
                        drop_cached(&file);
                        std::io::copy(&mut &file, &mut std::io::sink()).unwrap();
                    }
                }
            });
            // The reader may get no CPU for half a second.
            let busy = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                wait_until("it is said to be read", Duration::from_secs(60), || {
                    let busy = bottleneck();
                    let found = busy["found"].as_str().unwrap();
                    let rate = found.split(['(', ' ']).find_map(|word| word.parse::<u64>().ok());
                    assert!(!found.starts_with("unknown"), "{busy}");
                    !found.starts_with("none") && rate.unwrap() > 50
                });
            }));
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            busy.unwrap()
        });
    });
}

#[test]
fn a_mount_that_has_met_bad_samples_says_where_they_are_listed_and_where_its_log_is() {
    for_each_transport(|transport| {
        let mount = Mount::new(transport, fixture("bad_sample.ffr"), &[]);
        let (code, checks) = doctor(&[mount.point()]);
        assert_eq!(code, 0);
        is(&checks, ": bad samples", "ok", "none");
        is(&checks, ": log", "ok", mount.scratch().join("log").to_str().unwrap());
        let read = mount.list("").iter().filter(|name| mount.read(name).is_err()).count();
        assert_eq!(read, 1);
        let (code, checks) = doctor(&[mount.point()]);
        assert_eq!(code, 0);
        is(&checks, ": bad samples", "note", "1, and containers: 0");
        is(&checks, ": bad samples", "note", mount.path(".ffrfs/bad").to_str().unwrap());
    });
}

#[test]
fn without_journald_and_syslog_messages_go_to_a_file_of_the_user_and_doctor_says_so() {
    let has_log = |socket: &&str| Path::new(socket).exists();
    if !have(Need::Fuse) || ["/run/systemd/journal/socket", "/dev/log"].iter().any(has_log) {
        return;
    }
    let directory = temp_dir();
    let container = container_in(&directory, &samples(3, 1_000));
    let point = directory.path().join("mnt");
    fs::create_dir(&point).unwrap();
    let state = directory.path().join("state");
    let mut command = Command::new(FFRFS);
    command.env("XDG_STATE_HOME", &state).arg("mount").args([&container, &point]);
    let mounted = run(&mut command);
    let checks = match mounted.code {
        0 => doctor(&[&point]).1,
        _ => Vec::new(),
    };
    crate::common::clean_up(&point, 0);
    mounted.ok();
    let log = state.join("ffrfs/ffrfs.log");
    is(&checks, ": log", "ok", log.to_str().unwrap());
    let text = fs::read_to_string(&log).unwrap();
    let line = format!("{}: ", point.display());
    assert!(text.lines().all(|said| said.starts_with(&line)), "{text}");
    assert!(text.contains("mounted on"), "{text}");
    let host = run(Command::new(FFRFS).arg("doctor").env("XDG_STATE_HOME", &state));
    assert!(host.text().contains(&format!("they go to {}", log.display())), "{}", host.text());
    // A log cannot lie below a file.
    let host = run(Command::new(FFRFS).arg("doctor").env("XDG_STATE_HOME", &container));
    let nowhere = format!(
        "{}/ffrfs/ffrfs.log cannot be written (Not a directory): they go nowhere; --log-file FILE",
        container.display()
    );
    assert!(host.text().contains(&nowhere), "{}", host.text());
}

#[test]
fn a_mount_whose_daemon_is_dead_is_a_problem() {
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples(3, 1_000), &["restarts=0"]);
        kill(Pid::from_raw(mount.pid()), Signal::SIGKILL).unwrap();
        mount.wait_for_end();
        let (code, checks) = doctor(&[mount.point()]);
        assert_eq!(code, 5);
        is(&checks, mount.point().to_str().unwrap(), "problem", "ffrfs umount");
    });
}

#[test]
fn a_mount_whose_daemon_hangs_does_not_hang_the_doctor() {
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples(3, 1_000), &[]);
        let stopped = Stopped::new(&mount);
        let (code, checks) = doctor(&[mount.point()]);
        drop(stopped);
        assert_eq!(code, 5);
        is(&checks, mount.point().to_str().unwrap(), "problem", "is stopped: kill -CONT");
        mount.unmount();
    });
}

#[test]
fn behind_containers_that_threads_open_a_mount_whose_daemon_hangs_does_not_hang_the_doctor() {
    let parts = temp_dir();
    for part in 0..64 {
        let copy = parts.path().join(format!("PART_{part:05}.ffr"));
        fs::copy(fixture("parts/PART_00000.ffr"), copy).unwrap();
    }
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples(3, 1_000), &[]);
        let stopped = Stopped::new(&mount);
        let mut command = Command::new("timeout");
        command.args(["60", FFRFS, "doctor", "--json"]).args([parts.path(); 8]).arg(mount.point());
        let outcome = run(&mut command);
        drop(stopped);
        assert_eq!(outcome.code, 5, "{}", outcome.stderr);
        let checks = parsed(&outcome);
        is(&checks, mount.point().to_str().unwrap(), "problem", "is stopped: kill -CONT");
        is(&checks, parts.path().to_str().unwrap(), "ok", "samples");
        let at = |place: &Path| {
            let is_of_it = |check: &Value| check["check"] == place.to_str().unwrap();
            checks.iter().position(is_of_it).unwrap()
        };
        assert!(at(parts.path()) < at(mount.point()), "in the order in which they were given");
        mount.unmount();
    });
}

#[test]
fn a_mount_without_control_directory_that_its_user_has_not_shared_is_asked_whether_it_answers() {
    if !have_sandbox() {
        return;
    }
    for_each_transport(|transport| {
        let options = crate::user::options(transport, "no_control,restarts=0");
        let outcome = Sandbox::new("").run(&format!(
            "somebody env FFRFS_TEST=\"$1\" ./ffrfs mount data.ffr mnt -o {options} || exit 1
             # From now on, the kernel knows that it is not there.
             somebody ls mnt/.ffrfs 2>/dev/null && exit 2
             ./ffrfs doctor mnt | grep -q 'note  *mnt: its daemon answers; --no-control' || exit 3
             mine=$(grep -lzxF \"FFRFS_TEST=$1\" /proc/[0-9]*/environ 2>/dev/null)
             daemons=$(echo $(echo \"$mine\" | cut -d/ -f3))
             [ -n \"$daemons\" ] || exit 4
             trap \"kill -CONT $daemons 2>/dev/null\" EXIT
             kill -STOP $daemons
             for daemon in $daemons; do
                 for turn in $(seq 200); do
                     grep -hq '^State:.[^T]' /proc/$daemon/task/*/status || break
                     sleep 0.05
                 done
             done
             ./ffrfs doctor mnt | grep -q 'problem  *mnt: no answer within 5 s: process.* stopped: kill -CONT' || exit 5
             kill -KILL $daemons
             for turn in $(seq 100); do
                 ./ffrfs doctor mnt | grep -q 'problem  *mnt: its daemon is dead' && code=0 && break
                 sleep 0.1
             done
             code=${{code-6}}"
        ));
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    });
}

// ---- hosts that lack something -------------------------------------------------------------------

#[test]
fn who_is_not_root_is_told_what_mounting_and_sharing_need() {
    if !have_sandbox() {
        return;
    }
    let doctor = |fuse_conf, script: &str| Sandbox::new(fuse_conf).run(script);
    let plain = "somebody ./ffrfs doctor; code=$?";
    let outcome = doctor("", plain).ok();
    assert!(line(&outcome.text(), "ok       mounting").contains("fusermount3"));
    assert!(line(&outcome.text(), "note     allow_other").contains("/etc/fuse.conf"));
    let outcome = doctor("user_allow_other\n", plain).ok();
    line(&outcome.text(), "ok       allow_other");

    let outcome = doctor("", &format!("chmod 600 dev/fuse; {plain}"));
    assert_eq!(outcome.code, 5, "{}", outcome.stderr);
    assert!(line(&outcome.text(), "problem  /dev/fuse").contains("chmod 666"));
    let hidden = "mount --bind /dev/null \"$(command -v fusermount3)\"
                  PATH=/nowhere $(command -v setpriv) --reuid 65534 --regid 65534 --clear-groups \
                      -- ./ffrfs doctor; code=$?";
    let outcome = doctor("", hidden);
    assert_eq!(outcome.code, 5, "{}", outcome.stderr);
    assert!(line(&outcome.text(), "problem  mounting").contains("apt-get install fuse3"));
    let bound = plain.replace("./ffrfs", "setpriv --no-new-privs ./ffrfs");
    let outcome = doctor("", &bound);
    assert_eq!(outcome.code, 5, "{}", outcome.stderr);
    assert!(line(&outcome.text(), "problem  mounting").contains("no_new_privs"));
}

#[test]
fn where_enable_uring_is_off_the_doctor_and_the_log_say_the_same() {
    let parameter = "/sys/module/fuse/parameters/enable_uring";
    if !have_sandbox() || !Path::new(parameter).exists() {
        return;
    }
    let outcome = Sandbox::new("").run(&format!(
        "echo N >off; mount --bind off {parameter}
         ./ffrfs doctor || exit 1
         ./ffrfs mount data.ffr mnt --log-file log || exit 2
         ./ffrfs doctor mnt || exit 3
         ./ffrfs umount mnt; grep 'through /dev/fuse' log; code=$?"
    ));
    let outcome = outcome.ok();
    let why = "the fuse module's enable_uring is off; as root: echo Y > ";
    let text = outcome.text();
    assert!(line(&text, "note     transport=auto: devfuse").contains(why), "{text}");
    line(&text, "ok       mnt: transport: devfuse");
    assert!(text.lines().last().unwrap().contains(why), "{text}");
}

#[test]
fn the_connection_of_a_mount_is_seen_through_fusectl() {
    if !have_sandbox() || !have(Need::Fusectl) {
        return;
    }
    let outcome = Sandbox::new("").run(
        "mount -t fusectl none /sys/fs/fuse/connections
         ./ffrfs mount data.ffr mnt || exit 1
         ./ffrfs doctor mnt; code=$?
         ./ffrfs umount mnt",
    );
    let text = outcome.ok().text();
    for name in ["max_background", "congestion_threshold", "waiting"] {
        let figure = line(&text, &format!("ok       mnt: {name}: "));
        assert!(figure.rsplit(' ').next().unwrap().parse::<u64>().is_ok(), "{figure}");
    }
}

/// Runs a program under a filter that forbids io_uring_setup(2), 425 everywhere, as in a container.
const FILTERED: &str = r#"
import ctypes, os, struct, sys
code = struct.pack("HBBI" * 4, 0x20, 0, 0, 0, 0x15, 0, 1, 425, 6, 0, 0, 0x50000 | 1, 6, 0, 0, 0x7fff0000)
code = ctypes.create_string_buffer(code)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
libc, program = ctypes.CDLL(None, use_errno=True), Program(4, ctypes.addressof(code))
if os.geteuid():
    libc.prctl(38, 1, 0, 0, 0)
if libc.prctl(22, 2, ctypes.byref(program), 0, 0):
    sys.exit(f"no filter: {os.strerror(ctypes.get_errno())}")
os.execv(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn where_a_filter_forbids_io_uring_a_mount_says_so_and_does_without() {
    let is_enabled = ffrfs::io::ring::is_enabled().unwrap_or(false);
    if !have(Need::Fuse) || !have(Need::Program("python3")) || !is_enabled {
        return;
    }
    let filtered = || {
        let mut command = Command::new("python3");
        command.args(["-c", FILTERED, FFRFS]);
        command
    };
    let outcome = run(filtered().args(["doctor", "--json"])).ok();
    let checks = parsed(&outcome);
    is(&checks, "io_uring", "note", "seccomp");
    is(&checks, "transport=auto", "note", "--security-opt");

    let mut mount = Mount::with_samples(Transport::DevFuse, &samples(3, 1_000), &[]);
    let (container, point) = (mount.container(), mount.point().to_owned());
    crate::common::unmount_soon(&point);
    mount.wait_for_end();
    let refused =
        run(filtered().arg("mount").args([&container, &point]).args(["-o", "transport=uring"]));
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    assert!(refused.stderr.contains("seccomp"), "{}", refused.stderr);
    let log = mount.scratch().join("filtered.log");
    let command = &mut filtered();
    run(command.arg("mount").args([&container, &point]).arg("--log-file").arg(&log)).ok();
    mount.adopt();
    assert_eq!(mount.read("000001").unwrap(), samples(3, 1_000)[1]);
    let log = fs::read_to_string(log).unwrap();
    let said: Vec<_> = log.lines().filter(|line| line.contains("through /dev/fuse")).collect();
    assert_eq!(said.len(), 1, "{log}");
    assert!(said[0].contains("seccomp") && said[0].contains("Docker"), "{log}");
    mount.unmount();
}

#[test]
fn what_the_doctor_takes_is_in_its_help() {
    let help = ffrfs(&["doctor", "--help"]).ok().text();
    assert!(help.contains("--json") && help.contains("[MOUNTPOINT|CONTAINER|URL]"), "{help}");
    assert_eq!(run(Command::new(FFRFS).args(["doctor", "--frobnicate"]).args(NOTHING)).code, 1);
}
