//! The names of files beside a container: its kept index, its sidecar with checksums, lock files, and copies of it.

use crate::format::{lmdb, mds, sidecar};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// The extension that a kept index adds to its container's name.
pub(crate) const INDEX: &str = "ffrfs-index";
/// The extension that a sidecar adds to its container's name.
pub(crate) const SIDECAR: &str = sidecar::ENDING;

/// What the system says of a file that has no name yet: not the temporary name, which is gone when this is read.
pub(crate) fn without_temporary_name(error: io::Error) -> io::Error {
    if error.raw_os_error().is_some() {
        return error;
    }
    // `tempfile` gives its reason as text alone: `No such file or directory (os error 2) at path …`.
    let said = error.to_string();
    let number = said.split_once("(os error ").and_then(|(_, rest)| rest.split_once(')'));
    match number.and_then(|(number, _)| number.parse().ok()) {
        Some(number) => io::Error::from_raw_os_error(number),
        None => error,
    }
}

/// The path of a container's index or sidecar.
pub(crate) fn beside(container: &Path, ending: &str) -> PathBuf {
    let mut name = container.as_os_str().to_owned();
    name.push(format!(".{ending}"));
    name.into()
}

/// Leaves out files of a directory that are compressed copies of others: each would be shown twice.
pub(crate) fn leave_out_copies<T>(files: &mut Vec<T>, path: impl Fn(&T) -> PathBuf) {
    let is_copy = |file: &T| mds::copied_shard(&path(file)).is_some();
    if !files.iter().any(is_copy) {
        return;
    }
    let all: HashSet<PathBuf> = files.iter().map(&path).collect();
    files.retain(|file| mds::copied_shard(&path(file)).is_none_or(|shard| !all.contains(&shard)));
}

/// Whether a name is that of an index, a sidecar or a lock file, which is not a container.
pub(crate) fn is_no_container(name: &Path) -> bool {
    let is_beside = |ending: &OsStr| ending == INDEX || ending == SIDECAR;
    name.extension().is_some_and(is_beside) || lmdb::is_lock_file(name)
}
