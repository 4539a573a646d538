//! A time in which nobody serves a mount: how long it may be, and when the next process is tried. Imports the supervisor above
//! it, whose part it is.

use super::{LOOK, Supervision};
use crate::daemon::mount::ours;
use crate::daemon::upgrade::starting;
use crate::failure::Exit;
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// The pause before the next look at a source that is away; it doubles with each.
const PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Nobody serves a mount that was served before.
pub(super) struct Outage {
    since: Instant,
    /// How many processes in a row have found their source to be away.
    away: u32,
    /// It was said that something else is mounted over the dead mount.
    is_said_to_be_covered: bool,
}

impl Outage {
    pub(super) fn begin() -> Self {
        Self { since: Instant::now(), away: 0, is_said_to_be_covered: false }
    }

    /// How long it may last: a process that hangs is followed by another one.
    fn most() -> Duration {
        2 * starting()
    }

    /// When a process is late that is started now.
    pub(super) fn kill_at(&self) -> Instant {
        (Instant::now() + starting()).min(self.since + Self::most())
    }

    /// How long it may still last.
    pub(super) fn left(&self) -> Duration {
        Self::most().saturating_sub(self.since.elapsed())
    }

    /// Why nobody is to try any more.
    pub(super) fn is_over(&self) -> Option<String> {
        self.left()
            .is_zero()
            .then(|| format!("no process has served it for {} s", Self::most().as_secs()))
    }
}

impl Supervision<'_> {
    /// Whether something else is mounted over the mount.
    pub(super) fn is_covered(&self) -> bool {
        let told = self.told.as_ref().filter(|_| self.request.namespace.is_none());
        told.is_some_and(|told| ours::is_covered(&self.target, &told.made))
    }

    /// Whether something else is mounted over a dead mount that is to be made anew, which waits until that has gone.
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

    /// A process has found that its source cannot be reached: gives the pause before the next looks.
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

    /// Whether the mount has gone while nobody serves it. A process that is about to make it anew may have taken it away: it
    /// has told of that before, so that who has looked must hear all that was told before it is sure.
    pub(super) fn seems_unmounted(&self) -> bool {
        self.outage.is_some() && self.is_unmounted()
    }

    /// Somebody has unmounted it while nobody served it. Gives the exit code.
    pub(super) fn unmounted_before(&mut self) -> u8 {
        tracing::info!("{} was unmounted before", self.target);
        for running in &self.workers {
            running.worker.send(Signal::SIGKILL);
        }
        self.remove_socket();
        // One whose connection was aborted is still there, dead. What has taken its place since is left alone: without its ID,
        // by its number it could be a new mount.
        let made = self.told.take().map(|told| told.made).filter(|made| made.id.is_some());
        let _ = self.unmount(&made.unwrap_or_default());
        Exit::Ok as u8
    }
}
