//! `ffrfs umount`: also mounts whose daemon is dead, with `-z` those with open files, and with `-f` those whose daemon does
//! not answer.

use super::config;
use crate::daemon::unmount::{Manner, unmount, unmount_if_dead};
use crate::failure::{Exit, Failure};
use clap::Args;
use std::path::PathBuf;

/// Unmount datasets
#[derive(Debug, Args)]
pub(super) struct UmountArgs {
    /// Detach now; open files can be read until they are closed
    #[arg(short = 'z', long)]
    lazy: bool,
    /// End the mount by force: open files are lost, and all who wait for the daemon get an error
    #[arg(short = 'f', long, conflicts_with_all = ["lazy", "dead"])]
    force: bool,
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
    let manner = match (args.force, args.lazy) {
        (true, _) => Manner::Force,
        (false, true) => Manner::Lazy,
        (false, false) => Manner::Whole,
    };
    let configured = args.config.as_deref().map(config::read).transpose()?;
    let configured = configured.map(|config| config.mountpoint());
    for target in args.targets.iter().chain(&configured) {
        let done = if args.dead { unmount_if_dead(target) } else { unmount(target, manner) };
        if let Err(failure) = done {
            super::print::print(&failure);
            exit = failure.exit;
        }
    }
    Ok(exit)
}
