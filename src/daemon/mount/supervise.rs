//! A mount that outlives the process that serves it: a supervisor, which does nothing but watch, holds the connection to
//! the kernel, and starts another worker when one dies, or when another program is to serve. See docs/architecture.md.

mod ending;
mod outage;
mod upgrading;

use super::deaths::Deaths;
use super::limits;
use super::ours;
use super::program::{Program, Programs};
use super::request::{Caller, MountRequest};
use super::running::{CANNOT_RUN, NO_HANDOVER, Role, Running};
use super::stored::{self, Stored};
use super::terminal::say_where_messages_go;
use super::told::{self, Told};
use super::worker::{AWAY, BROKE, GONE, TRY_AGAIN, Work, work};
use crate::daemon::upgrade::{Refusal, starting};
use crate::daemon::{notify, reload};
use crate::failure::{Exit, Failure};
use crate::io::memory::footprint;
use crate::io::mount::mount_id::Made;
use crate::io::process::workers::{
    Ending, Event, Forked, LEAVE, Message, Messages, Supervisor, UPGRADE, Worker,
};
use crate::io::process::{self, workers};
use crate::transport::Target;
use nix::sys::signal::Signal;
use outage::Outage;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The pause between two looks whether a worker that hung has ended.
const REAP: Duration = Duration::from_secs(1);
/// The pause between two looks whether a mount is still there that no process serves.
const LOOK: Duration = Duration::from_secs(1);

/// How a supervised mount has ended.
pub(super) struct Supervised {
    /// The exit code.
    pub(super) code: u8,
    /// Whether this process is a worker: then the supervisor clears up.
    pub(super) is_worker: bool,
}

struct Supervision<'a> {
    request: &'a MountRequest,
    target: Target,
    /// Is told of the first mount.
    ready: &'a mut Option<process::Ready>,
    is_daemon: bool,
    /// The directory where the paths of the command line begin; a daemon has left it.
    directory: Option<PathBuf>,
    supervisor: Supervisor,
    workers: Vec<Running>,
    /// Workers that were killed and have not ended. They hold the connection: closing our own descriptors does not end it.
    hung: Vec<Worker>,
    told: Option<Told>,
    /// The device number of the mount that was there before the first one.
    before: Option<String>,
    /// The service manager's copy of the mount.
    stored: Stored,
    deaths: Deaths,
    /// The time in which no process serves; `None` also before the first mount.
    outage: Option<Outage>,
    programs: Programs,
    /// When the next worker is to be started.
    start_at: Option<Instant>,
    /// Whether a signal to unmount has come.
    is_leaving: bool,
    /// When a signal came that could not unmount.
    covered_at: Option<Instant>,
    /// Whether a SIGHUP waits for a worker to be ready.
    has_hangup: bool,
    /// Whether another upgrade is to begin once the one under way has ended.
    is_upgrade_due: bool,
    /// How many upgrades have ended.
    upgrades: u32,
    /// Whether a worker has told of the mount.
    is_served: bool,
}

/// Serves a mount in a process of its own, and in another one when that dies. `ready` is told of the first mount; `found` is
/// the mount of another supervisor that has died. Returns in the supervisor and in each worker.
///
/// # Errors
/// The first worker died before it had mounted, or there are no descriptors or processes left for it: then `ready` was told
/// nothing.
pub(super) fn supervise(
    request: &MountRequest,
    target: Target,
    (ready, made): (&mut Option<process::Ready>, bool),
    found: Option<Told>,
    caller: Caller,
) -> Result<Supervised, Failure> {
    super::confine::hide_password(request);
    let is_daemon = ready.is_some();
    // No process serves a mount that was found: a process that asks it waits.
    let kept = found.as_ref().map(|found| found.made.device.clone());
    let supervision = Supervision {
        request,
        before: kept.or_else(|| ours::there(&target)),
        target,
        ready,
        is_daemon,
        directory: std::env::current_dir().ok().filter(|_| is_daemon),
        supervisor: Supervisor::new().map_err(failed)?,
        workers: Vec::new(),
        hung: Vec::new(),
        stored: Stored::new(request, made, found.as_ref()),
        outage: found.is_some().then(Outage::begin),
        told: found,
        deaths: Deaths::default(),
        programs: Programs::new(),
        start_at: Some(Instant::now()),
        is_leaving: false,
        covered_at: None,
        has_hangup: false,
        is_upgrade_due: false,
        upgrades: 0,
        is_served: false,
    };
    let served = supervision.run(caller);
    if !is_daemon && stored::is_possible() && !served.as_ref().is_ok_and(|it| it.is_worker) {
        stored::forget();
    }
    served
}

fn failed(error: io::Error) -> Failure {
    Failure::new(Exit::Mount, error)
}

impl Supervision<'_> {
    fn run(mut self, caller: Caller) -> Result<Supervised, Failure> {
        let watchdog = notify::watchdog();
        let mut alive_at = watchdog.map(|pause| Instant::now() + pause);
        loop {
            let is_gone = self.seems_unmounted();
            let is_due = !is_gone && self.start_at.is_some_and(|at| at <= Instant::now());
            if is_due && !self.waits_for_cover() {
                self.start_at = None;
                if let Some(why) = self.outage.as_ref().and_then(Outage::is_over) {
                    return Ok(Supervised { code: self.give_up(&why), is_worker: false });
                }
                match self.start(None) {
                    Ok(None) => {}
                    Ok(Some(messages)) => return self.work(&messages, caller),
                    Err(error) if self.told.is_none() => return Err(failed(error)),
                    Err(error) => {
                        let why = limits::explain(failed(error), self.request);
                        tracing::error!("no process can serve {} now: {why}", self.target);
                        let pause = self.deaths.add_lacking();
                        if let Some(code) = self.start_later(pause) {
                            return Ok(Supervised { code, is_worker: false });
                        }
                    }
                }
            }
            if alive_at.is_some_and(|at| at <= Instant::now()) {
                alive_at = watchdog.map(|pause| Instant::now() + notify::alive(pause));
            }
            self.end_what_lingers();
            let until = self.due().into_iter().chain(self.start_at).chain(alive_at).min();
            let at_most = until.map(|until| until.saturating_duration_since(Instant::now()));
            let at_most = if is_gone { Some(Duration::ZERO) } else { at_most };
            let mut workers: Vec<_> = self.workers.iter_mut().map(|it| &mut it.worker).collect();
            let ended = match self.supervisor.wait(&mut workers, at_most) {
                Ok(Event::Signal(signal)) => self.signal(signal),
                Ok(Event::Message(number, message)) => {
                    self.hear(number, message);
                    None
                }
                Ok(Event::Ended(number)) => self.ended(number)?,
                Ok(Event::Timeout) => is_gone.then(|| self.unmounted_before()),
                Err(error) => Some(self.give_up(&format!("it cannot be watched: {error}"))),
            };
            if let Some(code) = ended {
                return Ok(Supervised { code, is_worker: false });
            }
        }
    }

    /// Serves, in a new process.
    fn work(self, messages: &Messages, caller: Caller) -> Result<Supervised, Failure> {
        let Self { request, target, directory, told, is_daemon, ready, supervisor, .. } = self;
        drop((ready.take(), supervisor, self.workers, self.hung, self.programs));
        if let (true, Some(directory)) = (told.is_some(), directory) {
            std::env::set_current_dir(&directory).map_err(|error| {
                tracing::error!("{}: {error}", directory.display());
                failed(error)
            })?;
        }
        let served = work(Work { request, target, told, is_daemon, caller }, messages);
        let code = served.unwrap_or_else(|failure| {
            let failure = request.name_in(failure);
            (caller.print)(&failure);
            (caller.exit_code)(&failure)
        });
        Ok(Supervised { code, is_worker: true })
    }

    /// Starts a worker: a copy of this process unless `follower` or the program that serves is another one. In the worker, if
    /// it is a copy, returns the worker's end.
    fn start(&mut self, follower: Option<Program>) -> io::Result<Option<Messages>> {
        let program = follower.as_ref().or(self.programs.serving.as_ref());
        match self.supervisor.fork()? {
            Forked::Supervisor(worker) => {
                if let (Some(_), Some(told), Some(messages)) =
                    (program, &self.told, worker.messages())
                    && let Err(error) = told.send(messages)
                {
                    // The worker would wait for the message for ever.
                    tracing::error!("{}: {error}", self.target);
                    worker.send(Signal::SIGKILL);
                }
                let until = match follower {
                    Some(_) => Some(Instant::now() + starting()),
                    None => self.outage.as_ref().map(Outage::kill_at),
                };
                let role = follower.map_or(Role::Serves, Role::Follows);
                self.workers.push(Running::new(worker, role, until));
                Ok(None)
            }
            Forked::Worker(messages) => match program {
                None => Ok(Some(messages)),
                Some(program) => {
                    let error = messages.become_program(&program.path(), self.directory.as_deref());
                    tracing::error!("the program that is to serve {}: {error}", self.target);
                    process::end_child(CANNOT_RUN)
                }
            },
        }
    }

    fn signal(&mut self, signal: Signal) -> Option<u8> {
        match signal {
            UPGRADE => self.upgrade(),
            Signal::SIGHUP => {
                reload::reopen_log();
                self.has_hangup = true;
                if self.programs.has_changed() && self.obstacle().is_none() {
                    notify::reloading();
                    self.upgrade();
                } else {
                    self.pass_on_hangup();
                }
            }
            _ => {
                self.is_leaving |= !self.stays_covered();
                let leaves = |running: &&Running| matches!(running.role, Role::Leaves);
                let mut others = self.workers.iter().filter(|running| !leaves(running)).peekable();
                if others.peek().is_none() {
                    return Some(self.leave());
                }
                others.for_each(|running| running.worker.send(signal));
            }
        }
        None
    }

    /// A worker that is not ready yet would die of SIGHUP. If one is taking over, the signal is for the worker serving then.
    fn pass_on_hangup(&mut self) {
        let follows = |running: &Running| matches!(running.role, Role::Follows(_));
        let ready = |running: &&Running| matches!(running.role, Role::Serves) && running.is_ready;
        let is_due = self.has_hangup && !self.workers.iter().any(follows);
        if let (true, Some(running)) = (is_due, self.workers.iter().find(ready)) {
            running.worker.send(Signal::SIGHUP);
            self.has_hangup = false;
        }
    }

    /// Handles a message: a worker serves its mount, or is about to make it anew.
    fn hear(&mut self, number: usize, message: Message) {
        if told::takes_away(&message) {
            return self.is_taken_away();
        }
        let Some(mut told) = Told::hear(message) else { return };
        // This worker was about to tell of its mount when another program, which serves, was faster.
        if matches!(self.workers[number].role, Role::Leaves) {
            return;
        }
        let pid = self.workers[number].worker.pid();
        let known = self.told.take();
        let elsewhere = self.request.namespace.is_some().then_some(pid.unsigned_abs());
        told = ours::checked(told, &self.target, known.as_ref().map(|it| &it.made), elsewhere);
        let is_first = known.is_none();
        told.complete(known);
        if !self.is_daemon {
            self.stored.keep(&told);
        }
        notify::ready(&told.status);
        self.told = Some(told);
        let running = &mut self.workers[number];
        (running.is_ready, running.started, running.kill_at) = (true, Instant::now(), None);
        let before = std::mem::replace(&mut running.role, Role::Serves);
        let mut leaves = false;
        for (other, running) in self.workers.iter_mut().enumerate() {
            if other != number && matches!(running.role, Role::Serves) {
                running.leave();
                running.worker.send(LEAVE);
                // A worker that was to follow a dead one, and is not ready, has not asked for the dead one's requests.
                leaves |= running.is_ready;
            }
        }
        if !leaves && !is_first {
            self.resend();
        }
        self.is_served_anew();
        if let Role::Follows(program) = before {
            self.has_followed(program, pid);
        }
        self.pass_on_hangup();
        if let Some(ready) = self.ready.take() {
            say_where_messages_go();
            ready.report(0);
        }
        if !std::mem::replace(&mut self.is_served, true) {
            footprint::shrink_and_lock();
        }
    }

    /// Has the kernel send again the requests that were taken by a process that has ended.
    fn resend(&self) {
        if let Some(handover) = self.told.as_ref().and_then(|told| told.handover.as_ref())
            && let Err(error) = handover.resend()
        {
            tracing::debug!("{}: {error}", self.target);
        }
    }

    /// Handles the end of a worker. Returns the exit code if the mount ends with it.
    fn ended(&mut self, number: usize) -> Result<Option<u8>, Failure> {
        let running = self.workers.remove(number);
        let ending = running.worker.ending();
        let refusal = running.refusal(ending);
        let Running { worker, started, is_ready, role, .. } = running;
        if ending == Ending::Hangs {
            self.hung.push(worker);
        }
        match role {
            Role::Leaves => {
                self.resend();
                self.settle();
            }
            Role::Follows(_) => self.follower_ended(refusal, ending),
            Role::Serves => return self.server_ended((ending, refusal), started, is_ready),
        }
        Ok(None)
    }

    fn server_ended(
        &mut self,
        (ending, refusal): (Ending, Refusal),
        started: Instant,
        is_ready: bool,
    ) -> Result<Option<u8>, Failure> {
        let broke = ending == Ending::Exited(i32::from(BROKE));
        match ending {
            Ending::Exited(_) if broke && !self.is_leaving && !self.is_unmounted() => {
                tracing::error!("the process that serves {} cannot go on", self.target);
            }
            // The mount has ended, or was never made.
            Ending::Exited(code) if is_ready || self.told.is_none() => {
                let code = if broke { Exit::Mount as u8 } else { code as u8 };
                return Ok(Some(self.mount_ended(code)));
            }
            Ending::Exited(_) if self.is_leaving => {}
            Ending::Exited(code) if code == i32::from(GONE) => {
                return Ok(Some(self.unmounted_before()));
            }
            Ending::Exited(code) if code == i32::from(TRY_AGAIN) => {
                let pause = self.deaths.add_lacking();
                return Ok(self.died(pause));
            }
            Ending::Exited(code) if code == i32::from(AWAY) => {
                let pause = self.source_is_away();
                return Ok(self.died(pause));
            }
            Ending::Exited(_) if self.programs.serving.take().is_some() => {
                tracing::error!(
                    "{}: that program does not serve it; the former one does",
                    self.target
                );
            }
            Ending::Exited(_) => return Ok(Some(self.give_up("no other process can serve it"))),
            Ending::Killed(_) | Ending::Hangs => {
                let how = ending.to_string();
                if self.told.is_none() {
                    return self.died_first(ending);
                }
                if refusal == Refusal::Late {
                    tracing::error!(
                        "the process that is to serve {} has taken too long to open its containers, and was ended",
                        self.target
                    );
                } else if !self.is_unmounted() {
                    tracing::error!("the process that serves {} has died ({how})", self.target);
                }
            }
        }
        let pause = self.deaths.add(started);
        Ok(self.died(pause))
    }

    /// Handles that no process serves the mount any more: starts another one, unless the mount is to end.
    fn died(&mut self, pause: Duration) -> Option<u8> {
        if self.is_leaving {
            return Some(self.leave());
        }
        if self.is_unmounted() {
            return Some(self.unmounted_before());
        }
        let is_first = self.outage.is_none();
        self.outage.get_or_insert_with(Outage::begin);
        if !self.can_resume() {
            if self.target.directory().is_none() {
                return Some(self.give_up("no other process can go on"));
            }
            if !self.hung.is_empty() {
                self.abort();
                // Without the kernel's control files an abort is an unmount, which comes through if no file is open.
                if self.is_unmounted() {
                    self.is_taken_away();
                }
            }
            let ended = self.start_later(pause);
            if ended.is_none() && is_first {
                let what = "open files fail, and it is to be mounted anew";
                tracing::warn!("{}: {NO_HANDOVER}: {what}", self.target);
            }
            return ended;
        }
        self.start_later(pause)
    }

    /// Starts another worker after a pause, if not too many have died, and the outage has not lasted too long.
    fn start_later(&mut self, pause: Duration) -> Option<u8> {
        if let Some(why) = self.outage.as_ref().and_then(Outage::is_over) {
            return Some(self.give_up(&why));
        }
        if self.deaths.count() > usize::from(self.request.settings.restarts) {
            return Some(self.give_up("too many processes have died within a minute"));
        }
        // A program that is to take over may never serve.
        if !self.workers.iter().any(|running| matches!(running.role, Role::Serves)) {
            let left = self.outage.as_ref().map_or(pause, Outage::left);
            self.start_at = Some(Instant::now() + pause.min(left));
        }
        None
    }

    fn can_resume(&self) -> bool {
        self.told.as_ref().is_some_and(|told| told.handover.is_some())
    }

    /// Whether another process would have no mount to serve.
    fn is_unmounted(&self) -> bool {
        let is_here = self.request.namespace.is_none();
        self.told.as_ref().is_some_and(|told| ours::is_unmounted(&self.target, told, is_here))
    }

    /// Notes that the mount has gone, or will, and is to be made anew.
    fn is_taken_away(&mut self) {
        self.told.iter_mut().for_each(|told| told.made = Made::default());
    }

    /// Has all requests fail, also requests that wait.
    fn abort(&self) {
        if let Some(told) = &self.told {
            ours::abort(&self.target, told, self.request.namespace.is_none());
        }
    }

    /// When to look after workers that follow, leave or hang, and after a mount that no process serves.
    fn due(&self) -> Option<Instant> {
        let reap = (!self.hung.is_empty()).then(|| Instant::now() + REAP);
        let look = self.outage.is_some().then(|| Instant::now() + LOOK);
        let ends = self.workers.iter().filter_map(|running| running.kill_at);
        ends.chain(reap).chain(look).min()
    }

    /// Kills a worker that takes too long to serve or to leave, and lets go of hung workers that have ended since.
    fn end_what_lingers(&mut self) {
        workers::reap_others(self.workers.iter().map(|it| &it.worker).chain(&self.hung));
        if self.hung.extract_if(.., |worker| worker.ended().is_some()).count() > 0 {
            // A thread of the hung worker may have taken one more request since the next one began to serve.
            self.resend();
        }
        for running in &mut self.workers {
            if self.outage.is_some() {
                running.note_progress(Instant::now() + starting());
            }
            running.kill_if_late();
        }
    }
}
