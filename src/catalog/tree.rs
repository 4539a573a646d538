//! Stored names, packed: 12 bytes an entry and the bytes of its name. No object a name.

use super::numbered::MAX_NAME_BYTES;
use super::{Emit, NameError, Node, ROOT};
use crate::format::{Entry, Folder};
use std::collections::HashMap;

/// Set in an entry's place for a folder; a name's place in the arena needs far fewer bits.
const FOLDER_BIT: u64 = 1 << 63;
/// The place of a name: 48 bits of offset, 8 bits of length above them.
const LENGTH_SHIFT: u32 = 48;
const OFFSET_MASK: u64 = (1 << LENGTH_SHIFT) - 1;

/// An immutable tree of names over samples.
#[derive(Debug)]
pub struct Tree {
    folders: Vec<FolderRow>,
    /// Per entry: where its name lies, and whether it is a folder. Grouped by folder, sorted by name.
    places: Vec<u64>,
    /// Per entry: number of the sample or folder.
    targets: Vec<u32>,
    arena: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct FolderRow {
    first_entry: u32,
    end_entry: u32,
    parent: u32,
    subfolders: u32,
}

impl Tree {
    fn row(&self, folder: u64) -> Option<&FolderRow> {
        usize::try_from(folder).ok().and_then(|folder| self.folders.get(folder))
    }

    fn name(&self, entry: usize) -> &[u8] {
        let place = self.places[entry];
        let start = (place & OFFSET_MASK) as usize;
        let length = (place >> LENGTH_SHIFT) as usize & MAX_NAME_BYTES;
        &self.arena[start..start + length]
    }

    fn node(&self, entry: usize) -> Node {
        let target = u64::from(self.targets[entry]);
        if self.places[entry] & FOLDER_BIT != 0 {
            Node::Folder(target)
        } else {
            Node::Sample(target)
        }
    }

    pub(super) fn lookup(&self, folder: u64, name: &[u8]) -> Option<Node> {
        let row = self.row(folder)?;
        let (mut low, mut high) = (row.first_entry as usize, row.end_entry as usize);
        while low < high {
            let middle = low.midpoint(high);
            match self.name(middle).cmp(name) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(self.node(middle)),
            }
        }
        None
    }

    pub(super) fn list(&self, folder: u64, from: u64, emit: &mut Emit) {
        let Some(row) = self.row(folder) else { return };
        let first = u64::from(row.first_entry).saturating_add(from);
        for entry in first..u64::from(row.end_entry) {
            let entry = entry as usize;
            if !emit(self.name(entry), self.node(entry)) {
                break;
            }
        }
    }

    pub(super) fn parent(&self, folder: u64) -> Option<u64> {
        self.row(folder).map(|row| u64::from(row.parent))
    }

    pub(super) fn subfolders(&self, folder: u64) -> u64 {
        self.row(folder).map_or(0, |row| u64::from(row.subfolders))
    }

    pub(super) fn folders(&self) -> u64 {
        self.folders.len() as u64
    }

    pub(super) fn samples(&self) -> u64 {
        self.targets.len() as u64 - (self.folders() - 1)
    }
}

/// Collects names in any order.
#[derive(Debug, Default)]
pub struct TreeBuilder {
    arena: Vec<u8>,
    entries: Vec<Pending>,
    /// Parents of the folders 1, 2, …
    parents: Vec<u32>,
    /// Folders by parent and name; not needed for trees that come as trees.
    known: HashMap<(u32, Box<[u8]>), u32>,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    parent: u32,
    place: u64,
    target: u32,
}

impl TreeBuilder {
    /// Adds a sample under a relative path, with the folders on the way.
    ///
    /// # Errors
    /// The path is not one below a mount point.
    pub fn add(&mut self, path: &[u8], sample: u64) -> Result<(), NameError> {
        let illegal = |why| NameError::Illegal(String::from_utf8_lossy(path).into_owned(), why);
        if path.first() == Some(&b'/') {
            return Err(illegal("an absolute path; write it relative to the mount point"));
        }
        let mut parent = ROOT as u32;
        let mut names = path.split(|&b| b == b'/').peekable();
        while let Some(name) = names.next() {
            check_name(name).map_err(illegal)?;
            if names.peek().is_none() {
                self.push(parent, name, Node::Sample(sample))?;
            } else {
                parent = self.folder(parent, name)?;
            }
        }
        Ok(())
    }

    /// Adds a stored tree whose sample 0 is the dataset's sample `first_sample`.
    ///
    /// # Errors
    /// A name is not one of a directory entry.
    pub fn add_folder(&mut self, folder: &Folder, first_sample: u64) -> Result<(), NameError> {
        let mut pending = vec![(folder, ROOT as u32)];
        while let Some((folder, parent)) = pending.pop() {
            for (name, entry) in &folder.entries {
                check_name(name).map_err(|why| {
                    NameError::Illegal(String::from_utf8_lossy(name).into_owned(), why)
                })?;
                match entry {
                    Entry::File(sample) => {
                        let sample = first_sample.saturating_add(*sample);
                        self.push(parent, name, Node::Sample(sample))?;
                    }
                    Entry::Folder(inner) => pending.push((inner, self.folder(parent, name)?)),
                }
            }
        }
        Ok(())
    }

    fn folder(&mut self, parent: u32, name: &[u8]) -> Result<u32, NameError> {
        if let Some(&folder) = self.known.get(&(parent, Box::from(name))) {
            return Ok(folder);
        }
        let folder = u32::try_from(self.parents.len() + 1).map_err(|_| NameError::TooMany)?;
        self.parents.push(parent);
        self.known.insert((parent, Box::from(name)), folder);
        self.push(parent, name, Node::Folder(u64::from(folder)))?;
        Ok(folder)
    }

    fn push(&mut self, parent: u32, name: &[u8], node: Node) -> Result<(), NameError> {
        let (target, bit) = match node {
            Node::Folder(folder) => (folder, FOLDER_BIT),
            Node::Sample(sample) => (sample, 0),
        };
        let target = u32::try_from(target).map_err(|_| NameError::TooMany)?;
        if self.entries.len() >= u32::MAX as usize || self.arena.len() as u64 > OFFSET_MASK {
            return Err(NameError::TooMany);
        }
        let place = self.arena.len() as u64 | (name.len() as u64) << LENGTH_SHIFT | bit;
        self.arena.extend_from_slice(name);
        self.entries.push(Pending { parent, place, target });
        Ok(())
    }

    /// Sorts and packs what was added.
    ///
    /// # Errors
    /// A name stands twice in a folder.
    pub fn build(mut self) -> Result<Tree, NameError> {
        self.known = HashMap::new();
        let arena = std::mem::take(&mut self.arena);
        let name = |place: u64| {
            let start = (place & OFFSET_MASK) as usize;
            &arena[start..start + ((place >> LENGTH_SHIFT) as usize & MAX_NAME_BYTES)]
        };
        self.entries.sort_unstable_by(|a, b| {
            a.parent.cmp(&b.parent).then_with(|| name(a.place).cmp(name(b.place)))
        });
        for pair in self.entries.windows(2) {
            if pair[0].parent == pair[1].parent && name(pair[0].place) == name(pair[1].place) {
                let twice = String::from_utf8_lossy(name(pair[0].place)).into_owned();
                return Err(NameError::Duplicate(twice));
            }
        }
        let parents = std::iter::once(&(ROOT as u32)).chain(&self.parents);
        let mut folders: Vec<FolderRow> = parents
            .map(|&parent| FolderRow { first_entry: 0, end_entry: 0, parent, subfolders: 0 })
            .collect();
        for (number, entry) in self.entries.iter().enumerate() {
            let row = &mut folders[entry.parent as usize];
            if row.end_entry == 0 {
                row.first_entry = number as u32;
            }
            row.end_entry = number as u32 + 1;
            row.subfolders += u32::from(entry.place & FOLDER_BIT != 0);
        }
        // The names lie in the order of listing, so that a listing walks through memory forwards.
        let mut sorted = Vec::with_capacity(arena.len());
        let mut places = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            places.push((entry.place & !OFFSET_MASK) | sorted.len() as u64);
            sorted.extend_from_slice(name(entry.place));
        }
        let targets = self.entries.iter().map(|entry| entry.target).collect();
        Ok(Tree { folders, places, targets, arena: sorted })
    }
}

fn check_name(name: &[u8]) -> Result<(), &'static str> {
    match name {
        b"" => Err("an empty name"),
        b"." | b".." => Err("not a name but a way"),
        _ if name.len() > MAX_NAME_BYTES => Err("a name of more than 255 bytes"),
        _ if name.contains(&0) => Err("a name with a NUL byte"),
        _ if name.contains(&b'/') => Err("a name with a slash"),
        _ => Ok(()),
    }
}
