//! Ends of mounts that another process disturbs: it kills a helper or the supervisor, unmounts at the same time, or mounts
//! something else over them.

use super::{LIMIT, children_of, content, name, next_after, parent_of};
use crate::common::{
    Disk, FFRFS, Mount, Need, Outcome, Stopped, container_in, for_each_transport, have,
    in_own_namespace, is_mount_point, is_running, mount_command, mounts_at, run, temp_dir, umount,
    unmount, unmount_with, wait_until,
};
use nix::fcntl::OFlag;
use nix::mount::{MsFlags, mount};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn served(point: &Path) -> bool {
    point.join(".ffrfs/info.json").exists()
}

fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Sends another SIGTERM until all have ended: signals count as one until the daemon, which may have to wait for a CPU, is done
/// with the first.
fn insist(pid: i32, have_ended: impl Fn() -> bool) {
    wait_until("all processes end", LIMIT, || {
        std::thread::sleep(Duration::from_millis(250));
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        have_ended()
    });
}

#[test]
fn a_first_daemon_whose_supervisor_dies_before_it_tells_of_its_mount_unmounts_that() {
    for_each_transport(|transport| {
        for sandbox in ["sandbox=auto", "sandbox=no"] {
            let directory = temp_dir();
            let container = container_in(&directory, &content());
            let (point, pipe) = (directory.path().join("mnt"), directory.path().join("pipe"));
            fs::create_dir(&point).unwrap();
            mkfifo(&pipe, Mode::S_IRWXU).unwrap();
            let mut command = mount_command(transport, &[&container], &point, &["restarts=5"]);
            command.args(["-o", sandbox]).env("FFRFS_TEST_BEFORE_TELLING", &pipe);
            let command = command.stderr(Stdio::null()).spawn().unwrap();
            wait_until("it is mounted", LIMIT, || is_mount_point(&point));
            let [supervisor] = children_of(command.id().cast_signed())[..] else {
                panic!("the supervisor")
            };
            let [daemon] = children_of(supervisor)[..] else { panic!("the daemon") };
            send(supervisor, Signal::SIGKILL);
            assert_eq!(command.wait_with_output().unwrap().status.code(), Some(5));
            // The daemon goes on now.
            drop(File::options().write(true).open(&pipe).unwrap());
            wait_until("the daemon ends", LIMIT, || !is_running(daemon));
            assert!(!is_mount_point(&point), "{transport:?}, {sandbox}");
        }
    });
}

#[test]
fn a_signal_to_end_unmounts_though_the_process_that_unmounts_was_killed() {
    for_each_transport(|transport| {
        for to_supervisor in [true, false] {
            let options = ["restarts=5", "sandbox=auto"];
            let mount = Mount::with_samples(transport, &content(), &options);
            let (daemon, supervisor) = (mount.pid(), parent_of(mount.pid()));
            let helpers = children_of(daemon);
            assert_eq!(helpers.len(), 1, "{helpers:?}");
            send(helpers[0], Signal::SIGKILL);
            send(if to_supervisor { supervisor } else { daemon }, Signal::SIGTERM);
            let has_ended = || !is_running(daemon) && !is_running(supervisor);
            wait_until("all processes end", LIMIT, has_ended);
            assert!(!mount.is_mounted(), "{}", mount.log());
        }
    });
}

#[test]
fn the_same_signal_once_more_while_an_unmounted_daemon_ends_makes_no_failure_of_it() {
    for_each_transport(|transport| {
        let disk = Disk::new(&content());
        let directory = temp_dir();
        let option = format!("restarts=5,rw,{}", transport.option().unwrap());
        let mut supervisor = Command::new(FFRFS)
            .args(["mount", "--foreground", "-o", &option])
            .args([disk.container().as_path(), directory.path()])
            .spawn()
            .unwrap();
        let hints = directory.path().join(".ffrfs/prefetch");
        wait_until("it is mounted", LIMIT, || hints.exists());
        let [daemon] = children_of(supervisor.id().cast_signed())[..] else { panic!("a daemon") };
        disk.slow_down(Duration::from_secs(2));
        fs::write(hints, (0..60).map(|number| format!("{number}\n")).collect::<String>()).unwrap();
        wait_until("a read waits for the disk", LIMIT, || disk.waiting() > 0);
        send(daemon, Signal::SIGTERM);
        wait_until("it is unmounted", LIMIT, || !is_mount_point(directory.path()));
        // Longer than signals count as one. The daemon waits for its fetches; on a busy machine they may be over.
        std::thread::sleep(Duration::from_millis(250));
        let _ = kill(Pid::from_raw(daemon), Signal::SIGTERM);
        assert_eq!(supervisor.wait().unwrap().code(), Some(0), "{transport:?}");
        disk.slow_down(Duration::ZERO);
    });
}

#[test]
fn a_signal_that_the_supervisor_passes_on_late_does_not_end_who_waits_for_open_files() {
    for_each_transport(|transport| {
        // Without and with long work before the mount, during which Ctrl-C is listened to.
        for option in ["suffix=none", "suffix=auto"] {
            let directory = temp_dir();
            let (container, point) =
                (container_in(&directory, &content()), directory.path().join("mnt"));
            fs::create_dir(&point).unwrap();
            let options = ["restarts=5", option];
            let mut command = mount_command(transport, &[&container], &point, &options);
            let mut supervisor = command.arg("--foreground").spawn().unwrap();
            wait_until("it is mounted", LIMIT, || is_mount_point(&point) && served(&point));
            let [daemon] = children_of(supervisor.id().cast_signed())[..] else {
                panic!("a daemon")
            };
            let names = fs::read_dir(&point).unwrap().flatten().map(|entry| entry.path());
            let seventh = names
                .into_iter()
                .find(|path| path.file_stem().is_some_and(|stem| stem.to_str() == Some(&name(7))));
            let mut open = File::open(seventh.unwrap()).unwrap();
            // systemd sends the signal to all processes of the service. The supervisor gets no CPU for a while.
            let stopped = Stopped::process(supervisor.id().cast_signed());
            send(daemon, Signal::SIGTERM);
            send(supervisor.id().cast_signed(), Signal::SIGTERM);
            wait_until("it is detached", LIMIT, || !is_mount_point(&point));
            std::thread::sleep(Duration::from_millis(250));
            drop(stopped);
            std::thread::sleep(Duration::from_millis(250));
            let mut bytes = Vec::new();
            open.read_to_end(&mut bytes).unwrap();
            assert!(bytes == content()[7], "{transport:?}");
            drop(open);
            assert_eq!(supervisor.wait().unwrap().code(), Some(0), "{transport:?}");
        }
    });
}

#[test]
fn who_insists_ends_a_daemon_that_waits_for_open_files() {
    for_each_transport(|transport| {
        for to_supervisor in [true, false] {
            let mount = Mount::with_samples(transport, &content(), &["restarts=5"]);
            let supervisor = parent_of(mount.pid());
            let open = File::open(mount.path(name(7))).unwrap();
            let told = if to_supervisor { supervisor } else { mount.pid() };
            send(told, Signal::SIGTERM);
            wait_until("it is detached", LIMIT, || !mount.is_mounted());
            insist(told, || ![mount.pid(), supervisor].into_iter().any(is_running));
            drop(open);
        }
    });
}

#[test]
fn of_several_commands_that_unmount_at_once_none_is_surprised_by_another() {
    for_each_transport(|transport| {
        for flags in [&[][..], &["--lazy"], &["--force"]] {
            let mount = Mount::with_samples(transport, &content(), &["restarts=5"]);
            let supervisor = parent_of(mount.pid());
            let command = || {
                let mut command = Command::new(FFRFS);
                command.arg("umount").args(flags).arg(mount.point()).stderr(Stdio::piped());
                command
            };
            let all: Vec<Child> = (0..8).map(|_| command().spawn().unwrap()).collect();
            let mut unmounted = 0;
            for one in all {
                let mut outcome = Outcome::from(one.wait_with_output().unwrap());
                // A command that asks whether the daemon answers holds the mount, perhaps for long without a CPU.
                if flags.is_empty() && outcome.stderr.contains("files in it are open") {
                    outcome = unmount_with(&mut command());
                }
                // Commands that begin when the mount is gone.
                let is_late = outcome.stderr.contains("nothing is mounted there");
                assert!(is_late || outcome.stderr.is_empty(), "{flags:?}: {outcome:?}");
                unmounted += usize::from(outcome.code == 0);
            }
            assert!(unmounted > 0 && !mount.is_mounted());
            wait_until("the supervisor ends", LIMIT, || !is_running(supervisor));
        }
    });
}

#[test]
fn a_dead_mount_under_another_one_is_made_anew_once_that_has_gone() {
    if !have(Need::Root) {
        return;
    }
    for_each_transport(|transport| {
        let samples = content();
        let mount =
            Mount::attempt_with_samples(transport, &samples, &["restarts=5"], |mut command| {
                command.env("FFRFS_TEST_NO_RESEND", "1");
                command
            });
        let mount = mount.unwrap();
        let supervisor = parent_of(mount.pid());
        let cover = || {
            let (none, flags) = (None::<&str>, MsFlags::empty());
            self::mount(Some("none"), mount.point(), Some("tmpfs"), flags, none).unwrap();
        };
        cover();
        send(mount.pid(), Signal::SIGKILL);
        let says = "another file system is mounted over it";
        wait_until("it says so", LIMIT, || mount.log().contains(says));
        std::thread::sleep(Duration::from_millis(1500));
        assert!(is_running(supervisor) && mounts_at(mount.point()).len() == 2);
        unmount(mount.point(), false).unwrap();
        let second = next_after(&mount, mount.pid());
        assert!(mount.read(name(3)).unwrap() == samples[3]);
        assert_eq!(mount.log().matches(says).count(), 1, "{}", mount.log());
        // A covered mount cannot be unmounted: the log says so, and a second signal would end the processes.
        cover();
        send(supervisor, Signal::SIGTERM);
        wait_until("it says so", LIMIT, || mount.log().contains("cannot unmount"));
        assert!(is_running(second));
        unmount(mount.point(), false).unwrap();
        assert!(mount.read(name(4)).unwrap() == samples[4]);
        // The mount has stayed, and a daemon that dies is followed by another one, as before.
        send(second, Signal::SIGKILL);
        let third = next_after(&mount, second);
        assert!(mount.read(name(5)).unwrap() == samples[5]);
        send(supervisor, Signal::SIGTERM);
        wait_until("all processes end", LIMIT, || ![third, supervisor].into_iter().any(is_running));
        assert!(!mount.is_mounted());
    });
}

#[test]
fn a_mount_that_is_to_end_before_its_next_daemon_was_heard_goes_on_where_it_is_covered() {
    if !have(Need::Root) {
        return;
    }
    for_each_transport(|transport| {
        let (directory, samples) = (temp_dir(), content());
        let pipe = directory.path().join("pipe");
        mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        let mount =
            Mount::attempt_with_samples(transport, &samples, &["restarts=5"], |mut command| {
                command.env("FFRFS_TEST_NO_RESEND", "1");
                command.env("FFRFS_TEST_BEFORE_MOUNTING_ANEW", &pipe);
                command
            });
        let mount = mount.unwrap();
        let supervisor = parent_of(mount.pid());
        // The next daemon opens the pipe before it mounts.
        let comes = || {
            let mut pipe_options = File::options();
            pipe_options.write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&pipe).is_ok()
        };
        send(mount.pid(), Signal::SIGKILL);
        wait_until("the dead mount is taken away", LIMIT, || !mount.is_mounted());
        // The supervisor does not hear that the next daemon serves until it was told to end.
        send(supervisor, Signal::SIGSTOP);
        wait_until("the next daemon comes", LIMIT, comes);
        let second = next_after(&mount, mount.pid());
        let (none, flags) = (None::<&str>, MsFlags::empty());
        self::mount(Some("none"), mount.point(), Some("tmpfs"), flags, none).unwrap();
        send(supervisor, Signal::SIGTERM);
        send(supervisor, Signal::SIGCONT);
        wait_until("it says so", LIMIT, || mount.log().contains("cannot unmount"));
        unmount(mount.point(), false).unwrap();
        assert!(mount.read(name(4)).unwrap() == samples[4]);
        send(second, Signal::SIGKILL);
        wait_until("a third daemon comes", LIMIT, comes);
        next_after(&mount, second);
        assert!(mount.read(name(5)).unwrap() == samples[5]);
        mount.unmount();
    });
}

#[test]
fn a_signal_to_end_unmounts_what_was_covered_at_the_one_before() {
    if !have(Need::Root) {
        return;
    }
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &content(), &["restarts=0"]);
        let (none, flags) = (None::<&str>, MsFlags::empty());
        self::mount(Some("none"), mount.point(), Some("tmpfs"), flags, none).unwrap();
        send(mount.pid(), Signal::SIGTERM);
        wait_until("it says so", LIMIT, || mount.log().contains("unmount that first"));
        unmount(mount.point(), false).unwrap();
        assert!(mount.read(name(3)).unwrap() == content()[3]);
        insist(mount.pid(), || !is_running(mount.pid()));
        assert!(mounts_at(mount.point()).is_empty(), "{transport:?}");
    });
}

/// The number of all children, including those that have ended without a process that waited for them.
fn all_children_of(process: i32) -> usize {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    children.unwrap().split_whitespace().count()
}

/// Whether a process holds a label, as a supervisor does once a daemon has told of its mount.
fn knows_a_mount(process: i32) -> bool {
    let opened = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let mut files = opened.filter_map(|fd| fs::read_link(fd.path()).ok());
    files.any(|file| file.to_string_lossy().starts_with("/memfd:ffrfs-mount:"))
}

#[test]
fn a_supervisor_that_is_the_first_process_of_a_container_leaves_no_dead_ones() {
    if !have(Need::Root) || !have(Need::Program("unshare")) {
        return;
    }
    for_each_transport(|transport| {
        let directory = temp_dir();
        let container = container_in(&directory, &content());
        let point = directory.path().join("mnt");
        fs::create_dir(&point).unwrap();
        let inner = mount_command(transport, &[&container], &point, &["restarts=1000"]);
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.arg(inner.get_program()).args(inner.get_args()).arg("--foreground");
        let mut unshare = in_own_namespace(|| command.stderr(Stdio::null()).spawn().unwrap());
        let mut first = 0;
        wait_until("there is a first process", LIMIT, || {
            first = children_of(unshare.id().cast_signed()).first().copied().unwrap_or(0);
            first != 0
        });
        let root = Path::new("/proc").join(first.to_string()).join("root");
        let info = root.join(point.strip_prefix("/").unwrap()).join(".ffrfs/info.json");
        let mut before = Vec::new();
        for _ in 0..4 {
            // Another daemon serves, and has told of the mount: if the first daemon dies before that, the supervisor ends.
            wait_until("a daemon serves", LIMIT, || {
                let daemons = children_of(first);
                let is_another = daemons.len() == 1 && daemons != before;
                is_another && fs::read(&info).is_ok() && knows_a_mount(first)
            });
            before = children_of(first);
            send(before[0], Signal::SIGKILL);
        }
        wait_until("one child is left", LIMIT, || {
            fs::read(&info).is_ok() && children_of(first) != before && all_children_of(first) == 1
        });
        send(first, Signal::SIGTERM);
        assert_eq!(unshare.wait().unwrap().code(), Some(0));
    });
}

#[test]
fn a_mount_that_is_busy_since_another_one_is_in_it_names_that() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let (tar, data) = (directory.path().join("outer.tar"), directory.path().join("data"));
        fs::create_dir_all(data.join("point")).unwrap();
        run(Command::new("tar").arg("-cf").arg(&tar).arg("-C").arg(&data).arg("point")).ok();
        let outer = Mount::new(transport, &tar, &["restarts=5"]);
        let inner = outer.path("point");
        let container = container_in(&directory, &content());
        run(&mut mount_command(transport, &[&container], &inner, &[])).ok();
        let refused = run(Command::new(FFRFS).arg("umount").arg(outer.point()));
        let inner_is_unmounted = umount(&[&inner]);
        let named = format!("unmount first what is mounted in it: {}", inner.display());
        assert!(refused.code == 5 && refused.stderr.contains(&named), "{}", refused.stderr);
        inner_is_unmounted.ok();
        outer.unmount();
    });
}
