//! `ffrfs pack`: a folder as FFRecord, as the reference package packs it.

use crate::daemon::logging;
use crate::failure::{Exit, Failure, say};
use crate::format::ffrecord::{PackedNames, WriteFfRecord};
use crate::tools::convert::shards;
use crate::tools::convert::shards::Cut;
use crate::tools::convert::write::Write;
use crate::tools::entries::{DirectoryEntries, Entries, EntryKind, file_bytes};
use crate::tools::interrupt::Interrupt;
use crate::tools::output;
use crate::tools::progress;
use crate::tools::reader::thread_count;
use clap::Args;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Pack a folder into an FFRecord container
#[derive(Debug, Args)]
pub(super) struct PackArgs {
    /// The folder whose files become samples, in order of their names
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The container to write; with --parts a folder of containers
    #[arg(value_name = "OUT.ffr")]
    output: PathBuf,
    /// Numbered samples, no names
    #[arg(long)]
    flat: bool,
    /// Write N containers of about the same size into the folder OUT
    #[arg(long, value_name = "N")]
    parts: Option<NonZeroU32>,
    /// Replace the output if it is there
    #[arg(long)]
    force: bool,
}

pub(super) fn run(args: &PackArgs) -> Result<Exit, Failure> {
    logging::to_stderr("warn");
    let interrupt = Interrupt::listen();
    check_places(args)?;
    let packed = match DirectoryEntries::walk(&args.folder, true, &interrupt)? {
        Some(tree) => pack(args, &tree, &interrupt),
        None => interrupt.check(),
    };
    match packed {
        Err(failure) if failure.exit == Exit::Interrupted => {
            say(format_args!("ffrfs: interrupted; nothing was written"));
            Ok(Exit::Interrupted)
        }
        packed => packed.map(|()| Exit::Ok),
    }
}

fn pack(args: &PackArgs, tree: &DirectoryEntries, interrupt: &Interrupt) -> Result<(), Failure> {
    let failed = |e| Failure::output(args.output.display(), e);
    let mut write = Write {
        entries: tree,
        format: &WriteFfRecord,
        is_numbered: args.flat,
        shown_in: args.parts.map(|_| &*args.output),
        last: None,
        whole_seconds: false,
        jobs: thread_count(None),
        force: args.force,
        interrupt,
        progress: progress::of_bytes(file_bytes(tree)),
    };
    let Some(parts) = args.parts else {
        let ranges = shards::cut(tree, write.format, Cut::One)?;
        return write.all(std::slice::from_ref(&args.output), &ranges).map(drop);
    };
    // The last part has the names of all: so the reference package has it.
    if !args.flat {
        write.last = Some(names(tree).map_err(failed)?);
    }
    write.is_numbered = true;
    let ranges = shards::cut(tree, write.format, Cut::Count(NonZeroU64::from(parts)))?;
    let folder = output::folder_beside(&args.output).map_err(failed)?;
    let name = |part| folder.path().join(format!("PART_{part:05}.ffr"));
    let names: Vec<PathBuf> = (0..ranges.len()).map(name).collect();
    write.all(&names, &ranges)?;
    output::give_folder_name(folder, &args.output, args.force).map_err(failed)
}

/// The names of all files, as they are stored.
fn names(tree: &DirectoryEntries) -> io::Result<Vec<u8>> {
    let (mut names, mut sample) = (PackedNames::default(), 0);
    for (number, item) in tree.list().iter().enumerate() {
        match item.kind {
            EntryKind::Directory => names.add_folder(&tree.path(number))?,
            _ => {
                names.add_file(&tree.path(number), sample)?;
                sample += 1;
            }
        }
    }
    names.encode()
}

fn check_places(args: &PackArgs) -> Result<(), Failure> {
    let out = &args.output;
    let folder =
        args.folder.canonicalize().map_err(|e| Failure::unreadable(args.folder.display(), e))?;
    if !folder.is_dir() {
        return Err(Failure::usage(format!("{}: not a folder", args.folder.display())));
    }
    output::check_outside(&folder, out, "packed")?;
    if args.parts.is_none() || !args.force || out.symlink_metadata().is_err() {
        return output::check_free(out, args.force);
    }
    check_parts(out).map_err(|e| Failure::output(out.display(), e))
}

/// What is replaced must be what `pack` could have written.
fn check_parts(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !(name.starts_with("PART_") && name.ends_with(".ffr")) {
            return Err(io::Error::other(format!("holds {name}, which pack did not write")));
        }
    }
    Ok(())
}
