//! Our own mount, in the mount table: another one may be in its place by now.

use crate::io::{fuse_connection, mounts};
use crate::transport::Target;
use std::io;

/// The mount with this device number, if it is still in its place. Mounts in another namespace cannot be seen.
pub(super) fn find(target: &Target, device: &str) -> Option<mounts::Mount> {
    let mount = mounts::at(target.directory()?).ok()??;
    (mount.device == device && mount.fs_type == mounts::FS_TYPE).then_some(mount)
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
