//! The names that containers bring, as one tree.

use super::numbered::digits;
use super::{Dataset, Duplicates, NameError, Tree, TreeBuilder, count_files};
use crate::format::{self, Container, Directory, Member, Names, Result};
use std::collections::HashSet;

/// The names that the containers bring.
pub enum StoredNames {
    /// No names: samples are numbered.
    None,
    /// No names of records: they are numbered, and each has this number of fields.
    Fields(u64),
    /// A tree.
    Tree(Box<Tree>),
    /// A tree that cannot be used, and the reason.
    Unused(String),
    /// No names: a packed directory brings some, and another container brings none by which its samples could be shown.
    Mixed {
        /// The number of the first container that brings a tree.
        named: usize,
        /// The number of the first container that brings no names, or names that may not be used.
        unnamed: usize,
    },
    /// A tree, but for this path: it stands twice, and [`Duplicates::Error`] was asked for.
    Twice {
        /// The path.
        path: String,
        /// The first two samples of this path; `None` for a directory.
        samples: [Option<u64>; 2],
    },
}

/// How the names of several containers become one tree.
#[derive(Debug, Clone, Default)]
pub struct Naming {
    /// The treatment of members of one name.
    pub duplicates: Duplicates,
    /// A directory for each container, by its path; empty if all containers are one tree.
    pub directories: Vec<Vec<u8>>,
    /// Samples that are shown as directories: they are containers themselves.
    pub opened: HashSet<u64>,
    /// The number of records in each directory, if numbered records lie in directories.
    pub fanout: Option<u64>,
    /// Whether files are shown, too, that macOS and Windows leave beside people's own.
    pub all: bool,
}

/// Containers whose names may not be used, by their numbers, each with the reason.
pub type RefusedNames = Vec<(usize, String)>;

impl Dataset {
    /// The names that the containers store, if any; containers whose names may not be used are added to `refused`.
    ///
    /// The last container's names may be for the whole dataset (that is how the reference package reads a
    /// packed directory of several files). Otherwise the result is the union of the names of all containers;
    /// numbers go on from one container to the next.
    ///
    /// # Errors
    /// A container cannot be read, or its names fail their checksum.
    pub fn stored_names(&self, naming: &Naming, refused: &mut RefusedNames) -> Result<StoredNames> {
        let Some(last) = self.containers().last() else { return Ok(StoredNames::None) };
        let all = self.len().saturating_sub(1);
        if naming.directories.is_empty()
            && let Names::Tree(directory) = last.names(all)?
            && (self.containers().len() == 1 || count_files(&directory) == all)
        {
            return Ok(tree(naming.all, &directory));
        }
        let own: Vec<Names> = self
            .containers()
            .iter()
            .map(|container| container.names(container.len().saturating_sub(1)))
            .collect::<Result<_>>()?;
        for (number, names) in own.iter().enumerate() {
            if let Names::Refused(why) = names {
                refused.push((number, why.clone()));
            }
        }
        if !naming.directories.is_empty() {
            return self.united(naming, own);
        }
        let is_nameless = |names: &Names| matches!(names, Names::None | Names::Refused(_));
        // Numbered samples beside a packed directory may be files of that directory, whose names were lost.
        let named = own.iter().position(|names| matches!(names, Names::Tree(_)));
        let mut each = self.containers().iter().zip(&own);
        let unnamed = each.position(|(one, names)| is_nameless(names) && !one.is_empty());
        match own.first() {
            _ if own.iter().all(is_nameless) => Ok(StoredNames::None),
            Some(&Names::Fields(fields))
                if own.iter().all(|n| *n == Names::Fields(fields))
                    && !self.has_directories(fields)? =>
            {
                Ok(StoredNames::Fields(fields))
            }
            _ if let (Some(named), Some(unnamed)) = (named, unnamed) => {
                Ok(StoredNames::Mixed { named, unnamed })
            }
            _ => self.united(naming, own),
        }
    }

    /// Whether the dataset has only numbers and no names: records, and samples without names.
    ///
    /// # Errors
    /// As [`Dataset::stored_names`].
    pub fn is_numbered(&self) -> Result<bool> {
        for container in self.containers() {
            match container.names(container.len().saturating_sub(1))? {
                Names::None | Names::Refused(_) | Names::Fields(_) | Names::Records(_) => (),
                Names::Members | Names::Tree(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Whether a field lies in a directory of its record. Records of one container are alike in that.
    fn has_directories(&self, fields: u64) -> Result<bool> {
        for container in self.containers() {
            for field in 0..fields.min(container.len()) {
                if container.field_name(field)?.contains(&b'/') {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Unites the names of all containers in one tree; `own` has those of each container.
    fn united(&self, naming: &Naming, own: Vec<Names>) -> Result<StoredNames> {
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
        let counts = self.containers().iter().zip(&own);
        let counts: Vec<u64> =
            counts.map(|(container, names)| count_records(container.as_ref(), names)).collect();
        let all_records = counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
        let mut records_before = 0_u64;
        for (number, (container, names)) in self.containers().iter().zip(own).enumerate() {
            let above = naming.directories.get(number).map_or(&b""[..], |name| name);
            let (start, container) = (self.start(number), container.as_ref());
            only_trees &= matches!(names, Names::Tree(_));
            if container.replaces_members() {
                builder.replace_within(start..start.saturating_add(container.len()));
            }
            // Numbers go on from one container to the next only in one tree.
            let (first, records) =
                if is_merged { (records_before, all_records) } else { (0, counts[number]) };
            records_before = records_before.saturating_add(counts[number]);
            let numbers = Numbers::new(first, records, naming.fanout);
            let one = Named { container, above, start, numbers, opened: &naming.opened };
            one.add(names, &mut builder, &mut check)?;
        }
        // If a name stands twice in packed directories, their names are not used at all.
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

/// The number of records, or of numbered samples, in a container.
fn count_records(container: &dyn Container, names: &Names) -> u64 {
    match names {
        Names::Fields(fields) => container.len() / (*fields).max(1),
        Names::Records(records) => *records,
        Names::None | Names::Refused(_) | Names::Members | Names::Tree(_) => container.len(),
    }
}

/// The numbers of a container's records.
#[derive(Clone, Copy)]
struct Numbers {
    /// The number of the first record.
    first: u64,
    /// The digits of a record's number.
    width: usize,
    /// The number of records in a directory, and the digits of the directory's number.
    fanout: Option<(u64, usize)>,
}

impl Numbers {
    /// Numbers from `first` on, with the digits that `records` records in all need.
    fn new(first: u64, records: u64, fanout: Option<u64>) -> Self {
        let last = records.saturating_sub(1);
        let fanout = fanout.filter(|fanout| *fanout > 0);
        let fanout = fanout.map(|fanout| (fanout, digits(last / fanout).max(3)));
        Self { first, width: width(records), fanout }
    }

    fn path(&self, record: u64) -> String {
        let number = self.first.saturating_add(record);
        let width = self.width;
        match self.fanout {
            Some((fanout, outer)) => format!("{:0outer$}/{number:0width$}", number / fanout),
            None => format!("{number:0width$}"),
        }
    }

    /// The path that is shown for one that begins with the number of a record in the container.
    fn path_of(&self, path: &[u8]) -> Vec<u8> {
        let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
        let number = std::str::from_utf8(&path[..end]).ok().and_then(|text| text.parse().ok());
        [self.path(number.unwrap_or(0)).as_bytes(), &path[end..]].concat()
    }
}

/// A container whose names are added.
struct Named<'a> {
    container: &'a dyn Container,
    /// The directory above the names; empty for the root.
    above: &'a [u8],
    /// The number of the container's first sample.
    start: u64,
    numbers: Numbers,
    /// Samples that are shown as directories.
    opened: &'a HashSet<u64>,
}

impl Named<'_> {
    fn add(
        &self,
        names: Names,
        builder: &mut TreeBuilder,
        check: &mut dyn FnMut(Result<(), NameError>),
    ) -> Result<()> {
        let Self { container, above, start, numbers, opened } = *self;
        match names {
            Names::Tree(directory) => check(builder.add_directory(above, &directory, start)),
            Names::Members => container.members(&mut |member| {
                let is_opened = match member.node {
                    format::Node::Sample(sample) => opened.contains(&(start + sample)),
                    format::Node::Directory(_) => false,
                };
                if !is_opened {
                    check(builder.add_member(above, &member, start));
                }
                Ok(())
            })?,
            Names::Records(_) => container.members(&mut |member| {
                let path = numbers.path_of(member.path);
                check(builder.add_member(above, &Member { path: &path, ..member }, start));
                Ok(())
            })?,
            Names::None | Names::Refused(_) => {
                for sample in 0..container.len() {
                    let path = numbers.path(sample);
                    check(builder.add_member(above, &file(path.as_bytes(), sample), start));
                }
            }
            Names::Fields(fields) => {
                for sample in 0..container.len() {
                    let record = numbers.path(sample / fields.max(1));
                    let path = [record.as_bytes(), b"/", &container.field_name(sample)?].concat();
                    check(builder.add_member(above, &file(&path, sample), start));
                }
            }
        }
        Ok(())
    }
}

fn file(path: &[u8], sample: u64) -> Member<'_> {
    Member { path, node: format::Node::Sample(sample) }
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
