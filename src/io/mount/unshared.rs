//! Mounts that their users have not shared. Imports the mount table.

use super::mounts::Mount;
use nix::unistd::geteuid;

/// The user who alone may look into this mount, if that is not the one of this process.
#[must_use]
pub fn other_user(mount: &Mount) -> Option<u32> {
    let this = geteuid().as_raw();
    mount.private_to.map(|(user, _)| user).filter(|user| *user != this)
}

/// That this user has made a mount for nobody else, as messages say it.
#[must_use]
pub fn said_of(user: u32) -> String {
    match user {
        0 => "root has mounted it without allow_other".to_owned(),
        user => format!("the user with number {user} has mounted it without allow_other"),
    }
}
