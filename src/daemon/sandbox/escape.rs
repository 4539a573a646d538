//! A daemon that behaves as if a container had taken it over, for the tests: it tries forbidden actions, and logs how each
//! ended. Only builds with the feature `test-hooks` have it.

use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::process::Command;

/// Names the actions to try: `open`, `exec`, `connect`, `ptrace` and so on, with commas.
const VARIABLE: &str = "FFRFS_TEST_ESCAPE";

/// Tries the actions that the variable names, on a thread of its own.
pub(super) fn try_all() {
    let Ok(wanted) = std::env::var(VARIABLE) else { return };
    let tried = std::thread::spawn(move || {
        for what in wanted.split(',') {
            let how = match attempt(what) {
                Ok(()) => "done".to_owned(),
                Err(error) => error.to_string(),
            };
            tracing::warn!("escape: {what}: {how}");
        }
    });
    let _ = tried.join();
}

fn attempt(what: &str) -> io::Result<()> {
    match what.split_once('=') {
        Some(("open", path)) => File::open(path).map(drop),
        Some(("write", path)) => {
            File::options().write(true).create(true).truncate(false).open(path).map(drop)
        }
        Some(("setuid", path)) => File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o4755)
            .open(path)
            .map(drop),
        Some(("exec", program)) => {
            Command::new(program).spawn().and_then(|mut child| child.wait()).map(drop)
        }
        Some(("kill", process)) => {
            crate::io::confine::reach(process.parse().map_err(io::Error::other)?)
        }
        Some(("chmod", path)) => {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o4755))
        }
        Some(("fchmod", path)) => {
            File::open(path)?.set_permissions(std::fs::Permissions::from_mode(0o4755))
        }
        Some(("connect", address)) => TcpStream::connect(address).map(drop),
        Some(("stream", path)) => std::os::unix::net::UnixStream::connect(path).map(drop),
        None if what == "ptrace" => crate::io::confine::trace_parent(),
        None if what == "mount" => Ok(nix::mount::umount("/proc")?),
        None if what == "fork" => crate::io::process::in_child(Vec::new).map(drop),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}
