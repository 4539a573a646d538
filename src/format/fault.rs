//! Why the bytes of a sample cannot be given out.
//!
//! Imports only the errors of this room.

use super::{Error, Mismatch};
use std::fmt;

/// Why the bytes of a sample cannot be given out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// They do not match their checksum.
    Checksum(Mismatch),
    /// The index shows that they are not all there.
    Damaged,
    /// They are encrypted, and there is no password that fits.
    Locked,
    /// They are not an encoding of what they should be, or are not where they should be.
    Structure(String),
    /// The operating system cannot read them.
    Unreadable(String),
}

impl Fault {
    /// Whether reading again is useless.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        !matches!(self, Fault::Unreadable(_))
    }
}

impl From<Mismatch> for Fault {
    fn from(mismatch: Mismatch) -> Self {
        Fault::Checksum(mismatch)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Unreadable { .. } => Fault::Unreadable(error.to_string()),
            _ => Fault::Structure(error.to_string()),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Checksum(mismatch) => mismatch.fmt(out),
            Fault::Damaged => out.write_str(
                "damaged: its bytes are not all there, or cannot be decrypted or decoded",
            ),
            Fault::Locked => out.write_str("encrypted: give --password-file"),
            Fault::Structure(error) => out.write_str(error),
            Fault::Unreadable(error) => write!(out, "cannot be read: {error}"),
        }
    }
}
