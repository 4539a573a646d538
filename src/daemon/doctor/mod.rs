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
pub(crate) use store::checks as store;

use crate::io::mount::mounts;
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
pub(crate) fn place(place: &Path, pause: Duration) -> Vec<Check> {
    let name = place.display().to_string();
    let ours = mounts::Ours::now().ok();
    if let Some(met) = ours.as_ref().and_then(|ours| ours.met_by(place)) {
        if met.rest.as_os_str().is_empty() {
            return mounted::checks(&name, met.mount, pause);
        }
        // A container in a mount of ours.
        if let Some(hangs) = mounted::unanswered(met.mount) {
            return vec![hangs];
        }
    }
    match place.canonicalize() {
        Err(e) => vec![Check::problem(name, e.to_string(), "give a container or a mount point")],
        Ok(path) if is_empty_directory(&path) => {
            vec![Check::ok(name, "an empty directory, on which nothing is mounted")]
        }
        Ok(path) => storage::checks(&name, &path),
    }
}

fn is_empty_directory(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}
