//! Our own mount, in the mount table: another one may be in its place by now.

use crate::daemon::patience;
use crate::io::{fuse_connection, mounts};
use crate::transport::Target;
use std::io;

/// The mount with this device number, if it is still in its place, or a dead one there: a process may have died before it
/// could tell of its mount. Mounts in another namespace cannot be seen.
pub(super) fn find(target: &Target, device: &str) -> Option<mounts::Mount> {
    let directory = target.directory()?;
    let mount = mounts::at(directory).ok()??;
    let is_dead = || matches!(patience::state(directory), Ok(mounts::State::Dead(_)));
    let is_ours = mount.fs_type == mounts::FS_TYPE && (mount.device == device || is_dead());
    is_ours.then_some(mount)
}

/// Has all requests of the mount fail, also those that wait.
pub(super) fn abort(target: &Target, device: &str) {
    if fuse_connection::abort(device).is_err()
        && let Some(mount) = find(target, device)
    {
        mounts::abort(&mount);
    }
}

/// Unmounts what nobody serves, whoever has files of it open.
///
/// # Errors
/// This user may not unmount it.
pub(super) fn unmount(target: &Target, device: &str) -> io::Result<()> {
    find(target, device).map_or(Ok(()), |mount| mounts::unmount(&mount.target, true))
}
