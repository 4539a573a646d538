//! The kernel, FUSE, the right to mount, io_uring.

use super::check::{Check, mebibytes, number, text};
use crate::daemon::logging::Destination;
use crate::daemon::memory;
use crate::io::confine::{LANDLOCK_WITH_PORTS, LEAST_LANDLOCK, landlock_version};
use crate::io::page_bytes;
use crate::io::process::procfs;
use crate::transport::support::{self, Obstacle};
use crate::transport::{MAX_BACKGROUND, uring_support};
use nix::errno::Errno;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::unistd::{AccessFlags, access};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const SET_USER_ID: u32 = 0o4000;
/// The attribute with the rights that a program has, whoever starts it.
const CAPABILITIES: &str = "security.capability";
/// The largest request that a mount agrees on.
const WANTED_BYTES: u64 = 1 << 20;

pub(super) fn checks() -> Vec<Check> {
    let rights = Rights::read(&procfs::status());
    let device = File::options().read(true).write(true).open("/dev/fuse");
    let mut checks = vec![
        kernel(text("/proc/sys/kernel/osrelease").as_deref()),
        fuse_device(device.map(drop)),
        mounting(&rights, helper().as_ref()),
        sharing(&rights, text("/etc/fuse.conf").as_deref()),
        enable_uring(text("/sys/module/fuse/parameters/enable_uring").as_deref()),
        io_uring(
            support::io_uring(),
            text("/proc/sys/kernel/io_uring_disabled").as_deref(),
            text("/proc/sys/kernel/io_uring_group").as_deref(),
        ),
        transport(uring_support(
            memory::for_requests(memory::Limit::bytes(None)),
            std::thread::available_parallelism().map_or(1, usize::from),
        )),
        log(Destination::of_daemons()),
        sandbox(landlock_version()),
        restarts(support::handover()),
    ];
    checks.extend(limit("locked memory", Resource::RLIMIT_MEMLOCK, mebibytes));
    checks.extend(limit("open files", Resource::RLIMIT_NOFILE, |files| files.to_string()));
    checks.push(pages(text("/proc/sys/fs/fuse/max_pages_limit").as_deref()));
    checks.extend(timeout(text("/proc/sys/fs/fuse/default_request_timeout").as_deref()));
    for name in ["max_user_bgreq", "max_user_congthresh"] {
        let value = text(format!("/sys/module/fuse/parameters/{name}"));
        checks.push(background(name, &rights, value.as_deref()));
    }
    checks
}

fn kernel(release: Option<&str>) -> Check {
    match release {
        Some(release) => Check::ok("kernel", format!("Linux {release}")),
        None => Check::note("kernel", "its version cannot be read", "mount /proc"),
    }
}

/// Checks what happens to a mount whose daemon dies.
fn restarts(handover: Result<(), Obstacle>) -> Check {
    let name = "a daemon that dies";
    match handover {
        Ok(()) => Check::ok(
            name,
            "with transport=devfuse another one goes on, and readers see a pause; with io_uring the dataset is mounted anew",
        ),
        Err(Obstacle { why, cure }) => Check::note(
            name,
            format!("{why}: the dataset is mounted anew; requests under way and open files fail"),
            cure,
        ),
    }
}

/// Checks how far a daemon could be confined. Filters of system calls are older than every other feature that a mount needs.
fn sandbox(landlock: Option<i32>) -> Check {
    let (name, old) = ("sandbox", "a newer kernel has it: files Linux 5.19, network 6.7");
    match landlock {
        None => Check::note(
            name,
            "system calls, capabilities; not files, not network: no Landlock",
            "the kernel needs CONFIG_SECURITY_LANDLOCK, and landlock in lsm=",
        ),
        Some(version) if version < LEAST_LANDLOCK => {
            Check::note(name, "system calls, capabilities; not files, not network", old)
        }
        Some(version) if version < LANDLOCK_WITH_PORTS => {
            Check::note(name, "files, system calls, capabilities; not network", old)
        }
        Some(version) => Check::ok(
            name,
            format!("files and network (Landlock {version}), system calls, capabilities"),
        ),
    }
}

fn fuse_device(opened: io::Result<()>) -> Check {
    let name = "/dev/fuse";
    match opened {
        Ok(()) => Check::ok(name, "can be opened"),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            Check::problem(name, e.to_string(), "as root: chmod 666 /dev/fuse")
        }
        // EPERM: a container's device rules.
        Err(e) => Check::problem(
            name,
            e.to_string(),
            "as root: modprobe fuse; a container needs --device /dev/fuse",
        ),
    }
}

/// The rights of this process, from /proc/self/status.
pub(super) struct Rights {
    /// Whether the process has CAP_SYS_ADMIN.
    pub(super) is_admin: bool,
    /// Whether a set-user-id helper could have CAP_SYS_ADMIN.
    is_helped: bool,
    /// Whether set-user-id helpers get no rights at all.
    no_new: bool,
}

impl Rights {
    /// Reads the masks. A mask that cannot be read counts as full: an attempt to mount will show the truth.
    pub(super) fn read(status: &str) -> Self {
        let has = |name| procfs::may_administer(status, name).unwrap_or(true);
        Self {
            is_admin: has("CapEff"),
            is_helped: has("CapBnd"),
            no_new: procfs::status_field(status, "NoNewPrivs") == Some("1"),
        }
    }
}

/// fusermount3: where it is, and whether it is set-user-id, or has rights of its own.
pub(super) struct Helper {
    path: String,
    is_set_user_id: bool,
}

pub(super) fn helper() -> Option<Helper> {
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let mut paths =
        std::env::split_paths(&directories).map(|directory| directory.join("fusermount3"));
    paths.find_map(|path| {
        let metadata = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
        let has_rights = || rustix::fs::getxattr(&path, CAPABILITIES, &mut [0; 64][..]).is_ok();
        let is_set_user_id = metadata.permissions().mode() & SET_USER_ID != 0 || has_rights();
        Some(Helper { path: path.display().to_string(), is_set_user_id })
    })
}

pub(super) fn mounting(rights: &Rights, helper: Option<&Helper>) -> Check {
    let name = "mounting";
    let Some(helper) = helper else {
        return match rights.is_admin {
            true => Check::ok(name, "directly"),
            false if !rights.is_helped => no_right(),
            false => Check::problem(
                name,
                "no right to mount (CAP_SYS_ADMIN), and no fusermount3",
                "install fusermount3 (Debian: apt-get install fuse3), or mount as root",
            ),
        };
    };
    if rights.is_admin {
        Check::ok(name, "directly")
    } else if !rights.is_helped {
        no_right()
    } else if rights.no_new {
        Check::problem(
            name,
            format!("{} gets no rights here (no_new_privs)", helper.path),
            "start ffrfs without no_new_privs (NoNewPrivileges= of a systemd unit, --security-opt \
             no-new-privileges of a container), or mount as root",
        )
    } else if !helper.is_set_user_id {
        let cure = format!("as root: chmod u+s {}", helper.path);
        Check::problem(name, format!("{} is not set-user-id", helper.path), cure)
    } else {
        Check::ok(name, format!("through {}", helper.path))
    }
}

fn no_right() -> Check {
    Check::problem(
        "mounting",
        "nobody has the right to mount here (CAP_SYS_ADMIN), not even root",
        "a container needs --cap-add SYS_ADMIN",
    )
}

pub(super) fn sharing(rights: &Rights, fuse_conf: Option<&str>) -> Check {
    let name = "allow_other";
    // fusermount3 drops comments, also those behind an option.
    let option =
        |line: &str| line.split('#').next().unwrap_or_default().trim() == "user_allow_other";
    let is_allowed = fuse_conf.is_some_and(|text| text.lines().any(option));
    if rights.is_admin {
        Check::ok(name, "you may share a mount with other users")
    } else if is_allowed {
        Check::ok(name, "you may share a mount: /etc/fuse.conf has user_allow_other")
    } else {
        Check::note(
            name,
            "you may not share a mount with other users",
            "as root: add a line user_allow_other to /etc/fuse.conf",
        )
    }
}

fn enable_uring(parameter: Option<&str>) -> Check {
    let name = "fuse enable_uring";
    match parameter {
        Some(value) if value.starts_with(['Y', '1']) => Check::ok(name, value),
        // The check of the transport gives the advice.
        Some(value) => Check::note(name, value, ""),
        None => Check::note(name, "absent", ""),
    }
}

fn io_uring(support: Result<(), Obstacle>, disabled: Option<&str>, group: Option<&str>) -> Check {
    let setting = |name, value: Option<&str>| match value {
        Some(value) => format!("{name}={value}"),
        None => format!("no {name}"),
    };
    let disabled = setting("kernel.io_uring_disabled", disabled);
    let group = setting("kernel.io_uring_group", group);
    match support {
        Ok(()) => Check::ok("io_uring", format!("allowed ({disabled}, {group})")),
        Err(Obstacle { why, cure }) => {
            Check::note("io_uring", format!("{why} ({disabled}, {group})"), cure)
        }
    }
}

fn transport(support: Result<String, Obstacle>) -> Check {
    let name = "transport=auto";
    match support {
        Ok(queues) => Check::ok(name, format!("uring; {queues}")),
        Err(Obstacle { why, cure }) => Check::note(name, format!("devfuse: {why}"), cure),
    }
}

/// Checks where daemons without a `--log-file` send their messages.
fn log(destination: Destination) -> Check {
    let name = "messages of mounts";
    match destination {
        Destination::State(path) => {
            let (shown, advice) = (path.display(), "--log-file FILE names another file");
            let found = match may_write(&path) {
                Ok(()) => format!("no journald and no syslog here: they go to {shown}"),
                Err(error) => format!(
                    "no journald and no syslog here, and {shown} cannot be written ({error}): they go nowhere"
                ),
            };
            Check::note(name, found, advice)
        }
        Destination::Journal => Check::ok(name, "journald (journalctl -t ffrfs)"),
        other => Check::ok(name, other.to_string()),
    }
}

/// Whether a file can be written, or made together with its missing directories. Makes neither.
fn may_write(path: &Path) -> io::Result<()> {
    let answers = path.ancestors().map(|place| match place == path {
        true => access(place, AccessFlags::W_OK),
        false => access(place, AccessFlags::W_OK | AccessFlags::X_OK),
    });
    let mut of_what_exists = answers.filter(|may| *may != Err(Errno::ENOENT));
    Ok(of_what_exists.next().unwrap_or(Err(Errno::ENOENT))?)
}

fn limit(name: &str, resource: Resource, show: fn(u64) -> String) -> Option<Check> {
    let (soft, hard) = getrlimit(resource).ok()?;
    let show = |value| if value == RLIM_INFINITY { "no limit".to_owned() } else { show(value) };
    let name = format!("limit of {name}");
    let found = format!("{} (can be raised to: {})", show(soft), show(hard));
    Some(match resource {
        Resource::RLIMIT_NOFILE if hard < 1024 => {
            Check::note(name, found, "each container needs one: raise the hard limit (ulimit -Hn)")
        }
        _ => Check::ok(name, found),
    })
}

fn pages(limit: Option<&str>) -> Check {
    let page_bytes = page_bytes() as u64;
    let wanted = WANTED_BYTES / page_bytes;
    let name = "largest request";
    match number(limit) {
        Some(pages) if pages < wanted => Check::note(
            name,
            format!("{} (fs.fuse.max_pages_limit={pages})", mebibytes(pages * page_bytes)),
            format!("as root: sysctl fs.fuse.max_pages_limit={wanted}"),
        ),
        Some(pages) => Check::ok(name, format!("1 MiB (fs.fuse.max_pages_limit={pages})")),
        None => Check::ok(name, "the kernel's own (no fs.fuse.max_pages_limit)"),
    }
}

/// Checks the time that a request may take before the kernel ends its connection, since Linux 6.15.
fn timeout(seconds: Option<&str>) -> Option<Check> {
    let name = "request timeout";
    Some(match number(seconds)? {
        0 => Check::ok(name, "none"),
        seconds => Check::note(
            name,
            format!("the kernel ends a mount when a request takes {seconds} s"),
            "slow storage needs more: sysctl fs.fuse.default_request_timeout=0, as root",
        ),
    })
}

/// Checks how many background requests a mount of a user other than root may have in flight.
fn background(name: &str, rights: &Rights, value: Option<&str>) -> Check {
    let check = format!("fuse {name}");
    let wanted = u64::from(MAX_BACKGROUND);
    match number(value) {
        None => {
            Check::note(check, "absent", "as root: modprobe fuse (the module may not be loaded)")
        }
        Some(value) if rights.is_admin => Check::ok(check, format!("{value} (no limit for root)")),
        // The kernel computes the value at the first mount.
        Some(0) => Check::ok(check, "0 (the kernel's own)"),
        Some(value) if value < wanted => Check::note(
            check,
            value.to_string(),
            format!("as root: echo {wanted} > /sys/module/fuse/parameters/{name}"),
        ),
        Some(value) => Check::ok(check, value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;

    fn rights(is_admin: bool, is_helped: bool, no_new: bool) -> Rights {
        Rights { is_admin, is_helped, no_new }
    }

    fn helper(is_set_user_id: bool) -> Helper {
        Helper { path: "/usr/bin/fusermount3".to_owned(), is_set_user_id }
    }

    #[track_caller]
    fn is(check: &Check, state: State, words: &[&str]) {
        let line = format!("{}: {}; {}", check.check, check.found, check.advice);
        assert_eq!(check.state, state, "{line}");
        for word in words {
            assert!(line.contains(word), "{word:?} is not in: {line}");
        }
    }

    #[test]
    fn rights_are_read_from_the_masks_of_the_process() {
        let status = "Name:\tx\nCapEff:\t0000000000000000\nCapBnd:\t00000000a82425fb\n\
                      NoNewPrivs:\t1\n";
        let Rights { is_admin, is_helped, no_new } = Rights::read(status);
        assert_eq!((is_admin, is_helped, no_new), (false, true, true));
        for odd in ["", "CapEff", "CapEff:\nCapBnd:\tzzz\nNoNewPrivs:\tx", "\0\0:\n:"] {
            let Rights { is_admin, is_helped, no_new } = Rights::read(odd);
            assert_eq!((is_admin, is_helped, no_new), (true, true, false), "{odd:?}");
        }
    }

    #[test]
    fn a_fuse_device_that_is_closed_or_missing_is_a_problem() {
        is(&fuse_device(Ok(())), State::Ok, &[]);
        for (errno, word) in
            [(libc::EACCES, "chmod 666"), (libc::ENOENT, "modprobe"), (libc::ENODEV, "modprobe")]
        {
            let check = fuse_device(Err(io::Error::from_raw_os_error(errno)));
            is(&check, State::Problem, &[word]);
        }
    }

    #[test]
    fn a_user_without_cap_sys_admin_needs_a_helper_that_works() {
        is(&mounting(&rights(true, true, false), None), State::Ok, &["directly"]);
        let user = rights(false, true, false);
        is(&mounting(&user, Some(&helper(true))), State::Ok, &["through /usr/bin/fusermount3"]);
        is(&mounting(&user, None), State::Problem, &["apt-get install fuse3"]);
        is(&mounting(&user, Some(&helper(false))), State::Problem, &["chmod u+s"]);
        let bound = rights(false, true, true);
        is(&mounting(&bound, Some(&helper(true))), State::Problem, &["no_new_privs"]);
        for helper in [None, Some(&helper(true))] {
            let contained = rights(false, false, false);
            is(&mounting(&contained, helper), State::Problem, &["--cap-add SYS_ADMIN"]);
        }
    }

    #[test]
    fn only_a_line_of_its_own_lets_users_share() {
        let user = rights(false, true, false);
        for line in ["mount_max = 9\nuser_allow_other\n", " user_allow_other # for docker"] {
            is(&sharing(&user, Some(line)), State::Ok, &[]);
        }
        for odd in [None, Some(""), Some("# user_allow_other"), Some("user_allow_others\n\0")] {
            is(&sharing(&user, odd), State::Note, &["/etc/fuse.conf"]);
        }
        is(&sharing(&rights(true, true, false), None), State::Ok, &[]);
    }

    fn obstacle() -> Obstacle {
        Obstacle { why: "it is off".to_owned(), cure: "turn it on".to_owned() }
    }

    #[test]
    fn the_transport_is_told_with_its_reason() {
        is(&transport(Ok("2 queues".to_owned())), State::Ok, &["uring; 2 queues"]);
        is(&transport(Err(obstacle())), State::Note, &["devfuse: it is off; turn it on"]);
        let check = io_uring(Err(obstacle()), Some("2"), None);
        is(&check, State::Note, &["io_uring_disabled=2", "no kernel.io_uring_group", "turn it on"]);
        is(&io_uring(Ok(()), None, None), State::Ok, &["no kernel.io_uring_disabled"]);
        for (value, state) in [
            (Some("Y"), State::Ok),
            (Some("N"), State::Note),
            (Some("\u{7f}junk"), State::Note),
            (None, State::Note),
        ] {
            is(&enable_uring(value), state, &[]);
        }
    }

    #[test]
    fn what_becomes_of_a_mount_whose_daemon_dies_is_told() {
        is(&restarts(Ok(())), State::Ok, &["transport=devfuse", "goes on"]);
        is(
            &restarts(Err(obstacle())),
            State::Note,
            &["it is off: the dataset", "anew", "turn it on"],
        );
    }

    #[test]
    fn a_log_that_is_not_where_people_look_is_noted() {
        is(&log(Destination::Journal), State::Ok, &["journald"]);
        is(&log(Destination::Syslog), State::Ok, &["syslog"]);
        let directory = tempfile::tempdir().unwrap();
        let log_in = |state: &str| {
            let path = directory.path().join(state).join("ffrfs/ffrfs.log");
            (path.display().to_string(), log(Destination::State(path)))
        };
        let (path, check) = log_in("state");
        is(&check, State::Note, &[&format!("they go to {path}"), "--log-file"]);
        assert!(!directory.path().join("state").exists(), "doctor makes nothing");
        fs::write(directory.path().join("file"), "").unwrap();
        let (path, check) = log_in("file");
        let found = format!("{path} cannot be written (Not a directory): they go nowhere");
        is(&check, State::Note, &[&found, "--log-file"]);
    }

    #[test]
    fn settings_that_slow_a_mount_down_are_noted() {
        is(&pages(Some("256")), State::Ok, &["1 MiB"]);
        is(&pages(Some("32")), State::Note, &["128 KiB", "sysctl"]);
        for odd in [None, Some(""), Some("-5"), Some("many")] {
            is(&pages(odd), State::Ok, &["no fs.fuse.max_pages_limit"]);
        }
        is(&timeout(Some("0")).unwrap(), State::Ok, &["none"]);
        is(&timeout(Some("15")).unwrap(), State::Note, &["15 s"]);
        assert_eq!(timeout(None), None);
        assert_eq!(timeout(Some("soon")), None);
        let user = rights(false, true, false);
        is(&background("max_user_bgreq", &user, Some("7868")), State::Ok, &["7868"]);
        is(&background("max_user_bgreq", &user, Some("12")), State::Note, &["echo 128"]);
        is(&background("max_user_bgreq", &user, Some("0")), State::Ok, &[]);
        is(&background("max_user_bgreq", &user, None), State::Note, &["modprobe"]);
        is(&background("max_user_bgreq", &rights(true, true, false), Some("1")), State::Ok, &[]);
    }
}
