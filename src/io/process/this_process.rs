//! This process: its terminal, namespace, signals, limits and rights. Imports nothing of ours.

use nix::sched::CloneFlags;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::Pid;
use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::Path;

/// Enters the mount namespace that `file` (`/proc/PID/ns/mnt`) stands for. From then on, this thread and those that it
/// starts look up all paths there; threads that are running, such as those of stores, stay behind.
///
/// # Errors
/// The file cannot be opened or is no namespace, or this process may not enter it.
pub fn enter_mount_namespace(file: &Path) -> io::Result<()> {
    let namespace = File::open(file)?;
    // The working directory is shared with other threads, and a shared one cannot be left.
    nix::sched::unshare(CloneFlags::CLONE_FS)?;
    Ok(nix::sched::setns(namespace, CloneFlags::CLONE_NEWNS)?)
}

/// How likely a process is to be killed when memory is short: from -1000 (never) to 1000.
const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// Has the kernel kill other processes first when memory is short, if this one may ask for that. Returns the former setting.
pub(super) fn be_killed_last() -> Option<String> {
    let before = std::fs::read_to_string(OOM_SCORE).ok()?;
    std::fs::write(OOM_SCORE, "-1000").ok().map(|()| before)
}

/// Sets how likely this process is to be killed when memory is short, as [`be_killed_last`] has found it.
pub(super) fn set_oom_score(score: Option<&str>) {
    if let Some(score) = score {
        let _ = std::fs::write(OOM_SCORE, score.trim());
    }
}

/// Has signals act as programs expect. The program that has started this one may have blocked or ignored some, and programs
/// inherit that. Call it before there are threads.
pub fn reset_signals() {
    let reset = |signal, handler| {
        // SAFETY: no function of this program is to be called.
        let _ = unsafe { nix::sys::signal::signal(signal, handler) };
    };
    // The kernel keeps no exit code of children that are ignored: the end of a child would not be noticed.
    reset(Signal::SIGCHLD, SigHandler::SigDfl);
    // A write beyond the limit of file sizes (`ulimit -f`) fails as any other, and ends no daemon for a line in its log.
    reset(Signal::SIGXFSZ, SigHandler::SigIgn);
    let _ = SigSet::empty().thread_set_mask();
}

/// Sets the name that `ps` shows for this process.
pub fn set_name(name: &std::ffi::CStr) {
    let _ = nix::sys::prctl::set_name(name);
}

/// This thread, for [`wake`].
#[must_use]
pub fn this_thread() -> Pid {
    nix::unistd::gettid()
}

/// From now on, [`wake`] ends system calls of this process.
pub fn allow_wakes() {
    extern "C" fn nothing(_: i32) {}
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing, so that it may run at any time. No other code of this program uses SIGUSR1.
    let _ = unsafe { sigaction(Signal::SIGUSR1, &action) };
}

/// Ends the system call in which a thread of this process waits, with EINTR. Needs [`allow_wakes`].
pub fn wake(thread: Pid) {
    // SAFETY: tgkill(2) takes three numbers, and touches no memory; a thread that has ended is not found.
    unsafe {
        libc::syscall(libc::SYS_tgkill, std::process::id(), thread.as_raw(), libc::SIGUSR1);
    }
}

/// Leaves the terminal for a session of its own.
pub fn leave_terminal() {
    let _ = nix::unistd::setsid();
    detach_from_terminal();
}

/// Points the standard streams to /dev/null and goes to /, so that the daemon keeps no file and no directory of the
/// caller busy.
pub(super) fn detach_from_terminal() {
    let _ = nix::unistd::chdir("/");
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdin(&null);
        let _ = nix::unistd::dup2_stdout(&null);
        let _ = nix::unistd::dup2_stderr(&null);
    }
}

/// Raises the limit of open files to the hard limit: a dataset may have thousands of parts.
pub fn raise_open_files_limit() -> u64 {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return u64::MAX };
    match soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        true => hard,
        false => soft,
    }
}

/// Whether standard error is still the stream to the journal with which systemd started the service
/// (`JOURNAL_STREAM`, systemd.exec(5)).
#[must_use]
pub fn stderr_is_the_journal() -> bool {
    use std::os::unix::fs::MetadataExt;
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let stderr = std::fs::metadata("/proc/self/fd/2");
    stderr.is_ok_and(|stderr| stream == format!("{}:{}", stderr.dev(), stderr.ino()))
}

/// `PIDFD_THREAD`: the descriptor tells of the end of one thread (Linux 6.9). From Linux 6.15 on, it tells of the main thread
/// only after all others.
const PIDFD_THREAD: libc::c_uint = libc::O_EXCL.cast_unsigned();

/// A descriptor that is readable once the main thread of the process has ended, whatever its other threads do; if the kernel
/// cannot do that, once all threads have ended.
pub(super) fn open_pid(pid: Pid) -> io::Result<OwnedFd> {
    let open = |flags: libc::c_uint| {
        // SAFETY: pidfd_open(2) takes two numbers, and touches no memory.
        unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), flags) }
    };
    let found = match open(PIDFD_THREAD) {
        -1 => open(0),
        found => found,
    };
    match RawFd::try_from(found) {
        // SAFETY: the kernel has just made this descriptor for this process; no other owner exists.
        Ok(found) if found >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(found) }),
        _ => Err(io::Error::last_os_error()),
    }
}
