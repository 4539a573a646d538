//! Readers that are killed while the source hangs, and the mount meanwhile: a container on another mount whose daemon is
//! stopped.

use crate::common::{
    Mount, Transport, container_in, drop_cached, for_each_transport, noise, run, temp_dir,
    wait_until,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SAMPLE_BYTES: usize = 300_000;
const COUNT: usize = 40;
const LIMIT: Duration = Duration::from_secs(20);

fn content() -> Vec<Vec<u8>> {
    (0..COUNT).map(|number| noise(number as u64, SAMPLE_BYTES)).collect()
}

/// A mount that shows a container as a file.
struct Source(Mount);

impl Source {
    fn new() -> Self {
        let directory = temp_dir();
        let container = container_in(&directory, &content());
        let tar = directory.path().join("outer.tar");
        let mut pack = Command::new("tar");
        pack.arg("-cf").arg(&tar).arg("-C").arg(directory.path());
        run(pack.arg(container.file_name().unwrap())).ok();
        let options = ["memory=8M"];
        let scratch = temp_dir();
        let point = scratch.path().join("mnt");
        fs::create_dir(&point).unwrap();
        let kept = scratch.path().join("outer.tar");
        fs::rename(tar, &kept).unwrap();
        Self(Mount::at(Transport::DevFuse, &[&kept], &options, scratch, point))
    }

    fn container(&self) -> PathBuf {
        self.0.path("data.ffr")
    }

    fn send(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.pid()), signal).unwrap();
    }

    /// From now on it does not answer, and no byte of the container is cached.
    fn stop(&self) {
        drop_cached(&File::open(self.container()).unwrap());
        self.send(Signal::SIGSTOP);
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.send(Signal::SIGCONT);
    }
}

fn dd(path: &Path) -> Child {
    let mut dd = Command::new("dd");
    dd.arg(format!("if={}", path.display())).args(["of=/dev/null", "bs=256K", "iflag=direct"]);
    dd.stderr(Stdio::null()).spawn().unwrap()
}

fn cat(path: &Path) -> Child {
    Command::new("cat").arg(path).stdout(Stdio::null()).spawn().unwrap()
}

/// How long a reader stays after it is killed.
fn stays(mut reader: Child, signal: Signal) -> Duration {
    std::thread::sleep(Duration::from_millis(200));
    assert!(reader.try_wait().unwrap().is_none(), "it waits for the source");
    let killed = Instant::now();
    kill(Pid::from_raw(reader.id().cast_signed()), signal).unwrap();
    wait_until("the reader is gone", LIMIT, || reader.try_wait().unwrap().is_some());
    killed.elapsed()
}

#[test]
fn killed_readers_go_away_at_once_and_names_are_answered_while_the_source_hangs() {
    for_each_transport(|transport| {
        let source = Source::new();
        let mount = Mount::new(transport, source.container(), &[]);
        assert!(mount.read("000000").unwrap() == content()[0]);
        source.stop();
        let turns = [
            (dd as fn(&Path) -> Child, Signal::SIGKILL, [3, 7, 11]),
            (dd, Signal::SIGTERM, [14, 18, 22]),
            (cat, Signal::SIGKILL, [25, 29, 33]),
        ];
        for (start, signal, samples) in turns {
            let times =
                samples.map(|sample| stays(start(&mount.path(format!("{sample:06}"))), signal));
            // Others may use the CPUs: the best of some.
            let best = times.iter().min().unwrap();
            assert!(*best < Duration::from_millis(100), "{transport:?}, {signal:?}: {times:?}");
            let asked = Instant::now();
            for number in 0..COUNT {
                let metadata = fs::metadata(mount.path(format!("{number:06}"))).unwrap();
                assert_eq!(metadata.len(), SAMPLE_BYTES as u64);
            }
            assert_eq!(mount.list("").len(), COUNT);
            assert!(asked.elapsed() < Duration::from_secs(5), "names do not wait");
        }
        source.send(Signal::SIGCONT);
        for (number, sample) in content().iter().enumerate() {
            assert!(mount.read(format!("{number:06}")).unwrap() == *sample, "sample {number}");
        }
        mount.unmount();
    });
}

#[test]
fn names_are_answered_while_hundreds_of_reads_wait_for_the_source() {
    for_each_transport(|transport| {
        let source = Source::new();
        let mount = Mount::new(transport, source.container(), &[]);
        source.stop();
        let readers: Vec<_> =
            (0..300).map(|turn| cat(&mount.path(format!("{:06}", turn % COUNT)))).collect();
        std::thread::sleep(Duration::from_millis(500));
        let asked = Instant::now();
        for number in 0..COUNT {
            fs::metadata(mount.path(format!("{number:06}"))).unwrap();
            assert!(!mount.path(format!("absent {number}")).exists());
        }
        assert!(asked.elapsed() < LIMIT, "names do not wait");
        let (mut killed, others): (Vec<_>, Vec<_>) =
            readers.into_iter().enumerate().partition(|(number, _)| number % 2 == 0);
        killed.iter_mut().for_each(|(_, reader)| reader.kill().unwrap());
        wait_until("the killed readers are gone", LIMIT, || {
            killed.iter_mut().all(|(_, reader)| reader.try_wait().unwrap().is_some())
        });
        source.send(Signal::SIGCONT);
        for (_, mut reader) in others {
            assert!(reader.wait().unwrap().success());
        }
        mount.unmount();
    });
}

/// What a process has in memory that is no page of a file, in KiB.
fn anonymous_kib(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

#[test]
fn the_memory_of_reads_that_have_waited_is_given_back() {
    for_each_transport(|transport| {
        let source = Source::new();
        let mount = Mount::new(transport, source.container(), &["memory=8M"]);
        let before = anonymous_kib(mount.pid());
        source.stop();
        let mut readers: Vec<_> =
            (0..300).map(|turn| dd(&mount.path(format!("{:06}", turn % COUNT)))).collect();
        std::thread::sleep(Duration::from_millis(500));
        source.send(Signal::SIGCONT);
        assert!(readers.iter_mut().all(|reader| reader.wait().unwrap().success()));
        println!("{transport:?}: from {before} to {} KiB", anonymous_kib(mount.pid()));
        wait_until("it is given back", LIMIT, || anonymous_kib(mount.pid()) < before + (24 << 10));
        // What is given back is used again.
        for (number, sample) in content().iter().enumerate() {
            assert!(mount.read(format!("{number:06}")).unwrap() == *sample, "sample {number}");
        }
        mount.unmount();
    });
}
