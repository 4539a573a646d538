//! Processes: going to the background, limits.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};

/// The two sides of [`fork_daemon`].
pub enum Forked {
    /// The original process: read the exit code from here once the daemon has reported.
    Parent(Report),
    /// The new one, in a session of its own: report through this.
    Daemon(Ready),
}

/// Where the parent hears how the daemon's start went.
pub struct Report(File);

/// Where the daemon says how its start went. If it dies before, the parent hears that too.
pub struct Ready(File);

impl Report {
    /// Waits for the daemon's word: the exit code for the parent, or `None` if the daemon died silently.
    #[must_use]
    pub fn wait(mut self) -> Option<u8> {
        let mut code = [0];
        self.0.read_exact(&mut code).ok().map(|()| code[0])
    }
}

impl Ready {
    /// Tells the parent to exit with `code`, and lets go of the terminal if the start succeeded.
    pub fn report(mut self, code: u8) {
        if code == 0 {
            detach_from_terminal();
        }
        // If the parent was killed meanwhile, nobody wants to know.
        let _ = self.0.write_all(&[code]);
    }
}

/// Forks; the child leads a new session.
///
/// # Errors
/// No pipe or no process can be had; or threads are running already (only the calling thread would go on
/// in the child).
pub fn fork_daemon() -> io::Result<Forked> {
    if threads()? != 1 {
        return Err(io::Error::other("cannot go to the background: threads are running already"));
    }
    let (read, write): (OwnedFd, OwnedFd) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    // SAFETY: the process has one thread (checked above; only this thread could start another), so the
    // child has no lock held by a thread that is not there.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Parent { .. } => Ok(Forked::Parent(Report(File::from(read)))),
        nix::unistd::ForkResult::Child => {
            drop(read);
            close_inherited(&write);
            nix::unistd::setsid()?;
            Ok(Forked::Daemon(Ready(File::from(write))))
        }
    }
}

/// Closes what the caller had open beside the standard streams (a lock, a pipe that somebody waits on): a
/// daemon must not hold it for weeks.
fn close_inherited(keep: &OwnedFd) {
    let keep = keep.as_raw_fd().unsigned_abs();
    for (first, last) in [(3, keep.saturating_sub(1)), (keep + 1, u32::MAX)] {
        if first <= last {
            // SAFETY: at this point of a fresh child, this program owns no descriptor above 2 but `keep`,
            // which is left out: no `OwnedFd` is closed behind its owner's back.
            unsafe { libc::close_range(first, last, 0) };
        }
    }
}

fn threads() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

/// Standard streams to /dev/null, working directory to /, so that nothing of the caller is held.
fn detach_from_terminal() {
    let _ = nix::unistd::chdir("/");
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdin(&null);
        let _ = nix::unistd::dup2_stdout(&null);
        let _ = nix::unistd::dup2_stderr(&null);
    }
}

/// Raises the limit of open files as far as allowed: a dataset may have thousands of parts.
pub fn raise_open_files_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// The bit of `CAP_SYS_ADMIN` in a mask of capabilities.
const SYS_ADMIN_BIT: u32 = 21;

/// /proc/self/status, in which [`status_field`] and [`may_administer`] look; empty if it is not there.
#[must_use]
pub fn status() -> String {
    std::fs::read("/proc/self/status")
        .map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// A field of such a text.
#[must_use]
pub fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = status.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
}

/// Whether CAP_SYS_ADMIN is in the mask called `name` (`CapEff`, `CapBnd`), if that can be read.
#[must_use]
pub fn may_administer(status: &str, name: &str) -> Option<bool> {
    let mask = u64::from_str_radix(status_field(status, name)?, 16).ok()?;
    Some(mask >> SYS_ADMIN_BIT & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_read_from_masks_and_what_is_none_is_not() {
        let status = "Name:\tx\nCapEff:\t0000000000000000\nCapBnd:\t00000000a82425fb\n";
        assert_eq!(may_administer(status, "CapEff"), Some(false));
        assert_eq!(may_administer(status, "CapBnd"), Some(true));
        assert_eq!(status_field(status, "Name"), Some("x"));
        for odd in ["", "CapEff", "CapEff:\n", "CapEff:\tzzz", "\0\0:\n:", "CapEffs:\t1"] {
            assert_eq!(may_administer(odd, "CapEff"), None, "{odd:?}");
        }
    }

    #[test]
    fn this_process_has_a_status() {
        assert!(may_administer(&status(), "CapEff").is_some());
    }
}
