//! Reasons why the bytes of a sample cannot be given out.
//!
//! Imports only the errors of this room.

use super::error::unread_encryption;
use super::{DecodeError, Error, Mismatch};
use std::{fmt, io};

/// The reason why the bytes of a sample cannot be given out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The bytes do not match their checksum.
    Checksum(Mismatch),
    /// Stored bytes from which they are made do not match a checksum of their own.
    PartChecksum {
        /// The name of those stored bytes, with their offset: a page, a chunk, a record.
        what: String,
        /// The stored checksum.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// The index shows that the bytes are not all there.
    Damaged,
    /// The bytes are encrypted, and no password was given.
    Locked,
    /// The bytes are encrypted, and the given password does not fit: they need another one, or are damaged.
    OtherPassword,
    /// The bytes are encrypted in this way, which is not read: no password helps.
    Encryption(&'static str),
    /// The bytes cannot be decoded, or are not where they should be.
    Structure(String),
    /// The operating system cannot read the bytes.
    Unreadable(String),
    /// This machine lacks a resource for reading, such as memory: the bytes may be intact, and the next request reads them
    /// again.
    Lacking(String),
}

impl Fault {
    /// The fault that there is no memory to read or decode the bytes to.
    #[must_use]
    pub fn no_memory() -> Self {
        Fault::Lacking(
            "there is not enough memory at the moment; it is read again when it is asked for"
                .to_owned(),
        )
    }

    /// The fault for an error of the operating system.
    #[must_use]
    pub fn of_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::OutOfMemory => Self::no_memory(),
            _ => Fault::Unreadable(error.to_string()),
        }
    }

    /// Whether reading again is useless.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        !matches!(self, Fault::Unreadable(_) | Fault::Lacking(_))
    }

    /// Whether the bytes are encrypted and cannot be decrypted. They may be intact.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Fault::Locked | Fault::OtherPassword | Fault::Encryption(_))
    }

    /// The stored checksum, and that of the bytes, if they differ.
    #[must_use]
    pub fn mismatch(&self) -> Option<(u32, u32)> {
        match self {
            Fault::Checksum(Mismatch { expected, found }) => {
                Some((expected.value(), found.value()))
            }
            Fault::PartChecksum { expected, found, .. } => Some((*expected, *found)),
            Fault::Damaged
            | Fault::Locked
            | Fault::OtherPassword
            | Fault::Encryption(_)
            | Fault::Structure(_)
            | Fault::Unreadable(_)
            | Fault::Lacking(_) => None,
        }
    }

    /// Adds `place`, which names bytes of the container, to the fault.
    #[must_use]
    pub(in crate::format) fn within(self, place: &str) -> Self {
        match self {
            Fault::PartChecksum { what, expected, found } if what.is_empty() => {
                Fault::PartChecksum { what: place.to_owned(), expected, found }
            }
            Fault::PartChecksum { what, expected, found } => {
                Fault::PartChecksum { what: format!("{place}: {what}"), expected, found }
            }
            Fault::Structure(why) => Fault::Structure(format!("{place}: {why}")),
            other => other,
        }
    }
}

impl From<Mismatch> for Fault {
    fn from(mismatch: Mismatch) -> Self {
        Fault::Checksum(mismatch)
    }
}

impl From<String> for Fault {
    fn from(why: String) -> Self {
        Fault::Structure(why)
    }
}

impl From<&str> for Fault {
    fn from(why: &str) -> Self {
        Fault::Structure(why.to_owned())
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Unreadable { ref source, .. } if source.kind() == io::ErrorKind::OutOfMemory => {
                Self::no_memory()
            }
            Error::Unreadable { .. } => Fault::Unreadable(error.to_string()),
            Error::Checksum { what, expected, found, .. } => {
                Fault::PartChecksum { what, expected, found }
            }
            Error::Locked { .. } => Fault::Locked,
            Error::WrongPassword { .. } => Fault::OtherPassword,
            Error::Encryption { how, .. } => Fault::Encryption(how),
            // The container as a whole is usable. Messages about a sample name its file; the offset may be in the file of a
            // member.
            Error::Malformed { part, offset_bytes, expected, found, .. } => {
                let file = part.file_name().display();
                Fault::Structure(format!(
                    "damaged: at byte {offset_bytes} of {file}: expected {expected}, found {found}"
                ))
            }
            Error::Undecodable { part, offset_bytes, why } => {
                let file = part.file_name().display();
                Fault::Structure(format!("damaged: at byte {offset_bytes} of {file}: {why}"))
            }
            Error::Foreign { .. } | Error::NoCheckpoints { .. } => {
                Fault::Structure(error.to_string())
            }
        }
    }
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Damaged(why) => Fault::Structure(why),
            DecodeError::WrongPassword => Fault::OtherPassword,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Checksum(mismatch) => mismatch.fmt(out),
            Fault::PartChecksum { what, expected, found } => {
                write!(
                    out,
                    "{what}: checksum mismatch: expected {expected:#010x}, found {found:#010x}"
                )
            }
            Fault::Damaged => out.write_str(
                "damaged: its bytes are not all there, or cannot be decrypted or decoded",
            ),
            Fault::Locked => out.write_str("encrypted: give --password-file"),
            Fault::OtherPassword => out
                .write_str("wrong password: encrypted with another one than was given, or damaged"),
            Fault::Encryption(how) => out.write_str(&unread_encryption(how)),
            Fault::Structure(error) => out.write_str(error),
            Fault::Unreadable(error) => write!(out, "cannot be read: {error}"),
            Fault::Lacking(what) => write!(out, "not read: {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn want_of_memory_is_said_in_words_and_is_no_property_of_a_sample() {
        let fault = Fault::of_io(&io::Error::from_raw_os_error(12));
        assert!(fault.to_string().contains("not enough memory"), "{fault}");
        assert!(!fault.to_string().contains("os error") && !fault.is_permanent());
        let other = Fault::of_io(&io::Error::from_raw_os_error(5));
        assert!(matches!(other, Fault::Unreadable(_)) && !other.is_permanent());
    }
}
