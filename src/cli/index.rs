//! `ffrfs index`: builds the indexes of containers that must be read whole, and finds the checkpoints of large
//! compressed members, ahead of the first mount.

use super::open::OpenArgs;
use super::view::ViewArgs;
use crate::daemon::logging;
use crate::dataset::NameOptions;
use crate::failure::{Exit, Failure, say};
use crate::format::PartName;
use crate::format::counted;
use crate::interrupt::Interrupt;
use crate::tools::checkpoints::find_checkpoints;
use clap::Args;
use std::fmt;

/// Build what a first mount would have to build: indexes of what must be read whole (tar, TFRecord, Parquet, compressed files
/// and others), and checkpoints of large compressed members
#[derive(Debug, Args)]
pub(super) struct IndexCommandArgs {
    /// Containers, or directories, globs or brace lists of them
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PartName>,
    #[command(flatten)]
    open: OpenArgs,
    #[command(flatten)]
    view: ViewArgs,
}

pub(super) fn run(mut args: IndexCommandArgs) -> Result<Exit, Failure> {
    logging::to_stderr("warn");
    args.open.indexes.writes = true;
    args.view.check_answered()?;
    let opened = args.open.open(&args.sources)?;
    let samples = opened.dataset.len();
    // Containers that are indexed together need not be one dataset: names are only for messages.
    let names = NameOptions { are_unseen: true, ..args.view.options() };
    let catalog = opened.named(&names, args.open.allow_damaged)?;
    let (written, containers) = (opened.written_indexes(), opened.unwritten_indexes());
    let found = find_checkpoints(opened, catalog, &args.open.options()?, &Interrupt::listen());
    let (exit, members) = match found {
        Ok(unwritten) => (Exit::Ok, unwritten),
        Err(failure) if failure.exit == Exit::Interrupted => (Exit::Interrupted, 0),
        Err(failure) => return Err(failure),
    };
    for path in &written {
        say(format_args!("{}", path.display()));
    }
    say(format_args!(
        "{}, {} written",
        counted(samples, "sample"),
        counted(written.len(), "index")
    ));
    match (containers, members) {
        (0, 0) => Ok(exit),
        (0, _) => Err(unwritten(format_args!("checkpoints of {}", counted(members, "member")))),
        _ => Err(unwritten(format_args!("{}", counted(containers, "index")))),
    }
}

/// The failure that indexes or checkpoints were not written; a warning has said why.
fn unwritten(what: fmt::Arguments) -> Failure {
    let message = format!("{what} could not be written; --index-dir names another directory");
    Failure::new(Exit::Output, message)
}
