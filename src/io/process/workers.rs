//! Worker processes of a supervisor: starts them, in this program or in another one, notices that one has died, and takes
//! messages with the data that the next one needs. Imports `fork`, `this_process` and `procfs`.

use super::fork::check_single_thread;
use super::{procfs, this_process};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, getsockopt, sendmsg, socketpair,
    sockopt,
};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{ForkResult, Pid, execve, fork};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, fmt};

/// The most descriptors of a connection that one message carries.
pub const MAX_DESCRIPTORS: usize = 250;
/// The most descriptors that one message carries: a socket comes with those of the connection. The kernel takes 253.
const MAX_CARRIED: usize = MAX_DESCRIPTORS + 1;
/// The longest message: three paths, and some numbers.
const MAX_MESSAGE_BYTES: usize = 16 << 10;
/// The variable that tells a program that a supervisor started it: `PID:DESCRIPTOR`. The number of the process tells it from a
/// program that a worker runs.
const VARIABLE: &str = "FFRFS_WORKER";
/// Tells a worker that another one serves from now on.
pub const LEAVE: Signal = Signal::SIGUSR2;
/// Asks a supervisor to have the program that is at its path now serve.
pub const UPGRADE: Signal = Signal::SIGUSR2;
/// How long the threads of a worker that was killed may take to end.
const ENDING: Duration = Duration::from_millis(50);
/// The pause between two looks for a worker that is dying and cannot end, and once there is one.
const IDLE_LOOK: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(250);
/// How long a process that ends by itself may take to give back its memory and rings, on a busy host. A killed process is not
/// waited for longer than from one look to the next.
const SLOW_END: Duration = Duration::from_secs(3);

/// A process that is to serve.
pub struct Worker {
    pid: Pid,
    /// A descriptor that is readable once the main thread has ended.
    end: OwnedFd,
    /// The socket to the worker; `None` once it is closed.
    messages: Option<Messages>,
    /// Since when the worker is known to be dying.
    dying_since: Option<Instant>,
}

/// An end of the socket between a supervisor and a worker.
pub struct Messages(OwnedFd);

/// A message that [`Messages::receive`] returns.
pub struct Message {
    /// The bytes of the message.
    pub bytes: Vec<u8>,
    /// The descriptors that came with the message.
    pub descriptors: Vec<OwnedFd>,
}

/// The two sides of [`Supervisor::fork`].
pub enum Forked {
    /// This process, which watches the other one.
    Supervisor(Worker),
    /// The new process.
    Worker(Messages),
}

/// An event that [`Supervisor::wait`] returns.
pub enum Event {
    /// A signal to this process.
    Signal(Signal),
    /// The worker with this number has sent a message.
    Message(usize, Message),
    /// The main thread of the worker with this number has ended, or the worker is dying and does not come to its end.
    Ended(usize),
    /// The time is over.
    Timeout,
}

/// How a worker has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The worker has ended by itself, with this exit code.
    Exited(i32),
    /// A signal has ended the worker.
    Killed(Signal),
    /// The worker was killed, and one of its threads cannot end: it waits in the kernel, or writes a core dump.
    Hangs,
}

impl fmt::Display for Ending {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(out, "with exit code {code}"),
            Self::Killed(signal) => write!(out, "by {signal}"),
            Self::Hangs => out.write_str("and hangs"),
        }
    }
}

/// Takes the signals of this process one by one; a worker has the signals as they were before.
pub struct Supervisor {
    signals: SignalFd,
    before: SigSet,
    /// How likely the process was to be killed when memory is short.
    oom_score: Option<String>,
}

impl Supervisor {
    /// Makes SIGTERM, SIGINT, SIGHUP and [`UPGRADE`] to this process events from now on, and has the kernel kill other
    /// processes first when memory is short, as far as this one may ask for that.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn new() -> io::Result<Self> {
        let mut taken = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, UPGRADE] {
            taken.add(signal);
        }
        let before = taken.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let signals = SignalFd::with_flags(&taken, SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { signals, before, oom_score: this_process::be_killed_last() })
    }

    /// Starts a worker, which has a copy of this process but for its signals.
    ///
    /// # Errors
    /// No process can be made, or other threads are running, which the worker would not have.
    pub fn fork(&self) -> io::Result<Forked> {
        check_single_thread()?;
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        // SAFETY: the process has one thread (checked above; only this thread could start another), so the
        // child has no lock held by a thread that is not there.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => match this_process::open_pid(child) {
                Ok(end) => Ok(Forked::Supervisor(Worker {
                    pid: child,
                    end,
                    messages: Some(Messages(ours)),
                    dying_since: None,
                })),
                // Without the descriptor the worker could not be watched.
                Err(error) => {
                    let _ = kill(child, Signal::SIGKILL);
                    let _ = waitpid(child, None);
                    Err(error)
                }
            },
            ForkResult::Child => {
                this_process::set_oom_score(self.oom_score.as_deref());
                // It fails for no mask that this process has had.
                let _ = self.before.thread_set_mask();
                Ok(Forked::Worker(Messages(theirs)))
            }
        }
    }

    /// Waits for an event, but no longer than `at_most`.
    ///
    /// # Errors
    /// A descriptor broke.
    pub fn wait(
        &self,
        workers: &mut [&mut Worker],
        at_most: Option<Duration>,
    ) -> io::Result<Event> {
        let until = at_most.map(|time| Instant::now() + time);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let is_dying = |worker: &&mut Worker| worker.dying_since.is_some();
            let pause = if workers.iter().any(is_dying) { LOOK } else { IDLE_LOOK };
            let look = (!workers.is_empty()).then_some(pause);
            let timeout = left.into_iter().chain(look).min().map_or(PollTimeout::NONE, |time| {
                PollTimeout::try_from(time + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
            });
            // The messages of a worker come before its end.
            let mut polled = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            let messages = |worker: &Worker| worker.messages.is_some();
            let telling: Vec<usize> =
                (0..workers.len()).filter(|&number| messages(workers[number])).collect();
            for &number in &telling {
                let messages = workers[number].messages.as_ref();
                polled.extend(
                    messages.map(|Messages(fd)| PollFd::new(fd.as_fd(), PollFlags::POLLIN)),
                );
            }
            let ends = workers.iter().map(|worker| worker.end.as_fd());
            polled.extend(ends.map(|end| PollFd::new(end, PollFlags::POLLIN)));
            match poll(&mut polled, timeout) {
                Ok(0) => {
                    drop(polled);
                    if let Some(number) = workers.iter_mut().position(|worker| worker.hangs()) {
                        return Ok(Event::Ended(number));
                    }
                    if until.is_some_and(|until| until <= Instant::now()) {
                        return Ok(Event::Timeout);
                    }
                    continue;
                }
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            let ready = polled.iter().map(|polled| polled.any().unwrap_or(false));
            let ready: Vec<bool> = ready.collect();
            drop(polled);
            if ready[0]
                && let Some(info) = self.signals.read_signal()?
            {
                let number = i32::try_from(info.ssi_signo).map_err(io::Error::other)?;
                return Ok(Event::Signal(Signal::try_from(number)?));
            }
            let (told, ended) = ready[1..].split_at(telling.len());
            if let Some(at) = told.iter().position(|&ready| ready) {
                let (number, worker) = (telling[at], &mut *workers[telling[at]]);
                // A worker that has ended before it took a message breaks the socket.
                match worker.messages.as_ref().and_then(|messages| messages.receive().ok()?) {
                    Some(message) => return Ok(Event::Message(number, message)),
                    None => worker.messages = None,
                }
                continue;
            }
            if let Some(number) = ended.iter().position(|&ready| ready) {
                return Ok(Event::Ended(number));
            }
        }
    }
}

impl Worker {
    /// The number of the process.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Sends the worker a signal, unless it has ended.
    pub fn send(&self, signal: Signal) {
        let _ = kill(self.pid, signal);
    }

    /// The socket to the worker, unless the worker has closed its end.
    #[must_use]
    pub fn messages(&self) -> Option<&Messages> {
        self.messages.as_ref()
    }

    /// How the worker has ended, after [`Event::Ended`]. Waits a moment for its other threads: some kernels tell of the main
    /// thread's end before they have ended.
    #[must_use]
    pub fn ending(&self) -> Ending {
        // The time since the worker was found dying counts in the long wait.
        let called = Instant::now();
        let since = self.dying_since.unwrap_or(called);
        let patience = if procfs::is_killed(self.pid) { ENDING } else { SLOW_END };
        loop {
            match self.ended() {
                Some(ending) => return ending,
                None if since.elapsed() < patience || called.elapsed() < ENDING => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                None => return Ending::Hangs,
            }
        }
    }

    /// Whether the worker has been dying for a while. The kernel does not tell when the main thread of a process has ended as
    /// long as another thread waits in it, and all threads of a process that dumps its core wait for the dump.
    fn hangs(&mut self) -> bool {
        let is_dying = procfs::is_ending(self.pid);
        let since = self.dying_since.filter(|_| is_dying);
        self.dying_since = is_dying.then(|| since.unwrap_or_else(Instant::now));
        since.is_some_and(|since| {
            let patience = if procfs::is_killed(self.pid) { LOOK / 2 } else { SLOW_END };
            since.elapsed() >= patience
        })
    }

    /// How the worker has ended, with all threads; `None` while it has not.
    #[must_use]
    pub fn ended(&self) -> Option<Ending> {
        match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, code)) => Some(Ending::Exited(code)),
            Ok(WaitStatus::Signaled(_, signal, _)) => Some(Ending::Killed(signal)),
            _ => None,
        }
    }
}

/// Waits for processes that have ended and are none of these `workers`: the first process of a container inherits the children
/// of processes that end.
pub fn reap_others<'a>(workers: impl Iterator<Item = &'a Worker> + Clone) {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) =
        waitid(Id::All, flags)
        && workers.clone().all(|worker| worker.pid != pid)
        && waitpid(pid, None).is_ok()
    {}
}

/// Whether a message could not be sent since the process at the other end has ended.
#[must_use]
pub fn has_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl Messages {
    /// The process that has made the socket: the supervisor, which may have died since.
    ///
    /// # Errors
    /// The kernel cannot tell.
    pub fn supervisor(&self) -> io::Result<Pid> {
        Ok(Pid::from_raw(getsockopt(&self.0, sockopt::PeerCredentials)?.pid()))
    }

    /// The worker's end, for a program that a supervisor has started; `None` in any other program. Only the first call gives
    /// it.
    ///
    /// # Errors
    /// The descriptor is not that of a supervisor.
    pub fn inherited() -> io::Result<Option<Self>> {
        static IS_TAKEN: AtomicBool = AtomicBool::new(false);
        let text = env::var(VARIABLE).unwrap_or_default();
        let Some((pid, number)) = text.split_once(':') else { return Ok(None) };
        let (pid, number) = (pid.parse::<u32>(), number.parse::<RawFd>());
        let (Ok(pid), Ok(number)) = (pid, number) else { return Ok(None) };
        if pid != std::process::id() || number <= 2 || IS_TAKEN.swap(true, Ordering::Relaxed) {
            return Ok(None);
        }
        // SAFETY: only these two calls use the descriptor; they fail with EBADF if it is not open.
        let named = unsafe { BorrowedFd::borrow_raw(number) };
        if getsockopt(&named, sockopt::SockType)? != SockType::SeqPacket {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        fcntl(named, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        // SAFETY: the supervisor has left this descriptor, which is open, to this program alone, and has said so by
        // the number of this process; no other owner exists, as this is done once (`IS_TAKEN`).
        Ok(Some(Self(unsafe { OwnedFd::from_raw_fd(number) })))
    }

    /// Turns this process into another program, which is called as this one was, and finds this end by [`Messages::inherited`].
    /// Returns the reason if that fails.
    #[must_use]
    pub fn become_program(self, program: &Path, directory: Option<&Path>) -> io::Error {
        if let Err(error) = fcntl(&self.0, FcntlArg::F_SETFD(FdFlag::empty())) {
            return error.into();
        }
        let found_by = format!("{VARIABLE}={}:{}", std::process::id(), self.0.as_raw_fd());
        let others = env::vars_os().filter(|(name, _)| name != VARIABLE);
        let variables = others.map(|(name, value)| [name, value].join(OsStr::new("=")));
        let text = |text: OsString| CString::new(text.into_vec());
        let run = || -> io::Result<Infallible> {
            let variables: Vec<_> =
                variables.chain([found_by.into()]).map(text).collect::<Result<_, _>>()?;
            let arguments: Vec<_> = env::args_os().map(text).collect::<Result<_, _>>()?;
            if let Some(directory) = directory {
                env::set_current_dir(directory)?;
            }
            // Not by `Command`, for which the C library has a shell run files that the kernel does not take for programs.
            Ok(execve(&text(program.into())?, &arguments, &variables)?)
        };
        run().err().unwrap_or_else(|| io::ErrorKind::Other.into())
    }

    /// Takes a message, and waits for one; `None` if the other end is closed. If this process may not open so many files, the
    /// message comes with fewer descriptors.
    ///
    /// # Errors
    /// The socket broke.
    pub fn receive(&self) -> io::Result<Option<Message>> {
        let mut bytes = vec![0; MAX_MESSAGE_BYTES];
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_CARRIED))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut vectors = [IoSliceMut::new(&mut bytes)];
        let received = recvmsg(&self.0, &mut vectors, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        bytes.truncate(received.bytes);
        Ok((received.bytes > 0).then_some(Message { bytes, descriptors }))
    }

    /// Sends a message to the other end, with duplicates of the descriptors: at most [`MAX_DESCRIPTORS`] and one.
    ///
    /// # Errors
    /// The other end is closed, or the message is too long.
    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(io::Error::other("too long a message"));
        }
        let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let control = [ControlMessage::ScmRights(&raw)];
        let control = if raw.is_empty() { &control[..0] } else { &control[..] };
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(bytes)], control, flags, None)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_brings_its_bytes_and_its_descriptors() {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
                .unwrap();
        let (ours, theirs) = (Messages(ours), Messages(theirs));
        theirs.send(b"told", &[std::io::stdin().as_fd(), std::io::stderr().as_fd()]).unwrap();
        theirs.send(b"again", &[]).unwrap();
        let message = ours.receive().unwrap().unwrap();
        assert_eq!((&message.bytes[..], message.descriptors.len()), (&b"told"[..], 2));
        assert_eq!(ours.receive().unwrap().unwrap().bytes, b"again");
        ours.send(b"answer", &[]).unwrap();
        assert_eq!(theirs.receive().unwrap().unwrap().bytes, b"answer");
        assert!(ours.send(&[0; MAX_MESSAGE_BYTES + 1], &[]).is_err());
        ours.send(b"unread", &[]).unwrap();
        drop(theirs);
        assert!(has_nobody(&ours.send(b"lost", &[]).unwrap_err()));
        assert!(has_nobody(&ours.send(b"lost", &[]).unwrap_err()));
        assert!(ours.receive().unwrap().is_none());
    }

    #[test]
    fn a_program_that_no_supervisor_has_started_is_no_worker() {
        assert!(Messages::inherited().unwrap().is_none());
    }
}
