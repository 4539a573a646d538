//! Mounts under limits of memory and of open files: they work, or they fail with the reason.

use super::*;
use std::path::PathBuf;

/// Mounts with a limit that the shell's `ulimit` sets. A mount that succeeds works; a failed one leaves nothing behind.
#[track_caller]
fn mount_with(transport: Transport, limit: &str, sources: &[&Path], first: &[u8]) -> Outcome {
    let directory = temp_dir();
    let point = directory.path().join("mnt");
    fs::create_dir(&point).unwrap();
    let inner = mount_command(transport, sources, &point, &[]);
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit {limit} && exec \"$0\" \"$@\""));
    command.arg(inner.get_program()).args(inner.get_args());
    let outcome = run(&mut command);
    if outcome.code == 0 {
        let pid = pid_at(&point);
        let read = fs::read_dir(&point).and_then(|mut names| {
            let name = names.next().ok_or(io::ErrorKind::NotFound)??;
            fs::read(name.path())
        });
        clean_up(&point, pid);
        assert!(read.is_ok_and(|bytes| bytes == first), "{limit}: it was said to work");
    } else {
        assert!(outcome.stderr.starts_with("ffrfs: "), "{limit}: {}", outcome.stderr);
        assert!(!is_mount_point(&point), "{limit}: a dead mount point: {}", outcome.stderr);
    }
    outcome
}

#[test]
fn under_any_limit_of_memory_a_mount_works_or_says_why_not_and_leaves_nothing() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let first = &some()[..1];
        let container = container_in(&directory, first);
        for kilobytes in [60_000, 90_000, 130_000, 180_000, 240_000, 320_000, 400_000] {
            mount_with(transport, &format!("-v {kilobytes}"), &[&container], &first[0]);
        }
    });
}

#[test]
fn many_shards_are_mounted_with_few_open_files_or_the_message_names_limit_and_need() {
    let shards = temp_dir();
    let contents = samples(1, 100);
    for number in 0..237 {
        write_container(&shards.path().join(format!("{number:03}.ffr")), &contents);
    }
    for_each_transport(|transport| {
        for limit in [32, 64, 128] {
            let outcome =
                mount_with(transport, &format!("-n {limit}"), &[shards.path()], &contents[0]);
            if outcome.code != 0 {
                for word in [&format!("ulimit -n: {limit}"), "needs"] {
                    assert!(outcome.stderr.contains(word), "{limit}: {}", outcome.stderr);
                }
            }
            println!("{limit}: {} {}", outcome.code, outcome.stderr);
        }
    });
}

/// A `.tar.gz` of samples with the names `000` and so on.
fn compressed(directory: &TempDir, content: &[Vec<u8>]) -> PathBuf {
    let names = || (0..content.len()).map(|number| format!("{number:03}"));
    for (name, sample) in names().zip(content) {
        fs::write(directory.path().join(name), sample).unwrap();
    }
    let mut pack = Command::new("tar");
    pack.current_dir(directory.path()).args(["-I", "gzip -1", "-cf", "x.tar.gz"]);
    run(pack.args(names())).ok();
    directory.path().join("x.tar.gz")
}

#[test]
fn what_is_kept_in_memory_leaves_room_for_reads_under_a_limit_of_memory() {
    let directory = temp_dir();
    // More bytes than the limit.
    let content: Vec<_> = (0..160).map(|number| noise(number, 1 << 20)).collect();
    let archive = compressed(&directory, &content);
    let point = directory.path().join("mnt");
    fs::create_dir(&point).unwrap();
    for_each_transport(|transport| {
        // With `auto`, io_uring is not taken where its buffers have no room.
        let transport = if transport == Transport::Uring { "auto" } else { "devfuse" };
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v 150000 && exec \"$0\" \"$@\"", FFRFS]);
        command.arg("mount").args([&archive, &point]);
        run(command.arg("-o").arg(format!("transport={transport}"))).ok();
        let pid = pid_at(&point);
        let read = |number| {
            fs::read(point.join(format!("{number:03}"))).is_ok_and(|it| it == content[number])
        };
        let bad: Vec<_> = (0..content.len()).filter(|&number| !read(number)).collect();
        clean_up(&point, pid);
        assert!(bad.is_empty(), "{transport}: {bad:?}");
    });
}

/// The bytes of address space that a process has mapped.
fn mapped_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// As [`mapped_bytes`], of a mount that was just made, once it has given back the memory that only its start needed, which
/// would be more room under a limit than was meant.
fn settled_bytes(pid: i32) -> u64 {
    let (mut mapped, mut since) = (mapped_bytes(pid), Instant::now());
    wait_until("a mount settles", IN_TIME, || {
        let now = mapped_bytes(pid);
        if now != std::mem::replace(&mut mapped, now) {
            since = Instant::now();
        }
        since.elapsed() > Duration::from_secs(1)
    });
    mapped
}

/// Changes how much address space a process may have: a number of bytes, or `unlimited`.
fn limit_address_space(pid: i32, bytes: &str) {
    let (process, limit) = (pid.to_string(), format!("--as={bytes}:"));
    run(Command::new("prlimit").args(["--pid", &process, &limit])).ok();
}

/// The number of threads of a daemon whose names begin with `name`.
fn threads(pid: i32, name: &str) -> usize {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    names.filter(|comm| comm.starts_with(name)).count()
}

#[test]
fn reading_threads_that_a_limit_forbids_are_started_once_there_is_room() {
    let content = samples(40, 300_000);
    let directory = temp_dir();
    let container = container_in(&directory, &content);
    for_each_transport(|transport| {
        // The source lies on another mount, so that threads read it with each transport.
        let source = Source::of(&container);
        let mount = Mount::new(transport, source.file(), &[]);
        let pid = mount.pid();
        let mut numbers = 0..content.len();
        let mut read = || {
            let number = numbers.next().expect("a sample that was not read yet");
            assert!(mount.read(format!("{number:06}")).unwrap() == content[number], "{number}");
        };
        // Too little room for another thread, and enough for a read.
        limit_address_space(pid, &(settled_bytes(pid) + (24 << 20)).to_string());
        read();
        assert_eq!(threads(pid, "ffrfs-read"), 0, "{}", mount.log());
        assert!(mount.log().contains("0 of 8 reading threads"), "{}", mount.log());
        limit_address_space(pid, "unlimited");
        wait_until("threads are started", IN_TIME, || {
            std::thread::sleep(Duration::from_millis(500));
            read();
            threads(pid, "ffrfs-read") == 8
        });
    });
}

#[test]
fn decoding_threads_that_a_limit_forbids_are_started_once_there_is_room() {
    let directory = temp_dir();
    // Several intervals, each of some MiB.
    let content: Vec<_> = (0..48).map(|number| noise(number, 1 << 20)).collect();
    let archive = compressed(&directory, &content);
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, &["memory=64M", "threads=2"]);
        let pid = mount.pid();
        let read = |numbers: std::ops::Range<usize>| {
            for number in numbers {
                assert!(mount.read(format!("{number:03}")).unwrap() == content[number], "{number}");
            }
        };
        // Reads until the mount foresees a read. Memory that is kept of each read would take from the room of the next one.
        let (mut mapped, mut next) = (settled_bytes(pid), 0);
        while !mount.log().contains("0 of 2 decoding threads") {
            limit_address_space(pid, &(mapped + (30 << 20)).to_string());
            read(next..next + 1);
            mapped = mapped_bytes(pid);
            next += 1;
        }
        assert_eq!(threads(pid, "ffrfs-decode"), 0, "{}", mount.log());
        limit_address_space(pid, "unlimited");
        std::thread::sleep(Duration::from_millis(1500));
        read(next..content.len());
        assert_eq!(threads(pid, "ffrfs-decode"), 2, "{}", mount.log());
        assert!(mount.log().contains("all decoding threads run"), "{}", mount.log());
    });
}

#[test]
fn a_limit_of_open_files_is_named_where_the_device_cannot_be_opened() {
    let directory = temp_dir();
    let contents = samples(1, 100);
    let container = container_in(&directory, &contents);
    for_each_transport(|transport| {
        for limit in 6..24 {
            let outcome =
                mount_with(transport, &format!("-n {limit}"), &[&container], &contents[0]);
            if outcome.code != 0 {
                assert!(!outcome.stderr.contains("modprobe"), "{limit}: {}", outcome.stderr);
                assert!(outcome.stderr.contains("ulimit -n"), "{limit}: {}", outcome.stderr);
            }
        }
    });
}

#[test]
fn where_the_buffers_of_io_uring_have_no_room_auto_takes_the_device() {
    let directory = temp_dir();
    let contents = samples(1, 100);
    let container = container_in(&directory, &contents);
    let (point, log) = (directory.path().join("mnt"), directory.path().join("log"));
    fs::create_dir(&point).unwrap();
    // Whether the mount succeeds under this limit, and the text of the log.
    let mount = |kibibytes: u32, transport: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -v {kibibytes} && exec \"$0\" \"$@\""), FFRFS]);
        command.arg("mount").args([&container, &point]).arg("--log-file").arg(&log);
        let outcome = run(command.arg("-o").arg(format!("transport={transport}")));
        if outcome.code == 0 {
            assert!(fs::read(point.join("000000")).unwrap() == contents[0]);
            clean_up(&point, pid_at(&point));
        }
        let said = fs::read_to_string(&log).unwrap_or_default();
        let _ = fs::remove_file(&log);
        (outcome.code == 0, said)
    };
    for_each_transport(|transport| {
        if transport == Transport::DevFuse {
            return;
        }
        let limits = (60_000..2_000_000).step_by(10_000);
        let mut fell_back = false;
        for kibibytes in limits {
            if !mount(kibibytes, "devfuse").0 {
                continue;
            }
            let (is_mounted, said) = mount(kibibytes, "auto");
            assert!(is_mounted, "{kibibytes}: {said}");
            if !said.contains("requests come through /dev/fuse: its buffers") {
                break;
            }
            if !std::mem::replace(&mut fell_back, true) {
                let limit = format!("ulimit -v {kibibytes} && exec \"$0\" doctor");
                let found = run(Command::new("sh").args(["-c", &limit, FFRFS])).text();
                assert!(found.contains("transport=auto: devfuse: its buffers"), "{found}");
            }
        }
        assert!(fell_back);
    });
}
