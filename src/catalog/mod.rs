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
pub use stored::{Naming, StoredNames};
pub use tree::Tree;

use crate::format::{Attributes, Folder, Result};

/// A file or a folder of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Node {
    /// Folder by number; 0 is the root.
    Folder(u64),
    /// Sample by its number in the dataset.
    Sample(u64),
}

/// The root folder.
pub const ROOT: u64 = 0;

/// The tree of names over a dataset.
#[derive(Debug)]
pub enum Catalog {
    /// Names that are computed.
    Numbered(Numbered),
    /// Records, each a folder of fields.
    Records(Records),
    /// Names that are stored.
    Tree(Tree),
}

/// What [`Catalog::list`] calls for an entry; says whether it wants more.
pub type Emit<'a> = dyn FnMut(&[u8], Node) -> bool + 'a;

impl Catalog {
    /// Finds `name` in `folder`.
    ///
    /// # Errors
    /// Names that the container stores cannot be read.
    pub fn lookup(&self, dataset: &Dataset, folder: u64, name: &[u8]) -> Result<Option<Node>> {
        match self {
            Catalog::Numbered(n) => Ok(n.lookup(folder, name)),
            Catalog::Records(r) => r.lookup(dataset, folder, name),
            Catalog::Tree(t) => t.lookup(folder, name),
        }
    }

    /// Lists `folder` from entry number `from` on, in a fixed order, until `emit` returns false.
    ///
    /// # Errors
    /// As [`Catalog::lookup`].
    pub fn list(&self, dataset: &Dataset, folder: u64, from: u64, emit: &mut Emit) -> Result<()> {
        match self {
            Catalog::Numbered(n) => {
                n.list(folder, from, emit);
                Ok(())
            }
            Catalog::Records(r) => r.list(dataset, folder, from, emit),
            Catalog::Tree(t) => t.list(folder, from, emit),
        }
    }

    /// The folder that `folder` lies in; the root lies in itself. `None`: there is no such folder.
    #[must_use]
    pub fn parent(&self, folder: u64) -> Option<u64> {
        match self {
            Catalog::Numbered(n) => (folder < n.folders()).then_some(ROOT),
            Catalog::Records(r) => r.parent(folder),
            Catalog::Tree(t) => t.parent(folder),
        }
    }

    /// How many folders lie directly in `folder`.
    #[must_use]
    pub fn subfolders(&self, folder: u64) -> u64 {
        match self {
            Catalog::Numbered(n) if folder == ROOT => n.folders().saturating_sub(1),
            Catalog::Numbered(_) => 0,
            Catalog::Records(r) => r.subfolders(folder),
            Catalog::Tree(t) => t.subfolders(folder),
        }
    }

    /// Folders in all, the root included.
    #[must_use]
    pub fn folders(&self) -> u64 {
        match self {
            Catalog::Numbered(n) => n.folders(),
            Catalog::Records(r) => r.folders(),
            Catalog::Tree(t) => t.folders(),
        }
    }

    /// Samples that have a name.
    #[must_use]
    pub fn samples(&self) -> u64 {
        match self {
            Catalog::Numbered(n) => n.samples(),
            Catalog::Records(r) => r.samples(),
            Catalog::Tree(t) => t.samples(),
        }
    }

    /// What is not shown as it is stored; nothing where names are not stored.
    #[must_use]
    pub fn renamed(&self) -> Renamed {
        match self {
            Catalog::Numbered(_) | Catalog::Records(_) => Renamed::default(),
            Catalog::Tree(t) => t.renamed().clone(),
        }
    }

    /// What is stored of a folder beside its name, if anything is.
    #[must_use]
    pub fn attributes(&self, folder: u64) -> Option<&Attributes> {
        match self {
            Catalog::Numbered(_) | Catalog::Records(_) => None,
            Catalog::Tree(t) => t.attributes(folder),
        }
    }

    /// Follows a relative path from the root.
    ///
    /// # Errors
    /// As [`Catalog::lookup`].
    pub fn find(&self, dataset: &Dataset, path: &[u8]) -> Result<Option<Node>> {
        let mut node = Node::Folder(ROOT);
        for name in path.split(|&b| b == b'/').filter(|name| !name.is_empty() && *name != b".") {
            let Node::Folder(folder) = node else { return Ok(None) };
            match self.lookup(dataset, folder, name)? {
                Some(found) => node = found,
                None => return Ok(None),
            }
        }
        Ok(Some(node))
    }

    /// Visits everything below `folder` with its path from there, parents first.
    ///
    /// # Errors
    /// As [`Catalog::lookup`].
    pub fn walk(
        &self,
        dataset: &Dataset,
        folder: u64,
        visit: &mut dyn FnMut(&[u8], Node),
    ) -> Result<()> {
        let mut pending = vec![(folder, Vec::new())];
        while let Some((folder, prefix)) = pending.pop() {
            let first_child = pending.len();
            self.list(dataset, folder, 0, &mut |name, node| {
                let mut path: Vec<u8> = prefix.clone();
                path.extend_from_slice(name);
                visit(&path, node);
                if let Node::Folder(child) = node {
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
    #[error("{0:?}: {1}")]
    Illegal(String, &'static str),
    /// Two samples, or a sample and a folder, with one name.
    #[error("{0:?} is named twice")]
    Duplicate(String),
    /// The tree is too large for this program.
    #[error("more than 4294967295 names")]
    TooMany,
}

/// How many files a stored tree names.
#[must_use]
pub fn count_files(folder: &Folder) -> u64 {
    let mut pending = vec![folder];
    let mut files = 0;
    while let Some(folder) = pending.pop() {
        for (_, entry) in &folder.entries {
            match entry {
                crate::format::Entry::File(_) => files += 1,
                crate::format::Entry::Folder(inner) => pending.push(inner),
            }
        }
    }
    files
}

#[cfg(test)]
mod tests;
