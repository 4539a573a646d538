//! `ffrfs cat`: the checked bytes of samples, without mounting.

use super::view::ViewArgs;
use crate::catalog::Node;
use crate::daemon::logging;
use crate::dataset::open;
use crate::dataset::open::{OpenArgs, not_found, path_bytes};
use crate::failure::{Exit, Failure};
use crate::tools::read::read_waiting;
use crate::vfs::{Errno, Lookup, Options, Vfs};
use clap::Args;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const CHUNK_BYTES: u64 = 1 << 20;

/// Write samples to standard output, each checked before its first byte
#[derive(Debug, Args)]
#[command(
    override_usage = "ffrfs cat [OPTIONS] <SOURCE> <NAME>...\n       ffrfs cat [OPTIONS] -s <SOURCE>... <NAME>..."
)]
pub(super) struct CatArgs {
    /// The container (or a folder, glob or brace list of them), unless -s names it; then names of samples
    #[arg(required = true, value_names = ["SOURCE", "NAME"])]
    paths: Vec<PathBuf>,
    /// Containers that make the dataset; then all others are names
    #[arg(short = 's', long, value_name = "SOURCE")]
    source: Vec<PathBuf>,
    #[command(flatten)]
    open: OpenArgs,
    #[command(flatten)]
    view: ViewArgs,
}

pub(super) fn run(args: &CatArgs) -> Result<Exit, Failure> {
    logging::to_stderr("warn");
    let (sources, names) = if args.source.is_empty() {
        args.paths.split_at(1)
    } else {
        (&args.source[..], &args.paths[..])
    };
    if names.is_empty() {
        return Err(Failure::usage("which samples? ffrfs cat SOURCE NAME…"));
    }
    let mut open = args.open.clone();
    open.read_password(sources)?;
    let opened = open::open(sources, &open)?;
    let catalog = opened.catalog(&args.view, &args.open)?;
    for name in names {
        if !matches!(catalog.find(&opened.dataset, path_bytes(name))?, Some(Node::Sample(_))) {
            return Err(not_found(name));
        }
    }
    let vfs = opened.into_vfs(catalog, Options::default());
    let mut exit = Exit::Ok;
    for name in names {
        if !copy(&vfs, name, &mut io::stdout().lock())? {
            exit = Exit::Checksum;
        }
    }
    Ok(exit)
}

/// Copies a sample; false if it is bad (which was logged).
fn copy(vfs: &Vfs, name: &Path, out: &mut impl Write) -> Result<bool, Failure> {
    let ino = ino_of(vfs, path_bytes(name)).ok_or_else(|| not_found(name))?;
    let mut offset = 0;
    loop {
        let reply = read_waiting(vfs, ino, offset, CHUNK_BYTES);
        let written = match reply.bytes() {
            Ok([]) => return Ok(true),
            Ok(bytes) => out.write_all(bytes).map(|()| bytes.len() as u64),
            Err(_) => return Ok(false),
        };
        offset += written.map_err(|e| Failure::output("standard output", e))?;
        vfs.finish(reply);
    }
}

fn ino_of(vfs: &Vfs, path: &[u8]) -> Option<u64> {
    let names = path.split(|&b| b == b'/').filter(|name| !name.is_empty() && *name != b".");
    let mut ino = 1;
    for name in names {
        match vfs.lookup(ino, name) {
            Ok(Lookup::Found(attr) | Lookup::Passing(attr)) => ino = attr.ino,
            Ok(Lookup::Absent) | Err(Errno(_)) => return None,
        }
    }
    Some(ino)
}
