//! The names of a catalog, in the order of the samples in their containers.

use crate::catalog::{Catalog, Node, ROOT};
use crate::dataset::Opened;
use crate::failure::Failure;
use std::collections::HashMap;
use std::ops::Range;

/// The catalog node of an entry, and the range of its path in the names.
pub(crate) struct Place {
    pub(crate) node: Node,
    pub(crate) path: Range<usize>,
}

/// Entries and their names.
#[derive(Default)]
pub(crate) struct Listed {
    pub(crate) names: Vec<u8>,
    pub(crate) places: Vec<Place>,
}

/// The names of a catalog in the order of the samples in their containers; directories that are stored or empty precede
/// the first sample in them.
pub(crate) fn list(
    opened: &Opened,
    catalog: &Catalog,
    is_wanted: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<Listed, Failure> {
    let mut listed = Listed::default();
    let mut is_empty = HashMap::new();
    catalog.walk(&opened.dataset, ROOT, &mut |path, node| {
        if let Some(end) = path.iter().rposition(|byte| *byte == b'/') {
            // The walk has visited the parent directory before.
            if let Some(empty) = is_empty.get_mut(&path[..end]) {
                *empty = false;
            }
        }
        let is_stored = |directory| catalog.attributes(directory).is_some();
        match node {
            Node::Directory(directory) if !is_stored(directory) => {
                is_empty.insert(path.to_vec(), true);
            }
            _ if !is_wanted(path) => return,
            _ => {}
        }
        let start = listed.names.len();
        listed.names.extend_from_slice(path);
        listed.places.push(Place { node, path: start..listed.names.len() });
    })?;
    let names = &listed.names;
    listed.places.retain(|place| match place.node {
        Node::Directory(_) => {
            let path = &names[place.path.clone()];
            is_empty.get(path).is_none_or(|is_empty| *is_empty && is_wanted(path))
        }
        Node::Sample(_) => true,
    });
    sort(&mut listed);
    Ok(listed)
}

/// Sorts directories to the position of the first sample below them; the walk listed them before that sample.
fn sort(listed: &mut Listed) {
    if listed.places.is_sorted_by_key(|place| match place.node {
        Node::Sample(sample) => sample,
        Node::Directory(_) => u64::MAX,
    }) {
        return;
    }
    let names = &listed.names;
    let mut first: HashMap<&[u8], u64> = HashMap::new();
    for place in listed.places.iter().filter(|p| matches!(p.node, Node::Directory(_))) {
        first.insert(&names[place.path.clone()], u64::MAX);
    }
    for place in &listed.places {
        let Node::Sample(sample) = place.node else { continue };
        let mut path = &names[place.path.clone()];
        while let Some(end) = path.iter().rposition(|byte| *byte == b'/') {
            path = &path[..end];
            if let Some(first) = first.get_mut(path) {
                *first = sample.min(*first);
            }
        }
    }
    let key = |place: &Place| match place.node {
        Node::Sample(sample) => (sample, true),
        Node::Directory(_) => (first[&names[place.path.clone()]], false),
    };
    // A stable sort keeps the order of nested directories, and of several names of a sample.
    listed.places.sort_by_cached_key(key);
}
