//! `ffrfs cat`: the checked bytes of samples, without mounting.

use super::open::{self, OpenArgs};
use super::view::ViewArgs;
use crate::catalog::Node;
use crate::daemon::logging;
use crate::dataset::{not_found, path_bytes};
use crate::failure::{Exit, Failure};
use crate::format::PartName;
use crate::interrupt::Interrupt;
use crate::tools::reader::{SampleReader, Stop, exit_of};
use clap::Args;
use std::io::{self, Write};
use std::path::PathBuf;

/// Write samples to standard output, each checked before its first byte
#[derive(Debug, Args)]
#[command(
    override_usage = "ffrfs cat [OPTIONS] <SOURCE> <NAME>...\n       ffrfs cat [OPTIONS] -s <SOURCE>... <NAME>..."
)]
pub(super) struct CatArgs {
    /// The container (or a directory, glob or brace list of them), unless -s names it; then names of samples
    #[arg(required = true, value_names = ["SOURCE", "NAME"])]
    paths: Vec<PathBuf>,
    /// Containers that make the dataset; then all others are names
    #[arg(short = 's', long, value_name = "SOURCE")]
    source: Vec<PartName>,
    #[command(flatten)]
    open: OpenArgs,
    #[command(flatten)]
    view: ViewArgs,
}

pub(super) fn run(args: &CatArgs) -> Result<Exit, Failure> {
    logging::to_stderr("warn");
    let (sources, names) = if args.source.is_empty() {
        let (source, names) = args.paths.split_at(1);
        (open::names(source), names)
    } else {
        (args.source.clone(), &args.paths[..])
    };
    if names.is_empty() {
        return Err(Failure::usage("the names of samples are missing: ffrfs cat SOURCE NAME…"));
    }
    let mut open = args.open.clone();
    open.read_password(&sources)?;
    let opened = open.open(&sources)?;
    let catalog = opened.catalog(&args.view, &args.open)?;
    let mut located = Vec::new();
    for name in names {
        let found = match catalog.find(&opened.dataset, path_bytes(name))? {
            Some(Node::Sample(sample)) => opened.dataset.locate(sample)?,
            Some(Node::Directory(_)) => {
                let why = "is a directory; ffrfs ls -R lists what is in it";
                return Err(Failure::usage(format!("{}: {why}", name.display())));
            }
            None => None,
        };
        located.push(found.ok_or_else(|| not_found(name, &catalog.renamed()))?);
    }
    // No signal sets it: Ctrl-C ends the program.
    let interrupt = Interrupt::default();
    let reader = SampleReader::new(&opened, &interrupt);
    let (mut bad, mut out) = (Vec::new(), io::stdout().lock());
    for (name, sample) in names.iter().zip(&located) {
        match reader.copy_checked(sample, &mut out, "standard output") {
            Ok(()) => {}
            Err(Stop::Failed(failure)) => return Err(failure),
            Err(Stop::Bad(fault)) => {
                reader.log_bad(sample, path_bytes(name), &fault);
                bad.push(fault);
            }
        }
    }
    out.flush().map_err(|e| Failure::output("standard output", e))?;
    Ok(exit_of(bad.iter()))
}
