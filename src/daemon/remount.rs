//! Changing the kernel's flags of a mount in use.

use super::patience;
use crate::failure::{Exit, Failure, Reason};
use crate::io::mount::mounts;
use nix::errno::Errno;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::geteuid;
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

/// Flags of a mount that differ from those that it has.
pub(crate) struct NewFlags<'a> {
    target: &'a Path,
    read_only: bool,
    noexec: bool,
}

/// The flags of the mount in the kernel that are to be changed; `None` for a flag that was not given.
///
/// # Errors
/// This user may not change flags.
pub(crate) fn new_flags(
    target: &Path,
    read_only: Option<bool>,
    noexec: Option<bool>,
) -> Result<Option<NewFlags<'_>>, Failure> {
    let now = statvfs(target).map_err(|e| refused(target, e))?.flags();
    let is = |flag| now.contains(flag);

    // mount(8) gives ro or rw with all other flags, and expresses exec by leaving out noexec.
    let by_default = read_only.is_none() && is(FsFlags::ST_NOEXEC);
    let noexec = noexec.unwrap_or(by_default);
    let read_only = read_only.unwrap_or(is(FsFlags::ST_RDONLY));
    if (read_only, noexec) == (is(FsFlags::ST_RDONLY), is(FsFlags::ST_NOEXEC)) {
        return Ok(None);
    }
    match geteuid().is_root() {
        true => Ok(Some(NewFlags { target, read_only, noexec })),
        false => Err(refused(target, Errno::EPERM)),
    }
}

impl NewFlags<'_> {
    /// Changes the flags of the mount in the kernel.
    ///
    /// # Errors
    /// The kernel refuses the change.
    pub(crate) fn set(&self) -> Result<(), Failure> {
        let Self { target, read_only, noexec } = *self;
        mounts::set_flags(target, read_only, noexec).map_err(|e| refused(target, e))
    }
}

fn refused(target: &Path, error: Errno) -> Failure {
    let hint = match error {
        Errno::EPERM => {
            "; only root may change ro, rw, exec and noexec (mount(8) asks for rw, unless the line in fstab has ro)"
        }
        _ => "",
    };
    Failure::new(Exit::Mount, format!("cannot remount {}: {error}{hint}", target.display()))
}
