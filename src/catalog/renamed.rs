//! The treatment of members that cannot be shown as they are stored.

use super::names::is_left_by_system;
use crate::format::quoted;
use serde::{Deserialize, Serialize};

/// The words for members that another one of the same name hides.
const HIDDEN: &str = "hidden by others of the same name";
/// The words for files that are left out.
const LEFT_OUT: &str = "left out: files that macOS and Windows make";

/// The treatment of several members of one name. Directories keep their name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Duplicates {
    /// As programs of the format treat them: of the members of one tar the last is shown; all others as with `Number`.
    #[default]
    Auto,
    /// The first is `x.jpg`, the others `x (1).jpg`, `x (2).jpg` …
    Number,
    /// The first member is shown.
    First,
    /// The last member is shown.
    Last,
    /// Several members are an error.
    Error,
}

/// Members that are shown under another name than they are stored under, or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Renamed {
    /// Names that no directory can hold, or that lead elsewhere.
    pub escaped: u64,
    /// Further members of a name.
    pub numbered: u64,
    /// Members that another one of the same name hides.
    pub hidden: u64,
    /// Files that macOS and Windows leave beside people's own.
    #[serde(default)]
    pub left_out: u64,
    /// Examples of such members, as they are shown.
    pub examples: Vec<String>,
}

impl Renamed {
    /// The most examples that are kept.
    const EXAMPLES: usize = 16;

    /// Whether one more example is wanted.
    pub(super) fn has_room(&self) -> bool {
        self.examples.len() < Self::EXAMPLES
    }

    pub(super) fn example(&mut self, text: impl FnOnce() -> String) {
        if self.has_room() {
            self.examples.push(text());
        }
    }

    /// Counts a member that another one of the same name hides; its path is for an example.
    pub(super) fn hide(&mut self, path: &[u8]) {
        self.hidden += 1;
        self.example(|| format!("another {} is not shown", quoted(path)));
    }

    /// The numbers of changed members, in words; `None` if every name is shown as it is stored.
    #[must_use]
    pub fn summary(&self) -> Option<String> {
        in_words(&[
            (self.escaped, "escaped: no directory can hold them, or they point out of it", ""),
            (self.numbered, "numbered: they stand more than once", ""),
            (self.hidden, HIDDEN, ""),
            (self.left_out, LEFT_OUT, " (mount --all shows them)"),
        ])
    }

    /// The numbers of members that are not shown, in words for a command that has the options `--all` and `--dup`; `None` if
    /// all are shown.
    #[must_use]
    pub fn not_shown(&self) -> Option<String> {
        in_words(&[
            (self.hidden, HIDDEN, " (--dup number shows them)"),
            (self.left_out, LEFT_OUT, " (--all shows them)"),
        ])
    }

    /// Whether a path that is not shown may be that of a file or directory that is left out.
    #[must_use]
    pub fn leaves_out(&self, path: &[u8]) -> bool {
        self.left_out > 0 && path.split(|byte| *byte == b'/').any(is_left_by_system)
    }

    /// Packs the four counts, and the examples, one a line: examples hold no newlines.
    pub(super) fn pack(&self) -> Vec<u8> {
        let counts = [self.escaped, self.numbered, self.hidden, self.left_out];
        let mut out: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        out.extend_from_slice(self.examples.join("\n").as_bytes());
        out
    }

    pub(super) fn unpack(bytes: &[u8]) -> Self {
        let (counts, text) = bytes.split_at(bytes.len().min(32));
        let mut counts = counts.as_chunks::<8>().0.iter().map(|count| u64::from_le_bytes(*count));
        let mut next = || counts.next().unwrap_or(0);
        let (escaped, numbered, hidden, left_out) = (next(), next(), next(), next());
        let examples = String::from_utf8_lossy(text).lines().map(str::to_owned).collect();
        Self { escaped, numbered, hidden, left_out, examples }
    }
}

/// The counts above 0, each with the words for its members and the option that shows them.
fn in_words(counts: &[(u64, &str, &str)]) -> Option<String> {
    let some = counts.iter().filter(|(count, ..)| *count > 0);
    let parts: Vec<_> = some.map(|(count, what, how)| format!("{count} {what}{how}")).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}
