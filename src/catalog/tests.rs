//! The catalog against models: numbers as they are printed, trees as sorted maps.

mod trees;

use super::*;
use crate::format::ffrecord::{PACKED_DIRECTORY_MAGIC, Writer, pickle};
use crate::format::{Container, Entry, MemorySource, OpenOptions};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::sync::Arc;

// ---- helpers -------------------------------------------------------------------------------------

fn container(samples: &[Vec<u8>]) -> Box<dyn Container> {
    let mut writer = Writer::new(Cursor::new(Vec::new()), samples.len() as u64).unwrap();
    for sample in samples {
        writer.write_sample(&mut &sample[..]).unwrap();
    }
    let bytes = writer.finish().unwrap().into_inner();
    let source = Arc::new(MemorySource::new("t.ffr", bytes));
    crate::format::open(source, &OpenOptions::default()).unwrap()
}

/// A dataset of containers whose numbers of samples are `parts`, each sample of one byte.
fn dataset(parts: &[usize]) -> Dataset {
    Dataset::new(parts.iter().map(|&count| container(&vec![vec![7]; count])).collect())
}

fn file(name: &str, sample: u64) -> (Box<[u8]>, Entry) {
    (name.as_bytes().into(), Entry::File(sample))
}

fn directory(name: &str, entries: Vec<(Box<[u8]>, Entry)>) -> (Box<[u8]>, Entry) {
    (name.as_bytes().into(), Entry::Directory(Directory { entries }))
}

/// `count` samples, and behind them the index of a packed directory.
fn packed(count: usize, entries: Vec<(Box<[u8]>, Entry)>) -> Box<dyn Container> {
    let mut stored = PACKED_DIRECTORY_MAGIC.to_vec();
    pickle::encode(&Directory { entries }, &mut stored).unwrap();
    let mut samples = vec![vec![7]; count];
    samples.push(stored);
    container(&samples)
}

fn list(catalog: &Catalog, dataset: &Dataset, directory: u64, from: u64) -> Vec<(Vec<u8>, Node)> {
    let mut found = Vec::new();
    catalog
        .list(dataset, directory, from, &mut |name, node| {
            found.push((name.to_vec(), node));
            true
        })
        .unwrap();
    found
}

/// Everything below the root: path and node.
fn all(catalog: &Catalog, dataset: &Dataset) -> Vec<(String, Node)> {
    let mut found = Vec::new();
    catalog
        .walk(dataset, ROOT, &mut |path, node| {
            found.push((String::from_utf8_lossy(path).into_owned(), node));
        })
        .unwrap();
    found
}

/// Paths and numbers of all samples.
fn samples(catalog: &Catalog, dataset: &Dataset) -> Vec<(String, u64)> {
    let sample = |(path, node)| match node {
        Node::Sample(sample) => Some((path, sample)),
        Node::Directory(_) => None,
    };
    all(catalog, dataset).into_iter().filter_map(sample).collect()
}

fn plain(samples: u64, fanout: Option<u64>) -> Catalog {
    Numbered::new(samples, fanout, Suffix::Fixed(String::new())).into()
}

fn tree(paths: &[impl AsRef<[u8]>]) -> Result<Tree, NameError> {
    let mut builder = TreeBuilder::default();
    for (sample, path) in paths.iter().enumerate() {
        builder.add(path.as_ref(), sample as u64)?;
    }
    builder.build()
}

fn stored(parts: Vec<Box<dyn Container>>) -> (Dataset, StoredNames) {
    let dataset = Dataset::new(parts);
    let names = dataset.stored_names(&Naming::default(), &mut Vec::new()).unwrap();
    (dataset, names)
}

/// Checks that the listings, lookups, cursors and counts of a catalog agree.
fn check_consistent(catalog: &Catalog, dataset: &Dataset) {
    let mut pending = vec![(ROOT, ROOT)];
    let (mut directories, mut files) = (0, 0);
    while let Some((here, parent)) = pending.pop() {
        directories += 1;
        assert_eq!(catalog.parent(here), Some(parent));
        let entries = list(catalog, dataset, here, 0);
        for (place, (name, node)) in entries.iter().enumerate() {
            assert_eq!(catalog.lookup(dataset, here, name).unwrap(), Some(*node));
            if place % 31 == 0 {
                assert_eq!(list(catalog, dataset, here, place as u64), entries[place..]);
            }
            match node {
                Node::Directory(inner) => pending.push((*inner, here)),
                Node::Sample(_) => files += 1,
            }
        }
        let nodes: Vec<Node> = entries.iter().map(|(_, node)| *node).collect();
        for (path, node) in catalog.paths_of(dataset, &nodes).unwrap().iter().zip(nodes) {
            assert_eq!(catalog.find(dataset, path).unwrap(), Some(node), "its path leads back");
        }
        let beyond = entries.len() as u64;
        assert!(list(catalog, dataset, here, beyond).is_empty());
        assert!(list(catalog, dataset, here, u64::MAX).is_empty());
        let subdirectories = entries.iter().filter(|(_, node)| matches!(node, Node::Directory(_)));
        assert_eq!(catalog.subdirectories(here), subdirectories.count() as u64);
    }
    assert_eq!((catalog.directories(), catalog.samples()), (directories, files));
    for none in [directories, directories + 1, u64::MAX / 4] {
        assert_eq!(catalog.parent(none), None);
        assert!(list(catalog, dataset, none, 0).is_empty());
        assert_eq!(catalog.lookup(dataset, none, b"000000").unwrap(), None);
    }
}

// ---- datasets ------------------------------------------------------------------------------------

#[test]
fn samples_are_numbered_on_across_containers() {
    let dataset = dataset(&[3, 0, 2, 0, 0, 1, 0]);
    assert_eq!((dataset.len(), dataset.data_bytes()), (6, 6));
    let places: Vec<_> = (0..6).map(|i| dataset.container_of(i).unwrap()).collect();
    assert_eq!(places, [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1), (5, 0)]);
    let located = dataset.locate(4).unwrap().unwrap();
    assert_eq!((located.part, located.index, located.sample.length_bytes), (2, 1, 1));
    for beyond in [6, 7, u64::MAX] {
        assert_eq!(dataset.container_of(beyond), None);
        assert_eq!(dataset.locate(beyond).unwrap(), None);
    }
}

#[test]
fn a_dataset_without_samples_has_an_empty_root() {
    for parts in [&[][..], &[0], &[0, 0]] {
        let dataset = dataset(parts);
        assert!(dataset.is_empty());
        let names = dataset.stored_names(&Naming::default(), &mut Vec::new()).unwrap();
        assert!(matches!(names, StoredNames::None));
        let catalog = plain(0, None);
        check_consistent(&catalog, &dataset);
        assert!(list(&catalog, &dataset, ROOT, 0).is_empty());
        check_consistent(&plain(0, Some(10)), &dataset);
    }
}

#[test]
fn a_packed_folder_is_its_tree_and_hides_its_index() {
    let names = vec![directory("d", vec![file("b", 1), directory("hollow", vec![])]), file("a", 0)];
    let (dataset, names) = stored(vec![packed(2, names)]);
    let StoredNames::Tree(tree) = names else { panic!("a tree") };
    let catalog = Catalog::from(tree);
    check_consistent(&catalog, &dataset);
    let paths: Vec<_> = all(&catalog, &dataset).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["a", "d", "d/b", "d/hollow"]);
    assert_eq!(samples(&catalog, &dataset), [("a".into(), 0), ("d/b".into(), 1)]);
}

#[test]
fn names_in_the_last_container_may_be_for_all_of_them() {
    let names = vec![file("a", 0), directory("d", vec![file("b", 2), file("c", 1)]), file("e", 3)];
    let (dataset, names) = stored(vec![container(&[vec![1], vec![2]]), packed(2, names)]);
    let StoredNames::Tree(tree) = names else { panic!("a tree") };
    let found = samples(&tree.into(), &dataset);
    let expected = [("a", 0), ("e", 3), ("d/b", 2), ("d/c", 1)];
    assert_eq!(found, expected.map(|(path, sample)| (path.to_owned(), sample)));
}

#[test]
fn containers_that_name_their_own_samples_become_one_tree() {
    let first = packed(2, vec![directory("d", vec![file("a", 0)]), file("x", 1)]);
    let second = packed(2, vec![directory("d", vec![file("b", 1)]), file("y", 0)]);
    let (dataset, names) = stored(vec![first, second]);
    let StoredNames::Tree(tree) = names else { panic!("a tree") };
    let catalog = Catalog::from(tree);
    check_consistent(&catalog, &dataset);
    let found = samples(&catalog, &dataset);
    // Sample 2 is the first container's index.
    let expected = [("x", 1), ("y", 3), ("d/a", 0), ("d/b", 4)];
    assert_eq!(found, expected.map(|(path, sample)| (path.to_owned(), sample)));
}

#[test]
fn names_that_make_no_tree_are_not_used() {
    let one = || packed(1, vec![file("same", 0)]);
    let directory_of_that_name = || packed(1, vec![directory("same", vec![file("x", 0)])]);
    let nameless = || container(&[vec![1], vec![2]]);
    let alike = || packed(1, vec![file("other", 0)]);
    for parts in [vec![one(), one()], vec![one(), directory_of_that_name()]] {
        assert!(matches!(stored(parts).1, StoredNames::Unused(_)));
    }
    for (parts, wanted) in [
        (vec![nameless(), one()], (1, 0)),
        (vec![one(), nameless()], (0, 1)),
        (vec![alike(), nameless(), one()], (0, 1)),
    ] {
        let StoredNames::Mixed { named, unnamed } = stored(parts).1 else { panic!("no tree") };
        assert_eq!((named, unnamed), wanted);
    }
    for parts in [vec![nameless()], vec![nameless(), container(&[])]] {
        assert!(matches!(stored(parts).1, StoredNames::None));
    }
    let beside_an_empty_one = stored(vec![one(), container(&[])]).1;
    assert!(matches!(beside_an_empty_one, StoredNames::Tree(_)));
}

#[test]
fn names_that_may_not_be_used_are_told_with_their_container_wherever_it_stands() {
    let refused = || packed(1, vec![file("out of range", 1)]);
    let (named, nameless) = (|| packed(1, vec![file("a", 0)]), || container(&[vec![1]]));
    type IsIt = fn(&StoredNames) -> bool;
    let is_none: IsIt = |names| matches!(names, StoredNames::None);
    type Case<'a> = (Vec<Box<dyn Container>>, &'a [usize], IsIt);
    let cases: [Case<'_>; 5] = [
        (vec![refused()], &[0], is_none),
        (vec![refused(), nameless()], &[0], is_none),
        (vec![nameless(), refused()], &[1], is_none),
        (vec![refused(), refused()], &[0, 1], is_none),
        (vec![named(), refused(), nameless()], &[1], |names| {
            matches!(names, StoredNames::Mixed { named: 0, unnamed: 1 })
        }),
    ];
    for (parts, expected, is_it) in cases {
        let mut found = Vec::new();
        let names = Dataset::new(parts).stored_names(&Naming::default(), &mut found).unwrap();
        assert!(is_it(&names));
        assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), expected);
        assert!(found.iter().all(|(_, why)| !why.is_empty()));
    }
}

#[test]
fn samples_that_the_tree_does_not_name_are_not_shown() {
    let (dataset, names) = stored(vec![packed(5, vec![file("only", 3)])]);
    let StoredNames::Tree(tree) = names else { panic!("a tree") };
    let catalog = Catalog::from(tree);
    assert_eq!(samples(&catalog, &dataset), [("only".into(), 3)]);
    assert_eq!((catalog.samples(), dataset.len()), (1, 6));
    assert_eq!(catalog.paths(&dataset, &[3, 4]).unwrap(), [b"only".to_vec(), Vec::new()]);
}

// ---- numbers -------------------------------------------------------------------------------------

#[test]
fn names_are_six_digits_wide_or_as_wide_as_the_last() {
    let none = dataset(&[]);
    for (samples, last) in [
        (1, "000000"),
        (1_000_000, "999999"),
        (1_000_001, "1000000"),
        (10_000_000, "9999999"),
        (10_000_001, "10000000"),
        (1 << 60, "1152921504606846975"),
    ] {
        let catalog = plain(samples, None);
        let listed = list(&catalog, &none, ROOT, samples - 1);
        assert_eq!(listed, [(last.as_bytes().to_vec(), Node::Sample(samples - 1))]);
        let found = catalog.lookup(&none, ROOT, last.as_bytes()).unwrap();
        assert_eq!(found, Some(Node::Sample(samples - 1)));
        let mut beyond: Vec<u8> = vec![b'9'; last.len()];
        assert_eq!(
            catalog.lookup(&none, ROOT, &beyond).unwrap().is_some(),
            last.as_bytes() == beyond
        );
        beyond.push(b'0');
        assert_eq!(catalog.lookup(&none, ROOT, &beyond).unwrap(), None);
    }
}

#[test]
fn directories_are_named_by_number_and_files_by_their_whole_number() {
    let none = dataset(&[]);
    let catalog = plain(123_456, Some(1000));
    assert_eq!(catalog.directories(), 125);
    let path = catalog.paths(&none, &[123, 123_455]).unwrap();
    assert_eq!(path, [b"000/000123".to_vec(), b"123/123455".to_vec()]);
    assert_eq!(catalog.find(&none, b"123/123455").unwrap(), Some(Node::Sample(123_455)));
    for absent in ["123/123456", "124", "000/001000", "0/000123", "000123", "000/000123/x"] {
        assert_eq!(catalog.find(&none, absent.as_bytes()).unwrap(), None, "{absent}");
    }
    // More than a thousand directories make their names wider.
    let catalog = plain(20_000_000, Some(1000));
    let path = catalog.paths(&none, &[19_999_999]).unwrap();
    assert_eq!(path, [b"19999/19999999".to_vec()]);
    let at = catalog.find(&none, b"19999/19999999").unwrap();
    assert_eq!(at, Some(Node::Sample(19_999_999)));
}

#[test]
fn only_the_printed_form_of_a_number_is_a_name() {
    let none = dataset(&[]);
    let catalog = Catalog::from(Numbered::new(50, None, Suffix::Fixed(".jpg".to_owned())));
    assert_eq!(catalog.find(&none, b"000007.jpg").unwrap(), Some(Node::Sample(7)));
    assert_eq!(catalog.find(&none, b"./000007.jpg").unwrap(), Some(Node::Sample(7)));
    for absent in [
        "7.jpg",
        "000007",
        "000007.",
        "000007.JPG",
        "000007.jpg ",
        "00007.jpg",
        "0000007.jpg",
        "+00007.jpg",
        "-00007.jpg",
        "00 007.jpg",
        "000050.jpg",
        "00000a.jpg",
        "",
        "..",
        "\u{661}\u{662}\u{663}.jpg",
    ] {
        assert_eq!(catalog.lookup(&none, ROOT, absent.as_bytes()).unwrap(), None, "{absent:?}");
    }
    assert_eq!(catalog.lookup(&none, ROOT, b"\xff\xff\xff\xff\xff\xff.jpg").unwrap(), None);
}

#[test]
fn suffixes_that_differ_are_those_of_their_codes() {
    let none = dataset(&[]);
    let table = crate::format::magic::suffixes();
    let code = |suffix| 1 + table.iter().position(|known| *known == suffix).unwrap() as u8;
    let suffixes =
        || Suffix::PerSample(Suffixes::new(vec![code(".jpg"), code(".png"), 0, 255, code(".gif")]));
    let catalog = Catalog::from(Numbered::new(5, None, suffixes()));
    check_consistent(&catalog, &none);
    assert_eq!(catalog.lookup(&none, ROOT, b"000001.png").unwrap(), Some(Node::Sample(1)));
    assert_eq!(catalog.lookup(&none, ROOT, b"000001").unwrap(), None);
    assert_eq!(catalog.lookup(&none, ROOT, b"000001.jpg").unwrap(), None);
    let found: Vec<_> = samples(&catalog, &none).into_iter().map(|(path, _)| path).collect();
    assert_eq!(found, ["000000.jpg", "000001.png", "000002", "000003", "000004.gif"]);
    let fanned = Catalog::from(Numbered::new(5, Some(2), suffixes()));
    assert_eq!(fanned.paths(&none, &[4]).unwrap(), [b"002/000004.gif".to_vec()]);
}

proptest! {
    #[test]
    fn numbered_names_are_those_that_print_gives(
        count in 0u64..600,
        fanout in proptest::option::of(1u64..150),
        suffix in prop_oneof![Just(String::new()), "\\.[a-z]{1,4}"],
        probes in vec("[0-9]{1,7}(\\.[a-z]{1,3})?", 0..20),
    ) {
        let none = dataset(&[]);
        let catalog = Catalog::from(Numbered::new(count, fanout, Suffix::Fixed(suffix.clone())));
        check_consistent(&catalog, &none);
        let name = |i: u64| format!("{i:06}{suffix}");
        let path = |i: u64| match fanout {
            Some(fanout) => format!("{:03}/{}", i / fanout, name(i)),
            None => name(i),
        };
        let expected: Vec<_> = (0..count).map(|i| (path(i), i)).collect();
        prop_assert_eq!(&samples(&catalog, &none), &expected);
        for (path, sample) in &expected {
            let found = catalog.find(&none, path.as_bytes()).unwrap();
            prop_assert_eq!(found, Some(Node::Sample(*sample)));
        }
        let known: BTreeSet<_> = expected.iter().map(|(path, _)| path.as_str()).collect();
        for probe in &probes {
            let found = catalog.find(&none, probe.as_bytes()).unwrap();
            let is_sample = matches!(found, Some(Node::Sample(_)));
            prop_assert_eq!(is_sample, known.contains(probe.as_str()), "{}", probe);
        }
    }
}
