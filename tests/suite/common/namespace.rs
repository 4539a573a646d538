//! Mount namespaces of tests.
//!
//! A new namespace is a copy, with the mounts of all other tests, and an unmount ends no mount that is in a copy: a daemon
//! would not end when its test unmounts. So each copy is rid of these mounts at once.

use super::mount::unescape;
use super::{Need, have};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, umount2};
use nix::sched::{CloneFlags, unshare};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Gives this thread, and the processes that it starts, a mount namespace of its own, if the user may have one. A test that
/// runs at the same time may copy the namespace of all tests, with the mounts in it.
pub(crate) fn own_namespace() {
    if have(Need::Root) {
        new_namespace(None);
    }
}

/// Calls `start` in a mount namespace of its own, without any mount of ffrfs: [`Need::Root`].
pub(crate) fn in_own_namespace<T: Send>(start: impl FnOnce() -> T + Send) -> T {
    in_own_namespace_with(None, start)
}

/// As [`in_own_namespace`], with the mount at `kept`.
pub(crate) fn in_own_namespace_with<T: Send>(
    kept: Option<&Path>,
    start: impl FnOnce() -> T + Send,
) -> T {
    let on_a_thread = || {
        new_namespace(kept);
        start()
    };
    std::thread::scope(|scope| scope.spawn(on_a_thread).join().unwrap())
}

fn new_namespace(kept: Option<&Path>) {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    nix::mount::mount(None::<&str>, "/", None::<&str>, flags, None::<&str>).unwrap();
    let table = fs::read("/proc/thread-self/mounts").unwrap();
    // A mount that lies in another one comes after it, and goes with it.
    for line in table.split(|&byte| byte == b'\n') {
        let mut fields = line.split(|&byte| byte == b' ').skip(1);
        let (Some(point), Some(b"fuse.ffrfs")) = (fields.next(), fields.next()) else { continue };
        let point = PathBuf::from(OsString::from_vec(unescape(point)));
        if kept != Some(&*point) {
            detach(&point);
        }
    }
}

/// Detaches all that is mounted at a path: another file system may cover a mount of ffrfs.
fn detach(point: &Path) {
    loop {
        match umount2(point, MntFlags::MNT_DETACH) {
            Ok(()) => {}
            // Nothing is left, or the mount has gone with its outer one or with its directory.
            Err(Errno::EINVAL | Errno::ENOENT) => return,
            Err(error) => panic!("{}: {error}", point.display()),
        }
    }
}
