//! The list of samples to fetch: a number or a path per line.
//!
//! Imports no other file of this directory.

use crate::failure::Failure;
use std::fmt;

/// The samples that the user wants the mount to fetch.
pub(crate) struct List {
    /// The name in errors.
    pub(crate) name: String,
    pub(crate) text: Vec<u8>,
}

/// A line of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Number(u64),
    /// Digits whose value exceeds a `u64`.
    HugeNumber(&'a [u8]),
    Path(&'a [u8]),
}

impl fmt::Display for List {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(&self.name)
    }
}

impl List {
    /// The lines that are not empty, with their line numbers from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, Line<'_>)> {
        let lines = self.text.split(|&b| b == b'\n').enumerate();
        let lines = lines.map(|(i, line)| (i + 1, line.strip_suffix(b"\r").unwrap_or(line)));
        lines.filter(|(_, line)| !line.is_empty()).map(|(place, line)| (place, parse(line)))
    }

    /// The error for a line.
    pub(super) fn wrong(&self, place: usize, why: &str) -> Failure {
        Failure::usage(format!("{self}:{place}: {why}"))
    }
}

fn parse(line: &[u8]) -> Line<'_> {
    if !line.iter().all(u8::is_ascii_digit) {
        return Line::Path(line);
    }
    let number = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
    number.map_or(Line::HugeNumber(line), Line::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_numbers_and_paths_and_empty_lines_mean_nothing() {
        let list =
            List { name: "list".to_owned(), text: b"7\r\n\na/b\n99999999999999999999".into() };
        let lines: Vec<_> = list.lines().collect();
        let huge = Line::HugeNumber(b"99999999999999999999");
        assert_eq!(lines, [(1, Line::Number(7)), (3, Line::Path(b"a/b")), (4, huge)]);
    }
}
