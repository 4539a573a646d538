//! Encrypted samples that cannot be decrypted: tools count them, and do not name them one by one.

use crate::format::{Fault, one_or_many};
use serde::Serialize;

/// How many samples are encrypted, with no password given, or in a way that is not read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Encrypted {
    /// All of them.
    #[serde(rename = "encrypted")]
    pub(crate) all: u64,
    /// Those of them that no password opens.
    #[serde(rename = "unknown_encryption")]
    unread: u64,
    /// How the first of these is encrypted.
    #[serde(skip)]
    how: Option<&'static str>,
}

impl Encrypted {
    /// Counts a sample with this fault if it is one of them; whether it is.
    pub(crate) fn count(&mut self, fault: &Fault) -> bool {
        let how = match *fault {
            Fault::Locked => None,
            Fault::Encryption(how) => Some(how),
            _ => return false,
        };
        self.all += 1;
        self.unread += u64::from(how.is_some());
        self.how = self.how.or(how);
        true
    }

    /// How many have which fault.
    pub(crate) fn by_fault(self) -> impl Iterator<Item = (u64, Fault)> {
        let unread = Fault::Encryption(self.how.unwrap_or_default());
        let each = [(self.all - self.unread, Fault::Locked), (self.unread, unread)];
        each.into_iter().filter(|(count, _)| *count > 0)
    }

    /// A sentence for each fault; `one` and `many` say what one is, and what several are: `sample is`, `samples are`.
    pub(crate) fn sentences(self, one: &str, many: &str) -> Vec<String> {
        let sentence =
            |(count, fault): (u64, Fault)| format!("{} {fault}", one_or_many(count, one, many));
        self.by_fault().map(sentence).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_without_a_password_and_those_that_none_opens_are_told_apart() {
        let mut encrypted = Encrypted::default();
        let how = Fault::Encryption("by a secret");
        for fault in [&Fault::Locked, &how, &Fault::Locked] {
            assert!(encrypted.count(fault));
        }
        assert!(!encrypted.count(&Fault::OtherPassword) && !encrypted.count(&Fault::Damaged));
        assert_eq!(encrypted.all, 3);
        let said = encrypted.sentences("file is", "files are");
        assert_eq!(said[0], "2 files are encrypted: give --password-file");
        let unread = "1 file is encrypted in a way that ffrfs does not read (by a secret): ";
        assert!(said.len() == 2 && said[1].starts_with(unread), "{said:?}");
    }
}
