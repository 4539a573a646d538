//! `ffrfs ls`: the names that a mount would show.

use super::open::OpenArgs;
use super::view::ViewArgs;
use crate::catalog::{Catalog, Located, Node};
use crate::daemon::logging;
use crate::dataset::{Opened, not_found, path_bytes};
use crate::failure::{Exit, Failure};
use crate::format;
use crate::format::shown::refuse_damaged;
use crate::format::{PartName, visible};
use crate::vfs::report;
use clap::Args;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// List samples without mounting
#[derive(Debug, Args)]
pub(super) struct LsArgs {
    /// Containers, or directories, globs or brace lists of them
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PartName>,
    /// Also print the size of each sample, its offset in the container, its checksum, and the target of a symbolic link
    #[arg(short = 'l', long)]
    long: bool,
    /// Print one JSON object per line: path, size, container, offset, stored length, checksum, target of a symbolic link
    #[arg(long, conflicts_with = "long")]
    json: bool,
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
    let opened = args.open.open(&args.sources).map_err(|failure| args.hint(failure))?;
    let catalog = opened.catalog(&args.view, &args.open)?;
    let mut list = List {
        opened: &opened,
        long: args.long,
        json: args.json,
        on_terminal: io::stdout().is_terminal(),
        out: BufWriter::new(io::stdout().lock()),
        result: Ok(()),
    };
    let start = args.path.as_deref().unwrap_or(Path::new(""));
    let path = path_bytes(start);
    match catalog.find(&opened.dataset, path)? {
        Some(Node::Directory(directory)) => list.directory(&catalog, directory, args.recursive)?,
        Some(node @ Node::Sample(_)) => list.entry(path, node),
        None => return Err(not_found(start, &catalog.renamed())),
    }
    list.finish()?;
    Ok(Exit::Ok)
}

impl LsArgs {
    /// Adds a hint, as other programs take names of members behind the archive's.
    fn hint(&self, failure: Failure) -> Failure {
        let error = failure.reason::<io::Error>().map(io::Error::kind);
        if error != Some(io::ErrorKind::NotFound) || self.sources.len() < 2 || self.path.is_some() {
            return failure;
        }
        let said = format!("{failure} (--path PATH lists what is in a container)");
        failure.saying(&said)
    }
}

/// A line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    path: Cow<'a, str>,
    is_directory: bool,
    #[serde(flatten)]
    sample: Option<Place<'a>>,
}

/// The place of a sample, and its state.
#[derive(Serialize)]
struct Place<'a> {
    /// The sample's number in the dataset.
    sample: u64,
    /// The size of its file, in bytes.
    size: u64,
    container: &'a PartName,
    /// The offset of the stored bytes, which may be an encoding of the file's.
    offset: u64,
    length: u64,
    /// The checksum of the stored bytes, decoded if they are encoded: `crc32:01234567`.
    checksum: Option<String>,
    /// The target of a symbolic link.
    #[serde(skip_serializing_if = "Option::is_none")]
    link_target: Option<Cow<'a, str>>,
    is_damaged: bool,
    /// Whether the sample cannot be decrypted: there is no password, or its encryption is not read.
    is_encrypted: bool,
}

struct List<'a, W: Write> {
    opened: &'a Opened,
    long: bool,
    json: bool,
    out: W,
    /// Whether the output is a terminal: control characters in names are not printed as they are.
    on_terminal: bool,
    /// The first failure.
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
        if self.json {
            let line = Line {
                path: String::from_utf8_lossy(name),
                is_directory: matches!(node, Node::Directory(_)),
                sample: self.place(node)?,
            };
            return self.out.write_all(&report::json_line(&line)).map_err(failed);
        }
        if self.long {
            match node {
                Node::Directory(_) => write!(self.out, "{:>12} {:>14} {:>9} ", "-", "-", "-"),
                Node::Sample(sample) => {
                    let Some(located) = self.opened.dataset.locate(sample)? else { return Ok(()) };
                    let at = located.sample;
                    let crc = match at.checksum {
                        _ if self.is_encrypted(&located) => "encrypted".to_owned(),
                        _ if at.damaged => "damaged".to_owned(),
                        Some(crc) => format!("{crc:08x}"),
                        None => "-".to_owned(),
                    };
                    write!(self.out, "{:>12} {:>14} {crc:>9} ", at.size_bytes(), at.offset_bytes)
                }
            }
            .map_err(failed)?;
        }
        let name = if self.on_terminal { visible(name, false) } else { name.into() };
        self.out.write_all(&name).map_err(failed)?;
        if let Some(target) = self.link_target(node).filter(|_| self.long) {
            let target = if self.on_terminal { visible(&target, false) } else { target.into() };
            self.out.write_all(&[b" -> ", &target[..]].concat()).map_err(failed)?;
        }
        let end: &[u8] = if matches!(node, Node::Directory(_)) { b"/\n" } else { b"\n" };
        self.out.write_all(end).map_err(failed)
    }

    /// The target of a symbolic link; `None` also for one that cannot be read, which is listed nevertheless.
    fn link_target(&self, node: Node) -> Option<Vec<u8>> {
        let Node::Sample(sample) = node else { return None };
        self.opened.dataset.target_of_link(sample).ok().flatten()
    }

    fn place(&self, node: Node) -> format::Result<Option<Place<'_>>> {
        let Node::Sample(sample) = node else { return Ok(None) };
        let Some(located) = self.opened.dataset.locate(sample)? else { return Ok(None) };
        let at = located.sample;
        let is_encrypted = self.is_encrypted(&located);
        Ok(Some(Place {
            sample,
            size: at.size_bytes(),
            container: self.opened.store.part(located.part).name(),
            offset: at.offset_bytes,
            length: at.length_bytes,
            checksum: at.checksum.map(|sum| format!("{}:{sum:08x}", sum.kind().option())),
            link_target: self
                .link_target(node)
                .map(|target| String::from_utf8_lossy(&target).into_owned().into()),
            is_damaged: at.damaged && !is_encrypted,
            is_encrypted,
        }))
    }

    fn is_encrypted(&self, located: &Located) -> bool {
        let container = self.opened.dataset.containers()[located.container].as_ref();
        let refused = refuse_damaged(container, located.index, &located.sample);
        refused.is_err_and(|fault| fault.is_encrypted())
    }

    fn finish(mut self) -> Result<(), Failure> {
        self.result?;
        self.out.flush().map_err(|e| Failure::output("standard output", e))
    }
}
