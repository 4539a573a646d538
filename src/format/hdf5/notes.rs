//! The warnings about a file: the first ones, and the number of further ones. A path can be long, and a file wrong
//! everywhere.

use crate::format::{PartName, counted};

/// The most notes that are kept; further ones are only counted.
const MAX_NOTES: usize = 32;

/// The notes about a file.
#[derive(Debug, Default)]
pub(super) struct Notes {
    texts: Vec<String>,
    more: u64,
}

impl Notes {
    /// Adds the note that `text` makes.
    pub(super) fn add(&mut self, text: impl FnOnce() -> String) {
        match self.texts.len() < MAX_NOTES {
            true => self.texts.push(text()),
            false => self.more = self.more.saturating_add(1),
        }
    }

    /// These notes and `others` as warnings: a line each.
    pub(super) fn into_warnings(mut self, others: Self, part: &PartName) -> Vec<String> {
        self.more = self.more.saturating_add(others.more);
        others.texts.into_iter().for_each(|text| self.add(|| text));
        let warnings = self.texts.iter().map(|text| format!("{part}: {}", text.replace('\n', " ")));
        let more = (self.more > 0).then(|| format!("{part}: {}", counted(self.more, "more note")));
        warnings.chain(more).collect()
    }
}
