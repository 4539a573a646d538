//! `ffrfs index`: builds the indexes of containers that must be read whole, ahead of their first mount.

use super::failure::say;
use super::source::{self, OpenArgs};
use super::view::ViewArgs;
use super::{Exit, Failure, logging};
use clap::Args;
use std::path::PathBuf;

/// Build the indexes of containers that must be read whole (tar, compressed files) ahead of a mount
#[derive(Debug, Args)]
pub(super) struct IndexCommandArgs {
    /// Containers, or folders, globs or brace lists of them
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    #[command(flatten)]
    open: OpenArgs,
    #[command(flatten)]
    view: ViewArgs,
}

pub(super) fn run(mut args: IndexCommandArgs) -> Result<Exit, Failure> {
    logging::to_stderr("warn");
    args.open.kept.writes = true;
    let opened = source::open(&args.sources, &args.open)?;
    let samples = opened.dataset.len();
    opened.catalog(&args.view, &args.open)?;
    let written = opened.written_indexes();
    for path in &written {
        say(format_args!("{}", path.display()));
    }
    say(format_args!("{samples} samples, {} indexes written", written.len()));
    Ok(Exit::Ok)
}
