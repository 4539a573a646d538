//! Readers that are killed while the source hangs, and the mount meanwhile. The source is a container on another mount,
//! whose daemon is stopped.

use crate::common::{
    Mount, Source, container_in, for_each_transport, is_running, noise, parent_of, run, temp_dir,
    undisturbed, wait_until,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SAMPLE_BYTES: usize = 300_000;
const COUNT: usize = 40;
const LIMIT: Duration = Duration::from_secs(20);

fn content() -> Vec<Vec<u8>> {
    (0..COUNT).map(|number| noise(number as u64, SAMPLE_BYTES)).collect()
}

/// A mount that shows a container of the samples of `content` as a file.
fn source() -> Source {
    let directory = temp_dir();
    Source::of(&container_in(&directory, &content()))
}

fn dd(path: &Path) -> Child {
    direct(path, &["bs=256K"]).stderr(Stdio::null()).spawn().unwrap()
}

/// A reader of blocks of the file past the page cache.
fn direct(path: &Path, blocks: &[&str]) -> Command {
    let mut dd = Command::new("dd");
    dd.arg(format!("if={}", path.display())).args(["of=/dev/null", "iflag=direct"]).args(blocks);
    dd
}

fn cat(path: &Path) -> Child {
    Command::new("cat").arg(path).stdout(Stdio::null()).spawn().unwrap()
}

/// The time that a reader of this file stays after it is killed.
fn stays(mut reader: Child, path: &Path, signal: Signal) -> Duration {
    wait_until("it has opened the file", LIMIT, || has_open(&reader, path));
    std::thread::sleep(Duration::from_millis(200));
    assert!(reader.try_wait().unwrap().is_none(), "it waits for the source");
    let killed = Instant::now();
    kill(Pid::from_raw(reader.id().cast_signed()), signal).unwrap();
    wait_until("the reader is gone", LIMIT, || reader.try_wait().unwrap().is_some());
    killed.elapsed()
}

fn has_open(process: &Child, path: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{}/fd", process.id())).into_iter().flatten().flatten();
    open.into_iter().any(|it| fs::read_link(it.path()).is_ok_and(|file| file == path))
}

#[test]
fn killed_readers_go_away_at_once_and_names_are_answered_while_the_source_hangs() {
    for_each_transport(|transport| {
        let source = source();
        let mount = Mount::new(transport, source.file(), &[]);
        assert!(mount.read("000000").unwrap() == content()[0]);
        source.stop();
        let turns = [
            (dd as fn(&Path) -> Child, Signal::SIGKILL, 3..14),
            (dd, Signal::SIGTERM, 14..27),
            (cat, Signal::SIGKILL, 27..COUNT),
        ];
        for (start, signal, samples) in turns {
            // Other processes may use the CPUs: one short time among several is enough.
            let mut times = samples.map(|sample| {
                let path = mount.path(format!("{sample:06}"));
                stays(start(&path), &path, signal)
            });
            let is_short = |time: Duration| time < Duration::from_secs(1);
            assert!(times.any(is_short), "{transport:?}, {signal:?}: each has stayed longer");
            let asked = Instant::now();
            for number in 0..COUNT {
                let metadata = fs::metadata(mount.path(format!("{number:06}"))).unwrap();
                assert_eq!(metadata.len(), SAMPLE_BYTES as u64);
            }
            assert_eq!(mount.list("").len(), COUNT);
            assert!(asked.elapsed() < LIMIT, "names do not wait");
        }
        source.go_on();
        for (number, sample) in content().iter().enumerate() {
            assert!(mount.read(format!("{number:06}")).unwrap() == *sample, "sample {number}");
        }
        mount.unmount();
    });
}

#[test]
fn names_are_answered_while_hundreds_of_reads_wait_for_the_source() {
    for_each_transport(|transport| {
        let source = source();
        let mount = Mount::new(transport, source.file(), &[]);
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
        source.go_on();
        for (_, mut reader) in others {
            assert!(reader.wait().unwrap().success());
        }
        mount.unmount();
    });
}

/// The memory of a process without pages of files, in KiB.
fn anonymous_kib(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

#[test]
fn the_memory_of_reads_that_have_waited_is_given_back() {
    for_each_transport(|transport| {
        let source = source();
        let mount = Mount::new(transport, source.file(), &["memory=8M"]);
        let before = anonymous_kib(mount.pid());
        source.stop();
        let mut readers: Vec<_> =
            (0..300).map(|turn| dd(&mount.path(format!("{:06}", turn % COUNT)))).collect();
        std::thread::sleep(Duration::from_millis(500));
        source.go_on();
        assert!(readers.iter_mut().all(|reader| reader.wait().unwrap().success()));
        println!("{transport:?}: from {before} to {} KiB", anonymous_kib(mount.pid()));
        wait_until("it is given back", LIMIT, || anonymous_kib(mount.pid()) < before + (24 << 10));
        // Memory that was given back is used again.
        for (number, sample) in content().iter().enumerate() {
            assert!(mount.read(format!("{number:06}")).unwrap() == *sample, "sample {number}");
        }
        mount.unmount();
    });
}

/// Whether a thread whose name begins with `thread` waits in the kernel uninterruptibly.
fn waits(mount: &Mount, thread: &str) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", mount.pid())).unwrap().flatten();
    let mut stats = threads.filter_map(|it| fs::read_to_string(it.path().join("stat")).ok());
    stats.any(|stat| {
        stat.split_once('(').is_some_and(|(_, rest)| rest.starts_with(thread))
            && stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D'))
    })
}

/// Unmounts while the source hangs: the daemon and its supervisor end nevertheless.
#[track_caller]
fn assert_ends(mount: Mount) {
    let supervisor = parent_of(mount.pid());
    mount.unmount();
    wait_until("the supervisor ends", LIMIT, || !is_running(supervisor));
}

#[test]
fn a_daemon_ends_with_its_mount_while_a_read_waits_for_the_source() {
    for_each_transport(|transport| {
        let source = source();
        let mount = Mount::new(transport, source.file(), &[]);
        source.stop();
        let mut reader = cat(&mount.path("000003"));
        wait_until("a read waits", LIMIT, || waits(&mount, "ffrfs-read"));
        reader.kill().unwrap();
        reader.wait().unwrap();
        assert_ends(mount);
    });
}

#[test]
fn a_daemon_ends_with_its_mount_while_a_prefetch_waits_for_the_source() {
    for_each_transport(|transport| {
        let source = source();
        let mount = Mount::new(transport, source.file(), &["rw"]);
        source.stop();
        let hints: String = (0..20).map(|number| format!("{number}\n")).collect();
        fs::write(mount.path(".ffrfs/prefetch"), hints).unwrap();
        // The thread waits in a call of the ring.
        std::thread::sleep(Duration::from_millis(500));
        assert_ends(mount);
    });
}

#[test]
fn a_daemon_ends_with_its_mount_while_decoding_ahead_waits_for_the_source() {
    let (directory, content) = (temp_dir(), content());
    fs::create_dir(directory.path().join("d")).unwrap();
    let name = |number: usize| format!("d/{number:03}");
    for number in 0..COUNT * 4 {
        fs::write(directory.path().join(name(number)), &content[number % COUNT]).unwrap();
    }
    let archive = directory.path().join("x.tar.gz");
    let mut pack = Command::new("tar");
    pack.current_dir(directory.path()).args(["--sort=name", "-I", "gzip -1", "-cf", "x.tar.gz"]);
    run(pack.arg("d")).ok();
    let test = |transport| {
        let source = Source::of(&archive);
        let mount = Mount::new(transport, source.file(), &["memory=256M"]);
        // Reads a little of each of the first four intervals, backwards: they stay in memory, and no interval is decoded ahead.
        for number in [45, 30, 15, 0] {
            run(&mut direct(&mount.path(name(number)), &["bs=512", "count=1"])).ok();
        }
        source.stop();
        // The reads by which the mount sees that it is read in order come from memory. Reads in order before the stop would
        // count for five seconds only, and the stop may take longer.
        let files = (0..COUNT * 4).map(|number| mount.path(name(number)));
        let mut reader = Command::new("cat").args(files).stdout(Stdio::null()).spawn().unwrap();
        wait_until("it is decoded ahead", 3 * LIMIT, || waits(&mount, "ffrfs-decode"));
        // The reader comes to that interval.
        std::thread::sleep(Duration::from_millis(300));
        reader.kill().unwrap();
        reader.wait().unwrap();
        assert_ends(mount);
    };
    // An interval is dropped once as many bytes were read of it as it has, and the kernel reads pages twice that it drops too
    // early.
    for_each_transport(|transport| undisturbed(|| test(transport)));
}
