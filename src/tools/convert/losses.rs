//! Reports what the output's format cannot hold: nothing is left out silently.

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
            (self.symlinks, "symbolic links left out"),
            (self.directories, "empty directories left out"),
            (self.modes, "permissions not kept"),
            (self.times, "times not kept"),
            (self.fine_times, "times stored less precisely"),
            (self.hard_links, "hard links written as files of their own"),
            (self.holes, "holes written as zeros"),
            (self.names, "names that are not UTF-8, which programs may show otherwise"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<_> = counts.map(|(count, loss)| format!("{count} {loss}")).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}
