//! Mounts that their users have not shared. Imports the mount table.

use super::mounts::Mount;
use nix::unistd::{Uid, User, geteuid};

/// The only user who may look into this mount, if that is not the user of this process.
#[must_use]
pub fn other_user(mount: &Mount) -> Option<u32> {
    let this = geteuid().as_raw();
    mount.private_to.map(|(user, _)| user).filter(|user| *user != this)
}

/// The text of messages that this user has not shared a mount.
#[must_use]
pub fn said_of(user: u32) -> String {
    match user {
        0 => "root has mounted it without allow_other".to_owned(),
        user => format!("{} has mounted it without allow_other", user_named(user)),
    }
}

/// A user in messages: by name, if there is one.
#[must_use]
pub fn user_named(user: u32) -> String {
    match User::from_uid(Uid::from_raw(user)) {
        Ok(Some(found)) => format!("the user {}", found.name),
        _ => format!("the user with number {user}"),
    }
}
