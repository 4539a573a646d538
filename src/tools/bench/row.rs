//! Results of the benchmark, and the orders in which files are read.
//!
//! Imports no other file of this directory.

use crate::format::one_or_many;
use serde::Serialize;

/// What opens encrypted files.
const GIVE: &str = "mount with the password (-O password-file=FILE)";
/// What helps with those that no password opens.
const DECRYPT: &str = "no password helps: decrypt the archive with the program that made it";

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
    /// Those of them that no password opens.
    #[serde(rename = "unknown_encryption")]
    pub(crate) unknown: u64,
    pub(crate) other: u64,
}

impl Unread {
    /// From the lines of `.ffrfs/bad`. The reasons of all that is encrypted begin so. The line that counts what is not listed
    /// names no container.
    pub(super) fn of(list: &str) -> Self {
        let mut unread = Self::default();
        for line in list.lines() {
            let mut fields = line.split('\t').skip(1);
            let (Some(reason), Some(container)) = (fields.next(), fields.next()) else { continue };
            if container == "-" {
                continue;
            }
            let is_encrypted = reason.starts_with("encrypted");
            *if is_encrypted { &mut unread.encrypted } else { &mut unread.other } += 1;
            unread.unknown += u64::from(reason.starts_with("encrypted in a way"));
        }
        unread
    }

    /// What to do where all is encrypted: give the password, if one opens any of it.
    pub(super) fn advice(self) -> &'static str {
        if self.unknown < self.encrypted { GIVE } else { DECRYPT }
    }

    /// A sentence for those that a password opens, and one for those that none does.
    pub(crate) fn sentences(self) -> impl Iterator<Item = String> {
        let each = [(self.encrypted - self.unknown, GIVE), (self.unknown, DECRYPT)];
        each.into_iter().filter(|(count, _)| *count > 0).map(|(count, advice)| {
            format!("{} encrypted: {advice}", one_or_many(count, "file is", "files are"))
        })
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
        assert_eq!(unread, Unread { encrypted: 3, unknown: 1, other: 2 });
        assert_eq!(Unread::of(""), Unread::default());
        let said: Vec<_> = unread.sentences().collect();
        assert!(said.len() == 2 && said[0].starts_with("2 files are encrypted: mount"), "{said:?}");
        assert!(said[1].starts_with("1 file is encrypted: no password helps"), "{said:?}");
        assert!(unread.advice() == GIVE && Unread::default().sentences().next().is_none());
    }

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_middle_ones() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median([].into_iter()), None);
    }
}
