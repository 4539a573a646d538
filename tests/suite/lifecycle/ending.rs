//! How a mount ends: unmounted, told to end, killed, aborted.

use super::*;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

#[test]
fn umount_ends_the_daemon_and_says_so_in_its_log() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        umount(&[mount.point()]).ok();
        mount.wait_for_end();
        assert!(!mount.is_mounted());
        assert!(mount.log().contains("unmounted from"), "{}", mount.log());
    });
}

#[test]
fn a_mount_point_that_mount_made_is_gone_when_umount_returns() {
    if !have(Need::Fuse) {
        return;
    }
    own_namespace();
    let directory = temp_dir();
    container_in(&directory, some());
    let made = directory.path().join("data");
    for _ in 0..10 {
        let mut command = Command::new(FFRFS);
        run(command.args(["mount", "data.ffr"]).current_dir(directory.path())).ok();
        let is_made = is_mount_point(&made);
        let unmounted = umount(&[&made]);
        clean_up(&made, 0);
        unmounted.ok();
        assert!(is_made && !made.exists());
    }
    // A directory that was there stays.
    fs::create_dir(&made).unwrap();
    let mut command = Command::new(FFRFS);
    run(command.args(["mount", "data.ffr"]).current_dir(directory.path())).ok();
    let unmounted = umount(&[&made]);
    clean_up(&made, 0);
    unmounted.ok();
    assert!(made.is_dir());
}

#[test]
fn a_mount_point_that_was_made_stays_if_there_are_files_beneath_the_mount() {
    let directory = temp_dir();
    if !can_note(&directory) {
        return;
    }
    container_in(&directory, some());
    let made = directory.path().join("data");
    let _cleaned_up = CleanedUp(&made);
    let ffrfs = |args: &[&str]| run(Command::new(FFRFS).args(args).current_dir(directory.path()));
    let killed = || {
        ffrfs(&["mount", "data.ffr", "-o", "restarts=0"]).ok();
        kill_daemon(&made);
    };
    killed();
    unmount(&made, true).unwrap();
    let beneath = File::open(&made).unwrap();
    killed();
    drop(openat(&beneath, "mine", OFlag::O_CREAT, Mode::S_IRUSR).unwrap());
    let said = umount(&[&made]).ok().stderr;
    assert!(said.ends_with("/data stays: there are files in it\n"), "{said}");
    assert!(made.join("mine").exists());
}

/// The time for which `ffrfs umount` waits for a stopped process.
const PATIENCE: Duration = Duration::from_secs(5);

/// Checks that `ffrfs umount` waits for a supervisor that is stopped, while other mounts are made. An error: the command has
/// given up on it, as this process had no CPU for so long.
fn umount_waits_beside_other_mounts() -> Result<(), String> {
    let mount = Mount::with_samples(Transport::DevFuse, some(), &["restarts=5"]);
    let device = fs::metadata(mount.point()).unwrap().dev();
    let device = format!("{}:{}", nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let supervisor = Stopped::process(parent_of(mount.pid()));
    let directory = temp_dir();
    let has_number = |line: &str| line.split(' ').nth(2) == Some(&*device);
    let table = || fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let begun = Instant::now();
    let (waits, outcome) = std::thread::scope(|scope| {
        let unmounted = scope.spawn(|| umount(&[mount.point()]));
        // The kernel gives the least free number; a mount of another test may take it first, which is as good.
        let start = Instant::now();
        while table().lines().any(has_number) && start.elapsed() < IN_TIME {}
        let others: Vec<Tmpfs> =
            (0..8).map(|n| Tmpfs::new(directory.path().join(n.to_string()), "1m")).collect();
        std::thread::sleep(Duration::from_millis(500));
        let waits = !unmounted.is_finished();
        drop((supervisor, others));
        (waits, unmounted.join().unwrap())
    });
    let has_given_up = outcome.stderr.contains("is stopped") && begun.elapsed() >= PATIENCE;
    mount.wait_for_end();
    if has_given_up {
        return Err(outcome.stderr);
    }
    assert!(waits, "{outcome:?}");
    outcome.ok();
    Ok(())
}

#[test]
fn umount_waits_for_the_end_though_another_mount_has_got_the_device_number() {
    if !have(Need::Root) || !have(Need::Fuse) {
        return;
    }
    own_namespace();
    up_to_five_times(umount_waits_beside_other_mounts);
}

#[test]
fn sigterm_and_sigint_unmount() {
    for_each_transport(|transport| {
        for signal in [Signal::SIGTERM, Signal::SIGINT] {
            let mount = mount(transport);
            mount.read("000000").unwrap();
            send(&mount, signal);
            mount.wait_for_end();
            assert!(!mount.is_mounted(), "{signal}");
        }
    });
}

#[test]
fn a_hangup_of_the_terminal_changes_nothing() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        send(&mount, Signal::SIGHUP);
        std::thread::sleep(Duration::from_millis(100));
        assert!(mount.read("000001").unwrap() == some()[1]);
        assert!(mount.is_served());
    });
}

#[test]
fn in_the_foreground_a_signal_ends_it_with_exit_code_0() {
    for_each_transport(|transport| {
        for signal in [Signal::SIGTERM, Signal::SIGINT] {
            let mut daemon = Foreground::new(transport, &[]);
            assert_eq!(fs::read(daemon.point().join("000000")).unwrap(), some()[0]);
            kill(Pid::from_raw(daemon.child.id() as i32), signal).unwrap();
            let (code, stderr) = daemon.wait();
            assert_eq!(code, 0, "{stderr}");
            assert!(stderr.contains("mounted on"), "{stderr}");
            assert!(!is_mount_point(&daemon.point()));
        }
    });
}

#[test]
fn in_the_foreground_errors_of_samples_are_told_from_other_messages() {
    for_each_transport(|transport| {
        let mut daemon = Foreground::new(transport, &[]);
        flip_byte(&daemon.directory.path().join("data.ffr"), 1 << 20);
        let fails = || fs::read(daemon.point().join("000001")).is_err();
        wait_until("a sample cannot be read", IN_TIME, fails);
        unmount_soon(&daemon.point());
        let (_, stderr) = daemon.wait();
        let is_error = |line: &str| line.starts_with("ffrfs: error: ") && line.contains("data.ffr");
        assert!(stderr.lines().any(is_error), "{stderr}");
    });
}

#[test]
fn in_the_foreground_it_ends_when_it_is_unmounted() {
    for_each_transport(|transport| {
        let mut daemon = Foreground::new(transport, &["log_level=debug"]);
        unmount_soon(&daemon.point());
        let (code, stderr) = daemon.wait();
        assert_eq!(code, 0, "{stderr}");
    });
}

#[test]
fn sigterm_with_open_files_unmounts_lazily_and_they_can_be_read_to_their_end() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let file = File::open(mount.path("000001")).unwrap();
        send(&mount, Signal::SIGTERM);
        wait_until("it is unmounted", IN_TIME, || !mount.is_mounted());
        let mut bytes = vec![0; 9 << 20];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == some()[1]);
        assert!(mount.is_served());
        drop(file);
        mount.wait_for_end();
    });
}

#[test]
fn umount_of_a_busy_mount_is_refused_with_a_hint_and_works_lazily() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let file = File::open(mount.path("000002")).unwrap();
        let outcome = ffrfs(&[Path::new("umount"), mount.point()]);
        assert_eq!(outcome.code, 5, "{}", outcome.stderr);
        for word in ["-z", "open", mount.point().to_str().unwrap()] {
            assert!(outcome.stderr.contains(word), "{word:?} is not in: {}", outcome.stderr);
        }
        assert!(mount.is_mounted());
        ffrfs(&[Path::new("umount"), Path::new("-z"), mount.point()]).ok();
        assert!(!mount.is_mounted());
        let mut bytes = vec![0; 100_000];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, some()[2]);
        drop(file);
        mount.wait_for_end();
    });
}

#[test]
fn a_daemon_that_ends_leaves_the_next_mount_in_its_place_alone() {
    for_each_transport(|transport| {
        let mut mount = mount(transport);
        let first = mount.pid();
        let file = File::open(mount.path("000002")).unwrap();
        ffrfs(&[Path::new("umount"), Path::new("-z"), mount.point()]).ok();
        let container = mount.container();
        mount.again(transport, &[&container], &[]);
        assert!(is_running(first));
        drop(file);
        wait_until("the first daemon ends", IN_TIME, || !is_running(first));
        assert!(mount.read("000001").unwrap() == some()[1]);
        mount.unmount();
    });
}

#[test]
fn umount_of_what_is_no_mount_of_ours_is_refused_with_exit_code_5() {
    let directory = temp_dir();
    for (target, says) in [
        (directory.path(), "nothing is mounted"),
        (Path::new("/proc"), "not of ffrfs"),
        (&directory.path().join("missing"), "missing"),
    ] {
        let outcome = ffrfs(&[Path::new("umount"), target]);
        assert_eq!(outcome.code, 5, "{}", outcome.stderr);
        assert!(outcome.stderr.contains(says), "{says:?} is not in: {}", outcome.stderr);
    }
}

#[test]
fn umount_takes_several_mount_points_and_goes_on_after_a_failure() {
    for_each_transport(|transport| {
        let (first, second) = (mount(transport), mount(transport));
        let directory = temp_dir();
        let outcome = umount(&[first.point(), directory.path(), second.point()]);
        assert_eq!(outcome.code, 5, "{}", outcome.stderr);
        assert!(!first.is_mounted() && !second.is_mounted());
    });
}

/// Reads a file over and over, each time from the daemon, until a read fails or `enough` is set.
fn read_on(path: &Path, started: &AtomicBool, enough: &AtomicBool) -> io::Result<()> {
    let file = File::open(path)?;
    let mut bytes = vec![0; 100_000];
    while !enough.load(Ordering::Relaxed) {
        for offset in [0, 5 << 20, 3 << 20] {
            file.read_at(&mut bytes, offset)?;
        }
        started.store(true, Ordering::Relaxed);
        drop_cached(&file);
    }
    Ok(())
}

#[test]
fn lazy_umount_while_files_are_read_lets_the_readers_finish() {
    for_each_transport(|transport| {
        let mount = mount(transport);
        let files: Vec<_> = (0..8).map(|_| File::open(mount.path("000001")).unwrap()).collect();
        let unmounted = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for file in files {
                let unmounted = &unmounted;
                scope.spawn(move || {
                    let sample = &some()[1];
                    let mut bytes = vec![0; 200_000];
                    let mut rounds_after = 0;
                    while rounds_after < 2 {
                        rounds_after += i32::from(unmounted.load(Ordering::Relaxed));
                        for offset in (0..sample.len() - bytes.len()).step_by(1_234_567) {
                            file.read_exact_at(&mut bytes, offset as u64).unwrap();
                            assert!(bytes == sample[offset..][..bytes.len()], "at {offset}");
                        }
                        drop_cached(&file);
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(50));
            ffrfs(&[Path::new("umount"), Path::new("-z"), mount.point()]).ok();
            unmounted.store(true, Ordering::Relaxed);
        });
        mount.wait_for_end();
    });
}

/// Starts four readers and calls `end`, which ends the mount; all readers must fail after it.
#[track_caller]
fn readers_fail_after(mount: &Mount, end: impl FnOnce()) {
    let enough = AtomicBool::new(false);
    let started: Vec<_> = (0..4).map(|_| AtomicBool::new(false)).collect();
    std::thread::scope(|scope| {
        let readers: Vec<_> = started
            .iter()
            .map(|started| {
                let (path, enough) = (mount.path("000001"), &enough);
                scope.spawn(move || read_on(&path, started, enough))
            })
            .collect();
        let all = || started.iter().all(|started| started.load(Ordering::Relaxed));
        wait_until("all read", IN_TIME, all);
        end();
        let start = Instant::now();
        while start.elapsed() < IN_TIME && !readers.iter().all(|reader| reader.is_finished()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let finished = readers.iter().filter(|reader| reader.is_finished()).count();
        enough.store(true, Ordering::Relaxed);
        for reader in readers {
            let error = reader.join().unwrap().expect_err("nobody is there to answer");
            let errno = error.raw_os_error().unwrap();
            // The kernel gives ECANCELED for a request in the ring of a process that has died.
            let usual =
                [libc::ENOTCONN, libc::ECONNABORTED, libc::ECANCELED, libc::EIO, libc::ENOENT];
            assert!(usual.contains(&errno), "{error}");
        }
        assert_eq!(finished, 4, "readers hang");
    });
}

#[test]
fn a_killed_daemon_fails_its_readers_at_once_and_the_next_mount_works() {
    for_each_transport(|transport| {
        let mut mount = unsupervised(transport);
        readers_fail_after(&mount, || send(&mount, Signal::SIGKILL));
        mount.wait_for_end();
        // The last of its threads may not have closed the connection yet.
        wait_until("the mount is dead", IN_TIME, || {
            let asked = nix::sys::statvfs::statvfs(mount.point());
            asked.err() == Some(nix::errno::Errno::ENOTCONN)
        });
        let container = mount.container();
        mount.again(transport, &[&container], &[]);
        assert_eq!(mounts_at(mount.point()).len(), 1, "the dead mount is gone");
        assert!(mount.read("000001").unwrap() == some()[1]);
        assert!(mount.log().contains("daemon is dead"), "{}", mount.log());
    });
}

#[test]
fn readers_that_wait_for_a_stuck_daemon_fail_when_it_is_killed() {
    for_each_transport(|transport| {
        let mount = unsupervised(transport);
        let path = mount.path("000001");
        let file = File::open(&path).unwrap();
        let _stopped = Stopped::new(&mount);
        let reader = std::thread::spawn(move || file.read_at(&mut [0; 100], 0));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!reader.is_finished());
        send(&mount, Signal::SIGKILL);
        wait_until("the reader is let go", IN_TIME, || reader.is_finished());
        reader.join().unwrap().unwrap_err();
    });
}

#[test]
fn a_dead_mount_is_unmounted_without_more_ado() {
    for_each_transport(|transport| {
        let mount = unsupervised(transport);
        let _open = File::open(mount.path("000000")).unwrap();
        send(&mount, Signal::SIGKILL);
        mount.wait_for_end();
        ffrfs(&[Path::new("umount"), mount.point()]).ok();
        assert!(!mount.is_mounted());
    });
}

#[test]
fn an_aborted_connection_fails_its_readers_and_leaves_no_mount() {
    if !have(Need::Fusectl) {
        return;
    }
    for_each_transport(|transport| {
        let mount = mount(transport);
        let fusectl = Fusectl::new().unwrap();
        let connection = nix::sys::stat::minor(fs::metadata(mount.point()).unwrap().dev());
        readers_fail_after(&mount, || fusectl.abort(connection).unwrap());
        mount.wait_for_end();
        wait_until("it is unmounted", IN_TIME, || !mount.is_mounted());
    });
}

#[test]
fn many_mounts_in_a_row_leave_nothing_behind() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let point = directory.path().join("mnt");
        fs::create_dir(&point).unwrap();
        let container = container_in(&directory, &samples(20, 1_000));
        for round in 0..20 {
            run(&mut mount_command(transport, &[&container], &point, &[])).ok();
            let read = fs::read(point.join("000019"));
            let outcome = umount(&[&point]);
            clean_up(&point, 0);
            assert_eq!(read.unwrap(), samples(20, 1_000)[19], "round {round}");
            outcome.ok();
        }
        assert!(!is_mount_point(&point));
    });
}
