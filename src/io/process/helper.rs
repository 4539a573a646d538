//! A child process that makes system calls which may never return, such as those on a mount whose daemon is stopped. The
//! kernel may not even let such a process be killed, so that no thread of this process must make them. Imports
//! `fork`.

use super::fork::{self, Side};
use nix::sys::prctl::set_dumpable;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Gid, Pid, Uid, setgroups, setresgid, setresuid};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The most bytes of a question or an answer. The largest control files have some tens of MiB.
pub const MOST_MESSAGE_BYTES: u64 = 256 << 20;

/// How long a child without questions may take to end by itself, before it is killed.
const ENDING: Duration = Duration::from_secs(10);
/// As [`ENDING`], for a child that may have become another user, who can stop it.
const ENDING_AS_USER: Duration = Duration::from_millis(200);
/// How long a child that was killed may take to end. It has nothing to give back; a child that does not end waits in the kernel
/// for a request that the daemon has taken.
const ENDING_KILLED: Duration = Duration::from_millis(50);
/// How long a child may take to read a question.
const READING: Duration = Duration::from_secs(5);
/// How long an answer may take from its first byte on, if the deadline comes earlier.
const REST: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(1);

/// The child that answers. It ends when the helper is dropped, or with this process: at once if it may be killed, else once its
/// last system call has returned.
pub struct Helper {
    stream: UnixStream,
    pid: Pid,
    /// How long the child may take to end by itself.
    ending: Duration,
    /// The number of questions whose answers were not taken.
    unanswered: Cell<u32>,
    /// Whether the child has missed a deadline: its next answer is to an old question.
    is_late: Cell<bool>,
}

impl Helper {
    /// Starts a child that answers each question with `answer`. `None` if threads are running, which the child would not have.
    ///
    /// # Errors
    /// No process can be made.
    pub fn start(answer: impl FnMut(&[u8]) -> Vec<u8>) -> io::Result<Option<Self>> {
        Self::start_as(None, answer, |_| false)
    }

    /// As [`Helper::start`]; once `is_refused` says that an answer is a refusal, the child becomes this user and group, if root
    /// may make it so, and answers as them from then on.
    ///
    /// # Errors
    /// As for [`Helper::start`].
    pub fn start_as(
        user: Option<(u32, u32)>,
        answer: impl FnMut(&[u8]) -> Vec<u8>,
        is_refused: impl Fn(&[u8]) -> bool,
    ) -> io::Result<Option<Self>> {
        let ending = if user.is_some() { ENDING_AS_USER } else { ENDING };
        let (ours, theirs) = UnixStream::pair()?;
        match fork::fork_alone(&theirs)? {
            None => Ok(None),
            Some(Side::Parent(pid)) => {
                ours.set_write_timeout(Some(READING))?;
                let (unanswered, is_late) = (Cell::new(0), Cell::new(false));
                Ok(Some(Self { stream: ours, pid, ending, unanswered, is_late }))
            }
            Some(Side::Child) => {
                fork::end_with_parent();
                answer_all(theirs, user, answer, is_refused);
                fork::end_child(0)
            }
        }
    }

    /// Asks, without waiting for the answer.
    ///
    /// # Errors
    /// The child has ended, or does not read the question ([`io::ErrorKind::TimedOut`]).
    pub fn ask(&self, question: &[u8]) -> io::Result<()> {
        if self.is_late.get() {
            return Ok(());
        }
        send(&mut &self.stream, question).map_err(|error| match is_timeout(&error) {
            true => {
                self.is_late.set(true);
                io::ErrorKind::TimedOut.into()
            }
            false => error,
        })?;
        self.unanswered.set(self.unanswered.get() + 1);
        Ok(())
    }

    /// The answer to the oldest question; `None` if it does not come until `deadline`, nor to any later question.
    ///
    /// # Errors
    /// The child has ended, or its answer is too long.
    pub fn answer(&self, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
        if self.is_late.get() {
            return Ok(None);
        }
        match receive(&mut Until { stream: &self.stream, deadline, rest: REST, has_begun: false }) {
            Ok(answer) => {
                self.unanswered.set(self.unanswered.get().saturating_sub(1));
                Ok(Some(answer))
            }
            Err(e) if is_timeout(&e) => {
                self.is_late.set(true);
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Whether the child ends within `limit`.
    fn ends_in(&self, limit: Duration) -> bool {
        let since = Instant::now();
        while waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) == Ok(WaitStatus::StillAlive) {
            if since.elapsed() >= limit {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        let is_asked = self.is_late.get() || self.unanswered.get() > 0;
        if is_asked || !self.ends_in(self.ending) {
            let _ = kill(self.pid, Signal::SIGKILL);
            self.ends_in(ENDING_KILLED);
        }
    }
}

/// The bytes of an answer that the parent reads until `deadline`. An answer that has begun gets `rest` at least: the wait for
/// the answer of another child may have used up the time. What has come is read in any case: this process may have had no CPU.
struct Until<'a> {
    stream: &'a UnixStream,
    deadline: Instant,
    rest: Duration,
    has_begun: bool,
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.stream.set_read_timeout(Some(left.max(LOOK)))?;
        let read = self.stream.read(buffer)?;
        if !self.has_begun {
            self.has_begun = true;
            self.deadline = self.deadline.max(Instant::now() + self.rest);
        }
        Ok(read)
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The work of the child: answers until the parent has ended.
fn answer_all(
    mut stream: UnixStream,
    mut user: Option<(u32, u32)>,
    mut answer: impl FnMut(&[u8]) -> Vec<u8>,
    is_refused: impl Fn(&[u8]) -> bool,
) {
    while let Ok(question) = receive(&mut stream) {
        let mut given = answer(&question);
        let became = match user.take_if(|_| is_refused(&given)) {
            Some(user) => become_user(user),
            None => Ok(false),
        };
        if became == Ok(true) {
            given = answer(&question);
        }
        if send(&mut stream, &given).is_err() || became.is_err() {
            break;
        }
    }
}

/// Whether this process has become that user.
///
/// # Errors
/// The process is neither that user nor the former one, and must not go on.
fn become_user((user, group): (u32, u32)) -> nix::Result<bool> {
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    // The user namespace does not have this user, or forbids the change.
    if setgroups(&[group]).is_err() {
        return Ok(false);
    }
    setresgid(group, group, group)?;
    setresuid(user, user, user)?;
    // That user must not look into this process, which has the memory of root's. The change of the user would undo both calls.
    set_dumpable(false)?;
    fork::end_with_parent();
    Ok(true)
}

fn send(stream: &mut impl Write, message: &[u8]) -> io::Result<()> {
    stream.write_all(&(message.len() as u64).to_le_bytes())?;
    stream.write_all(message)
}

fn receive(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > MOST_MESSAGE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer is too long"));
    }
    let mut message = Vec::new();
    let read = stream.take(length).read_to_end(&mut message)?;
    match read as u64 == length {
        true => Ok(message),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_has_begun_is_read_to_its_end_and_one_that_does_not_end_is_given_up() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let receive_now = |rest| {
            receive(&mut Until { stream: &ours, deadline: Instant::now(), rest, has_begun: false })
        };
        assert!(is_timeout(&receive_now(REST).unwrap_err()), "nothing has come");
        let length = 5_u64.to_le_bytes();
        theirs.write_all(&length).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                theirs.write_all(b"words").unwrap();
            });
            assert_eq!(receive_now(REST * 100).unwrap(), b"words");
        });
        send(&mut theirs, b"all").unwrap();
        assert_eq!(receive_now(Duration::ZERO).unwrap(), b"all", "it has come");
        theirs.write_all(&length).unwrap();
        assert!(is_timeout(&receive_now(REST / 100).unwrap_err()), "the rest does not come");
    }
}
