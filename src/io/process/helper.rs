//! A child process that makes system calls which may never return, such as those on a mount whose daemon is stopped. The
//! kernel may not even let such a process be killed, so that no thread of this process must make them. Imports
//! `fork`.

use super::fork::{self, Side};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Gid, Pid, Uid, setgroups, setresgid, setresuid};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a child that was killed may take to end. It has nothing to give back; one that does not end waits in the kernel
/// for a request that the daemon has taken.
const ENDING: Duration = Duration::from_millis(50);
const LOOK: Duration = Duration::from_millis(1);

/// The child that answers. It ends when this is dropped, or with this process: at once if it may be killed, else once its
/// last system call has returned.
pub struct Helper {
    stream: UnixStream,
    pid: Pid,
    /// It has missed a deadline: what comes later answers an old question.
    is_late: Cell<bool>,
}

impl Helper {
    /// Starts a child that answers each question with `answer`. `None` if threads are running, which it would not have.
    ///
    /// # Errors
    /// No process can be made.
    pub fn start(answer: impl FnMut(&[u8]) -> Vec<u8>) -> io::Result<Option<Self>> {
        Self::start_as(None, answer)
    }

    /// As [`Helper::start`]; the child answers as this user and group, where root may make it so, and else as this process.
    ///
    /// # Errors
    /// As there.
    pub fn start_as(
        user: Option<(u32, u32)>,
        mut answer: impl FnMut(&[u8]) -> Vec<u8>,
    ) -> io::Result<Option<Self>> {
        let (ours, theirs) = UnixStream::pair()?;
        match fork::fork_alone(&theirs)? {
            None => Ok(None),
            Some(Side::Parent(pid)) => {
                Ok(Some(Self { stream: ours, pid, is_late: Cell::new(false) }))
            }
            Some(Side::Child) => {
                // In a user namespace that does not have this user, the calls are refused instead.
                let _ = user.map(become_user);
                // After the change of the user, which would undo it.
                fork::end_with_parent();
                let mut stream = theirs;
                while let Ok(question) = receive(&mut stream) {
                    if send(&mut stream, &answer(&question)).is_err() {
                        break;
                    }
                }
                fork::end_child(0)
            }
        }
    }

    /// Asks, without waiting for the answer.
    ///
    /// # Errors
    /// The child has ended.
    pub fn ask(&self, question: &[u8]) -> io::Result<()> {
        send(&mut &self.stream, question)
    }

    /// The answer to the oldest question; `None` if it does not come until `deadline`, nor to any later question.
    ///
    /// # Errors
    /// The child has ended.
    pub fn answer(&self, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
        if self.is_late.get() {
            return Ok(None);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match receive(&mut &self.stream) {
            Ok(answer) => Ok(Some(answer)),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                self.is_late.set(true);
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        if !self.is_late.get() {
            let _ = waitpid(self.pid, None);
            return;
        }
        let _ = kill(self.pid, Signal::SIGKILL);
        let since = Instant::now();
        let runs = || waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) == Ok(WaitStatus::StillAlive);
        while runs() && since.elapsed() < ENDING {
            std::thread::sleep(LOOK);
        }
    }
}

fn become_user((user, group): (u32, u32)) -> nix::Result<()> {
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    setgroups(&[group])?;
    setresgid(group, group, group)?;
    setresuid(user, user, user)
}

fn send(stream: &mut impl Write, message: &[u8]) -> io::Result<()> {
    stream.write_all(&(message.len() as u64).to_le_bytes())?;
    stream.write_all(message)
}

fn receive(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    let mut message = Vec::new();
    let read = stream.take(length).read_to_end(&mut message)?;
    match read as u64 == length {
        true => Ok(message),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
