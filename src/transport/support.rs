//! Whether this host supports FUSE-over-io_uring, and if not, which obstacle it has and how to remove it. A mount logs
//! the obstacle, and `ffrfs doctor` prints it. Imports `io` alone.

use crate::io::process::procfs;
use crate::io::ring;
use std::{fmt, fs, io};

/// The reason why a feature cannot be used, and the way to change that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// The reason.
    pub why: String,
    /// The advice.
    pub cure: String,
}

impl Obstacle {
    pub(super) fn new(why: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { why: why.into(), cure: cure.into() }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}; {}", self.why, self.cure)
    }
}

/// The kernel's facts about itself and this process. A text that cannot be read is empty.
#[derive(Debug, Default)]
struct Facts {
    /// `uname -r`.
    release: String,
    /// The fuse module is loaded, or built in.
    has_fuse: bool,
    /// The kernel.io_uring_disabled sysctl.
    disabled: String,
    /// /proc/self/status.
    status: String,
}

impl Facts {
    fn gather() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Self {
            release: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            has_fuse: fs::exists("/sys/module/fuse").unwrap_or(false),
            disabled: text("/proc/sys/kernel/io_uring_disabled"),
            status: procfs::status(),
        }
    }

    fn is_admin(&self) -> bool {
        procfs::may_administer(&self.status, "CapEff").unwrap_or(false)
    }

    /// A seccomp filter is in force.
    fn is_filtered(&self) -> bool {
        procfs::status_field(&self.status, "Seccomp") == Some("2")
    }
}

/// Whether FUSE-over-io_uring can be used by this process.
///
/// # Errors
/// The obstacle.
pub(super) fn fuse_over_io_uring() -> Result<(), Obstacle> {
    match ring::is_enabled() {
        Ok(true) => ring::probe().map_err(|e| no_ring(&e, &Facts::gather())),
        Ok(false) => Err(Obstacle::new(
            "the fuse module's enable_uring is off",
            "as root: echo Y > /sys/module/fuse/parameters/enable_uring",
        )),
        Err(e) if is_of_descriptors(&e) => Err(no_ring(&e, &Facts::default())),
        Err(_) => Err(no_parameter(&Facts::gather())),
    }
}

/// Whether this process can use io_uring, be it for disk reads alone.
///
/// # Errors
/// The obstacle.
pub fn io_uring() -> Result<(), Obstacle> {
    ring::probe().map_err(|e| no_ring(&e, &Facts::gather()))
}

/// Whether another process can go on with a mount when the one that serves it dies or leaves, through `/dev/fuse`: whether
/// the kernel sends requests again.
///
/// # Errors
/// The kernel is too old.
pub fn handover() -> Result<(), Obstacle> {
    no_handover(&Facts::gather().release).map_or(Ok(()), Err)
}

fn no_handover(release: &str) -> Option<Obstacle> {
    let why = || format!("Linux {release} cannot hand a mount over to another process");
    is_before(release, (6, 9)).then(|| Obstacle::new(why(), "that came with Linux 6.9"))
}

/// The reason why the fuse module has no parameter enable_uring.
fn no_parameter(facts: &Facts) -> Obstacle {
    let release = &facts.release;
    if is_before(release, (6, 14)) {
        let why = format!("Linux {release} has no FUSE-over-io_uring");
        Obstacle::new(why, "it came with Linux 6.14")
    } else if facts.has_fuse {
        let why = format!("this Linux {release} was built without FUSE-over-io_uring");
        Obstacle::new(why, "it needs CONFIG_FUSE_IO_URING=y")
    } else {
        Obstacle::new("the fuse module is not loaded", "as root: modprobe fuse")
    }
}

/// Whether a kernel's release is before `(major, minor)`; `false` for a release that cannot be parsed.
fn is_before(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next()?.parse::<u32>().ok();
    match (next(), next()) {
        (Some(major), Some(minor)) => (major, minor) < version,
        _ => false,
    }
}

/// Whether no more files can be opened.
fn is_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// The reason why io_uring_setup(2) failed.
fn no_ring(error: &io::Error, facts: &Facts) -> Obstacle {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => forbidden(error, facts),
        Some(libc::ENOMEM) => Obstacle::new(
            format!("there is too little memory for io_uring: {error}"),
            "raise RLIMIT_MEMLOCK (ulimit -l; LimitMEMLOCK= of a systemd unit; --ulimit memlock=-1 \
             of a container), or the cgroup's memory limit",
        ),
        _ if is_of_descriptors(error) => Obstacle::new(
            format!("there is no file descriptor left for io_uring: {error}"),
            "raise RLIMIT_NOFILE (ulimit -n)",
        ),
        // Some container runtimes answer ENOSYS for each call that they forbid.
        Some(libc::ENOSYS) if facts.is_filtered() => seccomp(error),
        Some(libc::ENOSYS) => Obstacle::new(
            format!("this Linux {} has no io_uring: {error}", facts.release),
            "it needs CONFIG_IO_URING=y",
        ),
        Some(libc::EINVAL) => Obstacle::new(
            format!("the io_uring of this Linux {} is too old: {error}", facts.release),
            "it must be 6.0 or newer",
        ),
        _ => Obstacle::new(
            format!("io_uring cannot be used: {error}"),
            "see what the kernel logged (dmesg)",
        ),
    }
}

/// The obstacle that forbids io_uring: the sysctl if its value does, else a seccomp filter if there is one, else a security
/// module.
fn forbidden(error: &io::Error, facts: &Facts) -> Obstacle {
    let sysctl = facts.disabled.trim();
    match sysctl {
        "2" => Obstacle::new(
            "io_uring is forbidden to all: the sysctl kernel.io_uring_disabled is 2",
            "as root: sysctl kernel.io_uring_disabled=0",
        ),
        "1" if !facts.is_admin() => Obstacle::new(
            "io_uring is forbidden to you: the sysctl kernel.io_uring_disabled is 1",
            "as root: sysctl kernel.io_uring_disabled=0, or set kernel.io_uring_group to a group \
             of yours",
        ),
        _ if facts.is_filtered() => seccomp(error),
        _ => Obstacle::new(
            format!("io_uring is forbidden: {error}"),
            "it is not kernel.io_uring_disabled and not seccomp; a security module (SELinux, \
             AppArmor) must allow it",
        ),
    }
}

fn seccomp(error: &io::Error) -> Obstacle {
    Obstacle::new(
        format!("io_uring is forbidden by seccomp: {error}"),
        "the default profile of Docker and Podman forbids it; start the container with a profile \
         that allows io_uring_setup, io_uring_enter and io_uring_register (--security-opt \
         seccomp=PROFILE.json, or unconfined)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADMIN: &str = "Name:\tffrfs\nCapEff:\t000001fffeffffff\nSeccomp:\t0\n";
    const FILTERED_ADMIN: &str = "CapEff:\t00000000a82425fb\nSeccomp:\t2\nSeccomp_filters:\t1\n";
    const USER: &str = "CapEff:\t0000000000000000\nSeccomp:\t0\n";

    fn said(errno: i32, disabled: &str, status: &str) -> String {
        let facts = Facts {
            release: "6.18.4".to_owned(),
            has_fuse: true,
            disabled: disabled.to_owned(),
            status: status.to_owned(),
        };
        no_ring(&io::Error::from_raw_os_error(errno), &facts).to_string()
    }

    #[track_caller]
    fn says(text: &str, words: &[&str], not: &[&str]) {
        for word in words {
            assert!(text.contains(word), "{word:?} is not in: {text}");
        }
        for word in not {
            assert!(!text.contains(word), "{word:?} is in: {text}");
        }
        assert_eq!(text.lines().count(), 1, "one line: {text}");
    }

    #[test]
    fn a_sysctl_that_forbids_io_uring_is_named() {
        says(&said(libc::EPERM, "2\n", ADMIN), &["to all", "io_uring_disabled is 2"], &["seccomp"]);
        let text = said(libc::EPERM, "1\n", USER);
        says(&text, &["to you", "io_uring_disabled is 1", "io_uring_group"], &["seccomp"]);
    }

    #[test]
    fn a_seccomp_filter_that_forbids_io_uring_is_named() {
        let words = ["seccomp", "Docker and Podman", "--security-opt"];
        says(&said(libc::EPERM, "0\n", FILTERED_ADMIN), &words, &["io_uring_disabled"]);
        says(&said(libc::EPERM, "", FILTERED_ADMIN), &words, &["io_uring_disabled"]);
        says(&said(libc::ENOSYS, "0\n", FILTERED_ADMIN), &words, &["CONFIG_IO_URING"]);
        // An admin is free of a sysctl of 1: then it is the filter.
        let admin = "CapEff:\t000001fffeffffff\nSeccomp:\t2\n";
        says(&said(libc::EPERM, "1\n", admin), &words, &["io_uring_disabled"]);
    }

    #[test]
    fn what_is_neither_sysctl_nor_seccomp_is_a_security_module() {
        says(&said(libc::EACCES, "0\n", ADMIN), &["SELinux"], &["Docker"]);
        says(&said(libc::EPERM, "nonsense", ""), &["SELinux"], &["Docker"]);
    }

    #[test]
    fn missing_memory_descriptors_and_kernels_are_told_apart() {
        says(&said(libc::ENOMEM, "0", ADMIN), &["RLIMIT_MEMLOCK", "ulimit -l"], &["seccomp"]);
        says(&said(libc::EMFILE, "0", ADMIN), &["RLIMIT_NOFILE"], &["MEMLOCK"]);
        says(&said(libc::ENOSYS, "0", ADMIN), &["6.18.4 has no io_uring"], &["seccomp"]);
        says(&said(libc::EINVAL, "0", ADMIN), &["too old"], &["seccomp"]);
        says(&said(libc::EIO, "0", ADMIN), &["dmesg"], &["seccomp"]);
    }

    #[test]
    fn a_missing_parameter_is_an_old_kernel_a_lean_one_or_no_module() {
        let said = |release: &str, has_fuse| {
            let release = release.to_owned();
            no_parameter(&Facts { release, has_fuse, ..Facts::default() }).to_string()
        };
        says(&said("6.13.9-arch1", true), &["6.13.9-arch1 has no", "6.14"], &["modprobe"]);
        says(&said("5.4", false), &["5.4 has no", "6.14"], &["modprobe"]);
        says(&said("6.14.0-rc1", true), &["built without", "CONFIG_FUSE_IO_URING"], &["modprobe"]);
        says(&said("7.0", false), &["modprobe fuse"], &["6.14"]);
        for odd in ["", "x", "6", "99999999999999.1", "-1.-1"] {
            says(&said(odd, false), &["modprobe fuse"], &["6.14"]);
        }
    }

    #[test]
    fn a_kernel_that_cannot_hand_a_mount_over_is_named() {
        for release in ["5.10.0-32-amd64", "6.1.0-50-amd64", "6.8.12"] {
            let obstacle = no_handover(release).expect("an old kernel").to_string();
            says(&obstacle, &[release, "hand a mount over", "6.9"], &["6.14"]);
        }
        for release in ["6.9.0", "6.12.107+deb13-amd64", "7.0", "", "x"] {
            assert_eq!(no_handover(release), None, "{release}");
        }
    }
}
