//! The processes that a supervisor has started.

use super::program::Program;
use super::told::Told;
use crate::io::workers::Worker;
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// A worker that leaves and takes longer is killed; the next one answers what it has taken.
const LEAVING: Duration = Duration::from_secs(10);

/// Why a mount cannot be left to another process.
pub(super) const NO_HANDOVER: &str =
    "it cannot be handed over (that takes transport=devfuse, Linux 6.9)";

/// What a worker is there for.
pub(super) enum Role {
    /// It serves, or will once it has opened the dataset.
    Serves,
    /// It is to serve in place of another one, and is a program of its own.
    Follows(Program),
    /// Another one serves in its place since then.
    Leaves(Instant),
}

pub(super) struct Running {
    pub(super) worker: Worker,
    /// When it was started, or has begun to serve.
    pub(super) started: Instant,
    /// It has told of its mount.
    pub(super) is_ready: bool,
    pub(super) role: Role,
}

impl Running {
    /// Whether it is to serve in place of another one, or another one in its place.
    pub(super) fn is_changing(&self) -> bool {
        matches!(self.role, Role::Follows(_) | Role::Leaves(_))
    }

    /// If it leaves: when it is killed.
    pub(super) fn leaves_until(&self) -> Option<Instant> {
        match self.role {
            Role::Leaves(since) => Some(since + LEAVING),
            _ => None,
        }
    }

    /// Kills it if it takes too long to leave.
    pub(super) fn kill_if_late(&mut self) {
        if self.leaves_until().is_some_and(|until| until <= Instant::now()) {
            self.worker.send(Signal::SIGKILL);
            self.role = Role::Leaves(Instant::now());
        }
    }
}

/// Why no other program can serve a mount now, in place of one of these workers.
pub(super) fn obstacle(
    workers: &[Running],
    told: Option<&Told>,
    is_leaving: bool,
) -> Option<&'static str> {
    match told {
        None => Some("it is not mounted yet"),
        Some(told) if told.handover.is_none() => Some(NO_HANDOVER),
        _ if is_leaving => Some("it is being unmounted"),
        _ if !workers.iter().any(|running| matches!(running.role, Role::Serves)) => {
            Some("the process that served it has died")
        }
        _ if workers.len() > 1 => Some("one is taking over already"),
        _ => None,
    }
}
