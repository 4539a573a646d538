//! Why the bytes of a sample cannot be given out.
//!
//! Imports only the errors of this room.

use super::error::unread_encryption;
use super::{DecodeError, Error, Mismatch};
use std::{fmt, io};

/// Why the bytes of a sample cannot be given out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// They do not match their checksum.
    Checksum(Mismatch),
    /// What they are made from does not match its own checksum.
    PartChecksum {
        /// Which part of the container, with its byte: a page, a chunk, a record.
        what: String,
        /// The stored checksum.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// The index shows that they are not all there.
    Damaged,
    /// They are encrypted, and no password was given.
    Locked,
    /// They are encrypted, and the password that was given does not fit: theirs is another one, or they are damaged.
    OtherPassword,
    /// They are encrypted in this way, which is not read: no password helps.
    Encryption(&'static str),
    /// They are not an encoding of what they should be, or are not where they should be.
    Structure(String),
    /// The operating system cannot read them.
    Unreadable(String),
    /// This machine lacks what reading them takes: they are as good as they were, and are read again when they are asked for.
    Lacking(String),
}

impl Fault {
    /// There is no memory to read or decode them to.
    #[must_use]
    pub fn no_memory() -> Self {
        Fault::Lacking(
            "there is not enough memory at the moment; it is read again when it is asked for"
                .to_owned(),
        )
    }

    /// An error of the operating system.
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

    /// Whether they are encrypted, and cannot be decrypted. They may be as good as they were.
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

    /// The same, of a part of the container that `place` names.
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
            // The container as a whole is usable. Whoever tells of a sample names its file; the byte may be one of a member.
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
