//! Our own mount, in the mount table: another mount may be in its place by now, and may even have its device number.

use super::told::Told;
use crate::daemon::patience;
use crate::io::mount::mount_id::{Made, MountId};
use crate::io::mount::{fuse_connection, mounts, passed_connection};
use crate::transport::Target;
use std::io;
use std::path::Path;

/// The mount `made`, if it is still in its place. If no mount is known, a dead mount there: a process may have died before it
/// could tell of its mount. Mounts in another namespace cannot be seen.
pub(super) fn find(target: &Target, made: &Made) -> Option<mounts::Mount> {
    let directory = target.directory()?;
    let mount = mounts::at(directory).ok()??;
    let is_dead = || matches!(patience::state(directory), Ok(mounts::State::Dead(_)));
    // Else it is the mount of another daemon, about to be made anew.
    let is_left = || fuse_connection::labelled(MountId::of(mount.number)).is_empty();
    let is_ours = mount.fs_type == mounts::FS_TYPE
        && match made.device.is_empty() {
            false => made.is_on(&mount.device),
            true => is_dead() && is_left(),
        };
    is_ours.then_some(mount)
}

/// The message of a worker about the mount on `target`, as far as it can be true: a container may have taken the worker over,
/// and the process that receives the message is not confined. `known`: the mount as it was known before. `elsewhere`: the
/// worker's process, if it is in another mount namespace.
pub(super) fn checked(
    mut told: Told,
    target: &Target,
    known: Option<&Made>,
    elsewhere: Option<u32>,
) -> Told {
    told.directory = target.directory().map(ToOwned::to_owned);
    let connection = told.handover.as_ref().and_then(|handover| handover.devices.last());
    let device = connection.and_then(passed_connection::device_number);
    let is_of_connection = device.is_none_or(|device| device == told.made.device);
    let is_there = match elsewhere {
        Some(worker) => fuse_connection::may_hold(worker, &told.made.device),
        None => told.directory.as_deref().is_none_or(|at| is_at(at, &told.made)),
    };
    if !is_of_connection || !(is_there || known == Some(&told.made)) {
        // A worker that goes on with a connection goes on with its mount.
        let made = known.filter(|_| told.handover.is_some()).cloned().unwrap_or_default();
        told._label = made.id.and_then(|id| id.label().ok());
        told.handover.iter_mut().for_each(|handover| handover.made = made.clone());
        told.made = made;
    }
    told.connection = fuse_connection::identity(&told.made.device);
    told
}

/// Whether this mount may be on exactly this directory, perhaps with others on top of it.
fn is_at(directory: &Path, made: &Made) -> bool {
    let is_it = |mount: &mounts::Mount| {
        (mount.target == directory && mount.fs_type == mounts::FS_TYPE)
            && mount.device == made.device
            && made.id.is_none_or(|id| id.may_be(mount.number))
    };
    // A table that cannot be read says nothing.
    mounts::table().map_or(true, |table| table.iter().any(is_it))
}

/// Has all requests of the mount fail, also those that wait. `is_here`: the mount is in the mount namespace of this process.
pub(super) fn abort(target: &Target, told: &Told, is_here: bool) {
    // The number is given to no other connection as long as this one lives.
    let lives = told.handover.as_ref().is_some_and(|handover| !handover.has_ended());
    let connection = fuse_connection::identity(&told.made.device);
    let is_it = connection.is_some() && connection == told.connection;
    let is_ours = lives || is_it || (is_here && told.made.is_on(&told.made.device));
    if is_ours && fuse_connection::abort(&told.made.device).is_ok() {
        return;
    }
    if let (true, Some(mount)) = (is_here, find(target, &told.made)) {
        mounts::abort(&mount);
    }
}

/// Whether the mount was unmounted. `is_here`: it is in the mount namespace of this process.
pub(super) fn is_unmounted(target: &Target, told: &Told, is_here: bool) -> bool {
    match &told.handover {
        // A detached mount goes on until its last file is closed.
        Some(handover) => handover.has_ended(),
        // A mount table that cannot be read says nothing.
        None => {
            let can_be_told = target.directory().is_some_and(|at| mounts::at(at).is_ok());
            is_here
                && !told.is_away()
                && can_be_told
                && find(target, &told.made).is_none()
                && !is_covered(target, &told.made)
        }
    }
}

/// Whether the mount is there, with another mount over it: it cannot be unmounted or made anew until the other has gone.
pub(super) fn is_covered(target: &Target, made: &Made) -> bool {
    let is_ours =
        |mount: &mounts::Mount| mount.fs_type == mounts::FS_TYPE && made.is_on(&mount.device);
    !made.device.is_empty()
        && target.directory().is_some_and(|directory| mounts::is_covered(directory, is_ours))
}

/// The device number of the mount on the target; `None` also for a dead mount, which makes room for the next one, and gives up
/// its number, too.
pub(super) fn there(target: &Target) -> Option<String> {
    let mount = mounts::at(target.directory()?).ok()??;
    let is_dead = mount.fs_type == mounts::FS_TYPE
        && matches!(patience::state(&mount.target), Ok(mounts::State::Dead(_)));
    (!is_dead).then_some(mount.device)
}

/// Unmounts the mount of a process that died before it told of it. `before`: the mount that was [`there`] when the process was
/// started.
///
/// # Errors
/// This user may not unmount the mount.
pub(super) fn undo(target: &Target, before: Option<&str>) -> io::Result<()> {
    let there = target.directory().and_then(|directory| mounts::at(directory).ok()?);
    let made = there.filter(|mount| {
        mount.fs_type == mounts::FS_TYPE
            && before != Some(&*mount.device)
            && !fuse_connection::is_served(&mount.device, MountId::of(mount.number))
    });
    let Some(made) = made else { return unmount(target, &Made::default()) };
    match patience::state(&made.target) {
        // Another process serves the mount, and has mounted meanwhile.
        Ok(mounts::State::Mounted(_)) => return Ok(()),
        // That process hangs, and holds the connection.
        Err(error) if error.kind() == io::ErrorKind::TimedOut => mounts::abort(&made),
        _ => {}
    }
    mounts::unmount(&made.target, true)
}

/// Unmounts a mount that no process serves, even if programs have files of it open.
///
/// # Errors
/// This user may not unmount the mount, or another file system is mounted over it.
pub(super) fn unmount(target: &Target, made: &Made) -> io::Result<()> {
    match find(target, made) {
        Some(mount) => mounts::unmount(&mount.target, true),
        None if is_covered(target, made) => Err(io::Error::other(mounts::COVERED)),
        None => Ok(()),
    }
}
