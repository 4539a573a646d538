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
