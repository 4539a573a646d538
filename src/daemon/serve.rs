//! Serves a mount until its end: handles signals, and notifies the service manager.

use super::metrics::Metrics;
use super::notify;
use super::reload::{Reload, Reloads};
use super::sandbox::{self, Unmounter};
use crate::failure::{Exit, Failure};
use crate::io::mount::mount_id::Made;
use crate::io::mount::mounts;
use crate::transport::{Leaver, Mounted, Target};
use crate::vfs::Vfs;
use nix::unistd::{Pid, getppid};
use signal_hook::consts::{SIGHUP, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::exfiltrator::origin::Origin;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A second signal within this time counts as the first.
pub(super) const SAME_SIGNAL: Duration = Duration::from_millis(100);
/// Within this time one request may come twice: sent to all processes of a mount, and passed on by the supervisor. If the mount
/// could not be unmounted, a request after this time is the first one again.
pub(super) const PASSING_ON: Duration = Duration::from_secs(10);

/// The signals of a daemon, with their senders.
pub(crate) type Signals = SignalsInfo<WithOrigin>;

/// A mount that the kernel has accepted, ready to be served.
pub(crate) struct Service {
    pub(crate) vfs: Arc<Vfs>,
    pub(crate) mounted: Mounted,
    /// The digest of the parts that the mount shows.
    pub(crate) digest: [u8; 32],
    pub(crate) target: Target,
    pub(crate) signals: Signals,
    /// The status in a line, for `systemctl status`.
    pub(crate) status: String,
    pub(crate) reload: Reload,
    /// The socket of the metrics, whose file is removed after the mount.
    pub(crate) metrics: Option<Metrics>,
    /// Unmounts for this process, if it is confined.
    pub(crate) unmounter: Option<Arc<Unmounter>>,
    /// Ends the process at once.
    pub(crate) end: fn(Exit) -> !,
    /// Whether another process has made the mount: a failure leaves it as it is.
    pub(crate) is_resumed: bool,
    /// The supervisor that has started this process; it may have died since.
    pub(crate) supervisor: Option<Pid>,
    /// Whether the service manager keeps the connection, if it can be handed over, when the supervisor dies.
    pub(crate) is_kept: bool,
}

/// A mount that is served, with all threads for that.
pub(crate) struct Serving {
    vfs: Arc<Vfs>,
    pub(crate) mounted: Mounted,
    /// The digest of the parts that the mount shows.
    pub(crate) digest: [u8; 32],
    pub(crate) target: Arc<Target>,
    pub(crate) status: String,
    pub(crate) metrics: Option<Metrics>,
    unmounter: Option<Arc<Unmounter>>,
}

impl Service {
    /// Starts the thread that handles signals: after that the mount works.
    ///
    /// # Errors
    /// The thread cannot be started; then the dataset is unmounted again, unless another process has made the mount.
    pub(crate) fn start(self) -> Result<Serving, Failure> {
        let Self { vfs, mounted, target, signals, status, reload, mut metrics, unmounter, .. } =
            self;
        let (end, digest) = (self.end, self.digest);
        let (target, made) = (Arc::new(target), mounted.made().clone());
        let listener = Listener {
            target: Arc::clone(&target),
            made,
            reloads: Reloads::new(reload, status.clone()),
            unmounter: unmounter.clone(),
            end,
            leaver: mounted.leaver(),
            supervisor: self.supervisor,
            is_kept: self.is_kept && mounted.handover().is_some(),
        };
        if let Err(failure) = listener.start(signals) {
            if let (Some(directory), false) = (target.directory(), self.is_resumed) {
                let _ = detach(directory, mounted.made(), unmounter.as_deref(), true);
            }
            return Err(failure);
        }
        metrics.iter_mut().for_each(|metrics| metrics.set_ours(true));
        sandbox::try_to_escape();
        Ok(Serving { vfs, mounted, digest, target, status, metrics, unmounter })
    }
}

impl Serving {
    /// Takes the mount away again, before other processes know of it.
    pub(crate) fn undo(&self) {
        if let Some(directory) = self.target.directory() {
            let _ = detach(directory, self.mounted.made(), self.unmounter.as_deref(), true);
        }
    }

    /// Serves until the dataset is unmounted, or left to another process.
    pub(crate) fn serve(self) -> Result<Exit, Failure> {
        let Self { vfs, mounted, target, status, mut metrics, unmounter, .. } = self;
        notify::ready(&status);
        if let Some(directory) = target.directory() {
            notify::keep_alive(directory.to_owned());
        }
        let (made, leaver) = (mounted.made().clone(), mounted.leaver());
        let served = mounted.serve();
        // If a queue broke, its readers wait for the end of this process.
        if served.is_ok() {
            vfs.finish_checkpoints();
        }
        if leaver.has_left() {
            metrics.iter_mut().for_each(|metrics| metrics.set_ours(false));
            tracing::info!("{target} is left to another process");
            return served.map(|()| Exit::Ok).map_err(|e| Failure::new(Exit::Mount, e));
        }
        // If serving failed, no process answers requests on the mount: it must not be asked.
        served.map_err(|e| Failure::new(Exit::Mount, e))?;
        // After an abort (fusectl, a broken connection) the dead mount is still in place. The mount table is
        // read first: a system call on the directory could have autofs mount the dataset again.
        if let Some(directory) = target.directory()
            && mounts::at(directory)
                .is_ok_and(|there| there.is_some_and(|it| it.device == made.device))
        {
            // The mount that has our number by now may be another one, whose daemon is stopped.
            let _ = match unmounter.as_deref() {
                Some(unmounter) => unmounter.unmount_dead(&made),
                None if made.is_on(&made.device) => sandbox::unmount_dead(directory),
                None => Ok(()),
            };
        }
        tracing::info!("unmounted from {target}");
        Ok(Exit::Ok)
    }
}

/// The thread that handles signals.
struct Listener {
    target: Arc<Target>,
    made: Made,
    reloads: Arc<Reloads>,
    unmounter: Option<Arc<Unmounter>>,
    end: fn(Exit) -> !,
    leaver: Leaver,
    supervisor: Option<Pid>,
    /// Whether the service manager keeps the connection, and it can be handed over.
    is_kept: bool,
}

/// The result of an attempt to unmount.
#[derive(Clone, Copy)]
enum Attempt {
    /// No program uses the mount any more.
    Unmounted,
    /// The mount is detached, perhaps by another process, and still in use.
    Detached,
    Failed,
}

/// How often a daemon was asked to end. A signal to all processes of a mount is one request, but comes twice: the supervisor
/// passes it on, on a busy host much later.
#[derive(Default)]
struct Asked {
    last: Option<Instant>,
    directly: u32,
    by_supervisor: u32,
}

impl Asked {
    /// Whether the signal that has come `now` is one more request.
    fn once_more(&mut self, by_supervisor: bool, now: Instant) -> bool {
        if self.last.is_none_or(|last| now.duration_since(last) > PASSING_ON) {
            *self = Self::default();
        }
        let before = self.directly.max(self.by_supervisor);
        *if by_supervisor { &mut self.by_supervisor } else { &mut self.directly } += 1;
        let is_more = self.directly.max(self.by_supervisor) > before;
        self.last = if is_more { Some(now) } else { self.last };
        is_more
    }
}

impl Listener {
    fn start(self, signals: Signals) -> Result<(), Failure> {
        let thread = std::thread::Builder::new().name("ffrfs-signals".to_owned());
        thread.spawn(|| self.listen(signals)).map_err(|e| Failure::new(Exit::Mount, e))?;
        Ok(())
    }

    fn listen(self, mut signals: Signals) {
        let (mut attempt, mut asked) = (None, Asked::default());
        for origin in &mut signals {
            match origin.signal {
                SIGHUP => self.reloads.begin(),
                // Only a supervised process listens for this signal.
                SIGUSR2 => self.leaver.leave(),
                _ => {
                    if asked.once_more(self.is_supervisor(&origin), Instant::now()) {
                        attempt = self.asked_to_end(attempt);
                    }
                }
            }
        }
    }

    /// The first request unmounts, lazily where files are open; a second one ends the process, after another attempt if the
    /// first one has failed. Takes and returns the last attempt, with the time of its end: it may have taken long, while the
    /// same signal waited.
    fn asked_to_end(&self, last: Option<(Instant, Attempt)>) -> Option<(Instant, Attempt)> {
        match last {
            Some((ended, _)) if ended.elapsed() < SAME_SIGNAL => last,
            Some((_, Attempt::Unmounted)) => (self.end)(Exit::Ok),
            Some((_, Attempt::Detached)) => (self.end)(Exit::Mount),
            // The mount that covered this one may have gone.
            Some((ended, Attempt::Failed)) if ended.elapsed() < PASSING_ON => {
                match self.unmount() {
                    Attempt::Failed => (self.end)(Exit::Mount),
                    attempt => Some((Instant::now(), attempt)),
                }
            }
            // The service manager ends the processes that the supervisor has left, and starts another supervisor, for which it
            // keeps the connection.
            _ if self.is_kept && self.supervisor.is_some_and(|pid| pid != getppid()) => {
                self.leaver.leave();
                last
            }
            _ => {
                notify::stopping(&format!("unmounting {}", self.target));
                let attempt = self.unmount();
                Some((Instant::now(), attempt))
            }
        }
    }

    fn is_supervisor(&self, origin: &Origin) -> bool {
        let sender = origin.process.map(|process| Pid::from_raw(process.pid));
        sender.is_some() && sender == self.supervisor
    }

    fn unmount(&self) -> Attempt {
        // Only the program that made the mount can unmount it; until then it is dead.
        let Some(directory) = self.target.directory() else { (self.end)(Exit::Ok) };
        match unmount(directory, &self.made, self.unmounter.as_deref()) {
            Ok(true) => Attempt::Unmounted,
            Ok(false) => Attempt::Detached,
            Err(error) => {
                // The supervisor unmounts the mount that is left by a process that ends in this way.
                if self.supervisor.is_some() && is_without_unmounter(&error) {
                    tracing::warn!("{}: no process unmounts for this one: {error}", self.target);
                    (self.end)(Exit::Mount);
                }
                tracing::error!("{}: cannot unmount: {error}", self.target);
                Attempt::Failed
            }
        }
    }
}

/// Unmounts our own mount only: if it was detached before, another mount may be in its place. `false` if it is detached, and
/// still in use.
fn unmount(target: &Path, made: &Made, unmounter: Option<&Unmounter>) -> io::Result<bool> {
    let is_ours = |mount: &mounts::Mount| mount.device == made.device;
    if mounts::is_covered(target, is_ours) {
        return Err(io::Error::other(mounts::COVERED));
    }
    let there = mounts::at(target).ok().flatten();
    if !there.is_some_and(|mount| is_ours(&mount)) {
        return Ok(false);
    }
    let Err(error) = detach(target, made, unmounter, false) else { return Ok(true) };
    if is_without_unmounter(&error) {
        return Err(error);
    }
    tracing::info!(
        "{}: {error}; it is detached now, and ends when its last open file is closed",
        target.display()
    );
    detach(target, made, unmounter, true).map(|()| false)
}

/// Whether the process that unmounts for a confined one has ended, or does not answer.
fn is_without_unmounter(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | TimedOut | UnexpectedEof)
}

/// Unmounts the target if our own mount is still there; by the process outside if this one is confined: then this one may not
/// ask for the ID either, and the mount with our number may be another one.
fn detach(target: &Path, made: &Made, unmounter: Option<&Unmounter>, lazy: bool) -> io::Result<()> {
    match unmounter {
        Some(unmounter) => unmounter.unmount(made, lazy),
        None if made.is_on(&made.device) => mounts::unmount(target, lazy),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTLY: bool = false;
    const BY_SUPERVISOR: bool = true;

    /// Which of these signals, each some seconds after the first one, are requests of their own.
    fn requests(signals: &[(bool, u64)]) -> Vec<bool> {
        let (mut asked, start) = (Asked::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        signals.iter().map(|(by, seconds)| asked.once_more(*by, at(*seconds))).collect()
    }

    #[test]
    fn a_signal_that_comes_in_both_ways_is_one_request_and_each_other_one_counts() {
        let twice = [(DIRECTLY, 0), (BY_SUPERVISOR, 3), (DIRECTLY, 4), (BY_SUPERVISOR, 5)];
        assert_eq!(requests(&twice), [true, false, true, false]);
        let one_way = [(BY_SUPERVISOR, 0), (BY_SUPERVISOR, 1), (BY_SUPERVISOR, 2)];
        assert_eq!(requests(&one_way), [true; 3]);
    }

    #[test]
    fn a_request_in_the_other_way_much_later_is_another_one() {
        for (first, second) in [(DIRECTLY, BY_SUPERVISOR), (BY_SUPERVISOR, DIRECTLY)] {
            assert_eq!(requests(&[(first, 0), (second, 11), (first, 12)]), [true, true, false]);
        }
    }
}
