//! Checks of a mount in use.

use super::bottleneck;
use super::check::{Check, number, text};
use crate::daemon::live::{self, Live};
use crate::daemon::patience::{self, PATIENCE, Patient};
use crate::io::mount::mounts::{self, Mount};
use crate::io::mount::{fuse_connection, unshared};
use crate::vfs::CONTROL_DIRECTORY;
use crate::vfs::report::MountStats;
use serde_json::Value;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// The kernel's read-ahead for a mount, unless it was raised.
const LITTLE_READ_AHEAD_KIB: u64 = 128;

pub(super) fn checks(name: &str, mount: &Mount, pause: Duration) -> Vec<Check> {
    let mut checks = match daemon(name, asked(mount)) {
        // A daemon that did not answer is not asked again.
        Err(unanswered) => vec![unanswered],
        Ok(mut checks) => {
            checks.extend(bottleneck::checks(name, mount, pause));
            let stats = Live::at(&mount.target).and_then(|live| live.stats());
            checks.extend(stats.ok().map(|stats| bad(name, &mount.target, &stats)));
            checks
        }
    };
    let knob = |mount: &Mount| format!("/sys/class/bdi/{}/read_ahead_kb", mount.device);
    checks.push(read_ahead(name, text(knob(mount)).as_deref()));
    checks.extend(connection(name, fuse_connection::directory(&mount.device).as_deref()));
    checks
}

/// The problem of a mount whose daemon hangs; `None` if it does not hang.
pub(super) fn unanswered(mount: &Mount) -> Option<Check> {
    let error = Patient::of(mount).ask_daemon(&mount.target).err()?;
    let hangs = error.kind() == io::ErrorKind::TimedOut;
    let name = mount.target.display().to_string();
    hangs.then(|| daemon(&name, Err(explained(mount, error))).err()).flatten()
}

/// The daemon's answer: its `info.json`, or `None` if the daemon is dead.
fn asked(mount: &Mount) -> io::Result<Option<Vec<u8>>> {
    let patient = Patient::of(mount);
    let info = mount.target.join(CONTROL_DIRECTORY).join("info.json");
    // A daemon answers the first question also where it has no control directory.
    let read = patient.ask_daemon(&mount.target).and_then(|()| patient.read(&info));
    let read = read.or_else(|e| match e.kind() {
        // If this user may not look into the mount, the kernel itself has answered the first question, as it knows the root. By
        // now, the process that asks may look into the mount.
        io::ErrorKind::NotADirectory => patient.ask_daemon(&mount.target).and(Err(e)),
        _ => Err(e),
    });
    match read {
        Ok(info) => Ok(Some(info)),
        Err(e) if mounts::is_dead(&e) => Ok(None),
        Err(e) => Err(explained(mount, e)),
    }
}

/// Adds the known reason to an error: the cause that keeps the mount from answering, or the only user who may look into it.
fn explained(mount: &Mount, error: io::Error) -> io::Error {
    let said = match (error.kind(), unshared::other_user(mount)) {
        (io::ErrorKind::TimedOut, _) => {
            let mut why = patience::why_silent(mount);
            if why.is_empty() {
                why.push_str(": it hangs, its log may say why");
            }
            format!("no answer within {} s{why}", PATIENCE.as_secs())
        }
        (io::ErrorKind::PermissionDenied, Some(user)) => {
            format!("{error}: {}", live::private(user))
        }
        _ => return error,
    };
    io::Error::new(error.kind(), said)
}

/// The checks from the daemon's answer (see [`asked`]).
///
/// # Errors
/// The daemon gave no answer; the error is the check that says why.
fn daemon(name: &str, answer: io::Result<Option<Vec<u8>>>) -> Result<Vec<Check>, Check> {
    let check = name.to_owned();
    let gone = format!("run ffrfs umount {name}, and mount the dataset again");
    let info = match answer {
        Err(e) if e.kind() == io::ErrorKind::TimedOut => {
            let advice = format!("ffrfs umount --force {name} ends the mount");
            return Err(Check::problem(check, e.to_string(), advice));
        }
        Ok(None) => return Err(Check::problem(check, "its daemon is dead", gone)),
        Err(e) => return Err(unread(check, &e, gone)),
        Ok(Some(bytes)) => serde_json::from_slice::<Value>(&bytes).unwrap_or_default(),
    };
    let pid = info["pid"].as_u64();
    let mut checks = vec![describe(check, &info), transport(name, &info, pid.map(queues))];
    checks.extend(log(name, &info));
    checks.extend(sandbox(name, &info));
    checks.extend(supervisor(name, &info));
    Ok(checks)
}

/// The check that says why there is no `info.json`; `gone` is the advice if there is no daemon.
fn unread(check: String, error: &io::Error, gone: String) -> Check {
    let other_version = "another version of ffrfs may have mounted it";
    if patience::is_unmade(error) {
        return Check::problem(check, error.to_string(), "raise that limit, and ask again");
    }
    match (error.kind(), error.raw_os_error()) {
        // A mount that another user has not shared may be in order; the error says who may look into it.
        (io::ErrorKind::PermissionDenied, None) => Check::note(check, error.to_string(), ""),
        (io::ErrorKind::PermissionDenied, Some(_)) => {
            Check::note(check, error.to_string(), "ask the user who mounted it, or root")
        }
        (io::ErrorKind::BrokenPipe, _) => {
            Check::problem(check, format!("not known: {error}"), "ask again")
        }
        // The daemon was asked before, and has answered.
        (io::ErrorKind::NotFound, _) => {
            Check::note(check, "its daemon answers, but has no info.json", other_version)
        }
        (io::ErrorKind::NotADirectory, _) => {
            Check::note(check, "its daemon answers; --no-control hides everything else", "")
        }
        (_, Some(libc::EFBIG | libc::ELOOP | libc::EINVAL)) => {
            let found = format!("its info.json is no control file: {error}");
            Check::note(check, found, other_version)
        }
        _ => Check::problem(check, format!("its daemon does not answer: {error}"), gone),
    }
}

/// Samples and containers that could not be read, and where they are listed.
fn bad(name: &str, target: &Path, stats: &MountStats) -> Check {
    let check = format!("{name}: bad samples");
    match (stats.bad_samples, stats.bad_containers) {
        (0, 0) => Check::ok(check, "none was met"),
        (samples, containers) => {
            let list = target.join(CONTROL_DIRECTORY).join("bad");
            let advice =
                format!("{} says which and why; ffrfs verify SOURCE checks all", list.display());
            Check::note(check, format!("{samples}, and containers: {containers}"), advice)
        }
    }
}

/// Where the daemon's messages go; `None` if a daemon of another version does not say it.
fn log(name: &str, info: &Value) -> Option<Check> {
    let (check, place) = (format!("{name}: log"), info["log"].as_str()?);
    Some(match place.starts_with("nowhere") {
        true => Check::note(check, place, "mount it with --log-file FILE"),
        false => Check::ok(check, place),
    })
}

/// How far the daemon is confined; `None` if a daemon of another version does not say it.
fn sandbox(name: &str, info: &Value) -> Option<Check> {
    let (check, held) = (format!("{name}: sandbox"), info["sandbox"].as_str()?);
    Some(match held.contains("not ") {
        true => Check::note(check, held, "docs/security.md says what each part needs"),
        false => Check::ok(check, held),
    })
}

/// Whether another daemon would be started; `None` if a daemon of another version does not say it.
fn supervisor(name: &str, info: &Value) -> Option<Check> {
    let check = format!("{name}: supervisor");
    let (restarts, pid) = (info["restarts"].as_u64()?, info["pid"].as_u64()?);
    let pid = u32::try_from(pid).ok()?;
    Some(match fuse_connection::watcher(pid) {
        Some(watcher) => {
            let found =
                format!("process {}, which starts another daemon if this one dies", watcher.pid);
            Check::ok(check, found)
        }
        None if restarts == 0 => {
            Check::ok(check, "none (--restarts 0): if the daemon dies, all readers get errors")
        }
        // The daemon is in another PID namespace, for example.
        None if !fuse_connection::is_daemon(pid) => return None,
        None => Check::problem(
            check,
            "it has ended, so that nobody starts another daemon if this one dies",
            format!(
                "once nobody reads: ffrfs umount {name}, and mount it again (the daemon serves until then)"
            ),
        ),
    })
}

fn describe(check: String, info: &Value) -> Check {
    let Value::Object(fields) = info else {
        return Check::note(
            check,
            "info.json is not a JSON object",
            "another version of ffrfs may have mounted it",
        );
    };
    // Fields that this version does not know are shown, too, if they are numbers or strings.
    let hidden = ["transport", "folders", "names", "bytes", "log", "sandbox", "restarts"];
    let words = fields.iter().filter(|(key, value)| {
        !hidden.contains(&key.as_str()) && !value.is_array() && !value.is_object()
    });
    let words: Vec<_> = words.map(|(key, value)| format!("{key} {}", plain(value))).collect();
    Check::ok(check, words.join(", "))
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The transport in `info.json`, or else the transport that the names of the threads tell.
fn transport(name: &str, info: &Value, queues: Option<usize>) -> Check {
    let check = format!("{name}: transport");
    match (info["transport"].as_str(), queues) {
        (Some(transport), _) => Check::ok(check, transport),
        (None, Some(0)) => Check::ok(check, "devfuse"),
        (None, Some(threads)) => Check::ok(check, format!("uring, threads: {threads}")),
        (None, None) => Check::note(check, "unknown", ""),
    }
}

/// The number of threads of a process that serve queues.
fn queues(pid: u64) -> usize {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let names = tasks.flatten().filter_map(|task| text(task.path().join("comm")));
    names.filter(|name| name.starts_with("ffrfs-queue")).count()
}

fn read_ahead(name: &str, kib: Option<&str>) -> Check {
    let check = format!("{name}: read_ahead_kb");
    match number(kib) {
        None => Check::note(check, "cannot be read", ""),
        Some(kib) if kib <= LITTLE_READ_AHEAD_KIB => Check::note(
            check,
            kib.to_string(),
            "large samples are read faster with 1024, which a mount made by root gets",
        ),
        Some(kib) => Check::ok(check, kib.to_string()),
    }
}

fn connection(name: &str, directory: Option<&Path>) -> Vec<Check> {
    let Some(directory) = directory else {
        let advice = format!("as root: mount -t fusectl none {}", fuse_connection::CONNECTIONS);
        return vec![Check::note(format!("{name}: connection"), "cannot be read", advice)];
    };
    let figure = |file: &str| {
        let check = format!("{name}: {file}");
        match number(text(directory.join(file)).as_deref()) {
            Some(value) => Check::ok(check, value.to_string()),
            None => Check::note(check, "cannot be read", "run this as root"),
        }
    };
    ["max_background", "congestion_threshold", "waiting"].into_iter().map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::doctor::check::State;

    fn states(checks: &[Check]) -> Vec<State> {
        checks.iter().map(|check| check.state).collect()
    }

    #[test]
    fn a_daemon_that_is_dead_or_hangs_or_is_not_ours_is_told_apart() {
        let state = |answer| daemon("m", answer).unwrap_err().state;
        assert_eq!(state(Err(io::ErrorKind::TimedOut.into())), State::Problem);
        assert_eq!(state(Ok(None)), State::Problem);
        let error = |errno| Err(io::Error::from_raw_os_error(errno));
        assert_eq!(state(error(libc::EIO)), State::Problem);
        assert_eq!(state(error(libc::EACCES)), State::Note);
        let found = |errno| daemon("m", error(errno)).unwrap_err().found;
        assert_eq!(state(error(libc::ENOTDIR)), State::Note);
        assert!(found(libc::ENOTDIR).contains("--no-control"));
        assert_eq!(state(error(libc::ENOENT)), State::Note);
        assert!(!found(libc::ENOENT).contains("--no-control"), "one file is missing");
    }

    #[test]
    fn to_unmount_is_no_advice_for_a_mount_of_which_nothing_is_known_or_that_answers() {
        let killed = io::Error::new(io::ErrorKind::BrokenPipe, "the process was killed");
        let check = daemon("m", Err(killed)).unwrap_err();
        assert_eq!(check, Check::problem("m", "not known: the process was killed", "ask again"));
        for errno in [libc::EFBIG, libc::ELOOP, libc::EINVAL] {
            let error = io::Error::from_raw_os_error(errno);
            let check = daemon("m", Err(error)).unwrap_err();
            assert!(check.found.starts_with("its info.json is no control file: "), "{check:?}");
            assert!(!check.advice.contains("umount"), "{check:?}");
        }
    }

    #[test]
    fn any_answer_of_the_daemon_is_shown() {
        let info = br#"{"verify":"always","io":"direct","containers":[1],"transport":"uring"}"#;
        let checks = daemon("m", Ok(Some(info.to_vec()))).unwrap();
        assert_eq!(checks[0].found, "io direct, verify always");
        assert_eq!(checks[1].found, "uring");
        for odd in [&b""[..], b"[1]", b"nonsense", b"\xff", b"{\"pid\":-1}"] {
            let checks = daemon("m", Ok(Some(odd.to_vec()))).unwrap();
            assert_eq!(checks[1].state, State::Note, "{odd:?}");
        }
    }

    #[test]
    fn a_daemon_that_answers_is_looked_at_whatever_there_is_to_note_of_it() {
        let info = br#"{"sandbox":"files; not network: Linux 6.7 has it","log":"nowhere (x)"}"#;
        let checks = daemon("m", Ok(Some(info.to_vec()))).unwrap();
        assert!(checks.iter().any(|check| check.state == State::Note), "{checks:?}");
    }

    #[test]
    fn without_a_transport_in_info_json_the_threads_tell_it() {
        let nothing = Value::Null;
        assert_eq!(transport("m", &nothing, Some(0)).found, "devfuse");
        assert_eq!(transport("m", &nothing, Some(2)).found, "uring, threads: 2");
        assert_eq!(transport("m", &nothing, None).state, State::Note);
    }

    #[test]
    fn bad_samples_and_a_log_that_goes_nowhere_are_noted() {
        let mut stats = MountStats::default();
        assert_eq!(bad("m", Path::new("/mnt"), &stats).state, State::Ok);
        stats.bad_samples = 3;
        let check = bad("m", Path::new("/mnt"), &stats);
        assert_eq!(check.state, State::Note);
        assert!(check.advice.starts_with("/mnt/.ffrfs/bad "), "{}", check.advice);
        let state =
            |place: &str| super::log("m", &serde_json::json!({ "log": place })).map(|c| c.state);
        assert_eq!(state("journald"), Some(State::Ok));
        assert_eq!(state("nowhere (no home)"), Some(State::Note));
        assert_eq!(super::log("m", &Value::Null), None);
    }

    #[test]
    fn little_read_ahead_is_noted() {
        assert_eq!(read_ahead("m", Some("1024")).state, State::Ok);
        for odd in [Some("128"), Some("0"), Some("x"), None] {
            assert_eq!(read_ahead("m", odd).state, State::Note, "{odd:?}");
        }
    }

    #[test]
    fn a_connection_that_cannot_be_read_is_noted() {
        assert!(connection("m", None)[0].advice.contains("fusectl"));
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("waiting"), "3\n").unwrap();
        fs::write(directory.path().join("max_background"), "\0").unwrap();
        let checks = connection("m", Some(directory.path()));
        assert_eq!(states(&checks), [State::Note, State::Note, State::Ok]);
        assert_eq!(checks[2].found, "3");
    }
}
