//! Writes entries to a directory as files.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `writer` | writes entries to a directory |
//! | `place` | the directories and temporary names that files are written to |
//! | `patterns` | the paths to extract |

mod patterns;
mod place;
mod writer;

pub(crate) use patterns::PathPatterns;
pub(crate) use writer::{Existing, Extracted, TreeWriter};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::io::files::beneath::Beneath;
use crate::tools::entries::Entries;
use crate::tools::progress;
use std::path::Path;
use std::{fs, io};

/// Writes entries to the directory `root`, which is created if it does not exist.
///
/// # Errors
/// A file is in the way, the directory cannot be written, or a container was changed so that its index cannot be read.
pub(crate) fn extract(
    entries: &dyn Entries,
    root: &Path,
    existing: Existing,
    threads: usize,
    interrupt: &Interrupt,
) -> Result<Extracted, Failure> {
    let failed = |e| Failure::output(root.display(), e);
    let was_there = root.exists();
    fs::create_dir_all(root).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => failed(io::ErrorKind::NotADirectory.into()),
        _ => failed(e),
    })?;
    let is_empty = fs::read_dir(root).map_err(failed)?.next().is_none();
    let directory = Beneath::open(root).map_err(failed)?;
    let progress = progress::of_bytes(0);
    let writer = TreeWriter { entries, root, directory, existing, interrupt, progress };
    writer.write(threads, is_empty).inspect_err(|_| {
        if !was_there {
            // Removes the directory only if it is empty.
            let _ = fs::remove_dir(root);
        }
    })
}
