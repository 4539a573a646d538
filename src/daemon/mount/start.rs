//! Starts a mount: in this process, or in a daemon.

use super::limits;
use super::prepare::{self, prepare};
use super::request::{Caller, MadePoint, MountRequest, MountSettings};
use super::stored::{self, Found};
use super::supervise::supervise;
use super::terminal::{Died, say_where_messages_go};
use super::told::{Resumed, Told};
use super::worker::{self, Work, work};
use crate::daemon::logging::{self, Labels};
use crate::daemon::metrics::Address;
use crate::daemon::notify;
use crate::daemon::patience;
use crate::daemon::serve::{Service, Serving};
use crate::daemon::unmount::unmount_if_dead;
use crate::dataset::expand;
use crate::failure::{Exit, Failure, say};
use crate::io::memory::heap;
use crate::io::mount::{mounts, passed_connection};
use crate::io::process;
use crate::io::process::workers::Messages;
use crate::store::remote::CachePlace;
use crate::transport::Target;
use crate::vfs::Verify;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Makes the mount. In the foreground also serves it until its end. Otherwise the caller returns once a daemon serves it; the
/// daemon does not return, but exits at the end of the mount.
///
/// Returns the exit code: not 0 if the daemon failed, which has then printed the reason.
///
/// # Errors
/// The options contradict each other, or this process failed before there was a daemon.
pub(crate) fn start(mut request: MountRequest, caller: Caller) -> Result<u8, Failure> {
    let started = try_start(&mut request, caller);
    started.map_err(|failure| request.name_in(failure))
}

/// Looks whether [`start`] would mount.
///
/// # Errors
/// As for [`start`].
pub(crate) fn check(request: &MountRequest) -> Result<(), Failure> {
    try_check(request).map_err(|failure| request.name_in(limits::explain(failure, request)))
}

fn try_check(request: &MountRequest) -> Result<(), Failure> {
    let settings = &request.settings;
    check_settings(request)?;
    patience::check(written(settings))?;
    let mut target = target(&request.target)?;
    if settings.restarts > 0 && settings.insists_on_restarts {
        target = resolved(request, target)?;
    }
    prepare::check(request, &target)
}

/// Files that the options of a daemon name.
fn written(settings: &MountSettings) -> impl Iterator<Item = &Path> {
    let socket = settings.metrics.as_ref().and_then(Address::path);
    settings.log_file.as_deref().into_iter().chain(socket)
}

fn check_settings(request: &MountRequest) -> Result<(), Failure> {
    let live = &request.settings.live;
    live.check(live.memory_bytes()).map_err(Failure::usage)?;
    if request.open.checksums.require && live.verify() == Verify::Off {
        return Err(Failure::usage("--require-checksums checks nothing with --verify off"));
    }
    let user = nix::unistd::getuid().as_raw();
    let other = request.settings.uid.filter(|uid| request.settings.allow_root && *uid != user);
    if let Some(uid) = other {
        return Err(Failure::usage(format!(
            "--uid {uid} cannot be used with --allow-root: all files belong to the user who mounts ({user}) then, and nobody \
             but that user and root may read them"
        )));
    }
    Ok(())
}

fn try_start(request: &mut MountRequest, caller: Caller) -> Result<u8, Failure> {
    check_settings(request)?;
    // Also as `mount.ffrfs`: processes of a mount are known by this name.
    process::set_name(c"ffrfs");
    if let Some((messages, told)) = worker::inherited()? {
        return go_on(request, told, &messages, caller);
    }
    // Before the mount point is looked at: perhaps no process answers there.
    let kept = if request.foreground { stored::find(request) } else { Ok(None) };
    if let Ok(Some(found)) = &kept
        && let Some(directory) = &found.told.directory
    {
        request.target.clone_from(directory);
    }
    if !matches!(kept, Ok(Some(_))) && request.namespace.is_none() {
        // Else each process that looks at the mount point would wait for a stopped daemon there.
        let target = std::iter::once(request.target.as_path());
        patience::check(target.chain(written(&request.settings)))?;
    }
    let names = hold_names(request)?;
    let labels = labels(request);
    let target = target(&request.target)?;
    if target.directory().is_none() && request.settings.ro == Some(true) {
        // The kernel has already been told whether the mount is read-only.
        request.settings.control_ro = true;
    }
    request.make_absolute()?;
    request.open.indexes.writes = true;
    match request.foreground {
        true => in_foreground(request, target, kept, &labels, caller),
        false => in_background(request, target, &labels, names.as_ref(), caller),
    }
}

/// Serves in this process, or watches a worker. `kept` is the mount that the service manager has kept.
fn in_foreground(
    request: &MountRequest,
    target: Target,
    kept: Result<Option<Found>, Failure>,
    labels: &Labels,
    caller: Caller,
) -> Result<u8, Failure> {
    let settings = &request.settings;
    logging::in_foreground(settings.live.log_level(), settings.log_file.as_deref(), labels)?;
    let found = kept.unwrap_or_else(|why| {
        tracing::warn!("{why}; it is mounted anew");
        None
    });
    let made = match &found {
        Some(found) => found.made.then(|| MadePoint { path: request.target.clone(), is_new: true }),
        None => request.make_target()?,
    };
    heap::set_up();
    if settings.restarts > 0 {
        let found = found.map(|found| found.told);
        return supervised(request, target, (&mut None, made.as_ref()), found, caller);
    }
    let served = prepare(request, target, Resumed::default(), caller.end);
    let served = served.and_then(Service::start);
    let served = served.map_err(|failure| limits::explain(failure, request));
    let served = served.and_then(Serving::serve).map(|exit| exit as u8);
    remove(made.as_ref(), served.as_ref().is_ok_and(|code| *code == Exit::Ok as u8));
    served
}

/// Whether a path names a descriptor of this process.
fn is_descriptor(path: &Path) -> bool {
    ["/dev/fd/", "/proc/self/fd/"].iter().any(|directory| path.starts_with(directory))
}

/// Copies names that a descriptor of the caller gives (`--names <(program)`): they may be read only once, and a daemon would
/// close it.
fn hold_names(request: &mut MountRequest) -> Result<Option<File>, Failure> {
    let names = &mut request.names.names;
    let Some(path) = names.as_mut().filter(|path| is_descriptor(path)) else { return Ok(None) };
    let copied = File::open(&path).and_then(|mut given| {
        let mut copy = tempfile::tempfile()?;
        io::copy(&mut given, &mut copy).map(|_| copy)
    });
    let copy = copied.map_err(|e| Failure::unreadable(path.display(), e).context("--names"))?;
    *path = PathBuf::from(format!("/dev/fd/{}", copy.as_raw_fd()));
    Ok(Some(copy))
}

/// Starts a daemon, and returns whether it serves. The daemon exits at the end of the mount; it returns if it failed.
fn in_background(
    request: &mut MountRequest,
    target: Target,
    labels: &Labels,
    names: Option<&File>,
    caller: Caller,
) -> Result<u8, Failure> {
    let made = request.make_target()?;
    drop_supervisor(request, &target);
    let inherited = match &target {
        Target::Directory(_) => None,
        Target::PassedConnection(connection) => Some(connection.as_fd()),
    };
    let kept: Vec<_> = inherited.into_iter().chain(names.map(File::as_fd)).collect();
    let forked = process::fork_daemon(&kept).map_err(|e| Failure::new(Exit::Mount, e));
    match forked.map_err(|failure| limits::explain(failure, request))? {
        process::Forked::Parent(report) => {
            let code = wait_for_daemon(report, request)?;
            // The user has not named the mount point.
            if code == 0 && request.makes_target {
                let target = std::path::absolute(&request.target);
                let target = target.unwrap_or_else(|_| request.target.clone());
                say(format_args!("ffrfs: mounted on {}", target.display()));
            }
            Ok(code)
        }
        process::Forked::Daemon(ready) => {
            let code = be_the_daemon(request, target, labels, (ready, made.as_ref()), caller)?;
            // The parent tells the user what the code means.
            std::process::exit(i32::from(code))
        }
    }
}

/// Serves the mount of another program, which has started this one.
fn go_on(
    request: &mut MountRequest,
    told: Told,
    messages: &Messages,
    caller: Caller,
) -> Result<u8, Failure> {
    let target = told.target().map_err(|e| Failure::new(Exit::Mount, e))?;
    if let Target::Directory(directory) = &target {
        // Not looked up anew: perhaps no process answers there.
        request.target.clone_from(directory);
    }
    let labels = labels(request);
    request.make_absolute()?;
    request.open.indexes.writes = true;
    let settings = &request.settings;
    let (level, log_file) = (settings.live.log_level(), settings.log_file.as_deref());
    match request.foreground {
        true => logging::in_foreground(level, log_file, &labels)?,
        false => {
            notify::tell_nothing();
            logging::for_daemon(level, log_file, &labels)?;
        }
    }
    heap::set_up();
    let is_daemon = !request.foreground;
    work(Work { request, target, told: Some(told), is_daemon, caller }, messages)
}

/// A path that another worker must open again, and that a mount on `directory` would hide: the worker would wait for itself.
fn hidden(request: &MountRequest, directory: &Path) -> Option<PathBuf> {
    let indexes = &request.open.indexes;
    let cache = match &request.open.remote.cache {
        CachePlace::Directory(directory) => Some(directory.clone()),
        _ => None,
    };
    let others =
        [request.names.names.clone(), indexes.directory.clone(), indexes.spool.clone(), cache];
    let others = others.into_iter().flatten().chain(std::env::current_dir().ok());
    let mut opened_again = expand::local_paths(&request.sources).chain(others);
    opened_again.find(|path| resolved_as_far(path).is_some_and(|path| path.starts_with(directory)))
}

/// A path without links as far as it exists: a pattern names no file from some directory on.
fn resolved_as_far(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    path.ancestors().find_map(|ancestor| {
        let rest = path.strip_prefix(ancestor).ok()?;
        Some(ancestor.canonicalize().ok()?.join(rest))
    })
}

/// Does without a supervisor, unless the user insists on one, if no other worker could go on, or if that cannot be known.
fn drop_supervisor(request: &mut MountRequest, target: &Target) {
    let settings = &request.settings;
    if settings.restarts == 0 || settings.insists_on_restarts || request.namespace.is_some() {
        return;
    }
    let hides = match target {
        Target::PassedConnection(_) => true,
        Target::Directory(directory) => {
            mounts::resolve(directory).is_ok_and(|directory| hidden(request, &directory).is_some())
        }
    };
    // A pipe, for example, gives its names once.
    let once = |names: &PathBuf| !names.is_file() || is_descriptor(names);
    let read_once = request.names.names.as_ref().is_some_and(once);
    if hides || read_once {
        request.settings.restarts = 0;
    }
}

/// The target by a path that is right in each worker, wherever it runs.
///
/// # Errors
/// The mount would hide a path that another worker must open again.
fn resolved(request: &MountRequest, target: Target) -> Result<Target, Failure> {
    let (Target::Directory(directory), None) = (&target, &request.namespace) else {
        return Ok(target);
    };
    // If the directory is unfit, the mount reports it.
    let Ok(directory) = mounts::resolve(directory) else { return Ok(target) };
    if let Some(path) = hidden(request, &directory) {
        let (path, directory) = (path.display(), directory.display());
        return Err(Failure::usage(format!(
            "--restarts: the mount on {directory} would hide {path}, which another daemon must open \
             again; mount on a directory beside it"
        )));
    }
    Ok(Target::Directory(directory))
}

/// As [`supervise`]; the supervisor also removes the mount point that was made for this mount.
fn supervised(
    request: &MountRequest,
    target: Target,
    (ready, made): (&mut Option<process::Ready>, Option<&MadePoint>),
    found: Option<Told>,
    caller: Caller,
) -> Result<u8, Failure> {
    let target = match found {
        Some(_) => Ok(target),
        None => resolved(request, target),
    };
    let served = target
        .and_then(|target| supervise(request, target, (ready, made.is_some()), found, caller));
    if !served.as_ref().is_ok_and(|served| served.is_worker) {
        remove(made, served.as_ref().is_ok_and(|served| served.code == Exit::Ok as u8));
    }
    served.map(|served| served.code).map_err(|failure| limits::explain(failure, request))
}

/// Removes the mount point that was made for this mount, or for one before it; one that is in use again stays.
fn remove(made: Option<&MadePoint>, has_ended_well: bool) {
    // A mount point that was left from another mount may just have been taken over by a further mount, too.
    if let Some(MadePoint { path, is_new }) = made
        && (*is_new || has_ended_well)
        && let Err(error) = std::fs::remove_dir(path)
    {
        tracing::info!("{}: not removed: {error}", path.display());
    }
}

fn be_the_daemon(
    request: &MountRequest,
    target: Target,
    labels: &Labels,
    (ready, made): (process::Ready, Option<&MadePoint>),
    caller: Caller,
) -> Result<u8, Failure> {
    notify::tell_nothing();
    let settings = &request.settings;
    let log_file = settings.log_file.as_deref();
    let logs = logging::for_daemon(settings.live.log_level(), log_file, labels);
    heap::set_up();
    if settings.restarts > 0 && logs.is_ok() {
        let mut ready = Some(ready);
        let served = supervised(request, target, (&mut ready, made), None, caller);
        return match (served, ready) {
            (Err(failure), Some(ready)) => Ok(report(&request.name_in(failure), ready, caller)),
            (served, _) => served,
        };
    }
    if settings.restarts == 0 && !settings.insists_on_restarts {
        tracing::info!(
            "no supervisor watches this daemon: another one could not open all of this again"
        );
    }
    let prepared = logs
        .and_then(|()| prepare(request, target, Resumed::default(), caller.end))
        .and_then(Service::start);
    match prepared {
        Ok(serving) => {
            say_where_messages_go();
            ready.report(0);
            let served = serving.serve();
            remove(made, served.as_ref().is_ok_and(|exit| *exit == Exit::Ok));
            served.map(|exit| exit as u8)
        }
        Err(failure) => {
            remove(made, false);
            Ok(report(&request.name_in(limits::explain(failure, request)), ready, caller))
        }
    }
}

/// Prints the reason why a daemon does not serve. Returns its exit code; the user sees that of the parent.
fn report(failure: &Failure, ready: process::Ready, caller: Caller) -> u8 {
    (caller.print)(failure);
    ready.report((caller.exit_code)(failure));
    failure.exit as u8
}

/// The directory, or the connection that `/dev/fd/N` names.
fn target(path: &Path) -> Result<Target, Failure> {
    let Some(number) = passed_connection::descriptor_number(path) else {
        return Ok(Target::Directory(path.to_owned()));
    };
    let connection = passed_connection::duplicate(number).map_err(|e| {
        let what = format!("{}: not an open /dev/fuse", path.display());
        Failure::new(Exit::Mount, e).context(what)
    })?;
    Ok(Target::PassedConnection(connection))
}

fn wait_for_daemon(report: process::Report, request: &MountRequest) -> Result<u8, Failure> {
    // Without a thread for it, Ctrl-C reaches the daemon all the same: it is in the same process group.
    let interrupted = report.pass_on_interrupts().unwrap_or_default();
    let code = report.wait();
    if code.is_err() {
        // A mount of a daemon that died is of no use.
        let _ = unmount_if_dead(&request.target);
    }
    if interrupted.load(Ordering::Relaxed) && matches!(code, Err(_) | Ok(0)) {
        return Err(Failure::interrupted());
    }
    code.map_err(|how| Failure::new(Exit::Mount, Died { how }))
}

/// Fields of each message in the journal.
fn labels(request: &MountRequest) -> Labels {
    let target = &request.target;
    let absolute = || std::path::absolute(target).unwrap_or_else(|_| target.clone());
    let mount = mounts::resolve(target).unwrap_or_else(|_| absolute());
    Labels { mount: mount.display().to_string(), source: request.name() }
}
