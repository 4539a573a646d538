//! A child process that answers questions, and that is started again when it dies or hangs: by another child, which has no
//! other task, as a process that is confined, or has threads, can start none. Imports `fork`, `procfs` and `this_process`.

use super::fork::{self, Side};
use super::{procfs, this_process};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, recv, send, setsockopt, socketpair, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getsid};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// The longest question, and the longest answer.
const MAX_BYTES: usize = 64 << 10;
/// The number of a question, which stands before its answer as well, to tell a late answer from the next one.
const NUMBER_BYTES: usize = size_of::<u64>();
/// How often a child is started for a question over which it has died.
const TRIES: u32 = 3;
/// The pause before a child that has died at once is started again.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause before another attempt where no child can be made.
const NO_PROCESS: Duration = Duration::from_secs(1);
/// How much longer than a child may take the caller waits.
const MARGIN: Duration = Duration::from_secs(5);
/// The pause between two looks which question waits.
const LOOK: Duration = Duration::from_secs(1);
/// How long a child that was killed, or whose main thread has ended, may take to end.
const ENDING: Duration = Duration::from_secs(1);
const REAP: Duration = Duration::from_millis(2);

/// The byte behind the number of an answer: the answer follows, or the reason why there is no answer.
const ANSWERED: u8 = 0;
const LATE: u8 = 1;
const DIED: u8 = 2;

/// The children. They end when the helper is dropped.
pub struct LastingHelper {
    socket: OwnedFd,
    patience: Duration,
    asked: u64,
}

impl LastingHelper {
    /// Starts a child that answers each question with `answer`, within `patience`, and one that watches it. `None` if threads
    /// are running, which the children would not have.
    ///
    /// # Errors
    /// No process can be made.
    pub fn start(
        patience: Duration,
        mut answer: impl FnMut(&[u8]) -> Vec<u8>,
    ) -> io::Result<Option<Self>> {
        // A question is one packet: a child that dies has taken it whole, or not at all.
        let (socket, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        match fork::fork_alone(&theirs)? {
            None => Ok(None),
            Some(Side::Parent(_)) => Ok(Some(Self { socket, patience, asked: 0 })),
            Some(Side::Child) => {
                // A watching child that cannot go on ends, as its socket tells.
                let _ = watch(&theirs, patience, &mut answer);
                fork::end_child(0)
            }
        }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The child was late ([`io::ErrorKind::TimedOut`]) or died each time ([`io::ErrorKind::Interrupted`]), and another one
    /// answers the next question; or all children have ended ([`io::ErrorKind::BrokenPipe`]).
    pub fn ask(&mut self, question: &[u8]) -> io::Result<Vec<u8>> {
        if question.len() > MAX_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.asked += 1;
        let number = self.asked.to_le_bytes();
        put(&self.socket, &[&number, question].concat())?;
        let deadline = Instant::now() + self.patience + MARGIN;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = left.max(Duration::from_millis(1));
            let left = TimeVal::milliseconds(i64::try_from(left.as_millis()).unwrap_or(i64::MAX));
            setsockopt(&self.socket, sockopt::ReceiveTimeout, &left)?;
            let packet = take(&self.socket, MsgFlags::empty())?.ok_or(io::ErrorKind::BrokenPipe)?;
            match packet.split_first_chunk::<NUMBER_BYTES>() {
                Some((found, [ANSWERED, answer @ ..])) if *found == number => {
                    return Ok(answer.to_vec());
                }
                Some((found, [LATE])) if *found == number => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Some((found, [DIED])) if *found == number => {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                // An answer to a question that is not waited for any more.
                _ => {}
            }
        }
    }
}

/// How a child has ended.
enum Ended {
    /// The other end is closed: no more questions come.
    Done,
    /// The child died over the question of this number, or between two.
    Died(Option<[u8; NUMBER_BYTES]>),
    /// The question of this number has taken the child too long.
    Late([u8; NUMBER_BYTES]),
}

/// Starts a child that answers, and another one when it dies, until the other end is closed.
fn watch(
    socket: &OwnedFd,
    patience: Duration,
    answer: &mut impl FnMut(&[u8]) -> Vec<u8>,
) -> io::Result<()> {
    let (mut over, mut deaths) = (None, 0);
    loop {
        let started = Instant::now();
        let child = match fork::fork_alone(socket) {
            Ok(Some(Side::Parent(child))) => child,
            Ok(Some(Side::Child)) => {
                let _ = serve(socket, answer);
                fork::end_child(0)
            }
            // There are too many processes now; or the other end is closed.
            _ if waiting(socket)?.is_some() => {
                std::thread::sleep(NO_PROCESS);
                continue;
            }
            _ => return Ok(()),
        };
        match until_end(child, socket, patience)? {
            Ended::Done => return Ok(()),
            Ended::Late(number) => refuse(socket, number, LATE)?,
            Ended::Died(None) => {}
            Ended::Died(Some(number)) => {
                deaths = if over == Some(number) { deaths + 1 } else { 1 };
                over = Some(number);
                if deaths >= TRIES {
                    refuse(socket, number, DIED)?;
                }
            }
        }
        if started.elapsed() < PAUSE {
            std::thread::sleep(PAUSE);
        }
        // Children that could not end, and have ended since.
        while matches!(
            waitpid(None, Some(WaitPidFlag::WNOHANG)),
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..))
        ) {}
    }
}

/// Kills the rest of a child and all processes that it has started, and waits a moment for their end: one of the child's
/// threads may wait in the kernel, and a process that is being started is seen only by the next look.
fn end_all(child: Pid) {
    let _ = kill(child, Signal::SIGKILL);
    // The session is the child's: no other one gets its number as long as the child was not waited for.
    let is_of_it = |process: &u32| getsid(Some(pid(*process))) == Ok(child);
    let lives = |process: &u32| procfs::is_dying(*process) != Some(true);
    let since = Instant::now();
    loop {
        let left: Vec<u32> = procfs::pids().filter(is_of_it).filter(lives).collect();
        for &process in &left {
            let _ = kill(pid(process), Signal::SIGKILL);
        }
        if left.is_empty() || since.elapsed() >= ENDING {
            break;
        }
        std::thread::sleep(REAP);
    }
    let runs = || waitpid(child, Some(WaitPidFlag::WNOHANG)) == Ok(WaitStatus::StillAlive);
    while runs() && since.elapsed() < ENDING {
        std::thread::sleep(REAP);
    }
}

fn pid(process: u32) -> Pid {
    Pid::from_raw(process.cast_signed())
}

/// Answers questions until the other end is closed. A question stays in the socket until it is answered, so that another child
/// finds it.
fn serve(socket: &OwnedFd, answer: &mut impl FnMut(&[u8]) -> Vec<u8>) -> io::Result<()> {
    while let Some(question) = take(socket, MsgFlags::MSG_PEEK)? {
        if let Some((number, question)) = question.split_first_chunk::<NUMBER_BYTES>() {
            let mut answer = answer(question);
            answer.truncate(MAX_BYTES);
            put(socket, &[number, &[ANSWERED][..], &answer].concat())?;
        }
        take(socket, MsgFlags::empty())?;
    }
    Ok(())
}

/// Waits for the end of a child, and ends it if a question takes it too long, or if the other end is closed.
fn until_end(child: Pid, socket: &OwnedFd, patience: Duration) -> io::Result<Ended> {
    let end = this_process::open_pid(child)?;
    // The question that waits in the socket, and since when.
    let mut asked: Option<([u8; NUMBER_BYTES], Instant)> = None;
    loop {
        // Another question may wait by then, which the child has begun after it had answered the one before.
        let look = LOOK.min(patience / 8);
        let left = asked.map(|(_, since)| patience.saturating_sub(since.elapsed()).min(look));
        let timeout = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        // The socket is readable all the time while a question waits.
        let mut polled = vec![PollFd::new(end.as_fd(), PollFlags::POLLIN)];
        if asked.is_none() {
            polled.push(PollFd::new(socket.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut polled, timeout) {
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        if polled[0].any().unwrap_or(false) {
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
            let has_answered_all =
                matches!(waitid(Id::Pid(child), flags), Ok(WaitStatus::Exited(_, 0)));
            end_all(child);
            return Ok(match has_answered_all {
                true => Ended::Done,
                false => Ended::Died(waiting(socket)?.flatten()),
            });
        }
        asked = match (waiting(socket)?, asked) {
            (None, _) => {
                end_all(child);
                return Ok(Ended::Done);
            }
            (Some(Some(number)), Some((before, since))) if number == before => {
                if since.elapsed() >= patience {
                    end_all(child);
                    return Ok(Ended::Late(number));
                }
                asked
            }
            (Some(number), _) => number.map(|number| (number, Instant::now())),
        };
    }
}

/// The number of the question that waits; `Some(None)` without a question; `None` if the other end is closed.
fn waiting(socket: &OwnedFd) -> io::Result<Option<Option<[u8; NUMBER_BYTES]>>> {
    match take(socket, MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) {
        Ok(packet) => Ok(packet.map(|packet| packet.first_chunk().copied())),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(Some(None)),
        Err(error) => Err(error),
    }
}

/// Takes a question without an answer out of the socket, and sends the reason.
fn refuse(socket: &OwnedFd, number: [u8; NUMBER_BYTES], why: u8) -> io::Result<()> {
    if waiting(socket)? == Some(Some(number)) {
        take(socket, MsgFlags::MSG_DONTWAIT)?;
        put(socket, &[&number[..], &[why]].concat())?;
    }
    Ok(())
}

fn put(socket: &OwnedFd, packet: &[u8]) -> io::Result<()> {
    match send(socket.as_raw_fd(), packet, MsgFlags::MSG_NOSIGNAL) {
        // The kernel reports this once if the other end was closed with packets in it.
        Err(Errno::ECONNRESET) => Err(io::ErrorKind::BrokenPipe.into()),
        sent => Ok(sent.map(drop)?),
    }
}

/// A packet; `None` if the other end is closed. If no packet comes in time, the error is [`io::ErrorKind::TimedOut`].
fn take(socket: &OwnedFd, flags: MsgFlags) -> io::Result<Option<Vec<u8>>> {
    let mut packet = vec![0; NUMBER_BYTES + 1 + MAX_BYTES];
    let length = loop {
        match recv(socket.as_raw_fd(), &mut packet, flags) {
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(Errno::ECONNRESET) => return Ok(None),
            found => break found?,
        }
    };
    packet.truncate(length);
    Ok((length > 0).then_some(packet))
}
