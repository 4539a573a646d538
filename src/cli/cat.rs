//! `ffrfs cat`: the checked bytes of samples, without mounting.

use super::open::{self, OpenArgs};
use super::view::ViewArgs;
use crate::catalog::{Catalog, Dataset, Node};
use crate::daemon::logging;
use crate::dataset::{not_found, path_bytes};
use crate::failure::{Exit, Failure};
use crate::format::PartName;
use crate::interrupt::Interrupt;
use crate::tools::reader::{SampleReader, Stop, exit_of};
use clap::Args;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// As many as the kernel follows.
const MAX_LINKS: u32 = 40;

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
        let path = follow(&catalog, &opened.dataset, name)?;
        let found = match catalog.find(&opened.dataset, &path)? {
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

/// The path to which a name leads, along the symbolic links of the dataset, as in a mount.
fn follow(catalog: &Catalog, dataset: &Dataset, name: &Path) -> Result<Vec<u8>, Failure> {
    let leads = |why: &str| Failure::usage(format!("{}: {why}", name.display()));
    let (mut path, mut rest, mut links) = (Vec::new(), names_backwards(path_bytes(name)), 0);
    while let Some(next) = rest.pop() {
        match &*next {
            b"" | b"." => continue,
            b".." if path.is_empty() && links == 0 => return Ok(next),
            b".." if path.is_empty() => return Err(leads("leads out of the dataset")),
            b".." => path.truncate(path.iter().rposition(|&b| b == b'/').unwrap_or(0)),
            _ => {
                let before = path.len();
                if before > 0 {
                    path.push(b'/');
                }
                path.extend(&next);
                let Some(target) = target_of(catalog, dataset, &path)? else { continue };
                links += 1;
                if links > MAX_LINKS {
                    return Err(leads("leads along too many symbolic links"));
                }
                if target.starts_with(b"/") {
                    let target = String::from_utf8_lossy(&target);
                    return Err(leads(&format!("leads to {target}, out of the dataset")));
                }
                path.truncate(before);
                rest.extend(names_backwards(&target));
            }
        }
    }
    if links > 0 && catalog.find(dataset, &path)?.is_none() {
        let path = String::from_utf8_lossy(&path);
        return Err(leads(&format!("leads to {path}, which is not in the dataset")));
    }
    Ok(path)
}

/// The names in a path, the last one first.
fn names_backwards(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|&b| b == b'/').rev().map(<[u8]>::to_vec).collect()
}

/// The target of a symbolic link; `None` if the path is another one.
fn target_of(
    catalog: &Catalog,
    dataset: &Dataset,
    path: &[u8],
) -> Result<Option<Vec<u8>>, Failure> {
    let Some(Node::Sample(sample)) = catalog.find(dataset, path)? else { return Ok(None) };
    Ok(dataset.target_of_link(sample)?)
}
