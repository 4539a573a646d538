//! A daemon that was killed and cannot end: one of its threads waits in the kernel, for a page that an unanswered request
//! holds, or for a disk.

use super::{LIMIT, can_resume, children_of, content, name, next_after, parent_of};
use crate::common::{
    Disk, FFRFS, Mount, Need, Transport, container_in, for_each_transport, have, is_mount_point,
    is_running, run, temp_dir, wait_until,
};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Takes requests of a mount in place of the daemon, and answers none, until one of them is a READ. Then it announces the
/// sample of the READ, which the daemon puts into the page cache, and says when the daemon's thread waits for the page. In
/// the end it says how many readers still wait, or which errors they had.
const THIEF: &str = r#"
import ctypes, hashlib, os, sys, threading, time
pid, point, sums = int(sys.argv[1]), sys.argv[2], sys.argv[3].split(',')
READ, PIDFD_GETFD = 15, 438
pidfd = os.pidfd_open(pid)
opened = f'/proc/{pid}/fd'

def is_device(number):
    try:
        return os.readlink(f'{opened}/{number}') == '/dev/fuse'
    except OSError:
        return False  # It was closed meanwhile.

own = [number for number in os.listdir(opened) if is_device(number)]
device = ctypes.CDLL(None).syscall(PIDFD_GETFD, pidfd, int(own[0]), 0)
assert device >= 0
inodes = {os.stat(f'{point}/{number:06}').st_ino: number for number in range(len(sums))}
hints = os.open(f'{point}/.ffrfs/prefetch', os.O_WRONLY)
stolen, wrong, done = [], [], []

def steal():
    while not stolen:
        request = os.read(device, 2 << 20)
        if int.from_bytes(request[4:8], 'little') == READ:
            stolen.append(inodes[int.from_bytes(request[16:24], 'little')])

def read(number):
    try:
        with open(f'{point}/{number:06}', 'rb') as file:
            if hashlib.sha256(file.read()).hexdigest() != sums[number]:
                wrong.append(f'sample {number}')
            # The next reader of it sends a request, too.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError as error:
        wrong.append(str(error))
    done.append(number)

def stores():
    for thread in os.listdir(f'/proc/{pid}/task'):
        at = f'/proc/{pid}/task/{thread}'
        try:
            if open(f'{at}/comm').read().strip() == 'ffrfs-store':
                return open(f'{at}/stat').read().rsplit(')', 1)[1].split()[0] == 'D'
        except OSError:
            continue  # It has ended meanwhile.

threading.Thread(target=steal, daemon=True).start()
readers = []
late = time.monotonic() + 60
while not stolen:
    assert time.monotonic() < late, 'the daemon has taken all reads'
    readers.append(threading.Thread(target=read, args=[len(readers) % len(sums)], daemon=True))
    readers[-1].start()
    time.sleep(0.05)
os.write(hints, f'{stolen[0]}\n'.encode())
os.close(hints)
while not stores():
    assert time.monotonic() < late, 'no thread waits for the page'
    time.sleep(0.01)
print('waits', flush=True)
for reader in readers:
    reader.join(timeout=60)
print(wrong or f'{len(done) - len(readers)} wait', flush=True)
"#;

/// The process that takes requests, which is killed when the test ends.
struct Thief(Child, BufReader<ChildStdout>);

impl Thief {
    fn of(mount: &Mount) -> Self {
        let sums: Vec<String> = content().iter().map(|sample| sha256(sample)).collect();
        let mut child = Command::new("python3")
            .args(["-c", THIEF, &mount.pid().to_string()])
            .arg(mount.point())
            .arg(sums.join(","))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self(child, said)
    }

    fn says(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Thief {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_daemon_that_cannot_end_for_a_page_of_an_unanswered_read_is_followed_by_another() {
    if !can_resume() || !have(Need::Root) || !have(Need::Program("python3")) {
        return;
    }
    // With SIGABRT, all threads wait for the one that writes a core dump, and that one for the thread that hangs.
    for signal in [Signal::SIGKILL, Signal::SIGABRT] {
        // One thread takes requests, so that every other request is the thief's.
        let options = ["restarts=5", "threads=1", "rw"];
        let mount = Mount::with_samples(Transport::DevFuse, &content(), &options);
        let supervisor = parent_of(mount.pid());
        let mut thief = Thief::of(&mount);
        assert_eq!(thief.says(), "waits", "{}", mount.log());
        kill(Pid::from_raw(mount.pid()), signal).unwrap();
        assert_eq!(thief.says(), "0 wait", "{}", mount.log());
        assert!(mount.log().contains("and hangs"), "{}", mount.log());
        // The answer has released the thread.
        let process = PathBuf::from(format!("/proc/{}", mount.pid()));
        wait_until("the process that hung has ended", LIMIT, || !process.exists());
        drop(thief);
        let last = next_after(&mount, mount.pid());
        assert!(mount.read(name(3)).unwrap() == content()[3]);
        mount.unmount();
        wait_until("all processes end", LIMIT, || !is_running(last) && !is_running(supervisor));
    }
}

/// The time in which the disk does not answer a read: no process that waits for the disk ends before.
const HANGS: Duration = Duration::from_secs(30);

#[test]
fn a_daemon_that_cannot_end_for_a_disk_that_hangs_is_followed_by_another() {
    for_each_transport(|transport| {
        let samples = content();
        let disk = Disk::new(&samples);
        let mount = Mount::new(transport, disk.container(), &["restarts=5"]);
        assert!(mount.read(name(0)).unwrap() == samples[0]);
        disk.slow_down(HANGS);
        let path = mount.path(name(40));
        let waiting = std::thread::spawn(move || fs::read(path));
        wait_until("a read waits for the disk", LIMIT, || disk.waiting() > 0);
        kill(Pid::from_raw(mount.pid()), Signal::SIGKILL).unwrap();
        let killed = Instant::now();
        disk.slow_down(Duration::ZERO);
        next_after(&mount, mount.pid());
        assert!(killed.elapsed() < HANGS - Duration::from_secs(3), "{:?}", killed.elapsed());
        match waiting.join().unwrap() {
            Ok(bytes) => assert!(bytes == samples[40]),
            Err(error) => assert_eq!(transport, Transport::Uring, "{error}"),
        }
        assert!(mount.read(name(40)).unwrap() == samples[40]);
    });
}

#[test]
fn a_signal_to_end_while_the_first_process_waits_for_a_disk_ends_the_supervisor() {
    for_each_transport(|transport| {
        let disk = Disk::new(&content());
        disk.slow_down(Duration::from_secs(5));
        let directory = temp_dir();
        let option = format!("restarts=5,{}", transport.option().unwrap());
        let mut supervisor = Command::new(FFRFS)
            .args(["mount", "--foreground", "-o", &option])
            .args([disk.container().as_path(), directory.path()])
            .spawn()
            .unwrap();
        wait_until("a read waits for the disk", LIMIT, || disk.waiting() > 0);
        kill(Pid::from_raw(supervisor.id().cast_signed()), Signal::SIGTERM).unwrap();
        assert_eq!(supervisor.wait().unwrap().code(), Some(0));
        assert!(!is_mount_point(directory.path()));
    });
}

#[test]
fn what_a_process_has_mounted_that_dies_before_it_tells_of_it_is_unmounted() {
    if !have(Need::Root) {
        return;
    }
    for_each_transport(|transport| {
        let directory = temp_dir();
        let (container, point) =
            (container_in(&directory, &content()), directory.path().join("mnt"));
        let (disk, pipe) = (Disk::new(&content()), directory.path().join("pipe"));
        fs::create_dir(&point).unwrap();
        mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        disk.slow_down(HANGS);
        let option = format!("restarts=5,sandbox=no,{}", transport.option().unwrap());
        for hangs in [false, true] {
            let mut supervisor = Command::new(FFRFS)
                .args(["mount", "--foreground", "-o", &option])
                .args([&container, &point])
                .env(
                    "FFRFS_TEST_BEFORE_TELLING",
                    if hangs { disk.container() } else { pipe.clone() },
                )
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            wait_until("it is mounted", LIMIT, || is_mount_point(&point));
            wait_until("a read waits for the disk", LIMIT, || !hangs || disk.waiting() > 0);
            for worker in children_of(supervisor.id().cast_signed()) {
                kill(Pid::from_raw(worker), Signal::SIGKILL).unwrap();
            }
            assert_eq!(supervisor.wait().unwrap().code(), Some(5), "{transport:?}, hangs: {hangs}");
            assert!(!is_mount_point(&point), "{transport:?}, hangs: {hangs}");
        }
    });
}

/// The MiB of address space, besides the supervisor's own, with which a daemon opens its container and cannot serve.
const TOO_FEW: [u64; 2] = [34, 42];

#[test]
fn a_mount_that_could_not_be_made_anew_is_tried_again_and_does_not_count_as_unmounted() {
    if !have(Need::Program("prlimit")) {
        return;
    }
    let samples = content();
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples, &["restarts=100"]);
        let supervisor = parent_of(mount.pid()).to_string();
        // The hard limit stays.
        let limit = |bytes: &str| {
            let limit = format!("--as={bytes}:");
            run(Command::new("prlimit").args(["--pid", &supervisor, &limit])).ok();
        };
        let status = fs::read_to_string(format!("/proc/{supervisor}/status")).unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
        let kibibytes: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
        let failures = || mount.log().matches("Cannot allocate memory").count();
        let mut serves = mount.pid();
        for mebibytes in TOO_FEW {
            let before = failures();
            limit(&((kibibytes + mebibytes * 1024) << 10).to_string());
            kill(Pid::from_raw(serves), Signal::SIGKILL).unwrap();
            wait_until("one has failed", LIMIT, || failures() > before);
            limit("unlimited");
            serves = next_after(&mount, serves);
            assert!(mount.read(name(3)).unwrap() == samples[3]);
        }
        assert!(!mount.log().contains("was unmounted before"), "{}", mount.log());
    });
}

#[test]
fn a_mount_that_was_unmounted_while_its_daemon_hangs_is_not_made_anew() {
    if !have(Need::Root) {
        return;
    }
    for_each_transport(|transport| {
        let disk = Disk::new(&content());
        let mount = Mount::new(transport, disk.container(), &["restarts=5"]);
        let supervisor = Pid::from_raw(parent_of(mount.pid()));
        disk.slow_down(HANGS);
        let path = mount.path(name(40));
        let waiting = std::thread::spawn(move || fs::read(path));
        wait_until("a read waits for the disk", LIMIT, || disk.waiting() > 0);
        // The supervisor looks only once all of this has happened.
        kill(supervisor, Signal::SIGSTOP).unwrap();
        kill(Pid::from_raw(mount.pid()), Signal::SIGKILL).unwrap();
        let by_force = MntFlags::MNT_FORCE | MntFlags::MNT_DETACH;
        umount2(mount.point(), by_force).unwrap();
        assert!(!mount.is_mounted());
        waiting.join().unwrap().unwrap_err();
        kill(supervisor, Signal::SIGCONT).unwrap();
        wait_until("the supervisor ends", LIMIT, || !is_running(supervisor.as_raw()));
        assert!(!mount.is_mounted());
        assert!(mount.log().contains("was unmounted before"), "{}", mount.log());
        assert!(!mount.log().contains("has died"), "{}", mount.log());
        disk.slow_down(Duration::ZERO);
    });
}
