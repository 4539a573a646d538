//! Reasons against a mount before it is tried: those that fusermount3, which mounts for users, would find.

use super::check::{Check, State, text};
use super::host::{self, Rights};
use crate::io::process::procfs;
use nix::unistd::{AccessFlags, access, getuid};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fs, io};

const STICKY: u32 = 0o1000;
const FUSE_CONF: &str = "/etc/fuse.conf";

/// The reason why this process could not mount on a directory, or not share the mount with other users (`shares`). `None` if no
/// reason can be known before.
pub(super) fn refusal(directory: &Path, shares: bool) -> Option<Check> {
    let rights = Rights::read(&procfs::status());
    if rights.is_admin {
        return None;
    }
    let is_refused = |check: &Check| check.state != State::Ok;
    let mounting = Some(host::mounting(&rights, host::helper().as_ref())).filter(is_refused);
    if mounting.is_some() || getuid().is_root() {
        return mounting;
    }
    // fusermount3 may read the file where this process may not.
    let is_secret = || fs::File::open(FUSE_CONF).is_err_and(|e| e.kind() != ErrorKind::NotFound);
    let sharing = || host::sharing(&rights, text(FUSE_CONF).as_deref());
    let is_told = shares && !is_secret();
    is_told.then(sharing).filter(is_refused).or_else(|| unfit(directory))
}

/// Users mount on directories that they may write to; on sticky directories only if they own them.
fn unfit(directory: &Path) -> Option<Check> {
    let (name, advice) = (directory.display().to_string(), "mount on a directory of yours");
    if let Err(error) = access(directory, AccessFlags::W_OK) {
        let error = io::Error::from(error);
        return Some(Check::problem(name, format!("you may not write to it: {error}"), advice));
    }
    let found = fs::metadata(directory).ok()?;
    let is_of_others = found.mode() & STICKY != 0 && found.uid() != getuid().as_raw();
    is_of_others.then(|| Check::problem(name, "it is sticky, and belongs to another user", advice))
}
