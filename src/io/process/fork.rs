//! Processes that this one forks: a daemon that goes to the background, and children that live for one task. Imports
//! `this_process`.

use super::this_process::{detach_from_terminal, leave_terminal};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The two sides of [`fork_daemon`].
pub enum Forked {
    /// The original process, which exits with the code that the daemon reports.
    Parent(Report),
    /// The new process, which reports to the original one.
    Daemon(Ready),
}

/// The parent's end: reads whether the daemon has started.
pub struct Report {
    pipe: File,
    daemon: Pid,
}

/// The daemon's end: reports whether it has started. If the daemon dies first, the parent sees the pipe closed.
pub struct Ready(File);

impl Report {
    /// Waits for the daemon's report, and returns the exit code for the parent.
    ///
    /// # Errors
    /// The daemon died without a report: the error says how, if that is known.
    pub fn wait(mut self) -> Result<u8, String> {
        let mut code = [0];
        match self.pipe.read_exact(&mut code) {
            Ok(()) => Ok(code[0]),
            Err(_) => Err(match waitpid(self.daemon, None) {
                Ok(WaitStatus::Signaled(_, Signal::SIGKILL, _)) => {
                    "killed by SIGKILL (is there too little memory?)".to_owned()
                }
                Ok(WaitStatus::Signaled(_, signal, _)) => format!("killed by {signal}"),
                Ok(WaitStatus::Exited(_, code)) => format!("exit code {code}"),
                _ => String::new(),
            }),
        }
    }

    /// Has SIGINT and SIGTERM to this process end the daemon from now on. The flag says whether a signal has come.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn pass_on_interrupts(&self) -> io::Result<Arc<AtomicBool>> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let (interrupted, daemon) = (Arc::new(AtomicBool::new(false)), self.daemon);
        let noted = Arc::clone(&interrupted);
        let pass_on = move || {
            for _ in &mut signals {
                noted.store(true, Ordering::Relaxed);
                let _ = kill(daemon, Signal::SIGTERM);
            }
        };
        std::thread::Builder::new().name("ffrfs-signals".to_owned()).spawn(pass_on)?;
        Ok(interrupted)
    }
}

impl Ready {
    /// Tells the parent to exit with `code`. If it is 0, the daemon leaves the terminal for a session of its own.
    pub fn report(mut self, code: u8) {
        if code == 0 {
            leave_terminal();
        }
        // Fails only if the parent was killed meanwhile.
        let _ = self.0.write_all(&[code]);
    }
}

/// Forks; the child goes to the background once it is ready. Until then it stays in the caller's process group, because
/// autofs shows the mount point to no other process while it is being mounted. The child keeps the standard
/// streams and `kept` open, and closes all other descriptors.
///
/// # Errors
/// The pipe or the process cannot be made, or other threads are running, which the child would not have.
pub fn fork_daemon(kept: &[BorrowedFd<'_>]) -> io::Result<Forked> {
    if threads()? != 1 {
        return Err(io::Error::other("cannot go to the background: threads are running already"));
    }
    let (read, write): (OwnedFd, OwnedFd) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    // SAFETY: the process has one thread (checked above; only this thread could start another), so the
    // child has no lock held by a thread that is not there.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Parent { child } => {
            Ok(Forked::Parent(Report { pipe: File::from(read), daemon: child }))
        }
        nix::unistd::ForkResult::Child => {
            drop(read);
            close_inherited(std::iter::once(write.as_fd()).chain(kept.iter().copied()));
            Ok(Forked::Daemon(Ready(File::from(write))))
        }
    }
}

/// Runs `work` in a child of its own, so that no thread and no connection of it is left here, and returns its result. `None` if
/// the child died.
///
/// # Errors
/// The pipe or the process cannot be made, or other threads are running, which the child would not have.
pub fn in_child(work: impl FnOnce() -> Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    check_single_thread()?;
    let (read, write): (OwnedFd, OwnedFd) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    // SAFETY: as in `fork_daemon`.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Parent { child } => {
            drop(write);
            let mut answer = Vec::new();
            let read = File::from(read).read_to_end(&mut answer);
            let ended = nix::sys::wait::waitpid(child, None)?;
            let is_whole = matches!(ended, nix::sys::wait::WaitStatus::Exited(_, 0));
            read.map(|_| is_whole.then_some(answer))
        }
        nix::unistd::ForkResult::Child => {
            drop(read);
            let written = File::from(write).write_all(&work());
            std::process::exit(i32::from(written.is_err()))
        }
    }
}

/// The side of [`fork_alone`] that this process is.
pub enum Side {
    /// The original process, with the number of the new one.
    Parent(Pid),
    /// The new process.
    Child,
}

/// Forks; the child shares nothing of the terminal and of the caller's files but `kept`. `None` if threads are running,
/// which the child would not have.
///
/// # Errors
/// The process cannot be made.
pub fn fork_alone(kept: &impl AsFd) -> io::Result<Option<Side>> {
    if threads()? != 1 {
        return Ok(None);
    }
    // SAFETY: as in `fork_daemon`.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Parent { child } => Ok(Some(Side::Parent(child))),
        nix::unistd::ForkResult::Child => {
            close_inherited(std::iter::once(kept.as_fd()));
            // Ctrl-C ends the caller, which may have to finish something with answers from here.
            let _ = nix::unistd::setsid();
            detach_from_terminal();
            Ok(Some(Side::Child))
        }
    }
}

/// Has the kernel kill this child of [`fork_alone`] when the thread that has made it ends, whatever the child waits for then.
pub(super) fn end_with_parent() {
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
}

/// Ends a child of [`fork_alone`] at once, without the work that the original process does at its end.
pub fn end_child(code: u8) -> ! {
    // SAFETY: the call does not return, and touches no memory.
    unsafe { libc::_exit(code.into()) }
}

/// Closes the descriptors that the caller has left open, but for the standard streams and `kept`: one may be a lock, or
/// a pipe whose reader waits for its end, and a daemon would hold it for weeks.
fn close_inherited<'a>(kept: impl Iterator<Item = BorrowedFd<'a>>) {
    let mut kept: Vec<_> = kept.map(|fd| fd.as_raw_fd().unsigned_abs()).collect();
    kept.sort_unstable();
    let mut first = 3;
    for (last, next) in
        kept.iter().map(|&fd| (fd.saturating_sub(1), fd + 1)).chain([(u32::MAX, u32::MAX)])
    {
        if first <= last {
            // SAFETY: at this point of a fresh child, this program owns no descriptor above 2 but `kept`,
            // which are left out: no `OwnedFd` is closed behind its owner's back. (A child of
            // `fork_alone` has copies of its parent's, but ends by `end_child`, which drops none of them.)
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
        first = next;
    }
}

/// Returns an error if there are other threads than this one, which a forked child would not have.
pub(super) fn check_single_thread() -> io::Result<()> {
    match threads()? {
        1 => Ok(()),
        _ => Err(io::Error::other("no child can be made: threads are running already")),
    }
}

fn threads() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}
