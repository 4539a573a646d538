//! The state that the next process needs to go on with a mount. Imports `connection`, `ending` and `negotiation`.

use super::negotiation::Granted;
use super::{connection, ending};
use crate::io::mount::mount_id::Made;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The state that a process that serves a mount leaves to the next one: the descriptors, so that the kernel keeps the requests
/// that were taken through them, and the kernel's grants.
#[derive(Debug)]
pub struct Handover {
    /// The descriptors of the connection.
    pub devices: Vec<OwnedFd>,
    /// The kernel's grants in INIT.
    pub granted: Granted,
    /// The mount.
    pub made: Made,
}

impl Handover {
    /// Has the kernel send again the unanswered requests of a process that has ended.
    ///
    /// # Errors
    /// The mount has ended.
    pub fn resend(&self) -> io::Result<()> {
        let device = self.devices.last().ok_or(io::ErrorKind::NotConnected)?;
        connection::resend(device.as_fd())
    }

    /// Whether the mount has ended, so that no process can go on with it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.devices.last().is_none_or(ending::is_closed)
    }
}
