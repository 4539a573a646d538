//! `ffrfs umount`: also mounts whose daemon is dead, and with `-z` those with open files.

use super::config;
use crate::daemon::config::Config;
use crate::failure::{Exit, Failure, Reason};
use crate::io::mounts;
use clap::Args;
use std::io;
use std::path::{Path, PathBuf};

/// Unmount
#[derive(Debug, Args)]
pub(super) struct UmountArgs {
    /// Detach now; open files can be read until they are closed
    #[arg(short = 'z', long)]
    lazy: bool,
    /// Unmount only where the daemon is dead; it is no error if there is no such mount
    #[arg(long)]
    dead: bool,
    /// Unmount the mount point that the config file FILE names (see `ffrfs mount`)
    #[arg(long, value_name = "FILE", conflicts_with = "targets")]
    config: Option<PathBuf>,
    /// Mount points
    #[arg(required_unless_present = "config", value_name = "MOUNTPOINT")]
    targets: Vec<PathBuf>,
}

pub(super) fn run(args: &UmountArgs) -> Result<Exit, Failure> {
    let mut exit = Exit::Ok;
    let configured =
        args.config.as_ref().map(|file| Config::read(file, config::OPTIONS)).transpose()?;
    let configured = configured.map(|config| config.mountpoint());
    for target in args.targets.iter().chain(&configured) {
        let done = if args.dead { clear(target) } else { unmount(target, args.lazy) };
        if let Err(failure) = done {
            super::print::print(&failure);
            exit = failure.exit;
        }
    }
    Ok(exit)
}

/// Unmounts if the daemon is dead.
fn clear(target: &Path) -> Result<(), Failure> {
    let dead = |target: &Path| matches!(mounts::state(target), Ok(mounts::State::Dead(_)));
    match mounts::resolve(target) {
        Ok(resolved) if dead(&resolved) => unmount(&resolved, true),
        _ => Ok(()),
    }
}

fn unmount(target: &Path, lazy: bool) -> Result<(), Failure> {
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
