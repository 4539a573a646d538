//! Packs a directory as FFRecord, like the reference package.

use crate::failure::Failure;
use crate::format::ffrecord::{PackedNames, WriteFfRecord};
use crate::format::{self, Grouping, WriteFormat, writer_named};
use crate::interrupt::Interrupt;
use crate::tools::convert::{Cut, WriteContainers, cut};
use crate::tools::entries::{DirectoryEntries, Entries, EntryKind, file_bytes};
use crate::tools::reader::thread_count;
use crate::tools::{output, progress};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// What to pack, and how.
pub(crate) struct Pack<'a> {
    /// The directory whose files become samples, in order of their names.
    pub(crate) directory: &'a Path,
    /// The container to write, or the directory of parts.
    pub(crate) output: &'a Path,
    /// Whether to store no names.
    pub(crate) is_flat: bool,
    /// The number of containers of about the same size; `None` for one.
    pub(crate) parts: Option<NonZeroU32>,
    /// Whether an existing output is replaced.
    pub(crate) force: bool,
    pub(crate) interrupt: &'a Interrupt,
}

/// Packs a directory.
///
/// # Errors
/// The directory cannot be read, the output cannot be written, or the user has interrupted the work.
pub(crate) fn pack(args: &Pack) -> Result<(), Failure> {
    check_places(args)?;
    match DirectoryEntries::walk(args.directory, true, args.interrupt, &|_| true)? {
        Some(tree) => write(args, &tree),
        None => args.interrupt.check(),
    }
}

fn write(args: &Pack, tree: &DirectoryEntries) -> Result<(), Failure> {
    let failed = |e| Failure::output(args.output.display(), e);
    let mut write = WriteContainers {
        entries: tree,
        format: &WriteFfRecord,
        is_numbered: args.is_flat,
        grouping: Grouping::Keys,
        shown_in: args.parts.map(|_| args.output),
        last: None,
        whole_seconds: false,
        threads: thread_count(None),
        force: args.force,
        interrupt: args.interrupt,
        progress: progress::of_bytes(file_bytes(tree)),
    };
    let Some(parts) = args.parts else {
        let ranges = cut(tree, write.format, write.grouping, Cut::One)?;
        return write.all(&[args.output.to_owned()], &ranges).map(drop);
    };
    // The last part has the names of all samples, as in the reference package.
    if !args.is_flat {
        write.last = Some(names(tree).map_err(failed)?);
    }
    write.is_numbered = true;
    let ranges = cut(tree, write.format, write.grouping, Cut::Count(NonZeroU64::from(parts)))?;
    let directory = output::directory_beside(args.output).map_err(failed)?;
    let name = |part| directory.path().join(format!("PART_{part:05}.ffr"));
    let names: Vec<PathBuf> = (0..ranges.len()).map(name).collect();
    write.all(&names, &ranges)?;
    output::give_directory_name(directory, args.output, args.force).map_err(failed)
}

/// The names of all files, in stored form.
fn names(tree: &DirectoryEntries) -> io::Result<Vec<u8>> {
    let (mut names, mut sample) = (PackedNames::default(), 0);
    for (number, item) in tree.list().iter().enumerate() {
        match item.kind {
            EntryKind::Directory => names.add_directory(&tree.path(number))?,
            _ => {
                names.add_file(&tree.path(number), sample)?;
                sample += 1;
            }
        }
    }
    names.encode()
}

fn check_places(args: &Pack) -> Result<(), Failure> {
    let out = args.output;
    let directory = args
        .directory
        .canonicalize()
        .map_err(|e| Failure::unreadable(args.directory.display(), e))?;
    if !directory.is_dir() {
        return Err(Failure::usage(format!("{}: not a directory", args.directory.display())));
    }
    if let Some(ending) = out.extension().and_then(|ending| ending.to_str())
        && let Some(other) =
            writer_named(ending).filter(|other| other.name() != WriteFfRecord.name())
    {
        let (from, out) = (args.directory.display(), out.display());
        return Err(Failure::usage(format!(
            "{out}: pack writes FFRecord, and the name says {}: ffrfs convert {from} {out}",
            other.name()
        )));
    }
    if format::has_known_extension(out) && !is_named_ffrecord(out) || is_foreign(out) {
        return Err(Failure::usage(format!(
            "{}: pack writes FFRecord, and the name says something else: name it {}",
            out.display(),
            out.with_extension("ffr").display()
        )));
    }
    output::check_outside(&directory, out, "packed")?;
    if args.parts.is_none() || !args.force || out.symlink_metadata().is_err() {
        return output::check_free(out, args.force);
    }
    check_parts(out).map_err(|e| Failure::output(out.display(), e))
}

fn is_named_ffrecord(path: &Path) -> bool {
    let endings = WriteFfRecord.extensions();
    path.extension()
        .is_some_and(|ending| endings.iter().any(|known| ending.eq_ignore_ascii_case(known)))
}

/// Whether a name ends as files that people know, of formats that nothing here reads or writes.
fn is_foreign(path: &Path) -> bool {
    const ENDINGS: [&str; 10] =
        ["7z", "rar", "iso", "cpio", "squashfs", "lz4", "lz", "arrow", "avro", "npz"];
    path.extension()
        .is_some_and(|ending| ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known)))
}

/// Refuses a directory that `pack` cannot have written, so that it is not replaced.
fn check_parts(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !(name.starts_with("PART_") && name.ends_with(".ffr")) {
            return Err(io::Error::other(format!("holds {name}, which pack did not write")));
        }
    }
    Ok(())
}
