//! Opens the dataset and mounts it, or goes on with the mount of another process: everything up to a mount that the kernel
//! has accepted.

use super::confine::{Shown, confinement, hide_password};
use super::limits;
use super::objects::run_programs_outside;
use super::request::{MountRequest, MountSettings};
use super::told::{self, DIGEST_BYTES, Resumed};
use crate::catalog::{Catalog, Node, ROOT};
use crate::daemon::doctor;
use crate::daemon::logging;
use crate::daemon::metrics::Metrics;
use crate::daemon::patience;
use crate::daemon::reload::Reload;
use crate::daemon::sandbox::{Sandbox, Unmounter};
use crate::daemon::serve::{Service, Signals};
use crate::daemon::settings::Runtime;
use crate::dataset::{self, KeptCheckpoints, Opened};
use crate::failure::{Exit, Failure};
use crate::format::counted;
use crate::interrupt::Interrupt;
use crate::io::mount::mount_id::Made;
use crate::io::mount::{fuse_connection, made, mounts};
use crate::io::process::procfs;
use crate::io::process::workers::{self, Messages};
use crate::io::{File, process};
use crate::store::{Part, Store};
use crate::tools::progress::Terminal;
use crate::transport::{Mounted, Target};
use crate::vfs::{Options, Vfs};
use nix::fcntl::{Flock, FlockArg};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io};

/// A kept index of at least this size is mapped rather than held on the heap.
const WORTH_MAPPING_BYTES: u64 = 16 << 20;

/// Everything up to a mount that the kernel has accepted.
pub(super) fn prepare(
    request: &MountRequest,
    target: Target,
    resumed: Resumed<'_>,
    end: fn(Exit) -> !,
) -> Result<Service, Failure> {
    limits::check_memory()?;
    let MountRequest { settings, namespace, .. } = request;
    let is_resumed = resumed.handover.is_some();
    let is_here = namespace.is_none() && !is_resumed;
    // Checked before the containers are opened, which may take long. A dead mount stays until they are open: without it,
    // programs would find an empty directory.
    let is_first = is_here && !resumed.is_next;
    if !resumed.is_next {
        settings.warn_of_rw_without_control();
    }
    let target = if is_first { free(target, request)? } else { target };
    hide_password(request);
    // Made while this process has only one thread.
    let unmounter = unmounter(request, &target);
    run_programs_outside(request);
    let (opened, catalog) = open(request)?;
    say_renamed(&catalog, request);
    let digest = same_digest(request, &opened, &catalog, &resumed)?;
    let (samples, has_objects) = (opened.dataset.len(), opened.store.has_objects());
    let shown = Shown::default();
    let vfs = vfs(request, opened, catalog, &shown);
    // Before the mount: a signal that came between would end the process and leave a dead mount.
    let signals = signals(settings)?;
    // Else a second signal, which the supervisor passes on, would end this process at once.
    Interrupt::leave_to_others()?;
    let mut options = settings.mount(request.name(), has_objects);
    let bind = |address| Metrics::bind(address, resumed.metrics);
    let metrics = settings.metrics.as_ref().map(bind).transpose()?;
    // Paths are those of this mount namespace.
    options.before_requests =
        confinement(request, &vfs, &target, unmounter.clone(), &shown, is_resumed)?;
    let reserved = target.directory().filter(|_| is_first).and_then(reserve);
    let target = match namespace {
        // Another process may have mounted here while the containers were opened.
        None if is_first && target.directory().is_some() => free(target, request)?,
        None if is_first => target,
        // As late as possible: from here to the mount programs find an empty directory.
        None if is_here => free_again(target, request, resumed.supervisor, &resumed.made)?,
        None => target,
        Some(namespace) => {
            enter(namespace, vfs.store().len())?;
            match resumed.is_next {
                _ if is_resumed => target,
                true => {
                    let target = resolved(target)?;
                    free_again(target, request, resumed.supervisor, &resumed.made)?
                }
                false => free(target, request)?,
            }
        }
    };
    #[cfg(feature = "test-hooks")]
    if resumed.is_next && !is_resumed {
        wait_for_test("FFRFS_TEST_BEFORE_MOUNTING_ANEW");
    }
    let vfs = Arc::new(vfs);
    if let Some(metrics) = &metrics {
        let served = metrics.serve(&vfs, &target.to_string(), &request.name());
        served.map_err(|e| Failure::new(Exit::Mount, e))?;
    }
    let mounted = match resumed.handover {
        None => Mounted::new(Arc::clone(&vfs), &target, options)?,
        Some(handover) => Mounted::resume(&vfs, &target, &options, handover)?,
    };
    drop(reserved);
    tracing::info!(samples, "mounted on {target}");
    let status = format!("{} of {} on {target}", counted(samples, "sample"), request.name());
    let configured = request.configured.clone();
    let reload = Reload { configured, vfs: Arc::downgrade(&vfs) };
    Ok(Service {
        vfs,
        mounted,
        digest,
        target,
        signals,
        status,
        reload,
        metrics,
        unmounter,
        end,
        is_resumed,
        supervisor: None,
        is_kept: false,
    })
}

/// Reads the file or pipe that a variable names, past the page cache, so that tests can make the process wait at this moment.
/// Only builds with the feature `test-hooks` do so.
#[cfg(feature = "test-hooks")]
pub(super) fn wait_for_test(variable: &str) {
    use std::io::Read;
    use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
    let Some(path) = std::env::var_os(variable) else { return };
    // For a pipe, the kernel refuses that flag after it has waited for the other end.
    let is_pipe = fs::metadata(&path).is_ok_and(|found| found.file_type().is_fifo());
    let flags = if is_pipe { 0 } else { libc::O_DIRECT };
    let file = fs::File::options().read(true).custom_flags(flags).open(path);
    let _ = file.and_then(|mut file| file.read(&mut [0; 4096]));
}

/// The file system of a dataset, which shows how the process is confined.
fn vfs(request: &MountRequest, opened: Opened, catalog: Catalog, confined: &Shown) -> Vfs {
    let MountRequest { settings, given, open, .. } = request;
    let options = Options {
        io: in_words(&opened.store),
        log: logging::destination().to_string(),
        sandbox: Arc::clone(confined),
        restarts: settings.restarts,
        given: given.clone(),
        stores: opened.counters.clone(),
        ..settings.vfs(opened.store.has_objects())
    };
    let vfs = opened.into_vfs(catalog, options);
    if let Some(kept) = KeptCheckpoints::new(vfs.store(), &open.indexes, &open.format) {
        vfs.keep_checkpoints(Arc::new(kept));
    }
    vfs.set_settings(Runtime::new(settings.live.memory_bytes(), open.checksums.require));
    vfs
}

/// The digest of the containers and names of a mount that another process may go on with.
///
/// # Errors
/// The containers or names differ from those that the process before this one has served.
fn same_digest(
    request: &MountRequest,
    opened: &Opened,
    catalog: &Catalog,
    resumed: &Resumed<'_>,
) -> Result<[u8; DIGEST_BYTES], Failure> {
    let digest = match request.settings.restarts {
        0 => [0; DIGEST_BYTES],
        1.. => digest(opened, catalog, request)?,
    };
    if resumed.handover.is_some() && resumed.digest != digest {
        let why = "the containers or their names have changed since they were mounted";
        return Err(Failure::new(Exit::Mount, why));
    }
    Ok(digest)
}

/// The signals that the daemon handles, its supervisor's among them if it has one.
fn signals(settings: &MountSettings) -> Result<Signals, Failure> {
    let supervisors = (settings.restarts > 0).then_some(workers::LEAVE as i32);
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP].into_iter().chain(supervisors));
    signals.map_err(|e| Failure::new(Exit::Mount, e))
}

/// The process that unmounts for a confined daemon.
fn unmounter(request: &MountRequest, target: &Target) -> Option<Arc<Unmounter>> {
    let directory = target.directory().filter(|_| request.settings.sandbox != Sandbox::No)?;
    Unmounter::start(directory, request.namespace.as_deref()).map(Arc::new)
}

fn say_renamed(catalog: &Catalog, request: &MountRequest) {
    let renamed = catalog.renamed();
    let Some(summary) = renamed.summary() else { return };
    // `ffrfs info` takes no options for names, and would show other names.
    let examples = match request.settings.no_control {
        true => "ffrfs ls -R with the same options shows them",
        false => "`renamed` in .ffrfs/info.json of the mount has examples",
    };
    let of = match request.names.selection.is_everything() {
        true => "",
        false => " (of all names, selected or not)",
    };
    match renamed.escaped + renamed.numbered + renamed.hidden {
        0 if catalog.samples() == 0 => {
            tracing::warn!("the mount is empty{of}: {summary}");
        }
        0 => tracing::info!("not all names are shown{of}: {summary}"),
        _ => tracing::warn!("some names are shown changed{of}: {summary}; {examples}"),
    }
}

/// The version of the inode numbers, raised when they are computed from samples in another way: a program cannot go on with a
/// mount of another version.
const INODES: u64 = 1;
/// The number of entries of the root that tell whether names are as before.
const COMPARED_NAMES: usize = 1000;

/// A digest that tells whether another process shows the same dataset: of the names and versions of the parts, the file of
/// names, the counts of samples and directories, and the first entries of the root.
fn digest(
    opened: &Opened,
    catalog: &Catalog,
    request: &MountRequest,
) -> Result<[u8; DIGEST_BYTES], Failure> {
    let mut digest = blake3::Hasher::new();
    for part in opened.store.parts() {
        digest
            .update(format!("{:?}\n", (part.name(), part.version(), part.len_bytes())).as_bytes());
    }
    for count in [INODES, opened.dataset.len(), catalog.samples(), catalog.directories()] {
        digest.update(&count.to_le_bytes());
    }
    if let Some(names) = &request.names.names {
        let hashed = fs::File::open(names).and_then(|file| digest.update_reader(file).map(drop));
        hashed.map_err(|e| Failure::unreadable(names.display(), e))?;
    }
    let mut left = COMPARED_NAMES;
    catalog.list(&opened.dataset, ROOT, 0, &mut |name, node| {
        let (kind, number) = match node {
            Node::Directory(number) => (b'd', number),
            Node::Sample(number) => (b's', number),
        };
        digest.update(&[kind]).update(&number.to_le_bytes()).update(name).update(b"\0");
        left -= 1;
        left > 0
    })?;
    Ok(*digest.finalize().as_bytes())
}

fn open(request: &MountRequest) -> Result<(Opened, Catalog), Failure> {
    let open = || -> Result<_, Failure> {
        let opened = dataset::open(&request.sources, &request.open, &Terminal::watch())?;
        let catalog = opened.named(&request.names, request.open.format.allow_damaged)?;
        Ok((opened, catalog))
    };
    let (opened, catalog) = open()?;
    if opened.written_bytes() < WORTH_MAPPING_BYTES {
        return Ok((opened, catalog));
    }
    // The index is on the heap now; the kept index that was just written can be mapped instead.
    drop((opened, catalog));
    open()
}

/// Enters a mount namespace. The containers are open by now, so that they need not be visible in it.
fn enter(namespace: &Path, containers: usize) -> Result<(), Failure> {
    if containers > dataset::MANY_FILES {
        let most = dataset::MANY_FILES;
        return Err(Failure::usage(format!(
            "-N cannot mount more than {}",
            counted(most, "container")
        )));
    }
    process::enter_mount_namespace(namespace).map_err(|e| {
        let what = format!("cannot enter the mount namespace {}", namespace.display());
        Failure::new(Exit::Mount, e).context(what)
    })
}

/// How containers are read, as `info.json` shows it.
fn in_words(store: &Store) -> &'static str {
    let is_direct = |part: &Arc<Part>| part.file().is_some_and(File::is_direct);
    match store.parts().iter().filter(|part| is_direct(part)).count() {
        0 => "buffered",
        all if all == store.len() => "direct",
        _ => "mixed",
    }
}

/// A target that can be mounted on. A directory that its user has named stays after the mount, though it may have been made for
/// another mount before.
fn free(target: Target, request: &MountRequest) -> Result<Target, Failure> {
    match target {
        Target::Directory(directory) => {
            let directory = free_mount_point(&directory)?;
            if !request.makes_target {
                made::forget(&directory);
            }
            Ok(Target::Directory(directory))
        }
        Target::PassedConnection(_) => {
            request.settings.warn_of_options_without_effect();
            Ok(target)
        }
    }
}

/// How long to wait for another process that mounts on the same directory.
const RESERVED: Duration = Duration::from_secs(5);

/// Keeps other processes of ours from mounting on a directory until this one has: both would find it free. `None` if it cannot
/// be locked: the mount goes on without the lock. Every process that may read the directory may lock it: processes that mount
/// nothing are not waited for.
fn reserve(directory: &Path) -> Option<Flock<fs::File>> {
    let mut file = fs::File::open(directory).ok()?;
    let inode = file.metadata().ok()?.ino();
    let start = Instant::now();
    loop {
        file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => return Some(locked),
            Err((file, nix::Error::EAGAIN)) if start.elapsed() < RESERVED => file,
            Err(_) => return None,
        };
        let holders = procfs::lock_holders(inode);
        if let (Some(pid), false) = (holders.first(), holders.iter().any(|&pid| may_mount(pid))) {
            let (at, what) = (directory.display(), "which mounts nothing, and is not waited for");
            tracing::info!("{at} is locked by process {pid}, {what}");
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process is a daemon of ours, of this user or of root.
fn may_mount(pid: u32) -> bool {
    let owner = fs::metadata(format!("/proc/{pid}")).map(|process| process.uid());
    let is_trusted = |owner| owner == 0 || owner == nix::unistd::geteuid().as_raw();
    owner.is_ok_and(is_trusted) && fuse_connection::is_daemon(pid)
}

/// The target as the mount table shows it.
fn resolved(target: Target) -> Result<Target, Failure> {
    let Target::Directory(directory) = target else { return Ok(target) };
    let found = mounts::resolve(&directory).map_err(|e| cannot_mount_on(&directory, e))?;
    Ok(Target::Directory(found))
}

/// As [`free`], where a mount of this dataset was before.
fn free_again(
    target: Target,
    request: &MountRequest,
    supervisor: Option<&Messages>,
    before: &Made,
) -> Result<Target, Failure> {
    // A mount without a device number was taken away by a process like this one.
    if let Some(directory) = target.directory().filter(|_| !before.device.is_empty())
        && mounts::at(directory)
            .map_err(|e| cannot_mount_on(directory, e))?
            .is_none_or(|there| !before.is_on(&there.device))
    {
        return Err(Failure::new(Exit::Ok, "it was unmounted meanwhile"));
    }
    if let Some(supervisor) = supervisor {
        // A supervisor that has died need not be told.
        let told = told::tell_of_taking_away(supervisor)
            .or_else(|error| if workers::has_nobody(&error) { Ok(()) } else { Err(error) });
        told.map_err(|e| Failure::new(Exit::Mount, e))?;
    }
    free(target, request)
}

/// Directories without which neither the daemon nor other programs can work.
const NEEDED: [&str; 4] = ["/", "/dev", "/proc", "/sys"];

/// The mount point as an absolute path, and the state of the mount on it.
fn look_at(target: &Path) -> Result<(PathBuf, mounts::State), Failure> {
    let cannot = |e| cannot_mount_on(target, e);
    let target = mounts::resolve(target).map_err(cannot)?;
    if NEEDED.iter().any(|needed| target == Path::new(needed)) {
        let why = "the system needs what is there, and a mount would hide it";
        return Err(Failure::new(Exit::Mount, format!("mount point {}: {why}", target.display())));
    }
    let state = patience::state(&target).map_err(|e| match e.kind() {
        io::ErrorKind::TimedOut => patience::unanswered(&target, &e),
        _ => cannot(e),
    })?;
    Ok((target, state))
}

fn cannot_mount_on(target: &Path, error: io::Error) -> Failure {
    let point = target.display();
    let failure = match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::new(Exit::Mount, format!("{error}; make it first: mkdir -p {point}"))
        }
        io::ErrorKind::NotADirectory => {
            let order = "it stands last: ffrfs mount SOURCE… MOUNTPOINT";
            Failure::new(Exit::Mount, format!("{error}; {order}"))
        }
        _ => Failure::new(Exit::Mount, error),
    };
    failure.context(format!("mount point {point}"))
}

/// Checks all that a mount would need, also the containers; mounts and writes nothing.
///
/// # Errors
/// The dataset could not be mounted.
pub(super) fn check(request: &MountRequest, target: &Target) -> Result<(), Failure> {
    limits::check_memory()?;
    let mut is_mounted = false;
    if let (Some(directory), None) = (target.directory(), &request.namespace) {
        // Also where something is mounted: mount(8) calls this for datasets that it has mounted before.
        let (directory, state) = look_at(directory)?;
        is_mounted = matches!(state, mounts::State::Mounted(_));
        if matches!(state, mounts::State::Free) {
            let MountSettings { allow_other, allow_root, .. } = &request.settings;
            doctor::check_mount_point(&directory, *allow_other || *allow_root)?;
        }
    }
    let MountSettings { log_file, metrics, .. } = &request.settings;
    log_file.as_deref().map_or(Ok(()), logging::check_file)?;
    // The dataset that is mounted there may have taken the address.
    metrics.as_ref().filter(|_| !is_mounted).map_or(Ok(()), Metrics::check)?;
    open(request).map(drop)
}

/// The mount point as an absolute path, cleared of a mount whose daemon is dead.
fn free_mount_point(target: &Path) -> Result<PathBuf, Failure> {
    let (target, state) = look_at(target)?;
    match state {
        mounts::State::Free => Ok(target),
        mounts::State::Dead(dead) => {
            say_removed(&dead);
            mounts::unmount(&target, true).map_err(|e| cannot_mount_on(&target, e))?;
            free_mount_point(&target)
        }
        mounts::State::Mounted(mount) => Err(Failure::new(
            Exit::Mount,
            format!(
                "{}: {} is already mounted there (to unmount it: ffrfs umount {})",
                target.display(),
                mount.source.to_string_lossy(),
                target.display()
            ),
        )),
    }
}

/// Says that a dead mount is removed, together with the mounts in it. No program can reach those through a dead mount, but
/// programs that have files of them open lose nothing until it is removed.
fn say_removed(dead: &mounts::Mount) {
    let target = dead.target.display();
    let lost = mounts::beneath(dead).unwrap_or_default();
    let lost: Vec<String> = lost.iter().map(|mount| mount.target.display().to_string()).collect();
    match lost.as_slice() {
        [] => tracing::warn!("{target}: removing a mount whose daemon is dead"),
        lost => tracing::error!(
            "{target}: removing a mount whose daemon is dead, and with it what is mounted in it: {}; mount that again",
            lost.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_needs_is_no_mount_point() {
        let link = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/proc", link.path().join("link")).unwrap();
        for needed in ["/", "/proc", "/proc/", "/sys", "/dev", "/tmp/../dev"] {
            let refused = look_at(Path::new(needed)).unwrap_err();
            assert!(refused.to_string().contains("the system needs"), "{needed}: {refused}");
        }
        assert!(look_at(&link.path().join("link")).is_err());
        assert!(look_at(link.path()).is_ok());
    }
}
