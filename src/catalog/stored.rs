//! The names that containers bring, as one tree.

use super::numbered::digits;
use super::{Dataset, Duplicates, NameError, Tree, TreeBuilder, count_files};
use crate::format::{self, Container, Directory, Member, Names, Result};
use std::collections::HashSet;

/// What names the containers bring.
pub enum StoredNames {
    /// None: samples are numbered.
    None,
    /// None, and each record has so many fields.
    Fields(u64),
    /// A tree.
    Tree(Box<Tree>),
    /// Something like a tree that is not used: why.
    Unused(String),
    /// A tree, but for this path: it stands twice, and [`Duplicates::Error`] was asked for.
    Twice {
        /// The path.
        path: String,
        /// The first two samples of this path; a directory is none.
        samples: [Option<u64>; 2],
    },
}

/// How the names of several containers become one tree.
#[derive(Debug, Clone, Default)]
pub struct Naming {
    /// What becomes of equal names.
    pub duplicates: Duplicates,
    /// A directory for each container, by its path; empty: all of them are one tree.
    pub directories: Vec<Vec<u8>>,
    /// Samples that are shown as directories: they are containers themselves.
    pub opened: HashSet<u64>,
    /// Also what macOS and Windows leave beside people's own files.
    pub all: bool,
}

impl Dataset {
    /// The names that the containers store, if they do.
    ///
    /// The last container's names may be for the whole dataset (that is how the reference package reads a
    /// packed directory of several files). Otherwise the result is the union of what each container has;
    /// numbers go on from one container to the next.
    ///
    /// # Errors
    /// A container cannot be read, or its names fail their checksum.
    pub fn stored_names(&self, naming: &Naming) -> Result<StoredNames> {
        if !naming.directories.is_empty() {
            return self.united(naming);
        }
        let Some(last) = self.containers().last() else { return Ok(StoredNames::None) };
        let all = self.len().saturating_sub(1);
        match last.names(all)? {
            Names::Tree(directory)
                if self.containers().len() == 1 || count_files(&directory) == all =>
            {
                return Ok(tree(naming.all, &directory));
            }
            Names::Refused(why) => return Ok(StoredNames::Unused(why)),
            Names::None | Names::Fields(_) | Names::Members | Names::Tree(_) => {}
        }
        let own: Vec<Names> = self
            .containers()
            .iter()
            .map(|container| container.names(container.len().saturating_sub(1)))
            .collect::<Result<_>>()?;
        let has_paths = own.iter().any(|names| matches!(names, Names::Members | Names::Fields(_)));
        match own.first() {
            _ if own.last() == Some(&Names::None) && !has_paths => Ok(StoredNames::None),
            Some(&Names::Fields(fields)) if own.iter().all(|n| *n == Names::Fields(fields)) => {
                Ok(StoredNames::Fields(fields))
            }
            _ if own.iter().any(|names| matches!(names, Names::Tree(_)))
                && !own.iter().all(|names| matches!(names, Names::Tree(_))) =>
            {
                Ok(StoredNames::Unused(
                    "they are neither for all files of the dataset nor stored in each of them"
                        .to_owned(),
                ))
            }
            _ => self.united(naming),
        }
    }

    /// All names of all containers.
    fn united(&self, naming: &Naming) -> Result<StoredNames> {
        let is_merged = naming.directories.is_empty();
        let mut only_trees = true;
        let mut builder = TreeBuilder::default();
        if naming.all {
            builder.show_all();
        }
        let mut wrong = None;
        let mut check = |added: Result<(), NameError>| {
            if let Err(why) = added {
                wrong.get_or_insert(why);
            }
        };
        for (number, container) in self.containers().iter().enumerate() {
            let above = naming.directories.get(number).map_or(&b""[..], |name| name);
            let (start, container) = (self.start(number), container.as_ref());
            let samples = if is_merged { self.len() } else { container.len() };
            let names = container.names(container.len().saturating_sub(1))?;
            only_trees &= matches!(names, Names::Tree(_));
            if container.replaces_members() {
                builder.replace_within(start..start.saturating_add(container.len()));
            }
            match names {
                Names::Tree(directory) => check(builder.add_directory(above, &directory, start)),
                Names::Members => container.members(&mut |member| {
                    let is_opened = match member.node {
                        format::Node::Sample(sample) => naming.opened.contains(&(start + sample)),
                        format::Node::Directory(_) => false,
                    };
                    if !is_opened {
                        check(builder.add_member(above, &member, start));
                    }
                    Ok(())
                })?,
                Names::None | Names::Refused(_) => {
                    let first = if is_merged { start } else { 0 };
                    for sample in 0..container.len() {
                        let path = format!("{:01$}", first + sample, width(samples));
                        check(builder.add_member(above, &file(&path, sample), start));
                    }
                }
                Names::Fields(fields) => {
                    let first = if is_merged { start / fields.max(1) } else { 0 };
                    let width = width(samples / fields.max(1));
                    let numbers = (first, start, fields, width);
                    add_records(&mut builder, container, above, numbers, &mut check)?;
                }
            }
        }
        // Names of packed directories stand once, or are not used at all.
        let is_strict = only_trees && is_merged;
        builder.duplicates(if is_strict { Duplicates::Error } else { naming.duplicates });
        Ok(match wrong.map_or_else(|| builder.build(), Err) {
            Ok(tree) => StoredNames::Tree(Box::new(tree)),
            Err(NameError::Duplicate { path, samples }) if !is_strict => {
                StoredNames::Twice { path, samples }
            }
            Err(why) => StoredNames::Unused(why.to_string()),
        })
    }
}

fn add_records(
    builder: &mut TreeBuilder,
    container: &dyn Container,
    above: &[u8],
    (first, start, fields, width): (u64, u64, u64, usize),
    check: &mut dyn FnMut(Result<(), NameError>),
) -> Result<()> {
    for sample in 0..container.len() {
        let record = format!("{:01$}/", first + sample / fields.max(1), width);
        let path = [record.as_bytes(), &container.field_name(sample)?].concat();
        let node = format::Node::Sample(sample);
        check(builder.add_member(above, &Member { path: &path, node }, start));
    }
    Ok(())
}

fn file(path: &str, sample: u64) -> Member<'_> {
    Member { path: path.as_bytes(), node: format::Node::Sample(sample) }
}

fn width(samples: u64) -> usize {
    digits(samples.saturating_sub(1)).max(6)
}

fn tree(shows_all: bool, directory: &Directory) -> StoredNames {
    let mut builder = TreeBuilder::default();
    if shows_all {
        builder.show_all();
    }
    match builder.add_directory(b"", directory, 0).and_then(|()| builder.build()) {
        Ok(tree) => StoredNames::Tree(Box::new(tree)),
        Err(why) => StoredNames::Unused(why.to_string()),
    }
}
