//! Numbers → paths, for people; and which samples have a path. No table is stored for this direction: a stored tree is
//! passed over twice, however many paths are asked for.

use super::column::Column;
use super::numbered::MAX_NAME_BYTES;
use super::tree::{DIRECTORY_BIT, Named, Tree};
use super::{Catalog, Dataset, Node, ROOT};
use crate::format::{Error, Result};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;

/// The bytes of a column that are scanned at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// The most names of a path: one with more could not be opened.
const MAX_DEPTH: usize = 4096;

impl Catalog {
    /// The paths of some samples, in the order in which they were asked for; a sample without a name has an
    /// empty one.
    ///
    /// # Errors
    /// As [`Catalog::lookup`].
    pub fn paths(&self, dataset: &Dataset, samples: &[u64]) -> Result<Vec<Vec<u8>>> {
        let nodes: Vec<_> = samples.iter().map(|&sample| Node::Sample(sample)).collect();
        self.paths_of(dataset, &nodes)
    }

    /// As [`Catalog::paths`], of samples and directories.
    ///
    /// # Errors
    /// As [`Catalog::lookup`].
    pub fn paths_of(&self, dataset: &Dataset, nodes: &[Node]) -> Result<Vec<Vec<u8>>> {
        let path = |&node: &Node| match (self, node) {
            (Catalog::Numbered(n), Node::Sample(sample)) => Ok(n.path(sample)),
            (Catalog::Numbered(n), Node::Directory(directory)) => Ok(n.directory_path(directory)),
            (Catalog::Records(r), Node::Sample(sample)) => r.path(dataset, sample),
            (Catalog::Records(r), Node::Directory(directory)) => Ok(r.directory_path(directory)),
            (Catalog::Tree(_), _) => Ok(Vec::new()),
        };
        match self {
            Catalog::Tree(tree) => {
                let found = tree.paths(nodes).map_err(|e| tree.unreadable(e))?;
                Ok(nodes.iter().map(|node| found.get(node).cloned().unwrap_or_default()).collect())
            }
            _ => nodes.iter().map(path).collect(),
        }
    }
}

impl Catalog {
    /// The samples that have a name: no program can read those that were left out of the mount. `None` if all samples have a
    /// name, or if the names cannot be read: `failed` is told why. Only the first call passes over all names.
    pub fn named(&self, dataset: &Dataset, failed: impl FnOnce(Error)) -> Option<&Named> {
        let Catalog::Tree(tree) = self else { return None };
        let named = tree.named.get_or_init(|| match tree.named_samples(dataset.len()) {
            Ok(named) => named,
            Err(e) => {
                failed(tree.unreadable(e));
                None
            }
        });
        named.as_ref()
    }
}

impl Tree {
    /// Which of the `samples` samples have a name; `None` if all have one. A sample may have several names.
    fn named_samples(&self, samples: u64) -> io::Result<Option<Named>> {
        let mut named = vec![0u64; samples.div_ceil(64) as usize];
        let directories = self.directories();
        scan(&self.targets, |entry, target| {
            // A number that no directory has is a sample's.
            let is_sample =
                u64::from(target) >= directories || self.places.u64_at(entry)? & DIRECTORY_BIT == 0;
            if let Some(word) = named.get_mut(target as usize / 64).filter(|_| is_sample) {
                *word |= 1 << (target % 64);
            }
            Ok(())
        })?;
        let count: u64 = named.iter().map(|word| u64::from(word.count_ones())).sum();
        Ok((count < samples).then_some(Named(named)))
    }

    /// The paths of the nodes; nodes without a path are left out.
    fn paths(&self, nodes: &[Node]) -> io::Result<HashMap<Node, Vec<u8>>> {
        let mut directories = HashSet::new();
        let mut samples = HashSet::new();
        for &node in nodes {
            match node {
                Node::Directory(directory) => directories.insert(directory as u32),
                Node::Sample(sample) => samples.insert(sample as u32),
            };
        }
        let samples = self.entries_of(&samples, false)?;
        let parents = self.parents_of(&samples)?;
        directories.extend(parents.values());
        for directory in directories.clone() {
            directories.extend(self.above(directory));
        }
        let entries = self.entries_of(&directories, true)?;
        let entries: HashMap<_, _> =
            entries.iter().map(|(&entry, &directory)| (directory, entry)).collect();
        let mut found = HashMap::new();
        for directory in directories {
            found.insert(
                Node::Directory(u64::from(directory)),
                self.path_of_directory(directory, &entries)?,
            );
        }
        for (entry, sample) in samples {
            let above = parents.get(&entry).map(|&directory| Node::Directory(u64::from(directory)));
            let Some(above) = above.and_then(|directory| found.get(&directory)) else { continue };
            let path = join(above, &self.name_of(entry)?);
            found.entry(Node::Sample(u64::from(sample))).or_insert(path);
        }
        Ok(found)
    }

    /// Finds the entries of the wanted samples, or of the wanted directories: returns these by the number of the entry.
    fn entries_of(
        &self,
        wanted: &HashSet<u32>,
        directories: bool,
    ) -> io::Result<BTreeMap<usize, u32>> {
        let mut found = BTreeMap::new();
        if wanted.is_empty() {
            return Ok(found);
        }
        scan(&self.targets, |entry, target| {
            if wanted.contains(&target) {
                let is_directory = self.places.u64_at(entry)? & DIRECTORY_BIT != 0;
                if is_directory == directories {
                    found.insert(entry, target);
                }
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// The directories that entries lie in.
    fn parents_of(&self, entries: &BTreeMap<usize, u32>) -> io::Result<HashMap<usize, u32>> {
        let mut parents = HashMap::new();
        if entries.is_empty() {
            return Ok(parents);
        }
        for directory in 0..self.directories() {
            let Some(row) = self.row(directory)? else { break };
            let range =
                row.first_entry as usize..(row.end_entry as usize).max(row.first_entry as usize);
            parents.extend(entries.range(range).map(|(&entry, _)| (entry, directory as u32)));
        }
        Ok(parents)
    }

    /// The directories that a directory lies in, from the innermost on, the root left out.
    fn above(&self, directory: u32) -> impl Iterator<Item = u32> {
        let parent = |&directory: &u32| {
            self.parent(u64::from(directory))
                .map(|parent| parent as u32)
                .filter(|&p| p != ROOT as u32)
        };
        std::iter::successors(parent(&directory), parent).take(MAX_DEPTH)
    }

    fn path_of_directory(
        &self,
        directory: u32,
        entries: &HashMap<u32, usize>,
    ) -> io::Result<Vec<u8>> {
        let mut path = Vec::new();
        for directory in std::iter::once(directory).chain(self.above(directory)) {
            if let Some(&entry) = entries.get(&directory) {
                let name = self.name_of(entry)?;
                path = if path.is_empty() { name } else { join(&name, &path) };
            }
        }
        Ok(path)
    }

    fn name_of(&self, entry: usize) -> io::Result<Vec<u8>> {
        let mut buffer = [0; MAX_NAME_BYTES];
        Ok(self.name(self.places.u64_at(entry)?, &mut buffer)?.to_vec())
    }
}

fn join(above: &[u8], name: &[u8]) -> Vec<u8> {
    match above {
        b"" => name.to_vec(),
        _ => [above, b"/", name].concat(),
    }
}

/// Visits all numbers of a column of u32.
fn scan(column: &Column, mut visit: impl FnMut(usize, u32) -> io::Result<()>) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let length = column.bytes() as usize / 4 * 4;
    for at in (0..length).step_by(CHUNK_BYTES) {
        let bytes = column.slice(at, CHUNK_BYTES.min(length - at), &mut buffer)?;
        for (number, bytes) in bytes.chunks_exact(4).enumerate() {
            let mut value = [0; 4];
            value.copy_from_slice(bytes);
            visit(at / 4 + number, u32::from_le_bytes(value))?;
        }
    }
    Ok(())
}
