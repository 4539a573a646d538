//! Samples → names: the immutable tree that a mount shows.
//!
//! Imports only from [`crate::format`]. Nothing is stored for numbered samples; stored names are packed.

mod builder;
mod column;
mod dataset;
mod names;
mod numbered;
mod paths;
mod records;
mod renamed;
mod slots;
mod stored;
mod tree;

pub use builder::TreeBuilder;
pub use dataset::{Dataset, Located, Place};
pub use numbered::{Numbered, Suffix, Suffixes};
pub use records::Records;
pub use renamed::{Duplicates, Renamed};
pub use stored::{Naming, RefusedNames, StoredNames};
pub use tree::{Named, Tree};

use crate::format::{Attributes, Directory, Result, quoted};

/// A file or a directory of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Node {
    /// Directory by number; 0 is the root.
    Directory(u64),
    /// Sample by its number in the dataset.
    Sample(u64),
}

/// The root directory.
pub const ROOT: u64 = 0;

/// The tree of names over a dataset.
#[derive(Debug)]
pub enum Catalog {
    /// Names that are computed.
    Numbered(Numbered),
    /// Records, each a directory of fields.
    Records(Records),
    /// Names that are stored.
    Tree(Tree),
}

/// The function that [`Catalog::list`] calls for each entry; returns whether it wants more entries.
pub type Emit<'a> = dyn FnMut(&[u8], Node) -> bool + 'a;

impl Catalog {
    /// Finds `name` in `directory`.
    ///
    /// # Errors
    /// Names that the container stores cannot be read.
    pub fn lookup(&self, dataset: &Dataset, directory: u64, name: &[u8]) -> Result<Option<Node>> {
        match self {
            Catalog::Numbered(n) => Ok(n.lookup(directory, name)),
            Catalog::Records(r) => r.lookup(dataset, directory, name),
            Catalog::Tree(t) => t.lookup(directory, name),
        }
    }

    /// Lists `directory` from entry number `from` on, in a fixed order, until `emit` returns false.
    ///
    /// # Errors
    /// As [`Catalog::lookup`].
    pub fn list(
        &self,
        dataset: &Dataset,
        directory: u64,
        from: u64,
        emit: &mut Emit,
    ) -> Result<()> {
        match self {
            Catalog::Numbered(n) => {
                n.list(directory, from, emit);
                Ok(())
            }
            Catalog::Records(r) => r.list(dataset, directory, from, emit),
            Catalog::Tree(t) => t.list(directory, from, emit),
        }
    }

    /// The directory that `directory` lies in; the root lies in itself. `None` if there is no such directory.
    #[must_use]
    pub fn parent(&self, directory: u64) -> Option<u64> {
        match self {
            Catalog::Numbered(n) => (directory < n.directories()).then_some(ROOT),
            Catalog::Records(r) => r.parent(directory),
            Catalog::Tree(t) => t.parent(directory),
        }
    }

    /// The number of directories directly in `directory`.
    #[must_use]
    pub fn subdirectories(&self, directory: u64) -> u64 {
        match self {
            Catalog::Numbered(n) if directory == ROOT => n.directories().saturating_sub(1),
            Catalog::Numbered(_) => 0,
            Catalog::Records(r) => r.subdirectories(directory),
            Catalog::Tree(t) => t.subdirectories(directory),
        }
    }

    /// The number of directories, the root included.
    #[must_use]
    pub fn directories(&self) -> u64 {
        match self {
            Catalog::Numbered(n) => n.directories(),
            Catalog::Records(r) => r.directories(),
            Catalog::Tree(t) => t.directories(),
        }
    }

    /// The number of samples that have a name.
    #[must_use]
    pub fn samples(&self) -> u64 {
        match self {
            Catalog::Numbered(n) => n.samples(),
            Catalog::Records(r) => r.samples(),
            Catalog::Tree(t) => t.samples(),
        }
    }

    /// The number of samples in a record, where each record is a directory.
    #[must_use]
    pub fn fields(&self) -> Option<u64> {
        match self {
            Catalog::Records(r) => Some(r.fields()),
            Catalog::Numbered(_) | Catalog::Tree(_) => None,
        }
    }

    /// The counts of members that are not shown as they are stored; 0 where names are not stored.
    #[must_use]
    pub fn renamed(&self) -> Renamed {
        match self {
            Catalog::Numbered(_) | Catalog::Records(_) => Renamed::default(),
            Catalog::Tree(t) => t.renamed().clone(),
        }
    }

    /// The attributes of a directory, if they are stored.
    #[must_use]
    pub fn attributes(&self, directory: u64) -> Option<&Attributes> {
        match self {
            Catalog::Numbered(_) | Catalog::Records(_) => None,
            Catalog::Tree(t) => t.attributes(directory),
        }
    }

    /// Follows a relative path from the root.
    ///
    /// # Errors
    /// As [`Catalog::lookup`].
    pub fn find(&self, dataset: &Dataset, path: &[u8]) -> Result<Option<Node>> {
        let mut node = Node::Directory(ROOT);
        for name in path.split(|&b| b == b'/').filter(|name| !name.is_empty() && *name != b".") {
            let Node::Directory(directory) = node else { return Ok(None) };
            match self.lookup(dataset, directory, name)? {
                Some(found) => node = found,
                None => return Ok(None),
            }
        }
        Ok(Some(node))
    }

    /// Visits all nodes below `directory`, each with its path from there, parents first.
    ///
    /// # Errors
    /// As [`Catalog::lookup`].
    pub fn walk(
        &self,
        dataset: &Dataset,
        directory: u64,
        visit: &mut dyn FnMut(&[u8], Node),
    ) -> Result<()> {
        let mut pending = vec![(directory, Vec::new())];
        let mut left = self.directories();
        while let Some((directory, prefix)) = pending.pop() {
            // A kept tree may come from anybody, and have one directory in several others.
            left = match (left.checked_sub(1), self) {
                (None, Catalog::Tree(tree)) => return Err(tree.unreadable(tree::damaged())),
                (left, _) => left.unwrap_or(0),
            };
            let first_child = pending.len();
            self.list(dataset, directory, 0, &mut |name, node| {
                let mut path: Vec<u8> = prefix.clone();
                path.extend_from_slice(name);
                visit(&path, node);
                if let Node::Directory(child) = node {
                    path.push(b'/');
                    pending.push((child, path));
                }
                true
            })?;
            pending[first_child..].reverse();
        }
        Ok(())
    }
}

impl From<Numbered> for Catalog {
    fn from(numbered: Numbered) -> Self {
        Catalog::Numbered(numbered)
    }
}

impl From<Records> for Catalog {
    fn from(records: Records) -> Self {
        Catalog::Records(records)
    }
}

impl From<Box<Tree>> for Catalog {
    fn from(tree: Box<Tree>) -> Self {
        Catalog::Tree(*tree)
    }
}

impl From<Tree> for Catalog {
    fn from(tree: Tree) -> Self {
        Catalog::Tree(tree)
    }
}

/// Why names given by a container or by the user make no tree.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NameError {
    /// A path that cannot be one below a mount point.
    #[error("{}: {}", quoted(.0), .1)]
    Illegal(String, &'static str),
    /// Two samples, or a sample and a directory, with one path.
    #[error("{} is named twice", quoted(.path))]
    Duplicate {
        /// The path.
        path: String,
        /// The first two samples that have the path; `None` for a directory.
        samples: [Option<u64>; 2],
    },
    /// The paths of members make far more directories than any dataset has.
    #[error("the paths up to member {members} make far too many directories: it looks like a bomb")]
    TooManyDirectories {
        /// The number of members up to the first one that is too much.
        members: usize,
    },
    /// The tree is too large for this program.
    #[error("more than 4294967295 names")]
    TooMany,
}

/// The number of files that a stored tree names.
#[must_use]
pub fn count_files(directory: &Directory) -> u64 {
    let mut pending = vec![directory];
    let mut files = 0;
    while let Some(directory) = pending.pop() {
        for (_, entry) in &directory.entries {
            match entry {
                crate::format::Entry::File(_) => files += 1,
                crate::format::Entry::Directory(inner) => pending.push(inner),
            }
        }
    }
    files
}

#[cfg(test)]
mod tests;
