//! `ffrfs pack`: a directory as FFRecord, as the reference package packs it.

use super::open::refuse_url;
use crate::daemon::{logging, patience};
use crate::failure::{Exit, Failure, say};
use crate::interrupt::Interrupt;
use crate::tools::pack::{Pack, pack};
use clap::Args;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// Pack a directory into an FFRecord container
#[derive(Debug, Args)]
pub(super) struct PackArgs {
    /// The directory whose files become samples, in order of their names
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The container to write; with --parts a directory of containers
    #[arg(value_name = "OUT.ffr")]
    output: PathBuf,
    /// Numbered samples, no names
    #[arg(long)]
    flat: bool,
    /// Write N containers of about the same size into the directory OUT
    #[arg(long, value_name = "N")]
    parts: Option<NonZeroU32>,
    /// Replace the output if it is there
    #[arg(long)]
    force: bool,
}

pub(super) fn run(args: &PackArgs) -> Result<Exit, Failure> {
    logging::to_stderr("warn");
    refuse_url(&args.output)?;
    patience::check([args.directory.as_path(), args.output.as_path()])?;
    let packed = pack(&Pack {
        directory: &args.directory,
        output: &args.output,
        is_flat: args.flat,
        parts: args.parts,
        force: args.force,
        interrupt: &Interrupt::listen(),
    });
    match packed {
        Err(failure) if failure.exit == Exit::Interrupted => {
            say(format_args!("ffrfs: interrupted; nothing was written"));
            Ok(Exit::Interrupted)
        }
        packed => packed.map(|()| Exit::Ok),
    }
}
