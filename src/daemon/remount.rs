//! Changing the kernel's flags of a mount in use.

use super::patience;
use crate::failure::{Exit, Failure, Reason};
use crate::io::mount::mounts;
use nix::sys::statvfs::{FsFlags, statvfs};
use std::io;
use std::path::{Path, PathBuf};

/// The absolute path of a mount in use.
///
/// # Errors
/// No dataset is mounted there, or its daemon is dead.
pub(crate) fn mounted_at(target: &Path) -> Result<PathBuf, Failure> {
    let failed = |e: Reason| {
        Failure::new(Exit::Mount, e).context(format_args!("cannot remount {}", target.display()))
    };
    let resolved = mounts::resolve(target).map_err(|e| failed(e.into()))?;
    let state = patience::state(&resolved).map_err(|e| match e.kind() {
        io::ErrorKind::TimedOut => patience::unanswered(&resolved, &e),
        _ => failed(e.into()),
    })?;
    match state {
        mounts::State::Mounted(_) => Ok(resolved),
        mounts::State::Dead(_) => {
            Err(failed("its daemon is dead: mount it again, without remount".into()))
        }
        mounts::State::Free => Err(failed("no dataset is mounted there".into())),
    }
}

/// Changes the flags of the mount in the kernel, if they differ; `None` for a flag that was not given.
///
/// # Errors
/// The kernel refuses the change.
pub(crate) fn set_flags(
    target: &Path,
    read_only: Option<bool>,
    noexec: Option<bool>,
) -> Result<(), Failure> {
    let failed = |e: nix::errno::Errno| {
        let hint = if e == nix::errno::Errno::EPERM {
            "; only root may change ro, rw, exec and noexec"
        } else {
            ""
        };
        let what = format!("cannot remount {}: {e}{hint}", target.display());
        Failure::new(Exit::Mount, what)
    };
    let now = statvfs(target).map_err(failed)?.flags();
    let is = |flag| now.contains(flag);

    // mount(8) gives ro or rw with all other flags, and expresses exec by leaving out noexec.
    let by_default = read_only.is_none() && is(FsFlags::ST_NOEXEC);
    let noexec = noexec.unwrap_or(by_default);
    let read_only = read_only.unwrap_or(is(FsFlags::ST_RDONLY));
    if (read_only, noexec) == (is(FsFlags::ST_RDONLY), is(FsFlags::ST_NOEXEC)) {
        return Ok(());
    }
    mounts::set_flags(target, read_only, noexec).map_err(failed)
}
