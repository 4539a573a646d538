//! Groups that lead to each other in any way, stored in each of three ways, against the graph that they form.

use super::super::input::{Input, lookup3, reader};
use super::super::object::{Extension, Headers, LAYOUT};
use super::super::tree::{Entry, Tree};
use crate::format::MemorySource;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::{BTreeMap, BTreeSet};

const NAMES: [&str; 6] = ["a", "b", "c", "a.b", "ü", "long name"];
const NONE: [u8; 8] = [0xff; 8];
/// The length of a heap's only block: longer than all links of a group.
const BLOCK_BYTES: u16 = 4096;
/// The length of a B-tree's node: it has room for 10 records, or for 5 between 6 children.
const NODE_BYTES: u32 = 128;
const MAX_LINKS: u32 = 16;

// ---- the graph -------------------------------------------------------------------------------------

#[derive(Debug, Clone)]
enum Target {
    Hard(usize),
    Soft(String),
    External,
}

type Links = BTreeMap<&'static str, Target>;

/// How the links of a group are stored.
#[derive(Debug, Clone, Copy)]
enum Storage {
    /// In messages, perhaps with the order in which they were made, perhaps in two blocks.
    Messages { has_order: bool, is_split: bool },
    /// In a fractal heap.
    Heap,
    /// In a symbol table, with the number of symbols in a node.
    Symbols(usize),
}

#[derive(Debug)]
enum Object {
    Group(Storage, Links),
    Dataset,
}

#[derive(Debug, Clone)]
enum Made {
    Group(Storage),
    Dataset,
    /// A further name of an object.
    Hard(Index),
    Soft(bool, Vec<&'static str>),
    External,
}

fn storage() -> impl Strategy<Value = Storage> {
    prop_oneof![
        any::<(bool, bool)>()
            .prop_map(|(has_order, is_split)| Storage::Messages { has_order, is_split }),
        Just(Storage::Heap),
        (1_usize..4).prop_map(Storage::Symbols),
    ]
}

fn made() -> impl Strategy<Value = Made> {
    let part = prop_oneof![4 => prop::sample::select(&NAMES[..]), 1 => prop::sample::select(&["", ".", ".."][..])];
    prop_oneof![
        3 => storage().prop_map(Made::Group),
        3 => Just(Made::Dataset),
        2 => any::<Index>().prop_map(Made::Hard),
        3 => (any::<bool>(), vec(part, 1..4)).prop_map(|(is_absolute, parts)| Made::Soft(is_absolute, parts)),
        1 => Just(Made::External),
    ]
}

/// The objects of a file, the root group first.
fn graph() -> impl Strategy<Value = Vec<Object>> {
    let step = (any::<Index>(), prop::sample::select(&NAMES[..]), made());
    (storage(), vec(step, 0..40)).prop_map(|(root, steps)| {
        let mut objects = vec![Object::Group(root, Links::new())];
        for (parent, name, made) in steps {
            add(&mut objects, parent, name, made);
        }
        objects
    })
}

fn add(objects: &mut Vec<Object>, parent: Index, name: &'static str, made: Made) {
    let count = objects.len();
    let groups = objects.iter_mut().filter_map(|object| match object {
        Object::Group(storage, links) => Some((storage, links)),
        Object::Dataset => None,
    });
    let mut groups: Vec<_> = groups.collect();
    let chosen = parent.index(groups.len());
    let (storage, links) = &mut groups[chosen];
    // Old groups cannot lead out of the file.
    let is_possible = !matches!((&made, storage), (Made::External, Storage::Symbols(_)));
    if links.contains_key(name) || !is_possible {
        return;
    }
    let (target, object) = match made {
        Made::Group(storage) => (Target::Hard(count), Some(Object::Group(storage, Links::new()))),
        Made::Dataset => (Target::Hard(count), Some(Object::Dataset)),
        Made::Hard(object) => (Target::Hard(object.index(count)), None),
        Made::Soft(is_absolute, parts) => {
            let root = if is_absolute { "/" } else { "" };
            (Target::Soft(root.to_owned() + &parts.join("/")), None)
        }
        Made::External => (Target::External, None),
    };
    links.insert(name, target);
    objects.extend(object);
}

/// The object that a path of a soft link in a group leads to.
fn resolved(objects: &[Object], group: usize, path: &str, left: u32) -> Option<usize> {
    let left = left.checked_sub(1)?;
    let mut at = if path.starts_with('/') { 0 } else { group };
    for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
        let Object::Group(_, links) = &objects[at] else { return None };
        at = match links.get(part)? {
            Target::Hard(object) => *object,
            Target::Soft(path) => resolved(objects, at, path, left)?,
            Target::External => return None,
        };
    }
    Some(at)
}

/// All names that are shown: the group, and the name in it.
fn names(objects: &[Object]) -> BTreeSet<(usize, Vec<u8>)> {
    let (mut names, mut groups, mut seen) = (BTreeSet::new(), vec![0], BTreeSet::from([0]));
    while let Some(group) = groups.pop() {
        let Object::Group(_, links) = &objects[group] else { continue };
        for (name, target) in links {
            match target {
                Target::External => continue,
                Target::Hard(object) if seen.insert(*object) => groups.push(*object),
                Target::Hard(_) | Target::Soft(_) => (),
            }
            names.insert((group, name.as_bytes().to_vec()));
        }
    }
    names
}

// ---- the file --------------------------------------------------------------------------------------

/// The file, and the address of each object.
fn written(objects: &[Object]) -> (Vec<u8>, Vec<u64>) {
    let nowhere = vec![0; objects.len()];
    let mut end = 8;
    let addresses: Vec<u64> = objects
        .iter()
        .map(|object| {
            let at = end;
            end += stored(object, 0, 0, &nowhere).len() as u64;
            at
        })
        .collect();
    let mut file = vec![0; 8];
    for (number, object) in objects.iter().enumerate() {
        file.extend(stored(object, number, addresses[number], &addresses));
    }
    (file, addresses)
}

/// The bytes of an object at an address: its header, and all structures that the header leads to.
fn stored(object: &Object, number: usize, at: u64, addresses: &[u64]) -> Vec<u8> {
    match object {
        Object::Dataset => header(&[message(LAYOUT, &(number as u64).to_le_bytes(), false)], false),
        Object::Group(Storage::Symbols(width), links) => symbols(links, *width, at, addresses),
        Object::Group(Storage::Heap, links) => dense(links, at, addresses),
        Object::Group(Storage::Messages { has_order, is_split }, links) => {
            messages(links, (*has_order, *is_split), at, addresses)
        }
    }
}

fn summed(bytes: Vec<u8>) -> Vec<u8> {
    let sum = lookup3(&bytes).to_le_bytes();
    [&bytes[..], &sum].concat()
}

fn message(kind: u16, bytes: &[u8], has_order: bool) -> Vec<u8> {
    let size = (bytes.len() as u16).to_le_bytes();
    let order: &[u8] = if has_order { &[7, 0] } else { &[] };
    [&[kind as u8, size[0], size[1], 0], order, bytes].concat()
}

/// A header of version 2.
fn header(messages: &[Vec<u8>], has_order: bool) -> Vec<u8> {
    let messages = messages.concat();
    let flags = if has_order { 0x06 } else { 0x02 };
    let size = (messages.len() as u32).to_le_bytes();
    summed([&b"OHDR\x02"[..], &[flags], &size, &messages].concat())
}

/// A link message; every second one has its order, every third one its character set.
fn link(number: usize, name: &str, target: &Target, addresses: &[u64]) -> Vec<u8> {
    let (has_order, has_charset) = (number.is_multiple_of(2), number.is_multiple_of(3));
    let behind_length = |bytes: &[u8]| [&(bytes.len() as u16).to_le_bytes(), bytes].concat();
    let (kind, value) = match target {
        Target::Hard(object) => (0, addresses[*object].to_le_bytes().to_vec()),
        Target::Soft(path) => (1, behind_length(path.as_bytes())),
        Target::External => (64, behind_length(b"\0other.h5\0/a\0")),
    };
    let flags = 0x08 | u8::from(has_order) << 2 | u8::from(has_charset) << 4;
    let order: &[u8] = if has_order { &[9; 8] } else { &[] };
    let charset: &[u8] = if has_charset { &[1] } else { &[] };
    [&[1, flags, kind], order, charset, &[name.len() as u8], name.as_bytes(), &value].concat()
}

fn all_links(links: &Links, addresses: &[u64]) -> Vec<Vec<u8>> {
    let links = links.iter().enumerate();
    links.map(|(number, (name, target))| link(number, name, target, addresses)).collect()
}

fn messages(
    links: &Links,
    (has_order, is_split): (bool, bool),
    at: u64,
    addresses: &[u64],
) -> Vec<u8> {
    let no_heap = message(0x02, &[&[0, 0][..], &NONE, &NONE].concat(), has_order);
    let links = all_links(links, addresses);
    let mut all: Vec<Vec<u8>> = std::iter::once(no_heap)
        .chain(links.iter().map(|link| message(0x06, link, has_order)))
        .collect();
    if !is_split {
        return header(&all, has_order);
    }
    let more = all.split_off(all.len() / 2).concat();
    let more = summed([&b"OCHK"[..], &more].concat());
    let continued = |at: u64| {
        let place = [at.to_le_bytes(), (more.len() as u64).to_le_bytes()].concat();
        let last = message(0x10, &place, has_order);
        header(&[&all[..], &[last]].concat(), has_order)
    };
    let first_bytes = continued(0).len() as u64;
    [continued(at + first_bytes), more].concat()
}

/// A header, a fractal heap's head and block, a B-tree's head and nodes.
fn dense(links: &Links, at: u64, addresses: &[u64]) -> Vec<u8> {
    let info = |heap: u64, tree: u64| {
        let places = [&[0, 0][..], &heap.to_le_bytes(), &tree.to_le_bytes()].concat();
        header(&[message(0x02, &places, false)], false)
    };
    let heap = at + info(0, 0).len() as u64;
    let (block, ids) = block(heap, &all_links(links, addresses));
    let head = |block: u64| {
        let sizes = [&[4, 0][..], &length(BLOCK_BYTES), &length(BLOCK_BYTES), &[32, 0, 1, 0]];
        let (start, middle) = (b"FRHP\0\x07\0\0\0\x02\0\x10\0\0", [&[0; 8][..], &NONE, &[0; 80]]);
        let root = [&block.to_le_bytes()[..], &[0, 0]].concat();
        summed([&start[..], &middle.concat(), &sizes.concat(), &root].concat())
    };
    let head_bytes = head(0).len() as u64;
    let tree = heap + head_bytes + block.len() as u64;
    let records: Vec<Vec<u8>> = ids.iter().map(|id| [&[5; 4], &id[..]].concat()).collect();
    [info(heap, tree), head(heap + head_bytes), block, tree_2(tree, &records)].concat()
}

fn length(bytes: u16) -> [u8; 8] {
    u64::from(bytes).to_le_bytes()
}

/// A heap's block with these objects, and their IDs.
fn block(heap: u64, objects: &[Vec<u8>]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut block = [&b"FHDB\0"[..], &heap.to_le_bytes(), &[0; 8]].concat();
    let sum_at = block.len() - 4;
    let mut ids = Vec::new();
    for object in objects {
        let (at, length) = (block.len() as u32, object.len() as u16);
        ids.push([&[0][..], &at.to_le_bytes(), &length.to_le_bytes()].concat());
        block.extend(object);
    }
    assert!(block.len() <= BLOCK_BYTES.into());
    block.resize(BLOCK_BYTES.into(), 0);
    let sum = lookup3(&block).to_le_bytes();
    block[sum_at..][..4].copy_from_slice(&sum);
    (block, ids)
}

/// A B-tree of version 2: its head, and one leaf, or leaves below a root.
fn tree_2(at: u64, records: &[Vec<u8>]) -> Vec<u8> {
    let leaf = |records: &[Vec<u8>]| summed([&b"BTLF\0\x05"[..], &records.concat()].concat());
    let head = |depth: u8, root: u64, in_root: usize| {
        let sizes = [&NODE_BYTES.to_le_bytes()[..], &[11, 0, depth, 0, 100, 40]].concat();
        let counts = [&[in_root as u8, 0][..], &(records.len() as u64).to_le_bytes()].concat();
        summed([&b"BTHD\0\x05"[..], &sizes, &root.to_le_bytes(), &counts].concat())
    };
    let root = at + head(0, 0, 0).len() as u64;
    if records.len() <= 4 {
        return [head(0, root, records.len()), leaf(records)].concat();
    }
    // Each leaf but the last has two records, and the record behind them stands in the root.
    let (mut between, mut leaves) = (Vec::new(), Vec::new());
    for three in records.chunks(3) {
        let (below, above) = three.split_at(three.len().min(2));
        between.extend(above);
        leaves.push(below);
    }
    if leaves.len() == between.len() {
        leaves.push(&[]);
    }
    let root_bytes = 10 + 11 * between.len() + 9 * leaves.len();
    assert!(root_bytes <= NODE_BYTES as usize);
    let (mut node, mut nodes) = (b"BTIN\0\x05".to_vec(), Vec::new());
    node.extend(between.iter().copied().flatten());
    for below in leaves {
        node.extend((root + root_bytes as u64 + nodes.len() as u64).to_le_bytes());
        node.push(below.len() as u8);
        nodes.extend(leaf(below));
    }
    [head(1, root, between.len()), summed(node), nodes].concat()
}

/// A header of version 1, a heap of names, and a B-tree of version 1 over nodes of `width` symbols.
fn symbols(links: &Links, width: usize, at: u64, addresses: &[u64]) -> Vec<u8> {
    const HEAD_BYTES: u64 = 40;
    let mut texts = vec![0; 8];
    let mut text = |text: &str| {
        let at = texts.len() as u64;
        texts.extend(text.as_bytes());
        texts.resize(texts.len() / 8 * 8 + 8, 0);
        at
    };
    let symbols = links.iter().map(|(name, target)| {
        let name = text(name).to_le_bytes();
        let (address, cache, soft) = match target {
            Target::Hard(object) => (addresses[*object].to_le_bytes(), 0_u64, 0),
            Target::Soft(path) => (NONE, 2, text(path)),
            Target::External => unreachable!(),
        };
        [name, address, cache.to_le_bytes(), soft.to_le_bytes(), [0; 8]].concat()
    });
    let symbols: Vec<Vec<u8>> = symbols.collect();
    let heap = at + HEAD_BYTES;
    let size = (texts.len() as u64).to_le_bytes();
    let mut behind =
        [b"HEAP\0\0\0\0", &size[..], &NONE, &(heap + 32).to_le_bytes(), &texts].concat();
    let mut push = |bytes: Vec<u8>| {
        let at = heap + behind.len() as u64;
        behind.extend(bytes);
        at
    };
    let nodes = symbols
        .chunks(width)
        .map(|symbols| [&b"SNOD\x01\0"[..], &[symbols.len() as u8, 0], &symbols.concat()].concat());
    let mut children: Vec<u64> = nodes.map(&mut push).collect();
    let mut level = 0;
    let node = |children: &[u64], level: u8| {
        let pairs: Vec<u8> =
            children.iter().flat_map(|at| [[0; 8], at.to_le_bytes()].concat()).collect();
        let head = [&b"TREE\0"[..], &[level, children.len() as u8, 0], &NONE, &NONE];
        [&head.concat()[..], &pairs, &[0; 8]].concat()
    };
    let tree = loop {
        if children.len() <= 2 {
            break push(node(&children, level));
        }
        children = children.chunks(2).map(|two| push(node(two, level))).collect();
        level += 1;
    };
    let head = [1, 0, 1, 0, 1, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0x11, 0, 16, 0, 0, 0, 0, 0];
    [&head[..], &tree.to_le_bytes(), &heap.to_le_bytes(), &behind].concat()
}

// ---- the test --------------------------------------------------------------------------------------

/// The object that each name of the tree stands for.
fn objects_of(objects: &[Object], tree: &Tree) -> Vec<Option<usize>> {
    let mut found = vec![Some(0)];
    for name in &tree.names[1..] {
        let Some(Object::Group(_, links)) =
            found[name.parent as usize].map(|group| &objects[group])
        else {
            panic!("{name:?} is in no group")
        };
        let object = match &links[std::str::from_utf8(&name.name).unwrap()] {
            Target::Hard(object) => Some(*object),
            Target::Soft(_) => None,
            Target::External => panic!("{name:?} is shown"),
        };
        found.push(object);
    }
    found
}

fn assert_shown(objects: &[Object], tree: &Tree) {
    let found = objects_of(objects, tree);
    let mut shown = BTreeSet::new();
    for (name, object) in tree.names.iter().zip(&found).skip(1) {
        let group = found[name.parent as usize].unwrap();
        assert!(shown.insert((group, name.name.to_vec())), "{name:?} twice");
        let Object::Group(_, links) = &objects[group] else { unreachable!() };
        let target = match &links[std::str::from_utf8(&name.name).unwrap()] {
            Target::Soft(path) => resolved(objects, group, path, MAX_LINKS),
            _ => *object,
        };
        match name.entry {
            Entry::Gone => assert_eq!(target, None, "{name:?}"),
            Entry::Link(first) => {
                let is_first =
                    matches!(tree.names[first as usize].entry, Entry::Group | Entry::Dataset(_));
                assert!(is_first && target == found[first as usize], "{name:?}");
            }
            Entry::Dataset(number) => assert_eq!(*object, Some(number as usize), "{name:?}"),
            Entry::Group => {
                assert!(object.is_some_and(|o| matches!(objects[o], Object::Group(..))))
            }
        }
    }
    assert_eq!(shown, names(objects));
}

proptest! {
    #[test]
    fn names_lead_where_the_links_of_any_groups_lead(objects in graph()) {
        let (file, addresses) = written(&objects);
        let source = MemorySource::new("x", file);
        let input = Input::new(reader(&source), 0);
        let headers = Headers::new(&input, Extension::default());
        let mut datasets = BTreeSet::new();
        let tree = Tree::read(&input, (addresses[0], headers), false, &mut |_, messages| {
            let number = u64::from_le_bytes(messages[0].bytes[..].try_into().unwrap());
            assert!(datasets.insert(number), "{number} is read twice");
            Ok(Some(number as u32))
        });
        assert_shown(&objects, &tree.unwrap());
    }
}
