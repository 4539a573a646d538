//! `ffrfs upgrade`: another version of this program serves a mount in use.

use super::print::print;
use crate::daemon::upgrade::upgrade;
use crate::failure::{Exit, Failure, say};
use clap::Args;
use std::path::PathBuf;

const AFTER_HELP: &str = "\
The mount must not have been made with --restarts 0, and its requests must come through /dev/fuse \
(Linux 6.9 or newer; transport=devfuse where io_uring is on). Readers notice nothing: open files, \
mappings and working directories go on. If the new program cannot serve the dataset, or does not \
start to serve it within 10 minutes, the former one goes on, and the exit code is 5. Ctrl-C ends the wait, \
not the upgrade.

Examples:
  ffrfs upgrade /mnt/ds";

/// Have the program that is installed now serve a mount in use
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct UpgradeArgs {
    /// Where datasets are mounted
    #[arg(required = true, value_name = "MOUNTPOINT")]
    targets: Vec<PathBuf>,
}

pub(super) fn run(args: &UpgradeArgs) -> Result<Exit, Failure> {
    let mut exit = Exit::Ok;
    for target in &args.targets {
        match upgrade(target) {
            Ok(info) => {
                let (pid, version) = (info.pid, &info.dataset.ffrfs_version);
                say(format_args!(
                    "ffrfs: {}: process {pid} of ffrfs {version} serves now",
                    target.display()
                ));
            }
            // The upgrade has said so.
            Err(failure) if failure.exit == Exit::Interrupted => return Ok(failure.exit),
            Err(failure) => {
                print(&failure);
                exit = failure.exit;
            }
        }
    }
    Ok(exit)
}
