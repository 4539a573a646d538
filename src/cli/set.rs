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
        let near = nearest(&args.settings);
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

/// The name or value that the first wrong one was probably meant to be.
fn nearest(given: &[(String, String)]) -> Option<&'static str> {
    let is_wrong = |pair: &&(String, String)| settings::parse(std::slice::from_ref(*pair)).is_err();
    let (name, value) = given.iter().find(is_wrong)?;
    match settings::can_change(name) {
        true => settings::values(name).iter().copied().find(|known| is_near(value, known)),
        false => settings::names().find(|known| is_near(name, known)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_wrong_setting_the_nearest_name_or_value_is_offered() {
        for (given, meant) in [
            (&[("verify", "onc")][..], Some("once")),
            (&[("log-level", "debgu")], Some("debug")),
            (&[("verfy", "once")], Some("verify")),
            (&[("memory", "1G"), ("verify", "alway")], Some("always")),
            (&[("verify", "never")], None),
            (&[("memory", "onc")], None),
            (&[("colour", "red")], None),
        ] {
            let given: Vec<_> =
                given.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
            assert_eq!(nearest(&given), meant, "{given:?}");
        }
    }
}
