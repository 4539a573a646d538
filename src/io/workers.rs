//! Worker processes of a supervisor: to start them, to notice that one has died, and to be told by one what the next one
//! needs. Imports `process`.

use super::process;
use nix::cmsg_space;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg,
    sendmsg, socketpair,
};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// The most descriptors that one message carries.
pub const MAX_DESCRIPTORS: usize = 250;
/// The longest message.
const MAX_MESSAGE_BYTES: usize = 4096;
/// `PIDFD_THREAD`: tells of the end of one thread (Linux 6.9).
const PIDFD_THREAD: libc::c_uint = libc::O_EXCL.cast_unsigned();
/// How long the threads of a worker that was killed may take to end.
const ENDING: Duration = Duration::from_millis(50);

/// A process that is to serve.
pub struct Worker {
    pid: Pid,
    /// Readable once the main thread has ended.
    end: OwnedFd,
    /// `None` once it is closed.
    messages: Option<OwnedFd>,
}

/// The worker's end, to tell the supervisor something.
pub struct Messages(OwnedFd);

/// The two sides of [`Supervisor::fork`].
pub enum Forked {
    /// This process, which watches the other one.
    Supervisor(Worker),
    /// The new process.
    Worker(Messages),
}

/// What [`Supervisor::wait`] brings.
pub enum Event {
    /// A signal to this process.
    Signal(Signal),
    /// The worker has something to tell.
    Message(Vec<u8>, Vec<OwnedFd>),
    /// The main thread of the worker has ended.
    Ended,
    /// The time is over.
    Timeout,
}

/// How a worker has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this exit code.
    Exited(i32),
    /// By a signal.
    Killed(Signal),
    /// It was killed, and one of its threads cannot end: it waits in the kernel.
    Hangs,
}

/// Takes the signals of this process one by one; a worker has them as they were before.
pub struct Supervisor {
    signals: SignalFd,
    before: SigSet,
}

impl Supervisor {
    /// From now on, SIGTERM, SIGINT and SIGHUP to this process are events.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn new() -> io::Result<Self> {
        let mut taken = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            taken.add(signal);
        }
        let before = taken.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let signals = SignalFd::with_flags(&taken, SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { signals, before })
    }

    /// Starts a worker, which has all that this process has but its signals.
    ///
    /// # Errors
    /// No process can be made, or other threads are running, which it would not have.
    pub fn fork(&self) -> io::Result<Forked> {
        process::check_single_thread()?;
        // Workers that hung, and have ended since.
        while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(found) if found.pid().is_some())
        {
        }
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        // SAFETY: the process has one thread (checked above; only this thread could start another), so the
        // child has no lock held by a thread that is not there.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => {
                let end = open_pid(child)?;
                Ok(Forked::Supervisor(Worker { pid: child, end, messages: Some(ours) }))
            }
            ForkResult::Child => {
                self.before.thread_set_mask()?;
                Ok(Forked::Worker(Messages(theirs)))
            }
        }
    }

    /// Waits for something to happen, but no longer than `at_most`.
    ///
    /// # Errors
    /// A descriptor broke.
    pub fn wait(
        &self,
        worker: Option<&mut Worker>,
        at_most: Option<Duration>,
    ) -> io::Result<Event> {
        let until = at_most.map(|time| Instant::now() + time);
        let mut worker = worker;
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let timeout = left.map_or(PollTimeout::NONE, |left| {
                PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
            });
            let mut polled = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            if let Some(worker) = &worker {
                let messages = worker.messages.as_ref().map(AsFd::as_fd);
                let both = std::iter::once(worker.end.as_fd()).chain(messages);
                polled.extend(both.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
            }
            match poll(&mut polled, timeout) {
                Ok(0) if left.is_some_and(|left| left.is_zero()) => return Ok(Event::Timeout),
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            let ready = |at: usize| {
                let polled: Option<&PollFd<'_>> = polled.get(at);
                polled.and_then(PollFd::any).unwrap_or(false)
            };
            let (signal, ended, message) = (ready(0), ready(1), ready(2));
            drop(polled);
            if signal && let Some(info) = self.signals.read_signal()? {
                let number = i32::try_from(info.ssi_signo).map_err(io::Error::other)?;
                return Ok(Event::Signal(Signal::try_from(number)?));
            }
            // What it has told comes before its end.
            if message && let Some(worker) = worker.as_deref_mut() {
                if let Some(event) = worker.receive()? {
                    return Ok(event);
                }
                worker.messages = None;
                continue;
            }
            if ended {
                return Ok(Event::Ended);
            }
        }
    }
}

impl Worker {
    /// Sends it a signal, unless it has ended.
    pub fn send(&self, signal: Signal) {
        let _ = kill(self.pid, signal);
    }

    /// After [`Event::Ended`]: how it has ended. Waits a moment for its other threads.
    #[must_use]
    pub fn ending(&self) -> Ending {
        let since = Instant::now();
        loop {
            match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(_, code)) => return Ending::Exited(code),
                Ok(WaitStatus::Signaled(_, signal, _)) => return Ending::Killed(signal),
                Ok(_) if since.elapsed() < ENDING => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => return Ending::Hangs,
            }
        }
    }

    /// `None`: it has closed its end.
    fn receive(&self) -> io::Result<Option<Event>> {
        let Some(messages) = &self.messages else { return Ok(None) };
        let mut bytes = vec![0; MAX_MESSAGE_BYTES];
        let mut space = cmsg_space!([RawFd; MAX_DESCRIPTORS]);
        let (length, descriptors) = {
            let mut vectors = [IoSliceMut::new(&mut bytes)];
            let flags = MsgFlags::MSG_CMSG_CLOEXEC;
            let message =
                recvmsg::<()>(messages.as_raw_fd(), &mut vectors, Some(&mut space), flags)?;
            let mut descriptors = Vec::new();
            for control in message.cmsgs()? {
                if let ControlMessageOwned::ScmRights(received) = control {
                    // SAFETY: the kernel has just made these descriptors for this process, with the message; no
                    // other owner exists.
                    let own = |fd: RawFd| unsafe { OwnedFd::from_raw_fd(fd) };
                    descriptors.extend(received.into_iter().map(own));
                }
            }
            (message.bytes, descriptors)
        };
        bytes.truncate(length);
        Ok((length > 0).then_some(Event::Message(bytes, descriptors)))
    }
}

impl Messages {
    /// Tells the supervisor something, and gives it duplicates of at most [`MAX_DESCRIPTORS`] descriptors.
    ///
    /// # Errors
    /// The supervisor is gone.
    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let control = [ControlMessage::ScmRights(&raw)];
        let control = if raw.is_empty() { &control[..0] } else { &control[..] };
        let bytes = &bytes[..bytes.len().min(MAX_MESSAGE_BYTES)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(bytes)], control, flags, None)?;
        Ok(())
    }
}

/// A descriptor that is readable once the main thread of the process has ended, whatever its other threads do; where the
/// kernel cannot do that, once all have ended.
fn open_pid(pid: Pid) -> io::Result<OwnedFd> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_brings_its_bytes_and_its_descriptors() {
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
                .unwrap();
        let end = open_pid(Pid::this()).unwrap();
        let worker = Worker { pid: Pid::this(), end, messages: Some(ours) };
        let messages = Messages(theirs);
        messages.send(b"told", &[std::io::stdin().as_fd(), std::io::stderr().as_fd()]).unwrap();
        messages.send(b"again", &[]).unwrap();
        let Ok(Some(Event::Message(bytes, descriptors))) = worker.receive() else {
            panic!("a message")
        };
        assert_eq!((&bytes[..], descriptors.len()), (&b"told"[..], 2));
        assert!(
            matches!(worker.receive(), Ok(Some(Event::Message(bytes, _))) if bytes == b"again")
        );
        drop(messages);
        assert!(matches!(worker.receive(), Ok(None)));
    }
}
