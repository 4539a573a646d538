//! A mount namespace for one test.

use super::{Need, have};
use nix::mount::{MntFlags, MsFlags, umount2};
use nix::sched::{CloneFlags, unshare};
use std::fs;

/// Gives this thread, and the processes that it starts, a mount namespace of its own, if it may. A test beside this one may
/// copy the namespace of all tests, with the mounts in it: an unmount ends none that is in a copy.
pub(crate) fn own_namespace() {
    if !have(Need::Root) {
        return;
    }
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    nix::mount::mount(None::<&str>, "/", None::<&str>, flags, None::<&str>).unwrap();
    // This one is a copy, too, and keeps no mount of other tests.
    let table = fs::read_to_string("/proc/thread-self/mounts").unwrap();
    for mount in table.lines().filter(|line| line.contains(" fuse.ffrfs ")) {
        let _ = umount2(mount.split(' ').nth(1).unwrap(), MntFlags::MNT_DETACH);
    }
}
