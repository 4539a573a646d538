//! `ffrfs index`: builds the indexes of containers that must be read whole, and notes where large compressed
//! members can be read in the middle, ahead of the first mount.

use super::view::ViewArgs;
use crate::catalog::Catalog;
use crate::daemon::logging;
use crate::dataset::open;
use crate::dataset::open::{OpenArgs, Opened};
use crate::dataset::restarts::Restarts;
use crate::failure::{Exit, Failure, say};
use crate::format::Content;
use crate::tools::interrupt::Interrupt;
use crate::tools::read::read_waiting;
use crate::vfs::{Options, inode_of_sample};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::PathBuf;

/// Members up to this size are decoded at once, and need no restart points.
const DECODED_AT_ONCE_BYTES: u64 = 4 << 20;

/// Build what a first mount would have to: the indexes of tar and compressed files, and the restart points of
/// large compressed members
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
    let opened = open::open(&args.sources, &args.open)?;
    let samples = opened.dataset.len();
    let catalog = opened.catalog(&args.view, &args.open)?;
    let written = opened.written_indexes();
    let exit = pass_over_large_members(opened, catalog, &args.open)?;
    for path in &written {
        say(format_args!("{}", path.display()));
    }
    say(format_args!("{samples} samples, {} indexes written", written.len()));
    Ok(exit)
}

/// Reads a byte of each: that takes a pass, which is kept.
fn pass_over_large_members(
    opened: Opened,
    catalog: Catalog,
    args: &OpenArgs,
) -> Result<Exit, Failure> {
    let (dataset, mut large) = (&opened.dataset, Vec::new());
    for sample in 0..dataset.len() {
        let Some(located) = dataset.locate(sample)? else { break };
        let (at, container) = (located.sample, &dataset.parts()[located.container]);
        if matches!(at.content, Content::Encoded(size) if size > DECODED_AT_ONCE_BYTES)
            && container.stream().is_none()
            && container.may_keep_restarts(located.index)
        {
            large.push((sample, at.size_bytes()));
        }
    }
    let vfs = opened.into_vfs(catalog, Options::default());
    let Some(restarts) = Restarts::new(vfs.store(), &args.kept, args.options()?) else {
        return Ok(Exit::Ok);
    };
    vfs.keep_streams(Box::new(restarts));
    let (progress, interrupt) = (progress(&large), Interrupt::listen());
    for (sample, size_bytes) in large {
        if interrupt.requested() {
            return Ok(Exit::Interrupted);
        }
        // One that cannot be read is logged with the reason.
        let last = size_bytes - 1;
        vfs.finish(read_waiting(&vfs, inode_of_sample(sample), last, 1));
        progress.inc(size_bytes);
    }
    progress.finish_and_clear();
    Ok(Exit::Ok)
}

fn progress(members: &[(u64, u64)]) -> ProgressBar {
    if members.is_empty() || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("large members {bar:30} {bytes}/{total_bytes}, {eta} left");
    let bar = ProgressBar::new(members.iter().map(|(_, size_bytes)| size_bytes).sum());
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
