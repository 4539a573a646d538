//! Options of `ffrfs mount` that can also be changed while it is mounted.

use crate::daemon::memory;
use crate::daemon::settings::{LOG_LEVELS, LiveSettings, VERIFY, verify_name};
use crate::vfs::Verify;
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};

/// The options, as clap declares them; the values are parsed as those of `ffrfs set`.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub(super) struct LiveSettingsArgs {
    /// When a sample is checked before it is given out [default: always]
    #[arg(long, value_name = "WHEN", help_heading = "Checks")]
    verify: Option<VerifyWhen>,
    /// Memory for everything: requests, reads, caches [default: 5% of the host's memory, at most 512M and an eighth of ulimit -v]
    #[arg(long, value_name = "SIZE|N%", value_parser = memory::limit)]
    memory: Option<memory::Limit>,
    /// The part of it for the caches: samples and blocks that were read ahead [default: the rest]
    #[arg(long, alias = "cache_size", value_name = "SIZE", value_parser = memory::size)]
    cache_size: Option<u64>,
    /// How much the log says [default: info]
    #[arg(long, alias = "log_level", value_name = "LEVEL", value_parser = LOG_LEVELS)]
    #[arg(help_heading = "The daemon")]
    log_level: Option<String>,
}

impl LiveSettingsArgs {
    pub(super) fn values(&self) -> LiveSettings {
        LiveSettings {
            verify: self.verify.map(|VerifyWhen(when)| when),
            memory: self.memory,
            cache_size: self.cache_size,
            log_level: self.log_level.clone(),
        }
    }
}

/// [`Verify`] with a help text for each value.
#[derive(Debug, Clone, Copy)]
struct VerifyWhen(Verify);

impl ValueEnum for VerifyWhen {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [VerifyWhen; VERIFY.len()] =
            [VerifyWhen(VERIFY[0].1), VerifyWhen(VERIFY[1].1), VerifyWhen(VERIFY[2].1)];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self.0 {
            Verify::Always => "Whenever its bytes come from storage",
            Verify::Once => "The first time",
            Verify::Off => "Never",
        };
        Some(PossibleValue::new(verify_name(self.0)).help(help))
    }
}
