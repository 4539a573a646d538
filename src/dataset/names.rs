//! The names under which a dataset's samples are shown: stored names, those of a file, or numbers.

use super::expand::directory_name;
use super::open::Opened;
use super::selection::{REFUSED, Selection};
use crate::catalog::{
    Catalog, Duplicates, Naming, Numbered, ROOT, Records, RefusedNames, StoredNames, Suffix,
    TreeBuilder,
};
use crate::failure::{Exit, Failure};
use crate::format::{Names, PartName, counted, one_line, quoted};
use crate::vfs::CONTROL_DIRECTORY;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// A suffix has at most so many bytes.
const MAX_SUFFIX_BYTES: usize = 64;
/// A message names so many fields of a record.
const MAX_SHOWN_FIELDS: u64 = 8;

/// Which names samples have.
#[derive(Debug, Clone, Default)]
pub struct NameOptions {
    /// The end of a numbered name: `.jpg`, …, or `auto` to choose by the first bytes of samples.
    pub suffix: Option<String>,
    /// The number of numbered samples per directory.
    pub fanout: Option<u64>,
    /// A file of names: line i is the relative path of sample i.
    pub names: Option<PathBuf>,
    /// Number all samples, even those with stored names.
    pub flat: bool,
    /// How several members with the same name are shown.
    pub duplicates: Duplicates,
    /// How several containers are shown.
    pub layout: Layout,
    /// Also show the files that macOS and Windows add to archives.
    pub all: bool,
    /// Which of these names are shown.
    pub selection: Selection,
    /// Whether the mount has no control directory, whose name no sample can have.
    pub without_control: bool,
    /// Whether nobody sees the names: then nobody is told why stored ones are not used.
    pub are_unseen: bool,
}

/// How several containers are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// In one tree; numbers continue from one container to the next.
    #[default]
    Merge,
    /// In a directory for each, with the name of its file.
    Shards,
}

impl NameOptions {
    /// Whether the options give the names that a kept index holds.
    pub(crate) fn is_plain(&self) -> bool {
        let is_default =
            self.duplicates == Duplicates::default() && self.layout == Layout::default();
        is_default
            && !self.flat
            && !self.all
            && self.names.is_none()
            && self.suffix.is_none()
            && self.fanout.is_none()
    }

    fn naming(&self, opened: &Opened) -> Naming {
        let is_nested = opened.inside.iter().any(Option::is_some);
        let directories = match self.layout {
            Layout::Merge if !is_nested => Vec::new(),
            layout => directories(opened, layout),
        };
        let all = self.all;
        let opened = opened.opened.clone();
        Naming { duplicates: self.duplicates, directories, opened, fanout: self.fanout, all }
    }
}

/// The directory of each container.
fn directories(opened: &Opened, layout: Layout) -> Vec<Vec<u8>> {
    let files = match layout {
        Layout::Merge => vec![Vec::new(); opened.store.len()],
        Layout::Shards => {
            unique(opened.store.parts().iter().map(|part| directory_name(part.name())).collect())
        }
    };
    let mut directories: Vec<Vec<u8>> = Vec::new();
    for (container, inside) in opened.inside.iter().enumerate() {
        directories.push(match inside {
            None => files[opened.dataset.part_of(container)].clone(),
            Some((outer, path)) => [&directories[*outer][..], b"/", path].concat(),
        });
    }
    directories
}

/// Renames directories with the same name, so that containers stay separate.
fn unique(mut directories: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut taken: HashSet<Vec<u8>> = HashSet::new();
    for directory in &mut directories {
        let name = directory.clone();
        let mut number = 1;
        while !taken.insert(directory.clone()) {
            *directory = [&name[..], format!(" ({number})").as_bytes()].concat();
            number += 1;
        }
    }
    directories
}

impl Opened {
    /// The tree of names. With `allow_damaged`, all samples are numbered if their stored names cannot be read.
    ///
    /// # Errors
    /// The options do not suit the dataset; stored names or the file of names cannot be read.
    pub fn named(&self, options: &NameOptions, allow_damaged: bool) -> Result<Catalog, Failure> {
        let catalog = self.all_named(options, allow_damaged)?;
        let selected = options.selection.apply(catalog, self, options.duplicates);
        let catalog = selected.map_err(|failure| match failure.exit {
            // It names the containers that are meant.
            Exit::Malformed => failure,
            _ => failure.context(self.called()),
        })?;
        if !options.without_control {
            self.check_reserved(&catalog, options.names.is_some())?;
        }
        Ok(catalog)
    }

    /// The containers, for messages.
    fn called(&self) -> String {
        let parts = self.store.parts();
        let first = parts.first().map(|part| part.name().to_string()).unwrap_or_default();
        match parts.len() {
            0 | 1 => first,
            more => format!("{first} and {} more", more - 1),
        }
    }

    /// The tree of all names, before the selection.
    fn all_named(&self, options: &NameOptions, allow_damaged: bool) -> Result<Catalog, Failure> {
        if let Some(names) = &options.names {
            let named = self.named_by(names).map_err(|failure| failure.context("--names"))?;
            self.keep_index(None);
            return Ok(named);
        }
        let is_plain = options.is_plain() && self.inside.iter().all(Option::is_none);
        if is_plain && let Some(tree) = self.kept_tree() {
            return Ok(tree.into());
        }
        if !options.flat {
            let mut refused = RefusedNames::new();
            let stored = self.dataset.stored_names(&options.naming(self), &mut refused);
            if !options.are_unseen {
                self.warn_of_refused(&refused);
            }
            match stored {
                Ok(StoredNames::Tree(tree))
                    if options.suffix.is_none()
                        && (options.fanout.is_none() || self.dataset.is_numbered()?) =>
                {
                    self.keep_index(Some(tree.as_ref()).filter(|_| is_plain));
                    return Ok(tree.into());
                }
                Ok(StoredNames::Tree(_)) => {
                    return Err(Failure::usage(
                        "the samples have stored names; --suffix and --fanout are for numbered \
                         samples, --fanout also for records (--flat shows numbers)",
                    ));
                }
                Ok(StoredNames::Fields(fields)) => {
                    if options.suffix.is_some() {
                        return Err(Failure::usage(
                            "each record is a directory of fields, which have suffixes of their own; \
                             --suffix is for numbered samples",
                        ));
                    }
                    self.keep_index(None);
                    return Ok(Records::new(self.dataset.len(), fields, options.fanout).into());
                }
                Ok(StoredNames::None) => {}
                Ok(StoredNames::Twice { path, samples }) => return Err(self.twice(&path, samples)),
                Ok(StoredNames::Mixed { .. } | StoredNames::Unused(_)) if options.are_unseen => {}
                Ok(StoredNames::Mixed { named, unnamed }) => {
                    let is_refused = refused.iter().any(|(container, _)| *container == unnamed);
                    self.warn_of_mixed(named, unnamed, is_refused);
                }
                Ok(StoredNames::Unused(why)) => {
                    tracing::warn!("the names that are stored are not used: {why}");
                }
                Err(error) if allow_damaged => {
                    tracing::warn!("{error}: samples are numbered");
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.keep_index(None);
        let suffix = self.suffix(options.suffix.as_deref(), allow_damaged)?;
        Ok(Numbered::new(self.dataset.len(), options.fanout, suffix).into())
    }

    fn warn_of_refused(&self, refused: &RefusedNames) {
        for (container, why) in refused {
            let path = self.path_of(*container);
            tracing::warn!(
                "{path}: the last sample looks like stored names, but they are not used: {why}"
            );
        }
    }

    /// Says why samples are numbered though one container stores names; `is_refused`: so does the other, but they may not
    /// be used.
    fn warn_of_mixed(&self, named: usize, unnamed: usize, is_refused: bool) {
        let [named, unnamed] = [named, unnamed].map(|one| self.path_of(one));
        let without = match is_refused {
            true => format!(", and those of {unnamed} are not used"),
            false => format!(" and {unnamed} does not"),
        };
        tracing::warn!(
            "samples are numbered: {named} stores names{without}, so that one tree has no names for all; \
             --layout shards shows a directory for each container, with the names that it stores, and --names \
             gives each sample a name"
        );
    }

    /// The path of a container, or of the one that it lies in.
    pub(super) fn path_of(&self, container: usize) -> &PartName {
        self.store.part(self.dataset.part_of(container)).name()
    }

    /// The error for a path that two samples, or a sample and a directory, share.
    fn twice(&self, path: &str, samples: [Option<u64>; 2]) -> Failure {
        let container = |sample: Option<u64>| {
            let (container, _) = self.dataset.container_of(sample?)?;
            Some(self.path_of(container))
        };
        let path = quoted(path);
        let why = match samples.map(container) {
            [Some(one), Some(other)] if one == other => {
                format!("{one}: two members are named {path}")
            }
            [Some(one), Some(other)] => format!("{one} and {other} have a member {path} each"),
            [Some(one), None] | [None, Some(one)] => {
                format!("{one}: {path} is a file and a directory")
            }
            [None, None] => format!("{path} is named twice"),
        };
        Failure::new(Exit::Malformed, format!("{why}, {REFUSED}"))
    }

    fn named_by(&self, path: &Path) -> Result<Catalog, Failure> {
        let text = std::fs::read(path).map_err(|e| Failure::unreadable(path.display(), e))?;
        let lines = text.strip_suffix(b"\n").unwrap_or(&text);
        let mut builder = TreeBuilder::default();
        let mut count = 0;
        for (number, line) in lines.split(|&b| b == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if text.is_empty() {
                break;
            }
            builder.add(line, number as u64).map_err(|why| {
                Failure::usage(format!("{}, line {}: {why}", path.display(), number + 1))
            })?;
            count += 1;
        }
        if count != self.dataset.len() {
            return Err(Failure::usage(format!(
                "{}: {} for {}; each sample needs a line{}",
                path.display(),
                counted(count, "name"),
                counted(self.dataset.len(), "sample"),
                self.fields_of_record()
            )));
        }
        let tree = builder.build().map_err(|why| match first_clash(lines) {
            Some((line, name)) => Failure::usage(format!(
                "{}, line {line}: {} is named twice, or is both a file and a directory",
                path.display(),
                quoted(name)
            )),
            None => Failure::usage(format!("{}: {why}", path.display())),
        })?;
        Ok(tree.into())
    }

    /// What is said of records, each of which has several samples: the files that the first one has.
    fn fields_of_record(&self) -> String {
        let Some(container) = self.dataset.containers().first() else { return String::new() };
        let Ok(Names::Fields(fields)) = container.names(container.len().saturating_sub(1)) else {
            return String::new();
        };
        let shown = fields.min(container.len()).min(MAX_SHOWN_FIELDS);
        let names = (0..shown).filter_map(|field| container.field_name(field).ok());
        let names: Vec<_> = names.map(one_line).collect();
        let more = if fields > shown { ", …" } else { "" };
        format!(", and each file of a record is a sample: {}{more}", names.join(", "))
    }

    /// Checks that no sample has the name of the control directory, which is the same in every mount.
    fn check_reserved(&self, catalog: &Catalog, is_refused: bool) -> Result<(), Failure> {
        let reserved = CONTROL_DIRECTORY.as_bytes();
        if catalog.lookup(&self.dataset, ROOT, reserved)?.is_none() {
            return Ok(());
        }
        let message =
            format!("{CONTROL_DIRECTORY} in the root is the control directory of the mount");
        if is_refused {
            return Err(Failure::usage(format!("{message}: choose another name")));
        }
        tracing::warn!("{message}: the sample of that name is not shown (--no-control shows it)");
        Ok(())
    }

    fn suffix(&self, wanted: Option<&str>, allow_damaged: bool) -> Result<Suffix, Failure> {
        match wanted {
            None => Ok(Suffix::Fixed(String::new())),
            Some("auto") => self.suffix_by_content(allow_damaged),
            Some(suffix) => {
                let why = match suffix.contains(['/', '\0']) {
                    true => "has a slash or a NUL byte",
                    false if suffix.len() > MAX_SUFFIX_BYTES => "is longer than 64 bytes",
                    false => "",
                };
                if !why.is_empty() {
                    return Err(Failure::usage(format!(
                        "--suffix {}: cannot end the name of a file: it {why}",
                        quoted(suffix)
                    )));
                }
                let dot = if suffix.is_empty() || suffix.starts_with('.') { "" } else { "." };
                Ok(Suffix::Fixed(format!("{dot}{suffix}")))
            }
        }
    }
}

/// The first line (from 1) whose path, or a directory of it, was named before as something else.
fn first_clash(lines: &[u8]) -> Option<(usize, &[u8])> {
    let (mut files, mut directories) = (HashSet::new(), HashSet::new());
    for (number, line) in lines.split(|&b| b == b'\n').enumerate() {
        let path = line.strip_suffix(b"\r").unwrap_or(line);
        let mut above =
            path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| &path[..at]);
        let clash = above.any(|directory| {
            directories.insert(directory);
            files.contains(directory)
        });
        if clash || directories.contains(path) || !files.insert(path) {
            return Some((number + 1, path));
        }
    }
    None
}
