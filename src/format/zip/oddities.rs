//! Warnings of odd members of an archive. Imports nothing of its format.

use crate::format::one_or_many;

/// The number of odd members, by oddity.
#[derive(Default)]
pub(super) struct Oddities {
    pub(super) special: u64,
    pub(super) full_directories: u64,
    pub(super) locked: u64,
    pub(super) without_password: u64,
    pub(super) unknown_method: u64,
    pub(super) wrong_size: u64,
    pub(super) outside: u64,
    pub(super) unresolved_links: u64,
    pub(super) backslashes: u64,
    /// Bytes before the archive.
    pub(super) before: u64,
    /// Bytes after the archive.
    pub(super) behind: u64,
}

/// The first words of a warning about one member, the first words about several, and the rest of the warning.
type Words = (&'static str, &'static str, &'static str);

impl Oddities {
    /// A warning for each oddity that the archive has.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        let texts: [(u64, Words); 11] = [
            (self.without_password, ("member is", "members are", ENCRYPTED)),
            (self.locked, ("member is", "members are", UNREAD)),
            (
                self.unknown_method,
                ("member is", "members are", "encoded with an unknown method: EIO"),
            ),
            (self.wrong_size, ("member claims", "members claim", "a size that cannot be: EIO")),
            (self.outside, ("member does", "members do", "not lie within the file: EIO")),
            (self.special, ("member is", "members are", "no file but a device or pipe: not shown")),
            (
                self.full_directories,
                ("directory contains", "directories contain", "data, which is not shown"),
            ),
            (
                self.unresolved_links,
                ("hard link leads", "hard links lead", "to no member: shown as empty"),
            ),
            (self.backslashes, ("name has", "names have", BACKSLASHES)),
            (self.before, ("byte", "bytes", "before the archive, of no member")),
            (self.behind, ("byte", "bytes", "after the archive, of no member")),
        ];
        let some = texts.into_iter().filter(|(count, _)| *count > 0);
        some.map(|(count, (one, many, text))| format!("{} {text}", one_or_many(count, one, many)))
    }
}

const ENCRYPTED: &str = "encrypted: unreadable without a password (--password-file)";
const UNREAD: &str = "encrypted in a way that ffrfs does not read: EIO";
const BACKSLASHES: &str = "backslashes, as programs on Windows write them: shown as paths";
