//! Unmounting, also after the daemon has died.

use crate::failure::{Exit, Failure, Reason};
use crate::io::mounts;
use std::io;
use std::path::Path;

/// Unmounts if the daemon is dead; all else is left alone.
///
/// # Errors
/// A dead mount cannot be unmounted.
pub(crate) fn unmount_if_dead(target: &Path) -> Result<(), Failure> {
    let dead = |target: &Path| matches!(mounts::state(target), Ok(mounts::State::Dead(_)));
    match mounts::resolve(target) {
        Ok(resolved) if dead(&resolved) => unmount(&resolved, true),
        _ => Ok(()),
    }
}

/// Unmounts the dataset on `target`; with `lazy` also while files in it are open.
///
/// # Errors
/// No dataset is mounted there, or it cannot be unmounted.
pub(crate) fn unmount(target: &Path, lazy: bool) -> Result<(), Failure> {
    let failed = |e: Reason| {
        Failure::new(Exit::Mount, e).context(format_args!("cannot unmount {}", target.display()))
    };
    let resolved = mounts::resolve(target).map_err(|e| failed(e.into()))?;
    let mount = mounts::at(&resolved).map_err(|e| failed(e.into()))?;
    match mount {
        Some(mount) if mount.fs_type == mounts::FS_TYPE => {}
        Some(mount) => {
            return Err(failed(
                format!("a file system of type {}, not of ffrfs", mount.fs_type).into(),
            ));
        }
        None => return Err(failed("nothing is mounted there".into())),
    }
    // A dead mount is of no use: files of it that are still open must not keep it.
    let lazy = lazy || matches!(mounts::state(&resolved), Ok(mounts::State::Dead(_)));
    mounts::unmount(&resolved, lazy).map_err(|e| {
        let hint = match e.kind() {
            io::ErrorKind::ResourceBusy => {
                "; files in it are open (fuser -vm lists who has them); -z detaches it anyway"
            }
            _ => "",
        };
        failed(format!("{e}{hint}").into())
    })
}
