//! The facts that `ffrfs doctor` prints: the features of the host, the storage of a container, the bottleneck of a mount.
//!
//! Each check is a function of file contents and figures, so that tests can pass any contents and figures.

mod bottleneck;
mod check;
mod host;
mod load;
mod mount_point;
mod mounted;
mod resources;
mod storage;
mod store;

pub(crate) use check::{Check, State};
pub(crate) use store::checks as store;

use crate::failure::{Exit, Failure};
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

/// Checks that a mount on a directory would not be refused, as far as that can be known before; `shares`: with other users.
///
/// # Errors
/// The mount would be refused.
pub(crate) fn check_mount_point(directory: &Path, shares: bool) -> Result<(), Failure> {
    let Some(Check { check, found, advice, .. }) = mount_point::refusal(directory, shares) else {
        return Ok(());
    };
    Err(Failure::new(Exit::Mount, format!("{check}: {found}; {advice}")))
}

/// Checks of mount points and containers, a list for each place; a mount is watched for `pause`.
///
/// Mounts come first: beside the threads that open a container, no process can be made that asks a mount.
pub(crate) fn places(places: &[&Path], pause: Duration) -> Vec<Vec<Check>> {
    let of_mounts: Vec<_> = places.iter().map(|place| of_mount(place, pause)).collect();
    let checks = places.iter().zip(of_mounts);
    checks.map(|(place, of_mount)| of_mount.unwrap_or_else(|| of_container(place))).collect()
}

/// Checks of a mount of ours, or of the mount around a container if that mount does not answer.
///
/// The mount table tells whether a place is a mount: a system call on a mount whose daemon hangs would never return.
fn of_mount(place: &Path, pause: Duration) -> Option<Vec<Check>> {
    let ours = mounts::Ours::now().ok()?;
    let met = ours.met_by(place)?;
    if met.rest.as_os_str().is_empty() {
        return Some(mounted::checks(&place.display().to_string(), met.mount, pause));
    }
    mounted::unanswered(met.mount).map(|hangs| vec![hangs])
}

fn of_container(place: &Path) -> Vec<Check> {
    let name = place.display().to_string();
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
