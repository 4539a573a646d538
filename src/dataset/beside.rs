//! The names of files beside a container: its kept index, its sidecar with checksums, and lock files.

use crate::format::{lmdb, sidecar};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The extension that a kept index adds to its container's name.
pub(crate) const INDEX: &str = "ffrfs-index";
/// The extension that a sidecar adds to its container's name.
pub(crate) const SIDECAR: &str = sidecar::ENDING;

/// The path of a container's index or sidecar.
pub(crate) fn beside(container: &Path, ending: &str) -> PathBuf {
    let mut name = container.as_os_str().to_owned();
    name.push(format!(".{ending}"));
    name.into()
}

/// Whether a name is that of an index, a sidecar or a lock file, which is not a container.
pub(crate) fn is_no_container(name: &Path) -> bool {
    let is_beside = |ending: &OsStr| ending == INDEX || ending == SIDECAR;
    name.extension().is_some_and(is_beside) || lmdb::is_lock_file(name)
}
