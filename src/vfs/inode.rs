//! Inode numbers are arithmetic: no table, the same from mount to mount.

use crate::catalog::Node;
use crate::io::mount::control_file::DIRECTORY_INODE;

/// The control directory's name in the root. An entry of the dataset with this name in the root is not shown.
pub const CONTROL_DIRECTORY: &str = ".ffrfs";
pub(super) const CONTROL_NAME: &[u8] = CONTROL_DIRECTORY.as_bytes();

/// The first inode number of the control directory; the numbers of samples and directories stay far below.
const CONTROL: u64 = DIRECTORY_INODE;
/// The first inode number that is shown for a control file, above the numbers of all snapshots.
const CONTROL_FILES: u64 = CONTROL + (1 << 61);

/// The entry that an inode number stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inode {
    /// A sample or directory of the dataset.
    Node(Node),
    /// `/.ffrfs`.
    ControlDirectory,
    /// A snapshot of a control file, by number from 1.
    Snapshot(u64),
}

impl Inode {
    /// Returns the inode number: odd for directories (1 for the root, as FUSE wants it), even for samples.
    pub(super) fn number(self) -> u64 {
        match self {
            Inode::Node(Node::Directory(directory)) => directory.wrapping_mul(2).wrapping_add(1),
            Inode::Node(Node::Sample(sample)) => sample.wrapping_mul(2).wrapping_add(2),
            Inode::ControlDirectory => CONTROL,
            Inode::Snapshot(number) => CONTROL + number,
        }
    }

    pub(super) fn of(number: u64) -> Self {
        match number.checked_sub(CONTROL) {
            Some(0) => Inode::ControlDirectory,
            Some(snapshot) => Inode::Snapshot(snapshot),
            None if number % 2 == 1 => Inode::Node(Node::Directory(number / 2)),
            None => Inode::Node(Node::Sample((number / 2).wrapping_sub(1))),
        }
    }
}

/// The number of the sample that an inode number stands for, as `stat` and a listing show it.
#[must_use]
pub fn sample_of_inode(number: u64) -> Option<u64> {
    match Inode::of(number) {
        Inode::Node(Node::Sample(sample)) => Some(sample),
        _ => None,
    }
}

/// The inode number that listings and `stat` show for a control file, by its place among the control files. It stays the
/// same because `cp` takes a file whose number changes for another file.
pub(super) fn shown_of_control_file(place: usize) -> u64 {
    CONTROL_FILES + place as u64
}

/// The inode number of a sample.
#[must_use]
pub fn inode_of_sample(sample: u64) -> u64 {
    Inode::Node(Node::Sample(sample)).number()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_what_they_stand_for_are_one_to_one() {
        for inode in [
            Inode::Node(Node::Directory(0)),
            Inode::Node(Node::Directory(7)),
            Inode::Node(Node::Sample(0)),
            Inode::Node(Node::Sample(1 << 40)),
            Inode::ControlDirectory,
            Inode::Snapshot(1),
            Inode::Snapshot(99),
        ] {
            assert_eq!(Inode::of(inode.number()), inode);
        }
        assert_eq!(Inode::Node(Node::Directory(0)).number(), 1);
    }

    #[test]
    fn any_number_is_understood_without_a_panic() {
        for number in [0, 1, 2, u64::MAX, CONTROL - 1] {
            let _ = Inode::of(number);
        }
    }
}
