//! Results of the benchmark, and the orders in which files are read.
//!
//! Imports no other file of this directory.

use crate::format::one_or_many;
use crate::io::mount::control_file;
use crate::vfs::CONTROL_DIRECTORY;
use serde::Serialize;
use std::path::Path;

/// How a command speaks of encrypted files: of one, of several, and of the option that takes their password.
pub(crate) struct Words {
    pub(crate) one: &'static str,
    pub(crate) many: &'static str,
    pub(crate) option: &'static str,
}

/// How `bench` does.
pub(crate) const WORDS: Words =
    Words { one: "file is", many: "files are", option: "-O password-file=FILE" };

/// The order in which files are read, and the threads that read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// In listed order, by one thread.
    Sequential,
    /// In random order, each by the next free thread.
    Shuffled,
    /// In random order and in batches: one worker reads a batch, and batches are taken in order, as in a `DataLoader`.
    Loader,
}

impl Mode {
    /// Every mode.
    pub(crate) const ALL: [Self; 3] = [Self::Sequential, Self::Shuffled, Self::Loader];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Sequential => "sequential",
            Mode::Shuffled => "shuffled",
            Mode::Loader => "loader",
        }
    }
}

/// The results of a target in a mode.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) target: String,
    /// How the target is read: `mounted for this`, `mounted for this with rw`, `as it is`.
    pub(crate) access: &'static str,
    pub(crate) mode: Mode,
    pub(crate) threads: u16,
    /// The first pass of each round.
    pub(crate) first: Vec<PassFigures>,
    /// The later passes of each round.
    pub(crate) later: Vec<PassFigures>,
    pub(crate) unread: Unread,
}

/// Files that could not be read, as a mount lists them: of the round that had the most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Unread {
    /// They cannot be decrypted.
    pub(crate) encrypted: u64,
    /// Those of them that the password of the mount does not open; damaged ones look the same.
    pub(crate) other_password: u64,
    /// Those of them that no password opens.
    #[serde(rename = "unknown_encryption")]
    pub(crate) unknown: u64,
    pub(crate) other: u64,
}

impl Unread {
    /// What the mount on `root` lists; of what shows no such list, nothing.
    pub(crate) fn at(root: &Path) -> Self {
        let list = control_file::read(&root.join(CONTROL_DIRECTORY).join("bad"));
        list.map(|list| Self::of(&String::from_utf8_lossy(&list))).unwrap_or_default()
    }

    /// From the lines of `.ffrfs/bad`. The reasons of all that is encrypted begin so. The line that counts what is not listed
    /// names no container.
    fn of(list: &str) -> Self {
        let mut unread = Self::default();
        for line in list.lines() {
            let mut fields = line.split('\t').skip(1);
            let (Some(reason), Some(container)) = (fields.next(), fields.next()) else { continue };
            if container == "-" {
                continue;
            }
            let is_encrypted = reason.starts_with("encrypted");
            *if is_encrypted { &mut unread.encrypted } else { &mut unread.other } += 1;
            unread.other_password += u64::from(reason.starts_with("encrypted with another"));
            unread.unknown += u64::from(reason.starts_with("encrypted in a way"));
        }
        unread
    }

    /// Whether nothing but encryption keeps the files from being read.
    pub(crate) fn are_all_encrypted(self) -> bool {
        self.encrypted > 0 && self.other == 0
    }

    /// Where all is encrypted, how, and what to do; with counts, if that differs.
    pub(crate) fn said_of_all(self, words: &Words) -> String {
        match self.kinds(words).as_slice() {
            [(_, said)] => said.clone(),
            _ => format!("encrypted: {}", self.sentences(words).join("; ")),
        }
    }

    /// A sentence for those without a password, one for those with another one, and one for those that no password opens.
    pub(crate) fn sentences(self, words: &Words) -> Vec<String> {
        let sentence = |(count, said): (u64, String)| {
            format!("{} {said}", one_or_many(count, words.one, words.many))
        };
        self.kinds(words).into_iter().map(sentence).collect()
    }

    /// How many are encrypted how, and what to do.
    fn kinds(self, words: &Words) -> Vec<(u64, String)> {
        let locked = self.encrypted - self.other_password - self.unknown;
        let option = words.option;
        let give = format!("encrypted: mount with the password ({option})");
        let other =
            format!("encrypted with another password, or damaged: mount with that one ({option})");
        let decrypt =
            "encrypted: no password helps: decrypt the archive with the program that made it";
        let kinds =
            [(locked, give), (self.other_password, other), (self.unknown, decrypt.to_owned())];
        kinds.into_iter().filter(|(count, _)| *count > 0).collect()
    }

    pub(super) fn is_more_than(self, other: Self) -> bool {
        self.encrypted + self.other > other.encrypted + other.other
    }
}

/// How much a pass read, and how long it took.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct PassFigures {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) failed: u64,
    pub(crate) seconds: f64,
    /// The time from open to close, in microseconds.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

impl PassFigures {
    pub(crate) fn files_per_second(&self) -> f64 {
        self.files as f64 / self.seconds.max(1e-9)
    }

    pub(crate) fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9)
    }
}

/// The middle value, or the mean of the two middle values.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some(f64::midpoint(values[low], values[high]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_mount_lists_as_encrypted_is_told_from_what_is_bad() {
        let list = "a\tencrypted\tx.zip\t0\nb\tchecksum\tx.zip\t1\n\
                    c\tencrypted with another password, or damaged\tx.zip\t2\n\
                    d\tencrypted in a way that ffrfs does not read: so\tx.zip\t3\n\
                    -\tit was truncated\ty.zip\t-\n\
                    -\tand 7 more requests for bad samples\t-\t-\n";
        let unread = Unread::of(list);
        let expected = Unread { encrypted: 3, other_password: 1, unknown: 1, other: 2 };
        assert_eq!(unread, expected);
        assert_eq!(Unread::of(""), Unread::default());
        let said = unread.sentences(&WORDS);
        let begins = [
            "1 file is encrypted: mount with the password (-O password-file=FILE)",
            "1 file is encrypted with another password, or damaged: mount with that one (-O ",
            "1 file is encrypted: no password helps",
        ];
        assert!(said.len() == 3, "{said:?}");
        assert!(said.iter().zip(begins).all(|(said, begin)| said.starts_with(begin)), "{said:?}");
        assert_eq!(unread.said_of_all(&WORDS), format!("encrypted: {}", said.join("; ")));
        let one = Unread::of("a\tencrypted\tx.zip\t0\nb\tencrypted\tx.zip\t1\n");
        assert!(one.are_all_encrypted() && !unread.are_all_encrypted());
        let said = one.said_of_all(&WORDS);
        assert_eq!(said, "encrypted: mount with the password (-O password-file=FILE)");
        assert!(Unread::default().sentences(&WORDS).is_empty());
    }

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_middle_ones() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median([].into_iter()), None);
    }
}
