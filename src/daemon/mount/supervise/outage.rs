//! A time in which no process serves a mount: how long it may be, and when the next process is tried. Imports the supervisor
//! above it, whose part it is.

use super::{LOOK, Supervision};
use crate::daemon::mount::ours;
use crate::daemon::upgrade::starting;
use crate::failure::Exit;
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// The pause before the next look at a source that is away; it doubles with each.
const PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The state of a mount that was served before, and that no process serves now.
pub(super) struct Outage {
    since: Instant,
    /// How many processes in a row have found their source to be away.
    away: u32,
    /// Whether it was logged that another file system is mounted over the dead mount.
    is_said_to_be_covered: bool,
}

impl Outage {
    pub(super) fn begin() -> Self {
        Self { since: Instant::now(), away: 0, is_said_to_be_covered: false }
    }

    /// How long an outage may last: a process that hangs is followed by another one.
    fn most() -> Duration {
        2 * starting()
    }

    /// When a process that is started now is late.
    pub(super) fn kill_at(&self) -> Instant {
        (Instant::now() + starting()).min(self.since + Self::most())
    }

    /// How long the outage may still last.
    pub(super) fn left(&self) -> Duration {
        Self::most().saturating_sub(self.since.elapsed())
    }

    /// The reason why no further process is to try, once the outage has lasted too long.
    pub(super) fn is_over(&self) -> Option<String> {
        self.left()
            .is_zero()
            .then(|| format!("no process has served it for {} s", Self::most().as_secs()))
    }
}

impl Supervision<'_> {
    /// Whether another file system is mounted over the mount.
    pub(super) fn is_covered(&self) -> bool {
        let told = self.told.as_ref().filter(|_| self.request.namespace.is_none());
        told.is_some_and(|told| ours::is_covered(&self.target, &told.made))
    }

    /// Whether a dead mount that is to be made anew waits until the file system that is mounted over it has gone.
    pub(super) fn waits_for_cover(&mut self) -> bool {
        let is_covered = !self.can_resume() && self.is_covered();
        let Some(outage) =
            self.outage.as_mut().filter(|outage| is_covered && !outage.left().is_zero())
        else {
            return false;
        };
        if !std::mem::replace(&mut outage.is_said_to_be_covered, true) {
            let (target, left) = (&self.target, outage.left().as_secs());
            tracing::warn!(
                "{target}: another file system is mounted over it: it is mounted anew once that is unmounted, within \
                 {left} s"
            );
        }
        self.start_at = Some(Instant::now() + LOOK.min(outage.left()));
        true
    }

    /// Notes that a process could not reach its source; returns the pause before the next process looks.
    pub(super) fn source_is_away(&mut self) -> Duration {
        let waits = match self.can_resume() {
            true => "readers wait",
            false => "reads fail until it is mounted anew",
        };
        let outage = self.outage.get_or_insert_with(Outage::begin);
        outage.away += 1;
        if outage.away == 1 {
            let (left, target) = (outage.left().as_secs(), &self.target);
            let ends =
                target.directory().map(|_| format!(" (ffrfs umount --force {target} ends that)"));
            tracing::warn!(
                "{target}: its source cannot be reached now: {waits}, and it is tried again for {left} s{}",
                ends.unwrap_or_default()
            );
        }
        (PAUSE * (1 << (outage.away - 1).min(10))).min(MAX_PAUSE)
    }

    /// Whether the mount has gone while no process serves it. A process that is about to make it anew may have taken it away,
    /// and has told of that before: all messages must be read before the answer is sure.
    pub(super) fn seems_unmounted(&self) -> bool {
        self.outage.is_some() && self.is_unmounted()
    }

    /// Ends a mount that was unmounted while no process served it. Returns the exit code.
    pub(super) fn unmounted_before(&mut self) -> u8 {
        tracing::info!("{} was unmounted before", self.target);
        for running in &self.workers {
            running.worker.send(Signal::SIGKILL);
        }
        self.remove_socket();
        // A mount whose connection was aborted is still there, dead. A mount that has taken its place since is left alone:
        // without an ID, a device number could be that of a new mount.
        let made = self.told.take().map(|told| told.made).filter(|made| made.id.is_some());
        let _ = self.unmount(&made.unwrap_or_default());
        Exit::Ok as u8
    }
}
