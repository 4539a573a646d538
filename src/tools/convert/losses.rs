//! Reports what the output's format cannot hold: nothing is left out silently.

use crate::format::one_or_many;

/// The number of entries or properties that were left out, or changed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Losses {
    pub(crate) symlinks: u64,
    /// Directories with nothing in them.
    pub(crate) directories: u64,
    pub(crate) modes: u64,
    pub(crate) times: u64,
    /// Times that lost precision.
    pub(crate) fine_times: u64,
    /// Further names of a file, which became files of their own.
    pub(crate) hard_links: u64,
    /// Holes that became zeros.
    pub(crate) holes: u64,
    /// Names that are not UTF-8, which other programs may read differently.
    pub(crate) names: u64,
}

impl Losses {
    /// A summary in one line; `None` if nothing was lost.
    pub(crate) fn summary(&self) -> Option<String> {
        let counts = [
            (self.symlinks, "symbolic link left out", "symbolic links left out"),
            (self.directories, "empty directory left out", "empty directories left out"),
            (self.modes, "permission not kept", "permissions not kept"),
            (self.times, "modification time not kept", "modification times not kept"),
            // "10 times stored less precisely" reads as a factor.
            (
                self.fine_times,
                "modification time stored less precisely",
                "modification times stored less precisely",
            ),
            (
                self.hard_links,
                "hard link written as a file of its own",
                "hard links written as files of their own",
            ),
            (self.holes, "hole written as zeros", "holes written as zeros"),
            (
                self.names,
                "name that is not UTF-8, which programs may show otherwise",
                "names that are not UTF-8, which programs may show otherwise",
            ),
        ];
        let counts = counts.iter().filter(|(count, ..)| *count > 0);
        let parts: Vec<_> =
            counts.map(|(count, one, many)| one_or_many(*count, one, many)).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_kind_is_not_told_as_several() {
        let losses = Losses { symlinks: 1, directories: 1, names: 2, ..Losses::default() };
        let said = "1 symbolic link left out, 1 empty directory left out, 2 names that are not UTF-8, \
                    which programs may show otherwise";
        assert_eq!(losses.summary().as_deref(), Some(said));
        let several = Losses { directories: 2, ..Losses::default() };
        assert_eq!(several.summary().as_deref(), Some("2 empty directories left out"));
    }
}
