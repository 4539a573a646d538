//! The supervisor: the sockets and the log that it keeps, and that it leaves nothing behind.

use super::{COUNT, LIMIT, can_resume, children_of, content, name, next_after, parent_of};
use crate::common::{
    FFRFS, Mount, Need, Transport, container_in, ffrfs, for_each_transport, have, in_own_namespace,
    is_mount_point, is_running, mount_command, run, temp_dir, umount, unmount, unmount_soon,
    unmount_with, up_to_five_times, wait_until,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Asks for metrics; the answer is empty if no process serves them.
fn scrape(mut stream: impl Read + Write) -> String {
    let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A process that holds the sockets on which another one listens, as a killed process that hangs does.
struct Holder(Child);

impl Holder {
    fn of_sockets(pid: i32) -> Self {
        const HOLD: &str = "
import ctypes, os, socket, sys
pid = int(sys.argv[1])
pidfd, held = os.pidfd_open(pid), 0
for number in os.listdir(f'/proc/{pid}/fd'):
    try:
        if os.readlink(f'/proc/{pid}/fd/{number}').startswith('socket:'):
            ours = ctypes.CDLL(None).syscall(438, pidfd, int(number), 0)
            held += socket.socket(fileno=os.dup(ours)).getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError:
        continue  # It was closed meanwhile.
print(held, flush=True)
sys.stdin.read()
";
        let mut child = Command::new("python3")
            .args(["-c", HOLD, &pid.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut held = [0];
        child.stdout.as_mut().unwrap().read_exact(&mut held).unwrap();
        assert_eq!(&held, b"1", "a socket that listens");
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A mount whose metrics are served on a port. An error: another program has taken the port first.
fn with_a_port(transport: Transport) -> Result<(Mount, u16), String> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let options = ["restarts=5", &format!("metrics=127.0.0.1:{port}")];
    match Mount::attempt_with_samples(transport, &content(), &options, |command| command) {
        Ok(mount) => Ok((mount, port)),
        Err(refused) if refused.stderr.contains("in use") => Err(refused.stderr),
        Err(refused) => panic!("{refused:?}"),
    }
}

#[test]
fn metrics_are_served_by_the_next_process_though_the_one_before_holds_the_port() {
    if !have(Need::Root) || !have(Need::Program("python3")) {
        return;
    }
    for_each_transport(|transport| {
        let (mount, port) = up_to_five_times(|| with_a_port(transport));
        let _holder = Holder::of_sockets(mount.pid());
        send(mount.pid(), Signal::SIGKILL);
        next_after(&mount, mount.pid());
        let answer = scrape(TcpStream::connect(("127.0.0.1", port)).unwrap());
        assert!(answer.contains("ffrfs_requests_total"), "{answer}");
    });
}

#[test]
fn the_socket_of_metrics_goes_from_one_process_to_the_next_and_is_removed_in_the_end() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let socket = directory.path().join("metrics");
        let option = format!("metrics=unix:{}", socket.display());
        let mount = Mount::with_samples(transport, &content(), &["restarts=5", &option]);
        let supervisor = parent_of(mount.pid());
        for turn in 0..2 {
            let answer = scrape(UnixStream::connect(&socket).unwrap());
            assert!(answer.contains("ffrfs_requests_total"), "{turn}: {answer}");
            let before = super::serving(&mount);
            send(before, Signal::SIGKILL);
            // All threads must have ended: one that still accepts would take the connection with it.
            let process = PathBuf::from(format!("/proc/{before}"));
            wait_until("it has died", LIMIT, || !process.exists());
            // A client that connects while no daemon serves waits for the answer.
            let waiting = UnixStream::connect(&socket).unwrap();
            assert!(scrape(waiting).contains("ffrfs_requests_total"), "{turn}: while it restarts");
            next_after(&mount, before);
        }
        mount.unmount();
        wait_until("the supervisor ends", LIMIT, || !is_running(supervisor));
        assert!(!socket.exists());
    });
}

#[test]
fn a_signal_to_end_while_nobody_serves_unmounts() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let socket = directory.path().join("metrics");
        let option = format!("metrics=unix:{}", socket.display());
        let mount = Mount::with_samples(transport, &content(), &["restarts=1000", &option]);
        let supervisor = parent_of(mount.pid());
        // Each death at once makes the next pause longer. Some workers die before they can tell of their mount.
        wait_until("nobody serves", LIMIT, || {
            let workers = children_of(supervisor);
            for &worker in &workers {
                let _ = kill(Pid::from_raw(worker), Signal::SIGKILL);
            }
            workers.is_empty()
        });
        send(supervisor, Signal::SIGTERM);
        wait_until("the supervisor ends", LIMIT, || !is_running(supervisor));
        assert!(!mount.is_mounted(), "{}", mount.log());
        assert!(!socket.exists(), "the socket of the metrics");
    });
}

#[test]
fn a_signal_to_end_right_after_a_death_unmounts() {
    for_each_transport(|transport| {
        for _ in 0..4 {
            let mount = Mount::with_samples(transport, &content(), &["restarts=5"]);
            let supervisor = parent_of(mount.pid());
            send(mount.pid(), Signal::SIGKILL);
            send(supervisor, Signal::SIGTERM);
            wait_until("the supervisor ends", LIMIT, || !is_running(supervisor));
            assert!(!mount.is_mounted(), "{}", mount.log());
        }
    });
}

#[test]
fn a_mount_that_its_user_has_detached_does_not_come_back() {
    for_each_transport(|transport| {
        let samples = content();
        let mount = Mount::with_samples(transport, &samples, &["restarts=5"]);
        let (first, supervisor) = (mount.pid(), parent_of(mount.pid()));
        let mut file = File::open(mount.path(name(COUNT - 1))).unwrap();
        unmount(mount.point(), true).unwrap();
        send(first, Signal::SIGKILL);
        if transport == Transport::DevFuse && can_resume() {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            assert!(bytes == samples[COUNT - 1], "a file that stays open");
            drop(file);
        }
        wait_until("the supervisor ends", LIMIT, || !is_running(supervisor));
        assert!(
            !is_mount_point(mount.point()) && fs::read_dir(mount.point()).unwrap().count() == 0
        );
    });
}

#[test]
fn a_hangup_reopens_the_log_of_the_supervisor_and_ends_nobody() {
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &content(), &["restarts=100"]);
        let supervisor = parent_of(mount.pid());
        let log = mount.scratch().join("log");
        fs::rename(&log, mount.scratch().join("old")).unwrap();
        // Sends the signal before the first death, of which the supervisor might else hear first.
        send(supervisor, Signal::SIGHUP);
        wait_until("there is a new file", LIMIT, || log.exists());
        for _ in 0..3 {
            let before = super::serving(&mount);
            send(before, Signal::SIGKILL);
            for _ in 0..20 {
                send(supervisor, Signal::SIGHUP);
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
            next_after(&mount, before);
        }
        assert!(is_running(supervisor));
        let said = fs::read_to_string(&log).unwrap();
        assert_eq!(said.matches("has died").count(), 3, "{said}");
        assert!(!said.contains("SIGHUP"), "{said}");
        assert!(!fs::read_to_string(mount.scratch().join("old")).unwrap().contains("has died"));
    });
}

/// A control group that bounds the number of processes.
struct Processes(PathBuf);

impl Processes {
    /// Makes a group for the test of this name.
    fn new(test: &str) -> Option<Self> {
        let name = format!("ffrfs-test-{test}-{}", std::process::id());
        let places = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"];
        let mut places = places.iter().map(|place| Path::new(place).join(&name));
        let place = places.find(|place| {
            fs::create_dir(place).is_ok()
                && (place.join("pids.max").exists() || fs::remove_dir(place).is_err())
        })?;
        Some(Self(place))
    }

    fn set(&self, file: &str, value: impl ToString) {
        fs::write(self.0.join(file), value.to_string()).unwrap();
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        wait_until("the group is empty", LIMIT, || fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn a_limit_of_processes_that_keeps_a_mount_with_restarts_from_being_made_is_named() {
    if !have(Need::Root) {
        return;
    }
    let Some(group) = Processes::new("limit") else { return };
    let directory = temp_dir();
    let container = container_in(&directory, &content());
    let point = directory.path().join("mnt");
    fs::create_dir(&point).unwrap();
    for_each_transport(|transport| {
        for limit in 1..=9 {
            group.set("pids.max", limit);
            let inner = mount_command(transport, &[&container], &point, &["restarts=3"]);
            let mut command = Command::new("sh");
            command
                .args(["-c", "echo $$ >\"$0\" && exec \"$@\""])
                .arg(group.0.join("cgroup.procs"));
            let outcome = run(command.arg(inner.get_program()).args(inner.get_args()));
            assert_eq!(outcome.code, 5, "{limit}: {}", outcome.stderr);
            let failures = outcome.stderr.lines().filter(|line| !line.contains("warning: "));
            let failures: Vec<_> = failures.collect();
            let pids = format!("pids.max of the cgroup: {limit}");
            for words in ["a mount needs ", "(ulimit -u: ", &pids] {
                assert!(failures[0].contains(words), "{limit}: {}", outcome.stderr);
            }
            assert_eq!(failures.len(), 1, "{limit}: {}", outcome.stderr);
            assert!(!is_mount_point(&point));
            let processes = group.0.join("cgroup.procs");
            wait_until("all have ended", LIMIT, || fs::read(&processes).unwrap().is_empty());
        }
    });
}

#[test]
fn a_supervisor_that_can_start_no_process_says_so_and_tries_again() {
    if !have(Need::Root) {
        return;
    }
    let Some(group) = Processes::new("again") else { return };
    for_each_transport(|transport| {
        let samples = content();
        let mount = Mount::with_samples(transport, &samples, &["restarts=1000"]);
        let supervisor = parent_of(mount.pid());
        group.set("cgroup.procs", supervisor);
        group.set("pids.max", 1);
        send(mount.pid(), Signal::SIGKILL);
        let why = "no process can serve";
        wait_until("it says so", LIMIT, || mount.log().contains(why));
        assert!(is_running(supervisor));
        group.set("pids.max", "max");
        next_after(&mount, mount.pid());
        assert!(mount.read(name(1)).unwrap() == samples[1]);
        mount.unmount();
        wait_until("the supervisor ends", LIMIT, || !is_running(supervisor));
    });
}

#[test]
fn a_supervisor_that_can_start_no_process_gives_up_in_the_end() {
    if !have(Need::Root) {
        return;
    }
    let Some(group) = Processes::new("end") else { return };
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &content(), &["restarts=2"]);
        let supervisor = parent_of(mount.pid());
        group.set("cgroup.procs", supervisor);
        group.set("pids.max", 1);
        send(mount.pid(), Signal::SIGKILL);
        wait_until("it gives up", LIMIT, || !is_running(supervisor));
        fs::read(mount.path(name(1))).unwrap_err();
        assert!(mount.log().contains("given up"), "{}", mount.log());
    });
}

#[test]
fn an_upgrade_for_which_there_are_too_few_processes_names_their_limit() {
    if !can_resume() || !have(Need::Root) {
        return;
    }
    let Some(group) = Processes::new("upgrade") else { return };
    let mount = Mount::with_samples(Transport::DevFuse, &content(), &["restarts=5"]);
    let supervisor = parent_of(mount.pid());
    group.set("cgroup.procs", supervisor);
    // Too few for another process, and too few for its threads.
    for limit in [1, 4] {
        group.set("pids.max", limit);
        let refused = ffrfs(&["upgrade".as_ref(), mount.point().as_os_str()]);
        assert_eq!(refused.code, 5, "{refused:?}");
        assert!(refused.stderr.contains("too few processes"), "{refused:?}");
        let named = format!("pids.max of the cgroup: {limit}");
        assert!(mount.log().contains(&named), "{limit}: {}", mount.log());
    }
    assert!(mount.read(name(3)).unwrap() == content()[3]);
    mount.unmount();
    wait_until("the supervisor ends", LIMIT, || !is_running(supervisor));
}

#[test]
fn umount_by_force_ends_a_stopped_supervisor_with_its_daemon() {
    for_each_transport(|transport| {
        for is_daemon_stopped in [false, true] {
            let mount = Mount::with_samples(transport, &content(), &["restarts=5"]);
            let (daemon, supervisor) = (mount.pid(), parent_of(mount.pid()));
            let stopped = [supervisor, daemon];
            let stopped = &stopped[..1 + usize::from(is_daemon_stopped)];
            for &process in stopped {
                send(process, Signal::SIGSTOP);
                let stat = format!("/proc/{process}/stat");
                wait_until("it has stopped", LIMIT, || {
                    fs::read_to_string(&stat).unwrap().rsplit_once(") ").unwrap().1.starts_with('T')
                });
            }
            let outcome = ffrfs(&[Path::new("umount"), Path::new("--force"), mount.point()]);
            let left = [supervisor, daemon].map(is_running);
            for &process in stopped {
                let _ = kill(Pid::from_raw(process), Signal::SIGCONT);
            }
            assert_eq!(outcome.ok().stderr, "");
            assert_eq!(left, [false, false], "daemon stopped: {is_daemon_stopped}");
            assert!(!mount.is_mounted());
        }
    });
}

#[test]
fn a_file_of_names_that_has_changed_is_not_served_by_another_process() {
    if !can_resume() {
        return;
    }
    let names = temp_dir();
    let file = names.path().join("names");
    let lines = |last: &str| -> String {
        let first: String = (1..COUNT).map(|number| format!("directory/{number}\n")).collect();
        format!("{first}{last}\n")
    };
    fs::write(&file, lines("directory/last")).unwrap();
    let option = format!("names={}", file.display());
    let mount = Mount::with_samples(Transport::DevFuse, &content(), &["restarts=5", &option]);
    let supervisor = parent_of(mount.pid());
    send(mount.pid(), Signal::SIGKILL);
    next_after(&mount, mount.pid());
    fs::write(&file, lines("directory/other")).unwrap();
    send(super::serving(&mount), Signal::SIGKILL);
    wait_until("the supervisor gives up", LIMIT, || !is_running(supervisor));
    assert!(mount.log().contains("have changed"), "{}", mount.log());
}

#[test]
fn a_mount_point_that_the_mount_has_made_is_removed_once() {
    let directory = temp_dir();
    container_in(&directory, &content());
    let (log, point) = (directory.path().join("log"), directory.path().join("data"));
    let mut command = Command::new(FFRFS);
    command.args(["mount", "data.ffr", "-o", "restarts=5", "--log-file"]).arg(&log);
    run(command.current_dir(directory.path())).ok();
    assert!(fs::read(point.join(name(3))).is_ok());
    let info: serde_json::Value =
        serde_json::from_slice(&fs::read(point.join(".ffrfs/info.json")).unwrap()).unwrap();
    let supervisor = parent_of(info["pid"].as_i64().unwrap() as i32);
    umount(&[&point]).ok();
    wait_until("it is removed", LIMIT, || !point.exists());
    wait_until("it is said", LIMIT, || fs::read_to_string(&log).unwrap().contains("unmounted"));
    // By then the supervisor would have tried to remove the directory once more.
    wait_until("the supervisor ends", LIMIT, || !is_running(supervisor));
    let said = fs::read_to_string(&log).unwrap();
    assert!(!said.contains("not removed"), "{said}");
}

#[test]
fn a_supervisor_that_is_stopped_keeps_nobody_from_unmounting() {
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &content(), &["restarts=5"]);
        let (worker, supervisor) = (mount.pid(), parent_of(mount.pid()));
        send(supervisor, Signal::SIGSTOP);
        assert!(mount.read(name(2)).unwrap() == content()[2]);
        unmount_soon(mount.point());
        assert!(!mount.is_mounted());
        wait_until("the worker ends", LIMIT, || !is_running(worker));
        send(supervisor, Signal::SIGCONT);
        wait_until("the supervisor ends", LIMIT, || !is_running(supervisor));
    });
}

#[test]
fn whoever_unmounts_by_whatever_means_leaves_no_process() {
    for_each_transport(|transport| {
        for means in ["umount", "fusermount3", "removed"] {
            let mount = Mount::with_samples(transport, &content(), &["restarts=5"]);
            let (worker, supervisor) = (mount.pid(), parent_of(mount.pid()));
            let point = mount.point().to_str().unwrap().to_owned();
            let needed = if means == "fusermount3" { Need::Program(means) } else { Need::Root };
            if !have(needed) {
                continue;
            }
            match means {
                "umount" => drop(unmount_with(Command::new("umount").arg(&point)).ok()),
                "fusermount3" => {
                    unmount_with(Command::new("fusermount3").args(["-u", &point])).ok();
                }
                // In a namespace where nothing is mounted there the directory can be removed.
                _ => in_own_namespace(|| fs::remove_dir(&point)).unwrap(),
            }
            let has_ended = || !is_running(worker) && !is_running(supervisor);
            wait_until(&format!("all processes end after {means}"), LIMIT, has_ended);
            assert!(!mount.is_mounted(), "{means}");
        }
    });
}

#[test]
fn a_supervisor_is_small_and_is_killed_last_for_memory() {
    if !have(Need::Root) {
        return;
    }
    let mount = Mount::with_samples(Transport::DevFuse, &content(), &["restarts=5"]);
    let supervisor = parent_of(mount.pid());
    let read = |pid: i32, file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let field = |name: &str| -> u64 {
        let status = read(supervisor, "status");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let score = |pid| read(pid, "oom_score_adj").trim().to_owned();
    wait_until("its memory is locked", LIMIT, || field("VmLck:") > 0);
    // In kilobytes; the symbols of a test's program are larger.
    assert!(field("VmLck:") < 2000, "{}", read(supervisor, "status"));
    assert!(field("RssAnon:") < 4096, "{}", read(supervisor, "status"));
    assert_eq!(field("Threads:"), 1);
    let ours = score(std::process::id() as i32);
    let lowest = run(Command::new("sh").args(["-c", "echo -1000 > /proc/self/oom_score_adj"]));
    assert_eq!(score(supervisor), if lowest.code == 0 { "-1000" } else { &ours });
    assert_eq!(score(mount.pid()), ours);
    send(mount.pid(), Signal::SIGKILL);
    assert_eq!(score(next_after(&mount, mount.pid())), ours);
}

#[test]
fn that_a_supervisor_has_ended_is_said_by_doctor_and_by_upgrade() {
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &content(), &["restarts=5"]);
        let supervisor = parent_of(mount.pid());
        let doctor = || ffrfs(&["doctor".as_ref(), mount.point().as_os_str()]);
        let watched = doctor();
        let says = format!("process {supervisor}, which starts another daemon");
        assert!(watched.code == 0 && watched.text().contains(&says), "{watched:?}");
        send(supervisor, Signal::SIGKILL);
        wait_until("the supervisor ends", LIMIT, || !is_running(supervisor));
        let alone = doctor();
        let says = "nobody starts another daemon if this one dies";
        assert!(alone.code == 5 && alone.text().contains(says), "{alone:?}");
        // The daemon answers, and is checked as ever.
        for check in [": bottleneck: ", ": bad samples: "] {
            assert!(alone.text().contains(check), "{alone:?}");
        }
        assert!(mount.read(name(3)).unwrap() == content()[3]);
        if transport == Transport::DevFuse && can_resume() {
            let refused = ffrfs(&["upgrade".as_ref(), mount.point().as_os_str()]);
            assert!(refused.code == 5, "{refused:?}");
            assert!(refused.stderr.contains("its supervisor has ended"), "{refused:?}");
        }
        mount.unmount();
    });
}
