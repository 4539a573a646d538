//! Selects the names of a dataset that are shown, and their root. The selection is applied once to the tree of names,
//! so that mounts and tools see the same. Without a selection it costs neither time nor memory.

use super::open::{Opened, path_bytes};
use crate::catalog::{Catalog, Dataset, Duplicates, NameError, Node, ROOT, Renamed, TreeBuilder};
use crate::failure::{Exit, Failure};
use crate::format::quoted;
use globset::{Candidate, GlobBuilder, GlobMatcher};
use std::path::{Path, PathBuf};

/// Said of names that stand twice.
pub(super) const REFUSED: &str = "which --dup error refuses (--dup number shows all)";

/// Which names are shown. Paths are relative to [`Selection::below`].
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Show only paths that match one of these; if there are none, all paths.
    pub include: Vec<NamePattern>,
    /// Hide paths that match one of these.
    pub exclude: Vec<NamePattern>,
    /// Show only this directory, which becomes the root.
    pub below: Option<PathBuf>,
    /// The number of leading names to cut off each path. A path without further names is not shown.
    pub strip: usize,
}

/// A pattern of paths: `*` and `?` within a name, `**` for any directories, `[a-z]`, `{a,b}`. A pattern without a slash
/// matches names at any depth; `/` and `./` in front of a pattern mean the root. It also matches all paths below a directory
/// that matches.
#[derive(Debug, Clone)]
pub struct NamePattern {
    text: String,
    matcher: GlobMatcher,
}

impl NamePattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// The text is no pattern: the reason, in words for users.
    pub fn new(text: &str) -> Result<Self, String> {
        let path = text.strip_suffix('/').unwrap_or(text);
        let glob = match (from_root(path), path.contains('/')) {
            ("", _) => return Err("an empty pattern matches nothing".to_owned()),
            (name, false) => format!("**/{name}"),
            (path, true) => path.to_owned(),
        };
        let glob = GlobBuilder::new(&glob).literal_separator(true).backslash_escape(true).build();
        let matcher = glob.map_err(|e| e.kind().to_string())?.compile_matcher();
        Ok(Self { text: text.to_owned(), matcher })
    }

    /// Whether the pattern matches a path or one of its directories.
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> bool {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let mut starts = ends.chain([path.len()]).map(|end| &path[..end]);
        starts.any(|start| self.matcher.is_match_candidate(&Candidate::from_bytes(start)))
    }
}

impl Selection {
    /// Whether nothing is selected, cut off or hidden.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        let no_pattern = self.include.is_empty() && self.exclude.is_empty();
        no_pattern && self.below.is_none() && self.strip == 0
    }

    /// Whether the patterns select a path.
    pub(crate) fn wants(&self, path: &[u8]) -> bool {
        let any = |patterns: &[NamePattern]| patterns.iter().any(|pattern| pattern.matches(path));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }

    /// The rest of a path after its leading names are cut off; `None` if no name is left.
    fn stripped<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        (0..self.strip).try_fold(path, |path, _| {
            path.iter().position(|byte| *byte == b'/').map(|slash| &path[slash + 1..])
        })
    }

    /// The tree of the selected part of `catalog`.
    ///
    /// # Errors
    /// There is no such directory, or nothing is selected; or the dataset's names cannot be read.
    pub(crate) fn apply(
        &self,
        catalog: Catalog,
        opened: &Opened,
        duplicates: Duplicates,
    ) -> Result<Catalog, Failure> {
        if self.is_everything() {
            return Ok(catalog);
        }
        let dataset = &opened.dataset;
        let top = self.top(&catalog, dataset)?;
        let mut builder = TreeBuilder::default();
        builder.take_renamed(catalog.renamed());
        builder.duplicates(duplicates);
        let mut added: Result<u64, NameError> = Ok(0);
        catalog.walk(dataset, top, &mut |path, node| {
            let Some(shown) = self.stripped(path).filter(|_| self.wants(path)) else { return };
            let is_sample = matches!(node, Node::Sample(_));
            added = std::mem::replace(&mut added, Ok(0)).and_then(|count| {
                builder.add_shown(shown, node)?;
                Ok(count + u64::from(is_sample))
            });
        })?;
        if added.map_err(|e| Failure::usage(e.to_string()))? == 0 && catalog.samples() > 0 {
            let left_out = match catalog.renamed().left_out {
                0 => "",
                _ => "; files that macOS and Windows make are left out (--all shows them)",
            };
            let verb = match self.include.is_empty() && self.below.is_none() && self.strip == 0 {
                true => "leaves",
                false => "selects",
            };
            return Err(Failure::usage(format!("{self}: {verb} no sample{left_out}")));
        }
        if self.strip == 0
            && let Some(attributes) = catalog.attributes(top)
        {
            builder.set_attributes(b"", *attributes);
        }
        catalog.walk(dataset, top, &mut |path, node| {
            if let Node::Directory(directory) = node
                && let Some(attributes) = catalog.attributes(directory)
                && let Some(shown) = self.stripped(path)
            {
                builder.set_attributes(shown, *attributes);
            }
        })?;
        match builder.build() {
            Ok(tree) => Ok(Catalog::Tree(tree)),
            Err(NameError::Duplicate { path, samples }) => {
                Err(self.twice(&path, samples, &catalog, opened)?)
            }
            Err(why) => Err(Failure::usage(format!("{self}: {why}"))),
        }
    }

    /// The error for a path that two samples, or a sample and a directory, come to.
    ///
    /// # Errors
    /// Their own paths cannot be read.
    fn twice(
        &self,
        path: &str,
        samples: [Option<u64>; 2],
        catalog: &Catalog,
        opened: &Opened,
    ) -> Result<Failure, Failure> {
        let samples: Vec<u64> = samples.into_iter().flatten().collect();
        let stored = catalog.paths(&opened.dataset, &samples)?;
        let stored = samples.iter().zip(stored).map(|(sample, path)| {
            let (container, _) = opened.dataset.container_of(*sample).unwrap_or_default();
            format!("{}: {}", opened.path_of(container), quoted(path))
        });
        let path = quoted(path);
        let what = match &stored.collect::<Vec<_>>()[..] {
            [one, other] => format!("{one} and {other} are both {path}"),
            [one] => format!("{one} has the name of a directory, {path},"),
            _ => format!("{path} is named twice"),
        };
        Ok(Failure::new(Exit::Malformed, format!("{what} with {self}, {REFUSED}")))
    }

    /// The directory that becomes the root.
    fn top(&self, catalog: &Catalog, dataset: &Dataset) -> Result<u64, Failure> {
        let Some(path) = &self.below else { return Ok(ROOT) };
        match catalog.find(dataset, path_bytes(path))? {
            Some(Node::Directory(directory)) => Ok(directory),
            Some(Node::Sample(_)) => {
                Err(Failure::usage(format!("--subdir {}: is a file", path.display())))
            }
            None => {
                let missing = missing(path, &catalog.renamed(), "no such directory");
                Err(Failure::usage(format!("--subdir {missing}")))
            }
        }
    }
}

/// A path or pattern without the `/` and `./` in front, which stored names do not have.
pub(crate) fn from_root(mut text: &str) -> &str {
    while let Some(rest) = text.strip_prefix("./").or_else(|| text.strip_prefix('/')) {
        text = rest;
    }
    text
}

/// The error for a path that a command names, and under which nothing is shown.
pub(crate) fn not_found(path: &Path, renamed: &Renamed) -> Failure {
    let what = "no such sample or directory (ffrfs ls -R lists all)";
    Failure::usage(missing(path, renamed, what))
}

/// A path under which nothing is shown, and why: `what`, or it is left out.
fn missing(path: &Path, renamed: &Renamed, what: &str) -> String {
    let why = match renamed.leaves_out(path_bytes(path)) {
        true => {
            "is left out, as macOS and Windows make files of this name (--all shows it, if it is there)"
        }
        false => what,
    };
    format!("{}: {why}", path.display())
}

impl std::fmt::Display for Selection {
    /// As on the command line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut words = Vec::new();
        words.extend(self.below.iter().map(|path| format!("--subdir {}", path.display())));
        words.extend(self.include.iter().map(|one| format!("--include {}", one.text)));
        words.extend(self.exclude.iter().map(|one| format!("--exclude {}", one.text)));
        words.extend((self.strip > 0).then(|| format!("--strip {}", self.strip)));
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        NamePattern::new(pattern).unwrap().matches(path.as_bytes())
    }

    #[test]
    fn a_pattern_without_a_slash_matches_names_at_any_depth_and_all_that_lies_in_them() {
        assert!(matches("*.jpg", "x.jpg") && matches("*.jpg", "a/b/x.jpg"));
        assert!(matches("cat", "train/cat/1.jpg") && !matches("cat", "train/cats/1.jpg"));
        assert!(matches("cat/", "cat/1.jpg") && matches("{cat,dog}", "a/dog/1"));
    }

    #[test]
    fn a_pattern_with_a_slash_begins_at_the_root_and_stars_stay_within_a_name() {
        assert!(matches("train/cat", "train/cat/1.jpg") && !matches("train/cat", "x/train/cat/1"));
        for root in ["/x.jpg", "./x.jpg", "././x.jpg", ".//x.jpg"] {
            assert!(matches(root, "x.jpg") && !matches(root, "a/x.jpg"), "{root}");
        }
        assert!(matches("./a/*", "a/1.jpg") && matches("./**", "a/1.jpg"));
        assert!(matches(".x/*", ".x/1.jpg") && !matches("../a", "a"));
        assert!(matches("*/1.jpg", "cat/1.jpg") && !matches("*/1.jpg", "train/cat/1.jpg"));
        assert!(matches("**/cat/*.jpg", "train/cat/1.jpg") && matches("train/**", "train/a/b"));
    }

    #[test]
    fn names_that_are_no_utf8_match_byte_for_byte() {
        assert!(NamePattern::new("*.jpg").unwrap().matches(b"caf\xe9.jpg"));
    }

    #[test]
    fn what_is_no_pattern_is_refused_in_words() {
        assert!(NamePattern::new("").is_err());
        let why = NamePattern::new("a[").unwrap_err();
        assert!(why.contains("unclosed character class"), "{why}");
    }

    #[test]
    fn stripped_paths_without_a_name_left_are_not_shown() {
        let selection = Selection { strip: 1, ..Selection::default() };
        assert_eq!(selection.stripped(b"a/b/c"), Some(&b"b/c"[..]));
        assert_eq!(selection.stripped(b"a"), None);
    }
}
