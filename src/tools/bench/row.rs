//! Results of the benchmark, and the orders in which files are read.
//!
//! Imports no other file of this directory.

use serde::Serialize;

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
    pub(crate) other: u64,
}

impl Unread {
    /// From the lines of `.ffrfs/bad`. The reasons of all that is encrypted begin so.
    pub(super) fn of(list: &str) -> Self {
        let mut unread = Self::default();
        for reason in list.lines().filter_map(|line| line.split('\t').nth(1)) {
            let is_encrypted = reason.starts_with("encrypted");
            *if is_encrypted { &mut unread.encrypted } else { &mut unread.other } += 1;
        }
        unread
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
                    c\tencrypted with another password, or damaged\tx.zip\t2\n";
        assert_eq!(Unread::of(list), Unread { encrypted: 2, other: 1 });
        assert_eq!(Unread::of(""), Unread::default());
    }

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_middle_ones() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median([].into_iter()), None);
    }
}
