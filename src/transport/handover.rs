//! What the next process needs to go on with a mount. Imports `connection`, `ending` and `negotiation`.

use super::negotiation::Granted;
use super::{connection, ending};
use crate::io::mount::mount_id::Made;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// What a process that serves a mount leaves to the next one: the descriptors, so that the kernel keeps the requests that
/// were taken through them, and what was granted.
#[derive(Debug)]
pub struct Handover {
    /// The descriptors of the connection.
    pub devices: Vec<OwnedFd>,
    /// What the kernel has granted.
    pub granted: Granted,
    /// The mount.
    pub made: Made,
}

impl Handover {
    /// Has the kernel send again what a process has taken that has ended since, and what is not answered yet.
    ///
    /// # Errors
    /// The mount has ended.
    pub fn resend(&self) -> io::Result<()> {
        let device = self.devices.last().ok_or(io::ErrorKind::NotConnected)?;
        connection::resend(device.as_fd())
    }

    /// Whether the mount has ended, so that nobody can go on with it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.devices.last().is_none_or(ending::is_closed)
    }
}
