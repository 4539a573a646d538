//! CPUs that a mount may not use, and CPUs that come and go.

use crate::common::{
    Mount, Need, Transport, drop_cached, for_each_transport, have, samples, skip_forced, wait_until,
};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const SAMPLES: usize = 64;
const IN_TIME: Duration = Duration::from_secs(20);

fn myself() -> Pid {
    Pid::from_raw(0)
}

/// Mounts as `taskset` would: a process has the affinity of the thread that starts it.
fn mount_on_cpu(cpu: usize, transport: Transport, samples: &[Vec<u8>]) -> Mount {
    let mount = || {
        let mut only = CpuSet::new();
        only.set(cpu).unwrap();
        sched_setaffinity(myself(), &only).unwrap();
        Mount::with_samples(transport, samples, &[])
    };
    std::thread::scope(|scope| scope.spawn(mount).join().unwrap())
}

/// Reads a sample anew, not from the page cache.
fn read_anew(mount: &Mount, sample: usize) -> Vec<u8> {
    let mut file = File::open(mount.path(format!("{sample:06}"))).unwrap();
    drop_cached(&file);
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_mount_that_may_use_one_cpu_serves_readers_on_all() {
    let mine = sched_getaffinity(myself()).unwrap();
    let mine: Vec<_> = (0..CpuSet::count()).filter(|&cpu| mine.is_set(cpu).unwrap()).collect();
    let samples = samples(SAMPLES, 50_000);
    for_each_transport(|transport| {
        let mount = mount_on_cpu(mine[0], transport, &samples);
        let status = fs::read_to_string(format!("/proc/{}/status", mount.pid())).unwrap();
        let allowed = format!("Cpus_allowed_list:\t{}", mine[0]);
        assert!(status.lines().any(|line| line == allowed), "{status}");
        std::thread::scope(|scope| {
            for &cpu in mine.iter().take(8) {
                let (mount, samples) = (&mount, &samples);
                scope.spawn(move || {
                    let mut only = CpuSet::new();
                    only.set(cpu).unwrap();
                    // The other test in this file may have switched the CPU off.
                    let _ = sched_setaffinity(myself(), &only);
                    for (number, expected) in samples.iter().enumerate() {
                        assert_eq!(&read_anew(mount, number), expected, "{number} on CPU {cpu}");
                    }
                });
            }
        });
        mount.unmount();
    });
}

/// A CPU that is offline as long as this value lives. A shell puts it back as soon as the shell's input ends, also if this
/// test is killed.
struct Offline {
    keeper: Child,
    switch: &'static str,
}

impl Offline {
    /// Takes a CPU offline; `None` if the host does not allow it.
    fn new(switch: &'static str) -> Option<Self> {
        let keep = format!("read -r x; echo 1 >{switch}");
        let mut command = Command::new("sh");
        let command = command.args(["-c", &keep]).stdin(Stdio::piped());
        // The shell is not ended together with the tests by a key on the terminal.
        let keeper = std::os::unix::process::CommandExt::process_group(command, 0).spawn().unwrap();
        let offline = Self { keeper, switch };
        fs::write(switch, "0").ok()?;
        Some(offline)
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
        let state = fs::read_to_string(self.switch).unwrap_or_default();
        assert!(std::thread::panicking() || state.trim() == "1", "{} is {state}", self.switch);
    }
}

/// One test for everything, as a CPU belongs to the whole host.
#[test]
fn a_cpu_that_goes_and_comes_back_stops_no_reader() {
    let switch = "/sys/devices/system/cpu/cpu1/online";
    if !have(Need::Root) || !have(Need::Fuse) {
        return;
    }
    if !fs::read_to_string(switch).is_ok_and(|state| state.trim() == "1") {
        return skip_forced("needs a second CPU that can be switched off");
    }
    let samples = samples(SAMPLES, 50_000);
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples, &[]);
        let (reads, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let read = |first: usize| {
            for number in (0..SAMPLES).cycle().skip(first) {
                assert_eq!(read_anew(&mount, number), samples[number], "{number}");
                reads.fetch_add(1, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        };
        let go_on = |when: &str| {
            let before = reads.load(Ordering::Relaxed);
            let enough = || reads.load(Ordering::Relaxed) >= before + 2 * SAMPLES as u64;
            wait_until(&format!("readers go on {when}"), IN_TIME, enough);
        };
        std::thread::scope(|scope| {
            for reader in 0..4 {
                let read = &read;
                scope.spawn(move || read(reader * SAMPLES / 4));
            }
            // Ends the readers, whatever happens here.
            let _ended = StopAtEnd(&stop);
            go_on("at first");
            let Some(offline) = Offline::new(switch) else {
                return skip_forced("the host does not let a CPU go");
            };
            go_on("without the CPU");
            let second = Mount::with_samples(transport, &samples, &[]);
            assert_eq!(read_anew(&second, 1), samples[1], "mounted without the CPU");
            drop(offline);
            go_on("with the CPU again");
            for (number, expected) in samples.iter().enumerate() {
                assert_eq!(&read_anew(&second, number), expected, "{number}, with a new CPU");
            }
            second.unmount();
        });
        mount.unmount();
    });
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
