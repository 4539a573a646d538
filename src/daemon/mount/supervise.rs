//! A mount that outlives the process that serves it: a supervisor, which does nothing but watch, holds the connection to
//! the kernel, and starts another worker when one dies. See docs/architecture.md.

use super::limits;
use super::prepare::{DIGEST_BYTES, Resumed, prepare};
use super::request::{Caller, MountRequest};
use super::start::{Died, say_where_messages_go};
use crate::daemon::notify;
use crate::daemon::serve::{Service, Serving};
use crate::failure::{Exit, Failure};
use crate::format::PartName;
use crate::io::workers::{Ending, Event, Forked, Messages, Supervisor, Worker};
use crate::io::{fuse_connection, mounts, process};
use crate::transport::{Granted, Handover, Target};
use nix::sys::signal::Signal;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// The deaths of workers within this time are counted.
const WITHIN: Duration = Duration::from_secs(60);
/// A worker that dies within this time has died at once.
const AT_ONCE: Duration = Duration::from_secs(1);
/// The pause before another worker is started if some have died at once, one after another; it doubles with each.
const PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// What a worker has told of its mount.
struct Told {
    digest: [u8; DIGEST_BYTES],
    /// `None`: no other process can go on with this mount; it can only be mounted anew.
    handover: Option<Handover>,
    /// As the mount table shows it.
    device: String,
    status: String,
}

/// Serves a mount in a process of its own, and in another one when that dies. `ready` hears of the first mount. Gives the exit
/// code, in the supervisor and in each worker.
///
/// # Errors
/// The first worker died before it had mounted, or there are no descriptors or processes left.
pub(super) fn supervise(
    request: &MountRequest,
    target: Target,
    mut ready: Option<process::Ready>,
    caller: Caller,
) -> Result<u8, Failure> {
    let failed = |error: io::Error| Failure::new(Exit::Mount, error);
    let is_daemon = ready.is_some();
    let supervisor = Supervisor::new().map_err(failed)?;
    let (mut told, mut deaths): (Option<Told>, _) = (None, Deaths::default());
    let target = resolved(request, target)?;
    // The paths of the command line begin there; a daemon has left it.
    let directory = std::env::current_dir().ok().filter(|_| is_daemon);
    // A worker that hangs holds the connection: closing our own descriptors does not end it.
    let mut hangs = false;
    loop {
        let started = Instant::now();
        let mut worker = match supervisor.fork().map_err(failed)? {
            Forked::Supervisor(worker) => worker,
            Forked::Worker(messages) => {
                drop((supervisor, ready));
                if let (true, Some(directory)) = (told.is_some(), directory) {
                    std::env::set_current_dir(&directory).map_err(|error| {
                        tracing::error!("{}: {error}", directory.display());
                        failed(error)
                    })?;
                }
                return work(request, target, told, (&messages, is_daemon), caller);
            }
        };
        let mut watch = Watch { supervisor: &supervisor, is_leaving: false };
        let was_mounted = told.is_some();
        let (ending, news) = watch.until_end(&mut worker, &mut ready).map_err(failed)?;
        let has_mounted = news.is_some();
        told = news.or(told);
        hangs |= ending == Ending::Hangs;
        let how = match ending {
            Ending::Exited(code) => {
                if let Some(ready) = ready {
                    ready.report(code as u8);
                }
                if was_mounted && !has_mounted {
                    give_up(&target, told, hangs, "no other process can serve it");
                }
                return Ok(code as u8);
            }
            Ending::Killed(signal) => format!("by {signal}"),
            Ending::Hangs => "and hangs".to_owned(),
        };
        let Some(mount) = &told else {
            drop(ready);
            return Err(Failure::new(Exit::Mount, Died { how }));
        };
        let can_resume = mount.handover.is_some();
        tracing::error!("the process that serves {target} has died ({how})");
        if watch.is_leaving || (target.directory().is_none() && !can_resume) {
            give_up(&target, told, hangs, "no other process can go on");
            return Ok(Exit::Mount as u8);
        }
        let pause = deaths.add(started);
        if deaths.last.len() > usize::from(request.settings.restarts) {
            give_up(&target, told, hangs, "too many processes have died within a minute");
            return Ok(Exit::Mount as u8);
        }
        if !can_resume && hangs {
            abort(&target, &mount.device);
        }
        if watch.pause(pause).map_err(failed)? {
            give_up(&target, told, hangs, "it is to end");
            return Ok(Exit::Ok as u8);
        }
    }
}

/// The target by a path that is true in each worker, wherever it runs.
///
/// # Errors
/// The mount would hide what another worker must open again, which would then wait for itself.
fn resolved(request: &MountRequest, target: Target) -> Result<Target, Failure> {
    let (Target::Directory(directory), None) = (&target, &request.namespace) else {
        return Ok(target);
    };
    // What is wrong with the directory is said when it is mounted on.
    let Ok(directory) = mounts::resolve(directory) else { return Ok(target) };
    let sources = request.sources.iter().filter_map(PartName::as_path);
    let absolute = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
    let opened_again = sources.filter_map(absolute).chain(std::env::current_dir().ok());
    for path in opened_again {
        if path.starts_with(&directory) {
            let (path, directory) = (path.display(), directory.display());
            return Err(Failure::usage(format!(
                "--restarts: the mount on {directory} would hide {path}, which another daemon must open \
                 again; mount on a directory beside it"
            )));
        }
    }
    Ok(Target::Directory(directory))
}

/// The deaths of workers.
#[derive(Default)]
struct Deaths {
    /// Those within a minute.
    last: VecDeque<Instant>,
    /// How many in a row have died at once.
    at_once: u32,
}

impl Deaths {
    /// Counts the death of a worker; gives the pause before the next is started.
    fn add(&mut self, started: Instant) -> Duration {
        self.last.push_back(Instant::now());
        self.last.retain(|death| death.elapsed() < WITHIN);
        self.at_once = if started.elapsed() < AT_ONCE { self.at_once + 1 } else { 0 };
        match self.at_once {
            0 | 1 => Duration::ZERO,
            many => (PAUSE * (1 << (many - 2).min(10))).min(MAX_PAUSE),
        }
    }
}

/// Serves, in a process of its own.
fn work(
    request: &MountRequest,
    target: Target,
    told: Option<Told>,
    (messages, is_daemon): (&Messages, bool),
    caller: Caller,
) -> Result<u8, Failure> {
    let (is_first, digest) = (told.is_none(), told.as_ref().map(|told| told.digest));
    let handover = told.and_then(|told| told.handover);
    let resumed = handover.zip(digest).map(|(handover, digest)| Resumed { handover, digest });
    let prepared = prepare(request, target, resumed, caller.end);
    let prepared = prepared.and_then(Service::start).and_then(|serving| {
        let sent = tell(messages, &serving);
        sent.map_err(|error| Failure::new(Exit::Mount, error)).map(|()| serving)
    });
    match prepared.map_err(|failure| limits::explain(failure, request)) {
        Ok(serving) => {
            if is_daemon {
                process::leave_terminal();
            }
            serving.serve().map(|exit| exit as u8)
        }
        Err(failure) => {
            let failure = request.name_in(failure);
            match is_first {
                true => (caller.print)(&failure),
                false => tracing::error!("{failure}"),
            }
            Ok((caller.exit_code)(&failure))
        }
    }
}

/// Tells the supervisor of the mount: the digest, then what was granted, if another process can go
/// on, then the device and the status.
fn tell(messages: &Messages, serving: &Serving) -> io::Result<()> {
    let mut told = serving.digest.to_vec();
    let handover = serving.mounted.handover();
    let (granted, devices) = match handover {
        Some((granted, devices)) => (Some(granted), devices),
        None => (None, Vec::new()),
    };
    told.extend_from_slice(granted.unwrap_or_default().as_bytes());
    let text = format!("{}\n{}", serving.mounted.device(), serving.status);
    told.extend_from_slice(text.as_bytes());
    messages.send(&told, &devices)
}

fn hear(bytes: &[u8], devices: Vec<OwnedFd>) -> Option<Told> {
    let (digest, rest) = bytes.split_first_chunk()?;
    let (granted, text) = Granted::read_from_prefix(rest).ok()?;
    let handover = (!devices.is_empty()).then_some(Handover { devices, granted });
    let text = String::from_utf8_lossy(text);
    let (device, status) = text.split_once('\n')?;
    let (device, status) = (device.to_owned(), status.to_owned());
    Some(Told { digest: *digest, handover, device, status })
}

/// Watches workers.
struct Watch<'a> {
    supervisor: &'a Supervisor,
    /// A signal to unmount has come.
    is_leaving: bool,
}

impl Watch<'_> {
    /// Passes signals on to a worker until it has ended; gives what it has told.
    fn until_end(
        &mut self,
        worker: &mut Worker,
        ready: &mut Option<process::Ready>,
    ) -> io::Result<(Ending, Option<Told>)> {
        let watchdog = notify::watchdog();
        let mut told = None;
        loop {
            match self.supervisor.wait(Some(worker), watchdog)? {
                Event::Signal(signal) => {
                    self.is_leaving |= signal != Signal::SIGHUP;
                    worker.send(signal);
                }
                Event::Message(bytes, devices) => {
                    told = hear(&bytes, devices);
                    if let Some(told) = &told {
                        notify::ready(&told.status);
                    }
                    if let Some(ready) = ready.take() {
                        say_where_messages_go();
                        ready.report(0);
                    }
                }
                Event::Timeout => notify::alive(),
                Event::Ended => return Ok((worker.ending(), told)),
            }
        }
    }

    /// Waits; tells whether a signal to unmount has come.
    fn pause(&self, time: Duration) -> io::Result<bool> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.supervisor.wait(None, Some(left))? {
                Event::Signal(signal) if signal != Signal::SIGHUP => return Ok(true),
                Event::Timeout => return Ok(false),
                _ => {}
            }
        }
    }
}

/// Has all requests fail: nobody serves them any more.
fn give_up(target: &Target, told: Option<Told>, hangs: bool, why: &str) {
    tracing::error!("{target} is given up: {why}");
    // That closes the descriptors.
    let device = told.map(|told| told.device).unwrap_or_default();
    if hangs {
        abort(target, &device);
    }
}

/// Has all requests of our mount fail.
fn abort(target: &Target, device: &str) {
    if fuse_connection::abort(device).is_ok() {
        return;
    }
    if let Some(directory) = target.directory()
        && let Ok(directory) = mounts::resolve(directory)
        && let Ok(Some(mount)) = mounts::at(&directory)
        && mount.device == device
    {
        mounts::abort(&mount);
    }
}
