//! Entries in another order than they have: the files of each sample one behind the other, for formats whose samples have
//! fields. An archive may have all images first, and then all texts.
//!
//! Imports no other file of this directory.

use crate::failure::Failure;
use crate::format::{Fault, Grouping};
use crate::tools::entries::{Entries, Entry, EntryKind, EntryMetadata, is_empty};
use crate::tools::reader::{Scratch, Stop, TakeChunk, WholeFile};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

/// So many files are looked at to find those that are read together: they seldom stand together in their container.
const MAX_TOGETHER: usize = 64;

/// Entries whose samples do not stand together, in the order of the samples' first files.
pub(super) struct Gathered<'a> {
    entries: &'a dyn Entries,
    /// For each place here the entry that stands there.
    order: Vec<usize>,
    list: Vec<Entry>,
}

impl<'a> Gathered<'a> {
    /// `None`: the files of each sample stand together. Directories are left out, except empty ones, which come last.
    pub(super) fn new(entries: &'a dyn Entries, grouping: Grouping) -> Option<Self> {
        if grouping == Grouping::Files || !may_be_apart(entries, grouping) {
            return None;
        }
        let mut firsts: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut placed = Vec::with_capacity(entries.list().len());
        for entry in 0..entries.list().len() {
            if !is_directory(entries, entry) {
                let path = entries.path(entry);
                let first = firsts.entry(grouping.key(&path).to_vec()).or_insert(entry);
                placed.push((false, *first, entry));
            } else if is_empty(entries, entry) {
                placed.push((true, entry, entry));
            }
        }
        placed.sort_unstable();
        let order: Vec<usize> = placed.into_iter().map(|(.., entry)| entry).collect();
        let mut places = vec![0; entries.list().len()];
        order.iter().enumerate().for_each(|(place, entry)| places[*entry] = place);
        let moved = |entry: &usize| {
            let Entry { kind, size_bytes } = entries.list()[*entry];
            let kind = match kind {
                EntryKind::HardLink(first) => EntryKind::HardLink(places[first]),
                kind => kind,
            };
            Entry { kind, size_bytes }
        };
        let list = order.iter().map(moved).collect();
        Some(Self { entries, order, list })
    }

    fn inner(&self, places: &[usize]) -> Vec<usize> {
        places.iter().map(|place| self.order[*place]).collect()
    }
}

fn is_directory(entries: &dyn Entries, entry: usize) -> bool {
    entries.list()[entry].kind == EntryKind::Directory
}

/// Whether a file stands apart from others of its sample, or at least their keys have the same hash.
fn may_be_apart(entries: &dyn Entries, grouping: Grouping) -> bool {
    let (hasher, mut seen, mut before) = (RandomState::new(), HashSet::new(), None);
    (0..entries.list().len()).filter(|entry| !is_directory(entries, *entry)).any(|entry| {
        let path = entries.path(entry);
        let hash = hasher.hash_one(grouping.key(&path));
        let is_next = before.replace(hash) == Some(hash);
        !is_next && !seen.insert(hash)
    })
}

impl Entries for Gathered<'_> {
    fn list(&self) -> &[Entry] {
        &self.list
    }

    fn path(&self, entry: usize) -> Vec<u8> {
        self.entries.path(self.order[entry])
    }

    fn metadata(&self, entry: usize) -> Result<EntryMetadata, Failure> {
        self.entries.metadata(self.order[entry])
    }

    fn link_target(&self, entry: usize) -> Result<Vec<u8>, Fault> {
        self.entries.link_target(self.order[entry])
    }

    fn batch_len(&self, entries: &[usize]) -> usize {
        let some = entries.get(..MAX_TOGETHER).unwrap_or(entries);
        self.entries.batch_len(&self.inner(some))
    }

    fn read_batch(
        &self,
        entries: &[usize],
        scratch: &mut Scratch,
    ) -> Result<Vec<Result<WholeFile, Fault>>, Failure> {
        self.entries.read_batch(&self.inner(entries), scratch)
    }

    fn stream(
        &self,
        entry: usize,
        scratch: &mut Scratch,
        take: &mut TakeChunk,
    ) -> Result<(), Stop> {
        self.entries.stream(self.order[entry], scratch, take)
    }
}
