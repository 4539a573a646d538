//! `ffrfs set`: changes settings of a mount that is in use, or shows them.

use crate::daemon::live::Live;
use crate::daemon::settings;
use crate::daemon::settings::differences;
use crate::failure::{Exit, Failure};
use crate::io::{MAX_ANNOUNCEMENT_BYTES, announce};
use clap::Args;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const AFTER_HELP: &str = "\
Settings are mount options: verify, memory, cache_size, log_level. All of them are changed, or none. Without
settings, prints the present ones.

Examples:
  ffrfs set /mnt/ds
  ffrfs set /mnt/ds verify=once memory=1G log_level=debug";

/// Change settings of a mount in use
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct SetArgs {
    /// Where the dataset is mounted
    #[arg(value_name = "MOUNTPOINT")]
    target: PathBuf,
    /// What to change
    #[arg(value_name = "NAME=VALUE", value_parser = settings::pair)]
    settings: Vec<(String, String)>,
}

pub(crate) fn run(args: &SetArgs) -> Result<Exit, Failure> {
    let lines = match args.settings.as_slice() {
        [] => {
            let shown = Live::at(&args.target)?.settings()?;
            shown.pairs().map(|(name, value)| format!("{name}={value}")).to_vec()
        }
        settings => change(&args.target, settings)?,
    };
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let printed = io::stdout().write_all(text.as_bytes());
    printed.map_err(|e| Failure::output("standard output", e))?;
    Ok(Exit::Ok)
}

/// Changes settings of the mount on `mountpoint`: all of them, or none.
///
/// # Errors
/// One of them cannot be changed, or not to this; there is no mount, or it belongs to another user.
pub(crate) fn apply(mountpoint: &Path, settings: &[(String, String)]) -> Result<(), Failure> {
    change(mountpoint, settings).map(drop)
}

/// As [`apply`]; gives what changed, a line each.
fn change(mountpoint: &Path, settings: &[(String, String)]) -> Result<Vec<String>, Failure> {
    settings::parse(settings)?;
    let mount = Live::at(mountpoint)?;
    let before = mount.settings()?;
    let lines: String = settings.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    if lines.len() > MAX_ANNOUNCEMENT_BYTES {
        return Err(Failure::usage("too many settings at once"));
    }
    let changed = announce(&mount.open("settings")?, lines.as_bytes());
    let after = mount.settings()?;
    match changed {
        Ok(()) => Ok(differences(&before, &after)),
        Err(error) => {
            let why = after.refused.unwrap_or_else(|| error.to_string());
            let what = mount.root().display().to_string();
            Err(Failure::new(Exit::Usage, why).context(what))
        }
    }
}
