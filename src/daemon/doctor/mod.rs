//! The facts that `ffrfs doctor` prints: what the host offers, what a mount would use, what a mount waits for.
//!
//! Each check is a function of file contents and figures, so that tests can give it any.

mod bottleneck;
mod check;
mod host;
mod load;
mod mounted;
mod resources;
mod storage;
mod store;

pub(crate) use check::{Check, State};
pub(crate) use mounted::{Ask, answer};
pub(crate) use store::checks as store;

use crate::io::mounts;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Checks of this host.
pub(crate) fn host() -> Vec<Check> {
    let mut checks = host::checks();
    checks.extend(resources::checks());
    checks
}

/// Checks of a mount point or a container; a mount is watched for `pause`.
///
/// The mount table tells which it is: a system call on a mount whose daemon hangs would never return.
pub(crate) fn place(place: &Path, pause: Duration, ask: Ask) -> Vec<Check> {
    let name = place.display().to_string();
    let absolute = std::path::absolute(place).unwrap_or_else(|_| place.to_owned());
    let ours = |path: &Path| {
        let mount = mounts::at(path).ok().flatten();
        mount.filter(|mount| mount.fs_type == mounts::FS_TYPE)
    };
    if let Some(mount) = ours(&absolute) {
        return mounted::checks(&name, &mount, pause, ask);
    }
    match place.canonicalize() {
        Err(e) => vec![Check::problem(name, e.to_string(), "give a container or a mount point")],
        Ok(path) => match ours(&path) {
            Some(mount) => mounted::checks(&name, &mount, pause, ask),
            None if is_empty_directory(&path) => {
                vec![Check::ok(name, "an empty directory, on which nothing is mounted")]
            }
            None => storage::checks(&name, &path),
        },
    }
}

fn is_empty_directory(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}
