//! `ffrfs umount`: also what is dead, or still busy with `-z`.

use super::{Exit, Failure};
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
    /// Mount points
    #[arg(required = true, value_name = "MOUNTPOINT")]
    targets: Vec<PathBuf>,
}

pub(super) fn run(args: &UmountArgs) -> Result<Exit, Failure> {
    let mut exit = Exit::Ok;
    for target in &args.targets {
        if let Err(failure) = unmount(target, args.lazy) {
            failure.print();
            exit = failure.exit;
        }
    }
    Ok(exit)
}

fn unmount(target: &Path, lazy: bool) -> Result<(), Failure> {
    let failed = |e: anyhow::Error| {
        Failure::new(Exit::Mount, e.context(format!("cannot unmount {}", target.display())))
    };
    let resolved = mounts::resolve(target).map_err(|e| failed(e.into()))?;
    let mount = mounts::at(&resolved).map_err(|e| failed(e.into()))?;
    match mount {
        Some(mount) if mount.fs_type == mounts::FS_TYPE => {}
        Some(mount) => {
            return Err(failed(anyhow::anyhow!("a mount of type {}, not ours", mount.fs_type)));
        }
        None => return Err(failed(anyhow::anyhow!("nothing is mounted there"))),
    }
    // Nobody can use a dead mount: whoever still holds a file of it must not keep it there.
    let lazy = lazy || matches!(mounts::state(&resolved), Ok(mounts::State::Dead(_)));
    mounts::unmount(&resolved, lazy).map_err(|e| {
        let hint = match e.kind() {
            io::ErrorKind::ResourceBusy => {
                "; files in it are open (see fuser -vm); -z detaches it all the same"
            }
            _ => "",
        };
        failed(anyhow::anyhow!("{e}{hint}"))
    })
}
