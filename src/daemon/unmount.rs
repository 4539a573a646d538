//! Unmounts a dataset, also after its daemon has died, or if its daemon does not answer.

use super::live::Live;
use super::patience::{self, PATIENCE};
use crate::failure::{Exit, Failure, Reason, say};
use crate::io::mount::fuse_connection::{self, Activity, Process};
use crate::io::mount::made::MadeDirectory;
use crate::io::mount::mount_id::MountId;
use crate::io::mount::mounts::{self, Mount};
use crate::io::mount::unshared::user_named;
use crate::io::process::descriptor_store;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a daemon that runs may take to end: it finishes reads, and writes the data that it keeps.
const END: Duration = Duration::from_secs(20);
/// How long a mount that a service manager may keep may take to answer: a dead mount answers at once. The next daemon is not
/// started before this command has ended.
const KEPT: Duration = Duration::from_millis(250);
/// The variable in which systemd tells a command how a service has ended (systemd.exec(5)), and the values after which systemd
/// starts no other daemon: the service was stopped.
const RESULT: &str = "SERVICE_RESULT";
const STOPPED: [&str; 2] = ["success", "timeout"];
/// How long a process that is mounting something else may look like a server of this mount.
const PASSING: Duration = Duration::from_secs(2);
/// How long a mount that may just be made anew may take to come.
const ANEW: Duration = Duration::from_secs(10);
/// The first pause between two looks for a mount or its server, and the longest: each looks at all processes.
const LOOK_FOR_IT: Duration = Duration::from_millis(20);
const LONGEST_LOOK: Duration = Duration::from_millis(200);
/// The pause between two looks whether a process or a mount has ended.
const LOOK: Duration = Duration::from_millis(2);
/// How long a mount may be busy because another command asks whether its daemon answers, which holds the mount.
const MOMENT: Duration = Duration::from_millis(200);

/// How a mount is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Once no program uses the mount; its daemon has ended then, too.
    Whole,
    /// At once for all programs that have no file open in the mount.
    Lazy,
    /// At once; programs that wait for its daemon get an error.
    Force,
}

/// Unmounts if the daemon is dead, or if its service was stopped and no process serves the mount any more; other mounts are
/// left alone.
///
/// # Errors
/// A dead mount cannot be unmounted, or it is not known whether the mount is dead.
pub(crate) fn unmount_if_dead(target: &Path) -> Result<(), Failure> {
    // A service manager that keeps the connection of a mount starts another daemon for it. No daemon answers until then, and
    // its start must not wait here.
    let is_kept = descriptor_store::service_capacity() > 0;
    let patience = if is_kept { KEPT } else { PATIENCE };
    let Ok(resolved) = mounts::resolve(target) else { return Ok(()) };
    match patience::state_within(&resolved, patience) {
        Ok(mounts::State::Dead(_)) => unmount(&resolved, Manner::Lazy),
        // The manager lets go of the connection now: the mount would be dead.
        Err(e) if e.kind() == io::ErrorKind::TimedOut && is_kept && is_stopped(&resolved) => {
            unmount(&resolved, Manner::Lazy)
        }
        Err(e) if patience::is_unmade(&e) => {
            Err(Failure::new(Exit::Mount, e).context(resolved.display()))
        }
        _ => Ok(()),
    }
}

/// Whether the service of a mount was stopped, and no process serves the mount that is there.
fn is_stopped(target: &Path) -> bool {
    let result = std::env::var(RESULT).unwrap_or_default();
    let mount = mounts::at(target).ok().flatten().filter(|_| STOPPED.contains(&&*result));
    let Some(mount) = mount else { return false };
    let soon = Instant::now() + PASSING;
    // A process that just mounts something else has, for a moment, a descriptor that could be of any connection.
    while fuse_connection::may_be_served(&mount.device, MountId::of(mount.number)) {
        if Instant::now() >= soon {
            return false;
        }
        std::thread::sleep(LOOK_FOR_IT);
    }
    true
}

/// Unmounts the dataset on `target`, and waits for the end of its daemon unless the daemon serves on.
///
/// # Errors
/// No dataset is mounted there, or it cannot be unmounted, or its daemon does not answer or does not end.
pub(crate) fn unmount(target: &Path, manner: Manner) -> Result<(), Failure> {
    let failed = |e: Reason| {
        Failure::new(Exit::Mount, e).context(format_args!("cannot unmount {}", target.display()))
    };
    let resolved = mounts::resolve(target).map_err(|e| failed(e.into()))?;
    let (mount, id) = match there(&resolved).map_err(|e| failed(e.into()))? {
        Some(there) if there.0.fs_type == mounts::FS_TYPE => there,
        Some((mount, _)) => {
            let why = format!("a file system of type {}, not of ffrfs", mount.fs_type);
            return Err(failed(why.into()));
        }
        None => {
            let why = "nothing is mounted there (ffrfs list shows all mounts)";
            return Err(failed(why.into()));
        }
    };
    let failed = |e: io::Error| failed(may_not(&mount, &e).map_or_else(|| e.into(), Reason::from));
    let unmounted = match manner {
        Manner::Force | Manner::Lazy => {
            // Asked before the unmount: then the kernel gives the device number to the next mount at once.
            let is_served = fuse_connection::may_be_served(&mount.device, id);
            let ended = match manner {
                Manner::Force => force(&mount, id),
                _ => unless_gone(mounts::unmount(&resolved, true), id),
            };
            ended.map_err(failed)?;
            if !is_served {
                remove_made(&resolved, made_for(&resolved, &mount), id);
            }
            return Ok(());
        }
        Manner::Whole => match patience::state(&resolved) {
            // A dead mount is of no use: files of it that are still open must not keep it.
            Ok(mounts::State::Dead(_)) => {
                let left = fuse_connection::labelled(id);
                unless_gone(mounts::unmount(&resolved, true), id).map_err(failed)?;
                let made = made_for(&resolved, &mount);
                wait(&left, &mount)?;
                remove_made(&resolved, made, id);
                return Ok(());
            }
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                return Err(patience::unanswered(&resolved, &e));
            }
            _ => {
                let noted = (servers(&mount, id), Elsewhere::of(&mount));
                unmount_unused(&resolved, id).map(|()| noted)
            }
        },
    };
    let (servers, elsewhere) = unmounted.map_err(|e| match e.kind() {
        io::ErrorKind::ResourceBusy => failed(io::Error::other(format!("{e}; {}", busy(&mount)))),
        _ => failed(e),
    })?;
    let made = made_for(&resolved, &mount);
    if !elsewhere.serves_on(&mount) {
        wait(&servers, &mount)?;
        remove_made(&resolved, made, id);
    }
    Ok(())
}

/// The mount point, if it was made for the mount that was on it, or for a dead mount before. Looked for as soon as the mount is
/// unmounted: once its daemon has removed the directory, another mount may make one in its place.
fn made_for(target: &Path, mount: &Mount) -> Option<MadeDirectory> {
    let is_free = matches!(mounts::at(target), Ok(None));
    mount.user.filter(|_| is_free).and_then(|owner| MadeDirectory::at(target, owner))
}

/// Removes the mount point if no daemon has done so.
fn remove_made(target: &Path, made: Option<MadeDirectory>, id: MountId) {
    let Some(made) = made.filter(|_| matches!(mounts::at(target), Ok(None))) else { return };
    // A supervisor may be about to make the mount anew, and removes it in the end.
    if !fuse_connection::labelled(id).is_empty() {
        return;
    }
    let shown = target.display();
    match made.remove(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            say(format_args!("ffrfs: {shown} stays: there are files in it"));
        }
        Err(error) => say(format_args!("ffrfs: {shown}: not removed: {error}")),
        Ok(()) => {}
    }
}

/// The mount on `target`, and the ID that tells it from the next mount in this place. If nothing is mounted there, another
/// daemon may just be making the mount anew: then waits for it.
fn there(target: &Path) -> io::Result<Option<(Mount, MountId)>> {
    there_or_due(|| identified(target), fuse_connection::is_mount_due)
}

fn identified(target: &Path) -> io::Result<Option<(Mount, MountId)>> {
    let Some(mount) = mounts::at(target)? else { return Ok(None) };
    let id = MountId::of(mount.number);
    // If another command has unmounted it since, the number may be that of another mount elsewhere.
    let is_there = mounts::at(target)?.is_some_and(|now| now.number == mount.number);
    Ok(is_there.then_some((mount, id)))
}

/// The mount that `look` finds, at once or as long as one `is_due`. A mount that comes during that question is no longer due:
/// hence the last look.
fn there_or_due<T>(
    look: impl Fn() -> io::Result<Option<T>>,
    is_due: impl Fn() -> bool,
) -> io::Result<Option<T>> {
    let (start, mut pause) = (Instant::now(), LOOK_FOR_IT);
    loop {
        let there = look()?;
        if there.is_some() {
            return Ok(there);
        }
        if start.elapsed() >= ANEW || !is_due() {
            return look();
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_LOOK);
    }
}

/// Unmounts a mount, unless programs use it for longer than a moment.
fn unmount_unused(target: &Path, id: MountId) -> io::Result<()> {
    let start = Instant::now();
    loop {
        match unless_gone(mounts::unmount(target, false), id) {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && start.elapsed() < MOMENT => {}
            ended => return ended,
        }
        std::thread::sleep(LOOK);
        // Another mount may be in its place by now.
        if !id.is_mounted() {
            return Ok(());
        }
    }
}

/// Ignores an error if the mount has gone: another command may have unmounted it just before.
fn unless_gone(unmounted: io::Result<()>, id: MountId) -> io::Result<()> {
    unmounted.or_else(|error| if id.is_mounted() { Err(error) } else { Ok(()) })
}

/// The reason why a mount is busy, and advice.
fn busy(mount: &Mount) -> String {
    let within = mounts::beneath(mount).unwrap_or_default();
    let within: Vec<String> = within.iter().map(|it| it.target.display().to_string()).collect();
    match within.as_slice() {
        [] => {
            let path = mount.target.display();
            format!(
                "files in it are open, or programs work in it (fuser -vm {path} lists them); -z detaches it anyway"
            )
        }
        within => format!("unmount first what is mounted in it: {}", within.join(", ")),
    }
}

/// The message if this user may not unmount the mount of another user.
fn may_not(mount: &Mount, error: &io::Error) -> Option<String> {
    let (owner, this) = (mount.user?, nix::unistd::geteuid());
    let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
    if !is_denied || this.is_root() || owner == this.as_raw() {
        return None;
    }
    let target = mount.target.display();
    let who = match owner {
        0 => "root has mounted it, and only root".to_owned(),
        owner => format!("{} has mounted it, and only that user and root", user_named(owner)),
    };
    Some(format!("{who} may unmount it: sudo ffrfs umount {target}"))
}

/// The processes that serve a mount or watch over it, if this user may see them.
fn servers(mount: &Mount, id: MountId) -> Vec<Process> {
    let seen = fuse_connection::servers(&mount.device, id, None);
    if !seen.is_empty() {
        return seen;
    }
    let told = Live::at(&mount.target).and_then(|live| live.info()).ok().map(|info| info.pid);
    fuse_connection::servers(&mount.device, id, told)
}

/// The other places where a mount is mounted: by `mount --bind`, or in another mount namespace. Its daemon serves on there.
/// Noted before the unmount: then the kernel gives the device number to the next mount at once.
struct Elsewhere {
    connection: Option<u64>,
    numbers: BTreeSet<u32>,
}

impl Elsewhere {
    fn of(mount: &Mount) -> Self {
        let mut numbers = mounts::numbers_anywhere(&mount.device);
        numbers.remove(&mount.number);
        Self { connection: fuse_connection::identity(&mount.device), numbers }
    }

    /// Whether the daemon serves on, now that `mount` is unmounted.
    fn serves_on(&self, mount: &Mount) -> bool {
        let lives = || fuse_connection::identity(&mount.device) == self.connection;
        let is_there = || !mounts::numbers_anywhere(&mount.device).is_disjoint(&self.numbers);
        (self.connection.is_some() && lives()) || (!self.numbers.is_empty() && is_there())
    }
}

/// Waits until the processes have let go of the containers, of the file systems of these, and of a mount point that was made
/// for the mount.
fn wait(servers: &[Process], mount: &Mount) -> Result<(), Failure> {
    let start = Instant::now();
    for server in servers {
        if !has_ended(server, mount, start)? {
            break;
        }
    }
    Ok(())
}

/// Whether a process ends in time.
///
/// # Errors
/// The process is stopped.
fn has_ended(server: &Process, mount: &Mount, start: Instant) -> Result<bool, Failure> {
    let pid = server.pid;
    loop {
        match server.activity() {
            Activity::Ended => return Ok(true),
            Activity::Stopped if start.elapsed() > PATIENCE => {
                let target = mount.target.display();
                let why = format!(
                    "{target} is unmounted, but its process {pid} is stopped, and may hold the containers: kill \
                     -CONT {pid} lets it end"
                );
                return Err(Failure::new(Exit::Mount, why));
            }
            Activity::Runs if start.elapsed() > END => {
                say(format_args!(
                    "ffrfs: {} is unmounted; its process {pid} has not ended yet",
                    mount.target.display()
                ));
                return Ok(false);
            }
            _ => std::thread::sleep(LOOK),
        }
    }
}

/// Aborts the connection; the daemon and its supervisor end then. Stopped processes are continued for that: with io_uring, the
/// kernel has a daemon return the requests that it holds, and a supervisor holds descriptors of the connection.
fn force(mount: &Mount, id: MountId) -> io::Result<()> {
    let mut servers = fuse_connection::servers(&mount.device, id, None);
    // With io_uring, a process that makes a dead mount anew holds nothing of its connection.
    let others = fuse_connection::labelled(id);
    servers.extend(others.into_iter().filter(|other| !servers.contains(other)).collect::<Vec<_>>());
    unless_gone(mounts::unmount_by_force(mount), id)?;
    let start = Instant::now();
    servers.iter().for_each(Process::go_on);
    for server in servers {
        while server.activity() != Activity::Ended && start.elapsed() < PATIENCE {
            std::thread::sleep(LOOK);
        }
        let what = match server.activity() {
            Activity::Ended => continue,
            Activity::Stopped => "is stopped",
            Activity::Runs => "has not ended yet",
        };
        let (pid, target) = (server.pid, mount.target.display());
        say(format_args!("ffrfs: {target} is unmounted; its daemon {what}: kill -9 {pid} ends it"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_mount_that_is_made_anew_while_it_is_looked_for_is_found() {
        // It comes as soon as somebody has looked once, and is not due from then on.
        let (looks, is_there) = (Cell::new(0), Cell::new(false));
        let look = || {
            let found = is_there.get();
            looks.set(looks.get() + 1);
            is_there.set(true);
            Ok(found.then_some("mount"))
        };
        assert_eq!(there_or_due(look, || looks.get() == 0).unwrap(), Some("mount"));
        // What is there is found without asking: that looks at all processes.
        assert_eq!(there_or_due(|| Ok(Some(())), || panic!("asked")).unwrap(), Some(()));
        assert_eq!(there_or_due(|| Ok(None::<()>), || false).unwrap(), None);
    }
}
