//! Selects the paths to extract.
//!
//! Imports no other file of this directory.

use crate::catalog::Renamed;
use crate::dataset::{NamePattern, from_root, not_found};
use crate::failure::Failure;
use std::path::Path;

/// The paths that the user wants.
pub(crate) struct PathPatterns {
    /// Each pattern, and whether a path has matched it.
    patterns: Vec<(PathPattern, bool)>,
}

/// A path from the user, which may also be a pattern.
struct PathPattern {
    text: String,
    pattern: NamePattern,
}

impl PathPatterns {
    pub(crate) fn new(patterns: &[String]) -> Result<Self, Failure> {
        let parse = |text: &String| {
            let path = from_root(text).trim_end_matches('/');
            Ok((PathPattern::new(path)?, false))
        };
        Ok(Self { patterns: patterns.iter().map(parse).collect::<Result<_, Failure>>()? })
    }

    /// Whether a path matches a pattern. Without patterns every path matches.
    pub(crate) fn is_wanted(&mut self, path: &[u8]) -> bool {
        let mut is_wanted = self.patterns.is_empty();
        for (pattern, is_found) in &mut self.patterns {
            if pattern.matches(path) {
                (is_wanted, *is_found) = (true, true);
            }
        }
        is_wanted
    }

    /// Refuses a pattern that no path has matched; `renamed`: what is not shown.
    pub(crate) fn check_all_found(&self, renamed: &Renamed) -> Result<(), Failure> {
        match self.patterns.iter().find(|(_, is_found)| !is_found) {
            None => Ok(()),
            Some((pattern, _)) => Err(not_found(Path::new(&pattern.text), renamed)),
        }
    }
}

impl PathPattern {
    fn new(text: &str) -> Result<Self, Failure> {
        let pattern = NamePattern::new(&format!("/{text}"));
        let pattern = pattern.map_err(|e| Failure::usage(format!("--path {text}: {e}")))?;
        Ok(Self { text: text.to_owned(), pattern })
    }

    /// Whether the pattern matches the path or one of its directories.
    fn matches(&self, path: &[u8]) -> bool {
        let is_it = path.strip_prefix(self.text.as_bytes());
        is_it.is_some_and(|rest| matches!(rest, [] | [b'/', ..])) || self.pattern.matches(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_path_or_a_directory_above_it_and_stars_stay_within_a_name() {
        let is_match =
            |pattern, path: &str| PathPattern::new(pattern).unwrap().matches(path.as_bytes());
        assert!(is_match("a/b", "a/b") && is_match("a", "a/b/c") && is_match("a/*", "a/b/c"));
        assert!(is_match("*.jpg", "x.jpg") && !is_match("*.jpg", "a/x.jpg"));
        assert!(is_match("**/*.jpg", "a/b/x.jpg") && is_match("**/*.jpg", "x.jpg"));
        assert!(!is_match("a/b", "a/bc") && !is_match("b", "a/b"));
        assert!(is_match("x [1].jpg", "x [1].jpg"), "a path is itself, whatever it holds");
    }
}
