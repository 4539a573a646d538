//! The processes that a supervisor has started.

use super::program::Program;
use super::told::Told;
use super::worker::TRY_AGAIN;
use crate::daemon::upgrade::Refusal;
use crate::io::process::procfs;
use crate::io::process::workers::{Ending, Worker};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// A leaving worker that takes longer is killed; the next one answers the requests that it has taken.
const LEAVING: Duration = Duration::from_secs(10);

/// A process that is to serve does not hang if it has read this much of files since the last look, or has taken this much CPU
/// time (to decode, or to receive from a store, which no file counts).
const PROGRESS_BYTES: u64 = 64 << 10;
const PROGRESS_CPU: Duration = Duration::from_secs(1);
/// A process that is to serve gets no more time after this, even if it reads on.
const LONGEST_OPENING: Duration = Duration::from_hours(24);

/// Why a mount cannot be left to another process.
pub(super) const NO_HANDOVER: &str =
    "it cannot be handed over (that takes transport=devfuse, Linux 6.9)";

/// The exit code of a process that could not become the program that is to serve.
pub(super) const CANNOT_RUN: u8 = 126;

/// The task of a worker.
pub(super) enum Role {
    /// The worker serves, or will once it has opened the dataset.
    Serves,
    /// The worker is to serve in place of another one, and is a program of its own.
    Follows(Program),
    /// Another worker serves in its place.
    Leaves,
}

pub(super) struct Running {
    pub(super) worker: Worker,
    /// When the worker was started, or has begun to serve.
    pub(super) started: Instant,
    /// Whether the worker has told of its mount.
    pub(super) is_ready: bool,
    pub(super) role: Role,
    /// When the worker is killed, unless it has done its task.
    pub(super) kill_at: Option<Instant>,
    /// Whether the worker was killed because it was late.
    is_late: bool,
    /// The bytes that the worker had read, and its CPU time, at the last look that found progress.
    progress: (u64, Duration),
}

impl Running {
    /// A worker that was just started, and is killed if it does not serve by `kill_at`.
    pub(super) fn new(worker: Worker, role: Role, kill_at: Option<Instant>) -> Self {
        Self {
            worker,
            started: Instant::now(),
            is_ready: false,
            role,
            kill_at,
            is_late: false,
            progress: (0, Duration::ZERO),
        }
    }

    /// Lets the worker leave: another one serves in its place from now on.
    pub(super) fn leave(&mut self) {
        self.role = Role::Leaves;
        self.kill_at = Some(Instant::now() + LEAVING);
    }

    /// Whether the worker is to serve in place of another one, or another one in its place.
    pub(super) fn is_changing(&self) -> bool {
        matches!(self.role, Role::Follows(_) | Role::Leaves)
    }

    /// Gives a worker that is to serve more time, until `kill_at`, if it has read on: files that must be read whole may be
    /// large.
    pub(super) fn note_progress(&mut self, kill_at: Instant) {
        let is_opening = matches!(self.role, Role::Serves) && self.kill_at.is_some();
        if is_opening && !self.is_late && self.started.elapsed() < LONGEST_OPENING {
            let pid = self.worker.pid();
            let (read, taken) = (procfs::read_bytes(pid), procfs::cpu_time(pid));
            let (read_before, taken_before) = self.progress;
            if read >= read_before + PROGRESS_BYTES || taken >= taken_before + PROGRESS_CPU {
                (self.progress, self.kill_at) = ((read, taken), Some(kill_at));
            }
        }
    }

    /// Kills the worker if it takes too long to serve, or to leave.
    pub(super) fn kill_if_late(&mut self) {
        if self.kill_at.is_some_and(|until| until <= Instant::now()) {
            self.is_late = true;
            self.kill();
        }
    }

    /// Kills the worker; again and again, until it has ended.
    pub(super) fn kill(&mut self) {
        self.worker.send(Signal::SIGKILL);
        self.kill_at = Some(Instant::now() + LEAVING);
    }

    /// The reason why a worker that has ended in this way does not follow.
    pub(super) fn refusal(&self, ending: Ending) -> Refusal {
        match ending {
            _ if self.is_late => Refusal::Late,
            Ending::Exited(code) if code == i32::from(CANNOT_RUN) => Refusal::NoProgram,
            Ending::Exited(code) if code == i32::from(TRY_AGAIN) => Refusal::Lacking,
            Ending::Exited(_) => Refusal::Refused,
            Ending::Killed(_) | Ending::Hangs => Refusal::Died,
        }
    }
}

/// The reason why no other program can serve a mount now.
pub(super) fn obstacle(told: Option<&Told>, is_leaving: bool) -> Option<&'static str> {
    match told {
        None => Some("it is not mounted yet"),
        Some(told) if told.handover.is_none() => Some(NO_HANDOVER),
        _ if is_leaving => Some("it is being unmounted"),
        _ => None,
    }
}
