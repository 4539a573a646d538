//! `ffrfs ls`: the names that a mount would show.

use super::open::OpenArgs;
use super::view::ViewArgs;
use crate::catalog::{Catalog, Node};
use crate::daemon::logging;
use crate::dataset::{Opened, not_found, path_bytes};
use crate::failure::{Exit, Failure, visible};
use crate::format;
use crate::format::PartName;
use clap::Args;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// List samples without mounting
#[derive(Debug, Args)]
pub(super) struct LsArgs {
    /// Containers, or directories, globs or brace lists of them
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PartName>,
    /// Also print the size, offset, CRC-32 and container of each sample
    #[arg(short = 'l', long)]
    long: bool,
    /// Also list what is in the directories, with paths
    #[arg(short = 'R', long)]
    recursive: bool,
    /// The directory (or sample) to list
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,
    #[command(flatten)]
    open: OpenArgs,
    #[command(flatten)]
    view: ViewArgs,
}

pub(super) fn run(args: &LsArgs) -> Result<Exit, Failure> {
    logging::to_stderr("warn");
    args.view.check_answered()?;
    let opened = args.open.open(&args.sources)?;
    let catalog = opened.catalog(&args.view, &args.open)?;
    let mut list = List {
        opened: &opened,
        long: args.long,
        on_terminal: io::stdout().is_terminal(),
        out: BufWriter::new(io::stdout().lock()),
        result: Ok(()),
    };
    let start = args.path.as_deref().unwrap_or(Path::new(""));
    let path = path_bytes(start);
    match catalog.find(&opened.dataset, path)? {
        Some(Node::Directory(directory)) => list.directory(&catalog, directory, args.recursive)?,
        Some(node @ Node::Sample(_)) => list.entry(path, node),
        None => return Err(not_found(start)),
    }
    list.finish()?;
    Ok(Exit::Ok)
}

struct List<'a, W: Write> {
    opened: &'a Opened,
    long: bool,
    out: W,
    /// Control characters in names are not printed as they are.
    on_terminal: bool,
    /// The first thing that went wrong.
    result: Result<(), Failure>,
}

impl<W: Write> List<'_, W> {
    fn directory(
        &mut self,
        catalog: &Catalog,
        directory: u64,
        recursive: bool,
    ) -> format::Result<()> {
        let dataset = &self.opened.dataset;
        if recursive {
            return catalog.walk(dataset, directory, &mut |path, node| self.entry(path, node));
        }
        catalog.list(dataset, directory, 0, &mut |name, node| {
            self.entry(name, node);
            self.result.is_ok()
        })
    }

    fn entry(&mut self, name: &[u8], node: Node) {
        if self.result.is_ok() {
            self.result = self.print(name, node);
        }
    }

    fn print(&mut self, name: &[u8], node: Node) -> Result<(), Failure> {
        let failed = |e| Failure::output("standard output", e);
        if self.long {
            match node {
                Node::Directory(_) => write!(self.out, "{:>12} {:>14} {:>8} ", "-", "-", "-"),
                Node::Sample(sample) => {
                    let Some(located) = self.opened.dataset.locate(sample)? else { return Ok(()) };
                    let at = located.sample;
                    let crc = match at.checksum {
                        _ if at.damaged => "damaged".to_owned(),
                        Some(crc) => format!("{crc:08x}"),
                        None => "-".to_owned(),
                    };
                    write!(self.out, "{:>12} {:>14} {crc:>8} ", at.size_bytes(), at.offset_bytes)
                }
            }
            .map_err(failed)?;
        }
        let name = if self.on_terminal { visible(name, false) } else { name.into() };
        self.out.write_all(&name).map_err(failed)?;
        let end: &[u8] = if matches!(node, Node::Directory(_)) { b"/\n" } else { b"\n" };
        self.out.write_all(end).map_err(failed)
    }

    fn finish(mut self) -> Result<(), Failure> {
        self.result?;
        self.out.flush().map_err(|e| Failure::output("standard output", e))
    }
}
