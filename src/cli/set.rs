//! `ffrfs set`: changes or prints the settings of a mount in use.

use super::wrong_usage::is_near;
use crate::daemon::live::Live;
use crate::daemon::settings;
use crate::failure::{Exit, Failure};
use clap::Args;
use std::io::{self, Write};
use std::path::PathBuf;

const AFTER_HELP: &str = "\
Settings are mount options: verify, memory, cache_size, log_level. Either all of those given are \
changed, or none. Without any, the current settings are printed.

Examples:
  ffrfs set /mnt/ds
  ffrfs set /mnt/ds verify=once memory=1G log_level=debug";

/// Change settings of a mount in use
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct SetArgs {
    /// Where the dataset is mounted
    #[arg(value_name = "MOUNTPOINT")]
    target: PathBuf,
    /// Settings to change
    #[arg(value_name = "NAME=VALUE", value_parser = settings::pair)]
    settings: Vec<(String, String)>,
}

pub(super) fn run(args: &SetArgs) -> Result<Exit, Failure> {
    // A wrong setting is reported first, whatever the mount point is.
    settings::parse(&args.settings).map_err(|why| {
        let unknown = args.settings.iter().find(|(name, _)| !settings::can_change(name));
        let near =
            unknown.and_then(|(name, _)| settings::names().find(|known| is_near(name, known)));
        Failure::usage(near.map_or(why.clone(), |near| format!("{why}; did you mean {near}?")))
    })?;
    let mount = Live::at(&args.target)?;
    let lines = match args.settings.as_slice() {
        [] => {
            let pairs = mount.settings()?.pairs();
            pairs.map(|(name, value)| format!("{name}={value}")).to_vec()
        }
        settings => mount.set(settings)?,
    };
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let printed = io::stdout().write_all(text.as_bytes());
    printed.map_err(|e| Failure::output("standard output", e))?;
    Ok(Exit::Ok)
}
