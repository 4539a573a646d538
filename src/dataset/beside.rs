//! The names of what lies beside a container: its kept index, its sidecar of checksums, and lock files.

use crate::format::{lmdb, sidecar};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Behind the name of a container: its kept index.
pub(crate) const INDEX: &str = "ffrfs-index";
/// Behind the name of a container: its sidecar.
pub(crate) const SIDECAR: &str = sidecar::ENDING;

/// The place of a container's index or sidecar.
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
