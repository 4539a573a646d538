//! The names of a file: groups, datasets, and links from one to another.
//!
//! Imports groups and messages of this directory.

use super::super::{Result, quoted};
use super::dataset::Dataset;
use super::group::{self, Link, Target};
use super::input::Input;
use super::notes::Notes;
use super::object::{Headers, Message};
use std::cell::Cell;
use std::collections::HashMap;

/// The most bytes of a path: Linux opens no longer ones.
const MAX_PATH_BYTES: usize = 4000;
/// The most soft links that are followed from one to the next.
const MAX_LINKS: u32 = 16;
/// The parts of links' paths that are followed in any file, besides 16 for each name.
const FREE_STEPS: u64 = 100_000;
/// The number of the root group.
pub(super) const ROOT: u32 = 0;

/// The object that a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Group,
    /// A dataset, by its number.
    Dataset(u32),
    /// A link to a group or dataset with another name: the number of that name.
    Link(u32),
    /// A link that leads nowhere, or a dataset that is not shown.
    Gone,
}

/// A name: its group, its stored bytes, and the object that it stands for.
#[derive(Debug)]
pub(super) struct Name {
    pub(super) parent: u32,
    pub(super) name: Box<[u8]>,
    pub(super) entry: Entry,
}

/// All names of a file, those in a group behind the group's own.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) names: Vec<Name>,
    /// Links out of the file, links to nothing, and paths that are too long.
    pub(super) notes: Notes,
}

/// A function that is called with the path and the messages of a dataset; returns its number, if it is shown.
type OnDataset<'f> = dyn FnMut(&[u8], &[Message]) -> Result<Option<u32>> + 'f;

struct Walk<'a, 'f> {
    headers: Headers<'a>,
    tree: Tree,
    /// The first name of each object, by the object's address.
    seen: HashMap<u64, u32>,
    soft: Vec<(u32, Vec<u8>)>,
    /// Groups whose links are not read yet: number, messages, length of the path.
    groups: Vec<(u32, Vec<Message>, usize)>,
    on_dataset: &'f mut OnDataset<'f>,
    allow_damaged: bool,
}

impl Tree {
    /// Reads all groups. `on_dataset` is called once for each dataset, with one of its paths.
    pub(super) fn read(
        input: &Input<'_>,
        (root, headers): (u64, Headers<'_>),
        allow_damaged: bool,
        on_dataset: &mut OnDataset<'_>,
    ) -> Result<Self> {
        let root_name = Name { parent: ROOT, name: Box::default(), entry: Entry::Group };
        let tree = Tree { names: vec![root_name], notes: Notes::default() };
        let (seen, groups, soft) = (HashMap::from([(root, ROOT)]), Vec::new(), Vec::new());
        let mut walk = Walk { headers, tree, seen, soft, groups, on_dataset, allow_damaged };
        let messages = walk.headers.messages(root)?;
        walk.groups.push((ROOT, messages, 0));
        while let Some((number, messages, length)) = walk.groups.pop() {
            match group::links(input, &messages) {
                Ok(links) => {
                    links.into_iter().try_for_each(|link| walk.add(number, link, length))?
                }
                Err(error) if allow_damaged => walk.tree.notes.add(|| error.to_string()),
                Err(error) => return Err(error),
            }
        }
        walk.resolve();
        Ok(walk.tree)
    }
}

impl Walk<'_, '_> {
    /// Adds a note about the object that a group has under a name.
    fn note(&mut self, parent: u32, name: &[u8], text: impl FnOnce() -> String) {
        let Tree { names, notes } = &mut self.tree;
        notes.add(|| format!("{} {}", quoted(path_of(names, parent, name)), text()));
    }

    fn push(&mut self, parent: u32, name: &[u8], entry: Entry) -> u32 {
        let number = self.tree.names.len() as u32;
        self.tree.names.push(Name { parent, name: name.into(), entry });
        number
    }

    fn add(&mut self, parent: u32, link: Link, before: usize) -> Result<()> {
        let length = before.saturating_add(link.name.len()).saturating_add(1);
        if length > MAX_PATH_BYTES {
            let text = || format!("a path of more than {MAX_PATH_BYTES} bytes is left out");
            self.tree.notes.add(text);
            return Ok(());
        }
        match link.target {
            Target::External(target) => {
                let text =
                    || format!("is a link to {}, which is not followed", quoted(target.as_bytes()));
                self.note(parent, &link.name, text);
            }
            Target::Soft(path) => {
                let number = self.push(parent, &link.name, Entry::Gone);
                self.soft.push((number, path));
            }
            Target::Hard(address) => match self.seen.get(&address) {
                Some(first) => {
                    let entry = match self.tree.names.get(*first as usize).map(|name| name.entry) {
                        Some(Entry::Gone) => Entry::Gone,
                        _ => Entry::Link(*first),
                    };
                    self.push(parent, &link.name, entry);
                }
                None => self.object(parent, &link.name, address, length)?,
            },
        }
        Ok(())
    }

    fn object(&mut self, parent: u32, name: &[u8], address: u64, length: usize) -> Result<()> {
        let messages = match self.headers.messages(address) {
            Ok(messages) => messages,
            Err(error) if self.allow_damaged => {
                self.note(parent, name, || format!("is left out: {error}"));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let entry = if Dataset::is_one(&messages) {
            let path = path_of(&self.tree.names, parent, name);
            (self.on_dataset)(&path, &messages)?.map_or(Entry::Gone, Entry::Dataset)
        } else if group::is_group(&messages) {
            Entry::Group
        } else {
            // The object is a type with a name.
            return Ok(());
        };
        let number = self.push(parent, name, entry);
        self.seen.insert(address, number);
        if entry == Entry::Group {
            self.groups.push((number, messages, length));
        }
        Ok(())
    }

    /// Finds the targets of soft links.
    fn resolve(&mut self) {
        let mut by_name: HashMap<(u32, &[u8]), u32> = HashMap::new();
        for (number, name) in (0..).zip(&self.tree.names).skip(1) {
            by_name.insert((name.parent, &name.name), number);
        }
        let soft: HashMap<u32, &[u8]> =
            self.soft.iter().map(|(number, path)| (*number, &path[..])).collect();
        let steps =
            Cell::new((self.tree.names.len() as u64).saturating_mul(16).saturating_add(FREE_STEPS));
        let find = Find { names: &self.tree.names, by_name, soft, steps };
        let found: Vec<_> = self
            .soft
            .iter()
            .map(|(number, _)| (*number, find.target(*number, MAX_LINKS)))
            .collect();
        for (number, target) in found {
            let Some(name) = self.tree.names.get_mut(number as usize) else { continue };
            match target {
                Some(target) => name.entry = Entry::Link(target),
                None => {
                    let (parent, name) = (name.parent, name.name.clone());
                    self.note(parent, &name, || "is a link to nothing in this file".to_owned());
                }
            }
        }
    }
}

/// The path of the object that a group has under a name.
fn path_of(names: &[Name], parent: u32, name: &[u8]) -> Vec<u8> {
    let (mut parts, mut at) = (vec![name], parent);
    while at != ROOT
        && let Some(above) = names.get(at as usize)
    {
        parts.push(&above.name);
        at = above.parent;
    }
    parts.reverse();
    parts.join(&b'/')
}

/// Follows soft links.
struct Find<'a> {
    names: &'a [Name],
    by_name: HashMap<(u32, &'a [u8]), u32>,
    soft: HashMap<u32, &'a [u8]>,
    /// Parts of links' paths that may still be followed: links to links could have too many.
    steps: Cell<u64>,
}

impl Find<'_> {
    /// The group or dataset that a soft link leads to.
    fn target(&self, link: u32, left: u32) -> Option<u32> {
        let left = left.checked_sub(1)?;
        let path = self.soft.get(&link)?;
        let mut at = match path.starts_with(b"/") {
            true => ROOT,
            false => self.names.get(link as usize)?.parent,
        };
        for part in path.split(|byte| *byte == b'/') {
            self.steps.set(self.steps.get().checked_sub(1)?);
            if part.is_empty() || part == b"." {
                continue;
            }
            at = self.real(*self.by_name.get(&(at, part))?, left)?;
        }
        Some(at)
    }

    /// The group or dataset that a name stands for in the end.
    fn real(&self, number: u32, left: u32) -> Option<u32> {
        if self.soft.contains_key(&number) {
            return self.target(number, left);
        }
        match self.names.get(number as usize)?.entry {
            Entry::Link(first) => Some(first),
            Entry::Gone => None,
            Entry::Group | Entry::Dataset(_) => Some(number),
        }
    }
}
