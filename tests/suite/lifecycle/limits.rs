//! Mounts under limits of memory and of open files: they work, or they fail with the reason.

use super::*;

/// Mounts with a limit that the shell's `ulimit` sets. What says that it works, works; else nothing is left behind.
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

/// What a process has mapped.
fn mapped_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// How many threads of a daemon have a name that begins so.
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
        // Its reads are those of threads, with each transport.
        let source = Source::of(&container);
        let mount = Mount::new(transport, source.file(), &[]);
        let pid = mount.pid();
        let limit = |bytes: &str| {
            let (process, limit) = (pid.to_string(), format!("--as={bytes}:"));
            run(Command::new("prlimit").args(["--pid", &process, &limit])).ok();
        };
        let mut numbers = 0..content.len();
        let mut read = || {
            let number = numbers.next().expect("a sample that was not read yet");
            assert!(mount.read(format!("{number:06}")).unwrap() == content[number], "{number}");
        };
        // Too little for another thread, and enough for a read.
        limit(&(mapped_bytes(pid) + (24 << 20)).to_string());
        read();
        assert_eq!(threads(pid, "ffrfs-read"), 0, "{}", mount.log());
        assert!(mount.log().contains("0 of 8 reading threads"), "{}", mount.log());
        limit("unlimited");
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
    let name = |number: usize| format!("{number:03}");
    for (number, sample) in content.iter().enumerate() {
        fs::write(directory.path().join(name(number)), sample).unwrap();
    }
    let mut pack = Command::new("tar");
    pack.current_dir(directory.path()).args(["-I", "gzip -1", "-cf", "x.tar.gz"]);
    run(pack.args((0..content.len()).map(name))).ok();
    let archive = directory.path().join("x.tar.gz");
    for_each_transport(|transport| {
        let mount = Mount::new(transport, &archive, &["memory=64M", "threads=2"]);
        let pid = mount.pid();
        let limit = |bytes: &str| {
            let (process, limit) = (pid.to_string(), format!("--as={bytes}:"));
            run(Command::new("prlimit").args(["--pid", &process, &limit])).ok();
        };
        let read = |numbers: std::ops::Range<usize>| {
            for number in numbers {
                assert!(mount.read(name(number)).unwrap() == content[number], "{number}");
            }
        };
        limit(&(mapped_bytes(pid) + (30 << 20)).to_string());
        // Until something is foreseen: what is kept of more reads would take what is left.
        let mut next = 0;
        while !mount.log().contains("0 of 2 decoding threads") {
            read(next..next + 1);
            next += 1;
        }
        assert_eq!(threads(pid, "ffrfs-decode"), 0, "{}", mount.log());
        limit("unlimited");
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
    // Whether it is mounted under this limit, and what the log says.
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
