//! Settings that a program inherits from the one that starts it: signals that are ignored or blocked, a limit of file sizes,
//! a service manager that waits for another process.

use super::*;
use crate::common::parent_of;
use std::os::unix::net::UnixDatagram;

/// The command of `inner`, run by `env` with this option.
fn by_env(option: &str, inner: &Command) -> Command {
    let mut command = Command::new("env");
    command.args([option]).arg(inner.get_program()).args(inner.get_args());
    command
}

/// Whether `env` can change signals (coreutils 8.31).
fn can_change_signals() -> bool {
    run(Command::new("env").args(["--ignore-signal=CHLD", "true"])).code == 0
}

#[test]
fn whoever_ignores_its_children_starts_a_mount_that_does_not() {
    if !can_change_signals() {
        return;
    }
    for_each_transport(|transport| {
        let directory = temp_dir();
        let (broken, point) = (directory.path().join("broken.zip"), directory.path().join("mnt"));
        fs::write(&broken, "no container").unwrap();
        fs::create_dir(&point).unwrap();
        let failing = mount_command(transport, &[&broken], &point, &[]);
        let refused = run(&mut by_env("--ignore-signal=CHLD", &failing));
        assert_eq!(refused.code, 3, "{}", refused.stderr);
        assert!(!refused.stderr.contains("died"), "{}", refused.stderr);
        let container = container_in(&directory, some());
        let mount = Mount::started(transport, &[&container], &["restarts=5"], |inner| {
            by_env("--ignore-signal=CHLD", &inner)
        });
        let supervisor = parent_of(mount.pid());
        send(&mount, Signal::SIGKILL);
        let says = "has died (by SIGKILL)";
        wait_until("it is known how it has died", IN_TIME, || mount.log().contains(says));
        wait_until("another serves", IN_TIME, || mount.read(".ffrfs/info.json").is_ok());
        umount(&[mount.point()]).ok();
        wait_until("the supervisor ends", IN_TIME, || !is_running(supervisor));
    });
}

#[test]
fn whoever_blocks_all_signals_starts_a_mount_that_hears_them() {
    if !can_change_signals() {
        return;
    }
    for_each_transport(|transport| {
        let directory = temp_dir();
        let container = container_in(&directory, some());
        for restarts in ["restarts=0", "restarts=5"] {
            let mount = Mount::started(transport, &[&container], &[restarts], |inner| {
                by_env("--block-signal", &inner)
            });
            assert!(!mount.log().contains("does not answer"), "{}", mount.log());
            send(&mount, Signal::SIGTERM);
            mount.wait_for_end();
            assert!(!mount.is_mounted());
        }
    });
}

#[test]
fn a_limit_of_file_sizes_ends_no_daemon_whose_log_is_full() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let container = container_in(&directory, some());
        let log = directory.path().join("full");
        fs::write(&log, vec![b'x'; 1 << 20]).unwrap();
        let options = ["restarts=5", "index=none"];
        let mount = Mount::started(transport, &[&container], &options, |inner| {
            let mut command = Command::new("sh");
            command.args(["-c", "ulimit -f 8 && exec \"$0\" \"$@\""]);
            command.arg(inner.get_program()).args(inner.get_args());
            // The last `--log-file` counts.
            command.arg("--log-file").arg(&log);
            command
        });
        assert!(mount.read("000002").unwrap() == some()[2]);
        let supervisor = parent_of(mount.pid());
        send(&mount, Signal::SIGHUP);
        send(&mount, Signal::SIGTERM);
        mount.wait_for_end();
        wait_until("the supervisor ends", IN_TIME, || !is_running(supervisor));
        assert!(!mount.is_mounted());
        assert_eq!(fs::metadata(&log).unwrap().len(), 1 << 20);
    });
}

#[test]
fn a_daemon_in_the_background_tells_the_service_manager_of_its_caller_nothing() {
    for_each_transport(|transport| {
        let directory = temp_dir();
        let container = container_in(&directory, some());
        let socket = directory.path().join("notify");
        let manager = UnixDatagram::bind(&socket).unwrap();
        for restarts in ["restarts=0", "restarts=5"] {
            let mount = Mount::started(transport, &[&container], &[restarts], |mut command| {
                command.env("NOTIFY_SOCKET", &socket);
                command
            });
            send(&mount, Signal::SIGHUP);
            send(&mount, Signal::SIGTERM);
            mount.wait_for_end();
        }
        manager.set_nonblocking(true).unwrap();
        let told = manager.recv(&mut [0; 4096]);
        assert_eq!(told.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    });
}
