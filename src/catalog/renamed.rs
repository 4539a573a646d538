//! What happens to members that cannot be shown as they are stored.

/// What to do with several members of one name. Folders keep theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Duplicates {
    /// The first is `x.jpg`, the others `x (1).jpg`, `x (2).jpg` …
    #[default]
    Number,
    /// The first is shown.
    First,
    /// The last is shown.
    Last,
    /// They are an error.
    Error,
}

/// Members that are shown under another name than they are stored under, or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Renamed {
    /// Names that no directory can hold, or that lead elsewhere.
    pub escaped: u64,
    /// Further members of a name.
    pub numbered: u64,
    /// Members that another one of the same name hides.
    pub hidden: u64,
    /// Some of them, as they are shown.
    pub examples: Vec<String>,
}

impl Renamed {
    /// So many examples tell what is going on.
    const EXAMPLES: usize = 16;

    pub(super) fn example(&mut self, text: impl FnOnce() -> String) {
        if self.examples.len() < Self::EXAMPLES {
            self.examples.push(text());
        }
    }
}
