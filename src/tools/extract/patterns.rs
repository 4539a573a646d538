//! Which paths are extracted.
//!
//! Imports no other file of this directory.

use crate::dataset::not_found;
use crate::failure::Failure;
use glob::{MatchOptions, Pattern};
use std::path::Path;

/// The paths that the user wants.
pub(crate) struct PathPatterns {
    /// Each pattern, and whether a path has matched it.
    patterns: Vec<(Pattern, bool)>,
}

impl PathPatterns {
    pub(crate) fn new(patterns: &[String]) -> Result<Self, Failure> {
        let parse = |text: &String| {
            let text = text.trim_matches('/');
            let pattern = Pattern::new(text).map_err(|e| Failure::usage(format!("{text}: {e}")))?;
            Ok((pattern, false))
        };
        Ok(Self { patterns: patterns.iter().map(parse).collect::<Result<_, Failure>>()? })
    }

    /// Whether a path matches a pattern. Without patterns every path matches.
    pub(crate) fn is_wanted(&mut self, path: &[u8]) -> bool {
        let mut is_wanted = self.patterns.is_empty();
        for (pattern, is_found) in &mut self.patterns {
            if matches(pattern, path) {
                (is_wanted, *is_found) = (true, true);
            }
        }
        is_wanted
    }

    /// Refuses a pattern that no path has matched.
    pub(crate) fn check_all_found(&self) -> Result<(), Failure> {
        match self.patterns.iter().find(|(_, is_found)| !is_found) {
            None => Ok(()),
            Some((pattern, _)) => Err(not_found(Path::new(pattern.as_str()))),
        }
    }
}

/// Whether the path matches, or a directory on its way does.
fn matches(pattern: &Pattern, path: &[u8]) -> bool {
    let options = MatchOptions { require_literal_separator: true, ..MatchOptions::new() };
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let mut parts = ends.chain([path.len()]).map(|end| &path[..end]);
    parts.any(|part| {
        pattern.as_str().as_bytes() == part
            || pattern.matches_with(&String::from_utf8_lossy(part), options)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_path_or_a_directory_above_it_and_stars_stay_within_a_name() {
        let is_match =
            |pattern, path: &str| matches(&Pattern::new(pattern).unwrap(), path.as_bytes());
        assert!(is_match("a/b", "a/b") && is_match("a", "a/b/c") && is_match("a/*", "a/b/c"));
        assert!(is_match("*.jpg", "x.jpg") && !is_match("*.jpg", "a/x.jpg"));
        assert!(is_match("**/*.jpg", "a/b/x.jpg") && is_match("**/*.jpg", "x.jpg"));
        assert!(!is_match("a/b", "a/bc") && !is_match("b", "a/b"));
    }
}
