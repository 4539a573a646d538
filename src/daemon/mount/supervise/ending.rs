//! The end of a supervised mount. Imports the supervisor above it, whose part it is.

use super::Supervision;
use crate::daemon::mount::ours;
use crate::daemon::mount::running::{Role, Running};
use crate::daemon::mount::terminal::Died;
use crate::daemon::sandbox::Unmounter;
use crate::daemon::serve::{PASSING_ON, SAME_SIGNAL};
use crate::failure::{Exit, Failure};
use crate::io::mount::mount_id::Made;
use crate::io::process::workers::Ending;
use nix::sys::signal::Signal;
use std::io;
use std::time::Instant;

impl Supervision<'_> {
    /// Handles that the first worker has died before it told of a mount.
    pub(super) fn died_first(&mut self, ending: Ending) -> Result<Option<u8>, Failure> {
        // The worker may have mounted; in another namespace nothing shows which mount that was.
        if self.request.namespace.is_none() {
            let _ = ours::undo(&self.target, self.before.as_deref());
        }
        let is_asked_to = matches!(ending, Ending::Killed(Signal::SIGINT | Signal::SIGTERM));
        match (self.is_leaving || is_asked_to, self.is_daemon) {
            (true, false) => Ok(Some(Exit::Ok as u8)),
            // The process that waits for the daemon prints the message.
            (true, true) => {
                *self.ready = None;
                Ok(Some(Exit::Mount as u8))
            }
            (false, _) => {
                let hint = match ending {
                    Ending::Killed(Signal::SIGKILL) => " (is there too little memory?)",
                    _ => "",
                };
                Err(Failure::new(Exit::Mount, Died { how: format!("{ending}{hint}") }))
            }
        }
    }

    /// Handles that the process that served has ended by itself, or that the first one has mounted nothing. Returns the exit
    /// code.
    pub(super) fn mount_ended(&mut self, code: u8) -> u8 {
        for running in &self.workers {
            running.worker.send(Signal::SIGKILL);
        }
        if let Some(ready) = self.ready.take() {
            ready.report(code);
        }
        // A worker that was told to end at once leaves the file of its socket.
        self.remove_socket();
        // A worker that could not unmount, or was not to wait for the unmount, leaves a dead mount.
        if code != Exit::Ok as u8
            && let Some(made) = self.told.as_ref().map(|told| told.made.clone())
        {
            self.let_go();
            if let Err(error) = self.unmount(&made) {
                tracing::error!("{}: cannot unmount: {error}", self.target);
            }
        }
        code
    }

    /// After a request to end: whether the worker that serves goes on, since it cannot unmount while another file system is
    /// mounted over the mount. At another request soon after it ends.
    pub(super) fn stays_covered(&mut self) -> bool {
        let serves = |running: &Running| matches!(running.role, Role::Serves) && running.is_ready;
        if !self.workers.iter().any(serves) || !self.is_covered() {
            return false;
        }
        let another = SAME_SIGNAL..PASSING_ON;
        let before = self.covered_at.replace(Instant::now());
        !before.is_some_and(|before| another.contains(&before.elapsed()))
    }

    /// Notes that a worker serves. If no process did before, this one was sent the requests to end that came meanwhile: it ends
    /// by itself, or goes on, since it cannot unmount while another file system is mounted over the mount.
    pub(super) fn is_served_anew(&mut self) {
        self.is_leaving &= self.outage.is_none();
        (self.start_at, self.outage, self.covered_at) = (None, None, None);
    }

    /// Has all requests fail, as no process will serve them. Returns the exit code.
    pub(super) fn give_up(&mut self, why: &str) -> u8 {
        tracing::error!("{} is given up: {why}", self.target);
        self.let_go();
        Exit::Mount as u8
    }

    /// Unmounts a mount that no process serves, or is to serve. Returns the exit code.
    pub(super) fn leave(&mut self) -> u8 {
        let made = self.told.as_ref().map(|told| told.made.clone()).unwrap_or_default();
        self.let_go();
        match self.unmount(&made) {
            Ok(()) => {
                tracing::info!("unmounted from {}", self.target);
                Exit::Ok as u8
            }
            Err(error) => {
                tracing::error!("{}: cannot unmount: {error}", self.target);
                Exit::Mount as u8
            }
        }
    }

    /// As [`ours::unmount`], also of a mount in another mount namespace.
    pub(super) fn unmount(&self, made: &Made) -> io::Result<()> {
        match (&self.request.namespace, self.target.directory()) {
            (Some(namespace), Some(directory)) => {
                let unmounter = Unmounter::start(directory, Some(namespace));
                let ended = || io::Error::other("its mount namespace cannot be entered");
                unmounter.ok_or_else(ended)?.unmount(made, true)
            }
            _ => ours::unmount(&self.target, made),
        }
    }

    /// Ends the connection.
    pub(super) fn let_go(&mut self) {
        for running in &self.workers {
            running.worker.send(Signal::SIGKILL);
        }
        // A program that was to take over may have left the connection to others, too.
        if !self.hung.is_empty() || !self.workers.is_empty() || self.upgrades > 0 {
            self.abort();
        }
        self.remove_socket();
        // This closes the descriptors.
        self.told = None;
        *self.ready = None;
    }

    /// Removes the file of the metrics' socket, which no process answers any more.
    pub(super) fn remove_socket(&self) {
        if let Some(told) = &self.told {
            told.remove_socket(self.request.settings.metrics.as_ref());
        }
    }
}
