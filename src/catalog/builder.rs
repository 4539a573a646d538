//! From names in any order to a packed tree.

use super::column::Column;
use super::numbered::MAX_NAME_BYTES;
use super::slots::Slots;
use super::tree::{DIRECTORY_BIT, DirectoryRow, LENGTH_SHIFT, OFFSET_MASK, Tree};
use super::{Duplicates, NameError, Node, ROOT, Renamed, count_files, names};
use crate::format::{self, Attributes, Directory, Entry, Member, quoted};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// The name of a file whose stored name is empty.
const NAMELESS: &[u8] = b"%";

/// Collects names in any order.
#[derive(Debug, Default)]
pub struct TreeBuilder {
    arena: Vec<u8>,
    entries: Vec<Pending>,
    /// Parents of the directories 1, 2, …
    parents: Vec<u32>,
    /// Directories by parent and name; not needed for trees that come as trees.
    known: HashMap<(u32, Box<[u8]>), u32>,
    attributes: HashMap<u32, Attributes>,
    renamed: Renamed,
    duplicates: Option<Duplicates>,
    shows_all: bool,
    /// Samples of containers in which a later member takes the place of an earlier one, in order.
    replacing: Vec<Range<u64>>,
    /// Members that were added, and the directories that their paths have made.
    members: usize,
    made: usize,
}

/// The most directories that the members of an archive may make: a number for each member, and one for the archive.
const DIRECTORIES_A_MEMBER: usize = 16;
const FREE_DIRECTORIES: usize = 4096;

#[derive(Debug, Clone, Copy)]
struct Pending {
    parent: u32,
    place: u64,
    target: u32,
}

impl TreeBuilder {
    /// Adds a sample under a relative path, with the directories on the way.
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
                parent = self.directory(parent, name)?;
            }
        }
        Ok(())
    }

    /// Adds a stored tree whose sample 0 is the dataset's sample `first_sample`, below the directory `above` if
    /// that is not empty.
    ///
    /// # Errors
    /// A name cannot be that of a directory entry.
    pub fn add_directory(
        &mut self,
        above: &[u8],
        directory: &Directory,
        first_sample: u64,
    ) -> Result<(), NameError> {
        let mut top = ROOT as u32;
        for name in names::parts(above) {
            top = self.directory(top, &name)?;
        }
        let mut pending = vec![(directory, top)];
        while let Some((directory, parent)) = pending.pop() {
            for (name, entry) in &directory.entries {
                if !self.shows_all && names::is_left_by_system(name) {
                    self.renamed.left_out += match entry {
                        Entry::File(_) => 1,
                        Entry::Directory(inner) => count_files(inner),
                    };
                    continue;
                }
                check_name(name).map_err(|why| {
                    NameError::Illegal(String::from_utf8_lossy(name).into_owned(), why)
                })?;
                match entry {
                    Entry::File(sample) => {
                        let sample = first_sample.saturating_add(*sample);
                        self.push(parent, name, Node::Sample(sample))?;
                    }
                    Entry::Directory(inner) => pending.push((inner, self.directory(parent, name)?)),
                }
            }
        }
        Ok(())
    }

    /// Adds a member of an archive, below the directory `above` if that is not empty. Names of its path that no
    /// directory can hold are escaped.
    ///
    /// # Errors
    /// There are too many names.
    pub fn add_member(
        &mut self,
        above: &[u8],
        member: &Member,
        first_sample: u64,
    ) -> Result<(), NameError> {
        let mut parent = ROOT as u32;
        for name in names::parts(above) {
            parent = self.directory(parent, &name)?;
        }
        self.members += 1;
        let most = self.members.saturating_mul(DIRECTORIES_A_MEMBER) + FREE_DIRECTORIES;
        let mut parts = names::parts(member.path).peekable();
        while let Some(name) = parts.next() {
            if !self.shows_all && names::is_left_by_system(&name) {
                self.renamed.left_out += u64::from(matches!(member.node, format::Node::Sample(_)));
                return Ok(());
            }
            match member.node {
                format::Node::Sample(sample) if parts.peek().is_none() => {
                    self.note_changed(member.path);
                    let sample = first_sample.saturating_add(sample);
                    return self.push(parent, &name, Node::Sample(sample));
                }
                _ => {
                    let before = self.parents.len();
                    parent = self.directory(parent, &name)?;
                    self.made += self.parents.len() - before;
                }
            }
            // A directory takes more memory than its name.
            if self.made > most {
                return Err(NameError::TooManyDirectories { members: self.members });
            }
        }
        self.note_changed(member.path);
        match member.node {
            format::Node::Directory(attributes) => {
                self.attributes.insert(parent, attributes);
                Ok(())
            }
            // A file that has no name at all, such as `/` or `.`.
            format::Node::Sample(sample) => {
                let sample = first_sample.saturating_add(sample);
                self.push(parent, NAMELESS, Node::Sample(sample))
            }
        }
    }

    /// Counts a path that is shown as another one.
    fn note_changed(&mut self, stored: &[u8]) {
        if !names::is_changed(stored) {
            return;
        }
        self.renamed.escaped += 1;
        self.renamed.example(|| {
            let shown: Vec<_> = names::parts(stored).collect();
            format!("{} as {}", quoted(stored), quoted(shown.join(&b'/')))
        });
    }

    /// Adds a sample or directory that another tree shows under `path`; directories on the way are made.
    ///
    /// # Errors
    /// There are too many names.
    pub fn add_shown(&mut self, path: &[u8], node: Node) -> Result<(), NameError> {
        let mut parent = ROOT as u32;
        let mut parts = path.split(|&byte| byte == b'/').peekable();
        while let Some(name) = parts.next() {
            match node {
                Node::Sample(_) if parts.peek().is_none() => self.push(parent, name, node)?,
                _ => parent = self.directory(parent, name)?,
            }
        }
        Ok(())
    }

    /// Sets the attributes that are stored of a directory, if there is a directory of this path; the root's path is
    /// empty.
    pub fn set_attributes(&mut self, path: &[u8], attributes: Attributes) {
        let mut names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        let directory = names.try_fold(ROOT as u32, |parent, name| {
            self.known.get(&(parent, Box::from(name))).copied()
        });
        if let Some(directory) = directory {
            self.attributes.insert(directory, attributes);
        }
    }

    /// Takes over another tree's counts of members that are not shown as they are stored.
    pub fn take_renamed(&mut self, renamed: Renamed) {
        self.renamed = renamed;
    }

    /// Shows, too, files that macOS and Windows leave beside people's own.
    pub fn show_all(&mut self) {
        self.shows_all = true;
    }

    /// Lets the last sample of each name take the place of the others among these samples, all of one container, if
    /// duplicates are [`Duplicates::Auto`]. Later calls are for later samples.
    pub fn replace_within(&mut self, samples: Range<u64>) {
        self.replacing.push(samples);
    }

    fn directory(&mut self, parent: u32, name: &[u8]) -> Result<u32, NameError> {
        if let Some(&directory) = self.known.get(&(parent, Box::from(name))) {
            return Ok(directory);
        }
        let directory = u32::try_from(self.parents.len() + 1).map_err(|_| NameError::TooMany)?;
        self.parents.push(parent);
        self.known.insert((parent, Box::from(name)), directory);
        self.push(parent, name, Node::Directory(u64::from(directory)))?;
        Ok(directory)
    }

    fn push(&mut self, parent: u32, name: &[u8], node: Node) -> Result<(), NameError> {
        let (target, bit) = match node {
            Node::Directory(directory) => (directory, DIRECTORY_BIT),
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

    /// Sets the treatment of several members of one name; without a call they are an error.
    pub fn duplicates(&mut self, duplicates: Duplicates) {
        self.duplicates = Some(duplicates);
    }

    fn name(&self, place: u64) -> &[u8] {
        let start = (place & OFFSET_MASK) as usize;
        &self.arena[start..start + ((place >> LENGTH_SHIFT) as usize & MAX_NAME_BYTES)]
    }

    fn is_same(&self, one: &Pending, other: &Pending) -> bool {
        one.parent == other.parent && self.name(one.place) == self.name(other.place)
    }

    /// Sorts entries by directory and name, and those of one name in the order in which they were added.
    fn sort(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_unstable_by(|a, b| {
            let names = self.name(a.place).cmp(self.name(b.place));
            a.parent.cmp(&b.parent).then(names).then(a.arena_order().cmp(&b.arena_order()))
        });
        self.entries = entries;
    }

    /// Sorts and packs the entries.
    ///
    /// # Errors
    /// A name stands twice in a directory, and that is an error.
    pub fn build(mut self) -> Result<Tree, NameError> {
        self.known = HashMap::new();
        self.sort();
        self.resolve_duplicates()?;
        let parents = std::iter::once(&(ROOT as u32)).chain(&self.parents);
        let mut directories: Vec<DirectoryRow> = parents
            .map(|&parent| DirectoryRow { first_entry: 0, end_entry: 0, parent, subdirectories: 0 })
            .collect();
        for (number, entry) in self.entries.iter().enumerate() {
            let row = &mut directories[entry.parent as usize];
            if row.end_entry == 0 {
                row.first_entry = number as u32;
            }
            row.end_entry = number as u32 + 1;
            row.subdirectories += u32::from(entry.place & DIRECTORY_BIT != 0);
        }
        // The names lie in the order of listing, so that a listing walks through memory forwards.
        let mut sorted = Vec::with_capacity(self.arena.len());
        let mut places = Vec::with_capacity(self.entries.len() * 8);
        for entry in &self.entries {
            let place = (entry.place & !OFFSET_MASK) | sorted.len() as u64;
            places.extend_from_slice(&place.to_le_bytes());
            sorted.extend_from_slice(self.name(entry.place));
        }
        let names = self.entries.iter().map(|entry| (entry.parent, self.name(entry.place)));
        let slots = Slots::new(names);
        let targets = Column::of_u32(self.entries.iter().map(|entry| entry.target));
        let mut attributes: Vec<_> = self.attributes.into_iter().collect();
        attributes.sort_unstable_by_key(|(directory, _)| *directory);
        Ok(Tree {
            part: "stored names".into(),
            directories: Column::of_u32(directories.iter().flat_map(DirectoryRow::fields)),
            places: Column::Memory(places),
            targets,
            arena: Column::Memory(sorted),
            slots,
            attributes,
            renamed: self.renamed,
            named: Box::default(),
        })
    }

    /// Gives every entry of a sorted list a name of its own, or drops it.
    fn resolve_duplicates(&mut self) -> Result<(), NameError> {
        let is_twice = |pair: &&[Pending]| self.is_same(&pair[0], &pair[1]);
        let Some(twice) = self.entries.windows(2).find(is_twice) else {
            return Ok(());
        };
        let policy = self.duplicates.unwrap_or(Duplicates::Error);
        if policy == Duplicates::Error {
            let sample = |one: &Pending| one.is_file().then_some(u64::from(one.target));
            let samples = [sample(&twice[0]), sample(&twice[1])];
            let path = self.path(&self.entries, &twice[0]);
            let path = String::from_utf8_lossy(&path).into_owned();
            return Err(NameError::Duplicate { path, samples });
        }
        let sorted = std::mem::take(&mut self.entries);
        let mut renaming = Renaming::default();
        let mut rest = &sorted[..];
        while let Some(first) = rest.first() {
            let same = rest.partition_point(|entry| {
                entry.parent == first.parent && self.name(entry.place) == self.name(first.place)
            });
            let (run, behind) = rest.split_at(same);
            rest = behind;
            if let [only] = run {
                self.entries.push(*only);
                continue;
            }
            let run = &match policy {
                Duplicates::Auto => self.without_replaced(&sorted, run),
                _ => run.to_vec(),
            };
            // A directory keeps the name; at most one has it.
            let directory = run.iter().position(|entry| !entry.is_file());
            // This one of the files is shown in any case: beside a directory under a number.
            let shown = match policy {
                Duplicates::Last => run.iter().rposition(Pending::is_file),
                _ => run.iter().position(Pending::is_file),
            };
            let keeps = directory.or(shown).unwrap_or(0);
            self.entries.push(run[keeps]);
            for (place, entry) in run.iter().enumerate().filter(|(place, _)| *place != keeps) {
                let hides = matches!(policy, Duplicates::First | Duplicates::Last);
                if hides && Some(place) != shown {
                    self.hide(&sorted, entry);
                    continue;
                }
                let name = self.name(entry.place).to_vec();
                self.rename(&sorted, *entry, &name, &mut renaming)?;
            }
        }
        self.sort();
        Ok(())
    }

    /// Entries of one name without those whose place a later member of their container takes.
    fn without_replaced(&mut self, sorted: &[Pending], run: &[Pending]) -> Vec<Pending> {
        let mut replaced = HashSet::new();
        let mut left: Vec<Pending> = Vec::new();
        for entry in run.iter().rev() {
            let sample = u64::from(entry.target);
            let place = self.replacing.partition_point(|samples| samples.end <= sample);
            let is_in = self.replacing.get(place).is_some_and(|samples| samples.contains(&sample));
            if entry.is_file() && is_in && !replaced.insert(place) {
                self.hide(sorted, entry);
            } else {
                left.push(*entry);
            }
        }
        left.reverse();
        left
    }

    /// Counts an entry that another one of the same name hides.
    fn hide(&mut self, sorted: &[Pending], entry: &Pending) {
        let path = self.renamed.has_room().then(|| self.path(sorted, entry));
        self.renamed.hide(&path.unwrap_or_default());
    }

    /// The whole path of an entry; `sorted` has all entries.
    fn path(&self, sorted: &[Pending], entry: &Pending) -> Vec<u8> {
        let mut path = self.name(entry.place).to_vec();
        let mut directory = entry.parent;
        while let Some(number) = (directory as usize).checked_sub(1)
            && let Some(&parent) = self.parents.get(number)
        {
            let first = sorted.partition_point(|one| one.parent < parent);
            let is_it = |one: &&Pending| !one.is_file() && one.target == directory;
            let Some(above) = sorted[first..].iter().find(is_it) else { break };
            path = [self.name(above.place), b"/", &path].concat();
            directory = parent;
        }
        path
    }

    /// Adds an entry under `name` with the next free number.
    fn rename(
        &mut self,
        sorted: &[Pending],
        entry: Pending,
        name: &[u8],
        renaming: &mut Renaming,
    ) -> Result<(), NameError> {
        let Renaming { taken, last } = renaming;
        let number = last.entry((entry.parent, names::numbered(name, 1))).or_default();
        loop {
            *number = number.checked_add(1).ok_or(NameError::TooMany)?;
            let free = names::numbered(name, *number);
            let stands = sorted.binary_search_by(|other| {
                other.parent.cmp(&entry.parent).then_with(|| self.name(other.place).cmp(&free))
            });
            if stands.is_err() && taken.insert((entry.parent, free.clone())) {
                self.renamed.numbered += 1;
                self.renamed.example(|| format!("another {} as {}", quoted(name), quoted(&free)));
                return self.push(entry.parent, &free, Node::Sample(u64::from(entry.target)));
            }
        }
    }
}

/// The names that entries got instead of their own.
#[derive(Default)]
struct Renaming {
    taken: HashSet<(u32, Vec<u8>)>,
    /// The last number, by directory and by the name with the number 1: many long names may be cut to one.
    last: HashMap<(u32, Vec<u8>), u32>,
}

impl Pending {
    fn is_file(&self) -> bool {
        self.place & DIRECTORY_BIT == 0
    }

    /// Names lie in the arena in the order in which they were added.
    fn arena_order(&self) -> u64 {
        self.place & OFFSET_MASK
    }
}

pub(super) fn check_name(name: &[u8]) -> Result<(), &'static str> {
    match name {
        b"" => Err("an empty name"),
        b"." | b".." => Err("not a name: . and .. are directories"),
        _ if name.len() > MAX_NAME_BYTES => Err("a name of more than 255 bytes"),
        _ if name.contains(&0) => Err("a name with a NUL byte"),
        _ if name.contains(&b'/') => Err("a name with a slash"),
        _ => Ok(()),
    }
}
