//! The daemon is confined: actions that a container might cause are refused, and those that a mount needs go on.

use crate::common::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);
/// All restrictions, which hold on a kernel with Landlock 4 or newer.
const WHOLE: &str = "files, network, system calls, capabilities, privileges";
/// The variable with the attempts of a daemon with the feature `test-hooks`, at the start and at each SIGHUP.
const ESCAPE: &str = "FFRFS_TEST_ESCAPE";

/// The attempts of a daemon that must fail, and their errors.
fn attempts(container: &Path, directory: &Path) -> Vec<(String, &'static str)> {
    let (container, other) = (container.display(), directory.join("other").display().to_string());
    let denied = "Permission denied";
    let forbidden = "Operation not permitted";
    vec![
        ("open=/etc/shadow".to_owned(), denied),
        ("open=/etc/passwd".to_owned(), denied),
        (format!("write={container}"), denied),
        (format!("write={other}"), denied),
        (format!("setuid={other}"), forbidden),
        ("exec=/bin/true".to_owned(), forbidden),
        ("connect=127.0.0.1:1".to_owned(), forbidden),
        ("stream=/run/nothing".to_owned(), forbidden),
        (format!("kill={}", std::process::id()), forbidden),
        (format!("chmod={container}"), forbidden),
        (format!("fchmod={container}"), forbidden),
        ("ptrace".to_owned(), forbidden),
        ("mount".to_owned(), forbidden),
    ]
}

/// Waits until the daemon has made each attempt `times` times, and checks that all were refused.
#[track_caller]
fn assert_refused(mount: &Mount, attempts: &[(String, &str)], times: usize) {
    for (attempt, error) in attempts {
        let line = format!("escape: {attempt}: ");
        wait_until(attempt, LIMIT, || mount.log().matches(&line).count() >= times);
        for said in mount.log().lines().filter(|said| said.contains(&line)) {
            assert!(said.contains(error), "{said}");
        }
    }
}

/// A mount of a container in a directory of its own, and the attempts; their file `other` lies elsewhere.
fn escaping(
    transport: Transport,
    options: &[&str],
) -> (Mount, TempDir, Vec<(String, &'static str)>) {
    let directory = temp_dir();
    let (inside, outside) = (directory.path().join("in"), directory.path().join("out"));
    fs::create_dir(&inside).unwrap();
    fs::create_dir(&outside).unwrap();
    let container = inside.join("data.ffr");
    write_container(&container, &samples(20, 4000));
    let attempts = attempts(&container, &outside);
    let names: Vec<_> = attempts.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(",");
    let mount = Mount::started(transport, &[&container], options, |mut command| {
        command.env(ESCAPE, &names);
        command
    });
    (mount, directory, attempts)
}

fn is_whole() -> bool {
    let doctor = ffrfs(&["doctor"]).text();
    doctor.lines().any(|line| line.contains("sandbox") && line.contains("system calls"))
        && !doctor.contains("not network")
}

#[test]
fn a_confined_daemon_opens_starts_and_reaches_nothing_else_also_after_a_reload() {
    if !is_whole() {
        return skip("this kernel has no Landlock with ports");
    }
    for_each_transport(|transport| {
        let (mount, _directory, attempts) = escaping(transport, &["sandbox=auto"]);
        assert_refused(&mount, &attempts, 1);
        assert_eq!(mount.info()["sandbox"], WHOLE);
        kill(Pid::from_raw(mount.pid()), Signal::SIGHUP).unwrap();
        assert_refused(&mount, &attempts, 2);
        assert!(mount.is_served());
        mount.unmount();
    });
}

#[test]
fn the_next_daemon_is_confined_as_the_one_that_has_died() {
    if !is_whole() {
        return skip("this kernel has no Landlock with ports");
    }
    let (mount, _directory, attempts) =
        escaping(Transport::DevFuse, &["sandbox=auto", "restarts=5"]);
    assert_refused(&mount, &attempts, 1);
    kill(Pid::from_raw(mount.pid()), Signal::SIGKILL).unwrap();
    assert_refused(&mount, &attempts, 2);
    assert_eq!(mount.info()["sandbox"], WHOLE);
    mount.unmount();
}

#[test]
fn every_thread_has_no_capabilities_and_a_filter() {
    for_each_transport(|transport| {
        let mount = Mount::with_samples(transport, &samples(5, 100), &["sandbox=auto"]);
        let mut threads = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", mount.pid())).unwrap() {
            // A thread may end meanwhile.
            let status = thread.and_then(|thread| fs::read_to_string(thread.path().join("status")));
            let Ok(status) = status else { continue };
            threads += 1;
            for line in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
                assert!(status.contains(line), "{line} is not in {status}");
            }
        }
        assert!(threads > 1, "{threads}");
        mount.unmount();
    });
}

#[test]
fn with_a_password_the_user_cannot_look_into_any_of_the_processes() {
    if !crate::user::have_sandbox() {
        return;
    }
    for_each_transport(|transport| {
        let options = crate::user::options(transport, "restarts=5,sandbox=auto");
        let script = format!("options={options}\n{}", LOOK);
        let outcome = crate::user::Sandbox::new("").run(&script);
        assert_eq!(outcome.code, 0, "{outcome:?}");
    });
}

/// Looks at the environments of the supervisor, the daemon and the process that unmounts.
const LOOK: &str = r#"
echo secret >password
chmod 644 password
look() {
    shown=0 hidden=0
    for process in /proc/[0-9]*; do
        [ "$(readlink $process/exe)" = "$1/ffrfs" ] || continue
        if somebody cat $process/environ >/dev/null 2>&1; then shown=$((shown + 1)); else hidden=$((hidden + 1)); fi
    done
    echo "$shown $hidden"
}
# Without a password all of them are shown: the look is right.
somebody ./ffrfs mount data.ffr mnt -o "$options" || exit 5
[ "$(look "$1")" = "3 0" ] || { look "$1"; exit 6; }
somebody ./ffrfs umount mnt || exit 7
for turn in $(seq 500); do [ "$(look "$1")" = "0 0" ] && break; sleep 0.02; done
somebody ./ffrfs mount data.ffr mnt -o "$options" --password-file password || exit 1
somebody cmp mnt/000001 expected || exit 2
[ "$(look "$1")" = "0 3" ] || { look "$1"; exit 3; }
somebody ./ffrfs umount mnt || exit 4
code=0
"#;

#[test]
fn with_strict_a_forbidden_call_ends_the_daemon() {
    if !is_whole() {
        return skip("this kernel has no Landlock with ports");
    }
    for_each_transport(|transport| {
        let directory = temp_dir();
        let container = container_in(&directory, &samples(5, 100));
        let point = directory.path().join("mnt");
        fs::create_dir(&point).unwrap();
        let mut command = mount_command(transport, &[&container], &point, &["sandbox=strict"]);
        let outcome = run(command.env(ESCAPE, "exec=/bin/true"));
        assert_ne!(outcome.code, 0, "{outcome:?}");
        assert!(outcome.stderr.contains("SIGSYS"), "{outcome:?}");
        assert!(!is_mount_point(&point));
    });
}

#[test]
fn strict_serves_where_all_holds() {
    if !is_whole() {
        return skip("this kernel has no Landlock with ports");
    }
    for_each_transport(|transport| {
        let content = samples(30, 5000);
        // The daemon makes the attempt at the start and at the end of each reload, and logs it.
        let attempt = ("open=/etc/passwd".to_owned(), "Permission denied");
        let options = ["sandbox=strict"];
        let mount = Mount::attempt_with_samples(transport, &content, &options, |mut command| {
            command.env(ESCAPE, &attempt.0);
            command
        });
        let mount = mount.unwrap();
        for name in mount.list("").iter().filter(|name| !name.starts_with('.')) {
            let number: usize = name.parse().unwrap();
            assert!(mount.read(name).unwrap() == content[number]);
        }
        assert_eq!(ffrfs(&["warmup".as_ref(), mount.point()]).code, 0);
        kill(Pid::from_raw(mount.pid()), Signal::SIGHUP).unwrap();
        assert_refused(&mount, &[attempt], 2);
        assert!(mount.is_served());
        kill(Pid::from_raw(mount.pid()), Signal::SIGTERM).unwrap();
        mount.wait_for_end();
        assert!(!mount.is_mounted());
    });
}

#[test]
fn what_holds_is_in_the_log_in_info_and_in_doctor() {
    let mount = Mount::with_samples(Transport::DevFuse, &samples(5, 100), &["sandbox=auto"]);
    let held = mount.info()["sandbox"].as_str().unwrap().to_owned();
    assert!(held.contains("system calls"), "{held}");
    assert!(mount.log().contains(&format!("confined: {held}")), "{}", mount.log());
    let doctor = ffrfs(&["doctor".as_ref(), mount.point()]).text();
    assert!(
        doctor.lines().any(|line| line.contains("sandbox") && line.contains(&held)),
        "{doctor}"
    );
    mount.unmount();
    let mount = Mount::with_samples(Transport::DevFuse, &samples(5, 100), &["sandbox=no"]);
    assert_eq!(mount.info()["sandbox"], "off");
    mount.unmount();
}
