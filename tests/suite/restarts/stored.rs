//! A service manager that keeps the connection: the mount outlives its supervisor, too.

use super::{LIMIT, can_resume, children_of, content, name, parent_of};
use crate::common::{
    Disk, FFRFS, Need, TempDir, clean_up, container_in, ffrfs, have, is_mount_point, is_running,
    run, skip_forced, temp_dir, unmount_soon, up_to_five_times, wait_until, write_container,
};
use nix::mount::{MsFlags, mount};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A service manager, which keeps descriptors as systemd does. For each line that it reads it starts the program, and says
/// when that is ready (`start`; not with `begin`); or it says how many descriptors it keeps, by name (`kept`), how often the
/// program has waited for it (`barriers`), or how the program has ended (`end`).
const MANAGER: &str = r#"
import ctypes, fcntl, os, signal, socket, struct, sys, threading, time
# Then nothing is kept any more, and nobody waits for ever.
signal.alarm(100)
# By its name who holds a connection is known to serve none.
PR_SET_NAME = 15
ctypes.CDLL(None).prctl(PR_SET_NAME, b'systemd')
directory, program = sys.argv[1], sys.argv[2:]
listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
listening.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
listening.bind(f'{directory}/notify')
kept, running, ready, barriers = [], None, None, 0
changed = threading.Condition()

def hear():
    global ready, barriers
    while True:
        space = socket.CMSG_SPACE(253 * 4) + socket.CMSG_SPACE(12)
        text, control, _, _ = listening.recvmsg(8192, space)
        sender, descriptors = 0, []
        for _, kind, data in control:
            if kind == socket.SCM_RIGHTS:
                descriptors = [number for number, in struct.iter_unpack('i', data)]
            else:
                sender = struct.unpack('iii', data)[0]
        lines = dict(line.split('=', 1) for line in text.decode().splitlines())
        name = lines.get('FDNAME')
        if 'BARRIER' in lines:
            # What was sent before it is taken.
            barriers += sender == running and len(descriptors) == 1
            for descriptor in descriptors:
                os.close(descriptor)
            continue
        with changed:
            # As NotifyAccess=main has it.
            if 'READY' in lines and sender == running:
                ready = running
            if 'FDSTORE' in lines and sender == running:
                assert descriptors and lines['FDPOLL'] == '0'
                kept.extend((name, descriptor) for descriptor in descriptors)
            if 'FDSTOREREMOVE' in lines and sender == running:
                # It has other services, too.
                time.sleep(0.2)
                for there in [there for there in kept if there[0] == name]:
                    os.close(there[1])
                    kept.remove(there)
            changed.notify_all()

def start(more):
    # Above the numbers by which the program is to find them.
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 300) for _, descriptor in kept]
    names = ':'.join(name for name, _ in kept)
    variables = {'NOTIFY_SOCKET': f'{directory}/notify', 'FDSTORE': '256'}
    if kept:
        variables |= {'LISTEN_FDS': str(len(kept)), 'LISTEN_FDNAMES': names}
    def pass_on():
        for number, copy in enumerate(high):
            os.dup2(copy, 3 + number)
        os.closerange(3 + len(high), 1024)
        os.environ.update(variables, LISTEN_PID=str(os.getpid()))
        os.execv(program[0], program + more)
    process = os.fork()
    if process == 0:
        try:
            pass_on()
        finally:
            os._exit(99)
    for copy in high:
        os.close(copy)
    return process

threading.Thread(target=hear, daemon=True).start()
for line in sys.stdin:
    what, *more = line.split()
    if what == 'start':
        with changed:
            running = start(more)
            is_ready = changed.wait_for(lambda: ready == running, timeout=30)
        print(running if is_ready else 'it is not ready', flush=True)
    elif what == 'begin':
        with changed:
            running = start(more)
    elif what == 'kept':
        with changed:
            names = [name for name, _ in kept]
        print(' '.join(f'{name}={names.count(name)}' for name in sorted(set(names))), flush=True)
    elif what == 'barriers':
        print(barriers, flush=True)
    else:
        print(os.waitstatus_to_exitcode(os.waitpid(running, 0)[1]), flush=True)
"#;

struct Manager {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    directory: TempDir,
}

impl Manager {
    /// `None` if this machine cannot have a manager. In the options of the mount, `DIR` is a directory of its own.
    fn new(options: &str) -> Option<Self> {
        if !have(Need::Root) || !have(Need::Program("python3")) {
            return None;
        }
        if !can_resume() {
            skip_forced("needs Linux 6.9 to resume a mount");
            return None;
        }
        let directory = temp_dir();
        let options = options.replace("DIR", directory.path().to_str().unwrap());
        container_in(&directory, &content());
        fs::create_dir(directory.path().join("mnt")).unwrap();
        let log = File::create(directory.path().join("stderr")).unwrap();
        let mut process = Command::new("python3")
            .args(["-c", MANAGER])
            .arg(directory.path())
            .args([FFRFS, "mount", "--foreground", "--restarts", "5", "-o", &options])
            .arg(directory.path().join("data.ffr"))
            .arg(directory.path().join("mnt"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let (orders, answers) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Some(Self { process, orders, answers: BufReader::new(answers), directory })
    }

    #[track_caller]
    fn order(&mut self, what: &str) -> String {
        writeln!(self.orders, "{what}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert!(!answer.is_empty(), "{what}: {}", self.log());
        answer.trim().to_owned()
    }

    /// Starts the program, perhaps with more arguments, and gives its number.
    #[track_caller]
    fn start(&mut self, more: &str) -> i32 {
        let answer = self.order(&format!("start {more}"));
        answer.parse().unwrap_or_else(|_| panic!("{answer}: {}", self.log()))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("mnt").join(name)
    }

    fn serving(&self) -> i32 {
        serving_at(&self.path(".ffrfs/info.json"))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("stderr")).unwrap_or_default()
    }

    /// Kills the supervisor, and ends the worker with the signal `how`.
    fn kill_all(&mut self, supervisor: i32, how: Signal) {
        self.kill_both(supervisor, self.serving(), how);
    }

    fn kill_both(&mut self, supervisor: i32, worker: i32, how: Signal) {
        assert_eq!(parent_of(worker), supervisor);
        kill(Pid::from_raw(supervisor), Signal::SIGKILL).unwrap();
        assert_eq!(self.order("end"), "-9");
        kill(Pid::from_raw(worker), how).unwrap();
        wait_until("the worker ends", LIMIT, || !is_running(worker));
    }
}

fn serving_at(info: &Path) -> i32 {
    let info: serde_json::Value = serde_json::from_slice(&fs::read(info).unwrap()).unwrap();
    info["pid"].as_i64().unwrap() as i32
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        clean_up(&self.directory.path().join("mnt"), 0);
    }
}

/// A process that asks a mount without a daemon waits for 5 s; a start does not ask, and takes less than this.
const ASKING: Duration = Duration::from_secs(4);

#[test]
fn a_mount_outlives_its_supervisor_and_the_daemon_where_the_service_manager_keeps_the_connection() {
    // The worker is killed, or asked to end as systemd asks all processes that are left of a service.
    for how in [Signal::SIGKILL, Signal::SIGTERM] {
        let Some(mut manager) = Manager::new("transport=devfuse,threads=3") else { return };
        let content = content();
        let mut supervisor = manager.start("");
        assert_eq!(manager.order("kept"), "ffrfs-connection=3 ffrfs-told=1");
        let mut open = File::open(manager.path(&name(7))).unwrap();
        let mut begun = vec![0; 1000];
        open.read_exact(&mut begun).unwrap();
        let mut fastest = Duration::MAX;
        for (turn, expected) in content.iter().cloned().enumerate().take(20) {
            manager.kill_all(supervisor, how);
            assert!(is_mount_point(&manager.path("")), "{}", manager.log());
            // The reader waits while no daemon serves, and gets no error.
            let path = manager.path(&name(turn));
            let waiting = std::thread::spawn(move || fs::read(path).unwrap() == expected);
            let start = Instant::now();
            supervisor = manager.start("");
            fastest = fastest.min(start.elapsed());
            assert!(waiting.join().unwrap(), "sample {turn}");
            assert_eq!(manager.order("kept"), "ffrfs-connection=3 ffrfs-told=1");
            // On a busy machine a start may take long once.
            if turn >= 2 && fastest < ASKING {
                break;
            }
        }
        assert!(fastest < ASKING, "each start has taken {fastest:?} or longer");
        let mut rest = Vec::new();
        open.read_to_end(&mut rest).unwrap();
        assert!([begun, rest].concat() == content[7], "the file that was open all the time");
        for (number, sample) in content.iter().enumerate() {
            assert!(fs::read(manager.path(&name(number))).unwrap() == *sample);
        }
        drop(open);
        kill(Pid::from_raw(supervisor), Signal::SIGTERM).unwrap();
        assert_eq!(manager.order("end"), "0", "{}", manager.log());
        assert!(!is_mount_point(&manager.path("")));
        let is_empty = || manager.order("kept").is_empty();
        wait_until("nothing is kept of a mount that has ended", LIMIT, is_empty);
    }
}

#[test]
fn a_mount_that_is_kept_goes_on_though_something_else_is_mounted_over_it() {
    let Some(mut manager) = Manager::new("transport=devfuse") else { return };
    let content = content();
    let supervisor = manager.start("");
    let kept = manager.order("kept");
    let open = File::open(manager.path("")).unwrap();
    let worker = manager.serving();
    let (none, flags) = (None::<&str>, MsFlags::empty());
    mount(Some("none"), &manager.path(""), Some("tmpfs"), flags, none).unwrap();
    manager.kill_both(supervisor, worker, Signal::SIGKILL);
    let supervisor = manager.start("");
    assert_eq!(manager.order("kept"), kept, "{}", manager.log());
    unmount_soon(&manager.path(""));
    for (number, sample) in content.iter().enumerate() {
        assert!(fs::read(manager.path(&name(number))).unwrap() == *sample);
    }
    assert!(fs::read_dir(format!("/proc/self/fd/{}", open.as_raw_fd())).is_ok(), "the same mount");
    drop(open);
    kill(Pid::from_raw(supervisor), Signal::SIGTERM).unwrap();
    assert_eq!(manager.order("end"), "0", "{}", manager.log());
}

#[test]
fn a_daemon_whose_supervisor_died_while_it_opened_its_containers_leaves_the_mount_if_asked_to_end()
{
    let Some(mut manager) = Manager::new("transport=devfuse") else { return };
    let disk = Disk::new(&content());
    let container = manager.directory.path().join("data.ffr");
    fs::remove_file(&container).unwrap();
    symlink(disk.container(), &container).unwrap();
    let supervisor = manager.start("");
    let mut open = File::open(manager.path(&name(7))).unwrap();
    disk.slow_down(Duration::from_secs(1));
    kill(Pid::from_raw(manager.serving()), Signal::SIGKILL).unwrap();
    wait_until("the next daemon opens its containers", LIMIT, || disk.waiting() > 0);
    let workers = children_of(supervisor);
    kill(Pid::from_raw(supervisor), Signal::SIGKILL).unwrap();
    assert_eq!(manager.order("end"), "-9");
    disk.slow_down(Duration::ZERO);
    let worker = manager.serving();
    assert!(workers.contains(&worker));
    kill(Pid::from_raw(worker), Signal::SIGTERM).unwrap();
    wait_until("it ends", LIMIT, || !is_running(worker));
    assert!(is_mount_point(&manager.path("")), "{}", manager.log());
    let supervisor = manager.start("");
    let mut bytes = Vec::new();
    open.read_to_end(&mut bytes).unwrap();
    assert!(bytes == content()[7], "the file that was open all the time");
    drop(open);
    kill(Pid::from_raw(supervisor), Signal::SIGTERM).unwrap();
    assert_eq!(manager.order("end"), "0", "{}", manager.log());
}

/// Unmounts as `ExecStopPost=` does after the end of a service.
fn after_the_service(result: &str, point: &Path) {
    let mut command = Command::new(FFRFS);
    command.args(["umount", "--dead"]).arg(point);
    run(command.env("FDSTORE", "256").env("SERVICE_RESULT", result)).ok();
}

/// Unmounts as after the end of a service that was stopped, while another program is about to mount something else. An error:
/// the command has waited for as long as it may, as that program, or one of another test, had no CPU for so long.
fn after_the_service_beside_a_mount(point: &Path) -> Result<(), String> {
    // The kernel shows no connection for this descriptor.
    let device = File::open("/dev/fuse").unwrap();
    let mounting = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(700));
        drop(device);
    });
    let begun = Instant::now();
    after_the_service("success", point);
    let has_waited = begun.elapsed() >= Duration::from_secs(2);
    let is_left = is_mount_point(point);
    mounting.join().unwrap();
    assert!(!is_left || has_waited);
    if is_left { Err("the mount is left".to_owned()) } else { Ok(()) }
}

#[test]
fn a_mount_that_is_kept_is_unmounted_once_its_service_is_stopped_and_not_before() {
    let Some(mut manager) = Manager::new("transport=devfuse") else { return };
    let supervisor = manager.start("");
    assert_eq!(manager.order("barriers"), "1", "it has waited for the manager");
    let point = manager.path("");
    after_the_service("success", &point);
    assert!(is_mount_point(&point), "it is served");
    manager.kill_all(supervisor, Signal::SIGKILL);
    after_the_service("signal", &point);
    assert!(is_mount_point(&point), "another process will serve it");
    up_to_five_times(|| after_the_service_beside_a_mount(&point));
}

#[test]
fn a_mount_that_is_kept_is_given_up_if_its_container_has_changed() {
    let Some(mut manager) = Manager::new("transport=devfuse") else { return };
    let supervisor = manager.start("");
    manager.kill_all(supervisor, Signal::SIGKILL);
    write_container(&manager.directory.path().join("data.ffr"), &[b"another"]);
    writeln!(manager.orders, "begin").unwrap();
    assert_ne!(manager.order("end"), "0");
    assert!(manager.log().contains("have changed since they were mounted"), "{}", manager.log());
    wait_until("nothing is kept", LIMIT, || manager.order("kept").is_empty());
    let dead = manager.path("");
    assert!(fs::read_dir(&dead).is_err(), "nobody waits");
    ffrfs(&["umount".as_ref(), "--dead".as_ref(), dead.as_os_str()]).ok();
    assert!(!is_mount_point(&dead));
}

#[test]
fn a_mount_that_is_kept_is_made_anew_with_other_settings() {
    let Some(mut manager) = Manager::new("transport=devfuse,metrics=unix:DIR/metrics") else {
        return;
    };
    let supervisor = manager.start("");
    let kept = manager.order("kept");
    assert!(kept.contains("ffrfs-metrics=1"), "{kept}");
    manager.kill_all(supervisor, Signal::SIGKILL);
    manager.start("-o uid=12345");
    assert!(manager.log().contains("its settings have changed; it is mounted anew"));
    let sample = manager.path(&name(1));
    assert_eq!(fs::metadata(&sample).unwrap().uid(), 12345);
    assert!(fs::read(&sample).unwrap() == content()[1]);
    assert_eq!(manager.order("kept"), kept, "of the new mount alone");
    let supervisor = parent_of(manager.serving());
    kill(Pid::from_raw(supervisor), Signal::SIGTERM).unwrap();
    assert_eq!(manager.order("end"), "0", "{}", manager.log());
}
