//! Trees against sorted maps.

use super::*;
use crate::format;
use proptest::collection::btree_set;

#[test]
fn paths_that_cannot_lie_below_a_mount_point_are_refused_by_name() {
    let long = "x".repeat(256);
    for (path, why) in [
        ("/etc/passwd", "absolute"),
        ("", "empty"),
        ("a//b", "empty"),
        ("a/", "empty"),
        (".", "not a name"),
        ("..", "not a name"),
        ("a/../../b", "not a name"),
        ("a\0b", "NUL"),
        (&long, "255"),
    ] {
        let Err(error @ NameError::Illegal(..)) = tree(&[path]) else { panic!("{path:?}") };
        let said = error.to_string();
        assert!(said.contains(why) && said.contains(&quoted(path)), "{said}");
    }
    assert!(tree(&["x".repeat(255)]).is_ok());
    let names = Directory { entries: vec![file("a/b", 0)] };
    assert!(matches!(
        TreeBuilder::default().add_directory(b"", &names, 0),
        Err(NameError::Illegal(_, "a name with a slash"))
    ));
}

#[test]
fn a_name_that_stands_twice_is_refused_also_as_file_and_directory() {
    for paths in [&["a", "a"][..], &["d/a", "x", "d/a"], &["d", "d/a"], &["d/a", "d"]] {
        assert!(matches!(tree(paths), Err(NameError::Duplicate { .. })), "{paths:?}");
    }
    assert!(tree(&["d/a", "e/a", "a", "A", "d/b"]).is_ok());
}

#[test]
fn names_may_be_any_bytes_that_linux_takes() {
    let single = (1..=255u8).filter(|byte| !matches!(byte, b'/' | b'.')).map(|byte| vec![byte]);
    let names: Vec<_> =
        single.chain([b"\xff\xfe/\x80".to_vec(), b"  / ".to_vec(), b"-rf/\n".to_vec()]).collect();
    let catalog = Catalog::from(tree(&names).unwrap());
    let none = dataset(&[]);
    check_consistent(&catalog, &none);
    for (sample, name) in names.iter().enumerate() {
        assert_eq!(catalog.find(&none, name).unwrap(), Some(Node::Sample(sample as u64)));
    }
}

#[test]
fn the_same_sample_may_have_several_names() {
    let mut builder = TreeBuilder::default();
    for path in ["a", "d/b"] {
        builder.add(path.as_bytes(), 9).unwrap();
    }
    let catalog = Catalog::from(builder.build().unwrap());
    let none = dataset(&[]);
    assert_eq!(catalog.find(&none, b"a").unwrap(), catalog.find(&none, b"d/b").unwrap());
}

#[test]
fn a_number_that_an_entry_cannot_hold_is_refused() {
    assert_eq!(TreeBuilder::default().add(b"x", 1 << 32), Err(NameError::TooMany));
}

/// Paths of up to four short names, so that many share their directories.
fn any_paths() -> impl Strategy<Value = BTreeSet<Vec<Vec<u8>>>> {
    let name = prop_oneof![
        4 => vec(prop::sample::select(b"ab\xc3\xff-".to_vec()), 1..3),
        1 => vec(1u8.., 1..9).prop_filter("a name", |name| {
            // Files that systems leave behind (`._*`) are not shown.
            !name.contains(&b'/') && *name != b"." && *name != b".." && !name.starts_with(b"._")
        }),
    ];
    btree_set(vec(name, 1..5), 0..60)
}

/// The paths, without those that would be file and directory at once.
fn without_conflicts(paths: BTreeSet<Vec<Vec<u8>>>) -> Vec<Vec<u8>> {
    let directories: BTreeSet<Vec<Vec<u8>>> =
        paths.iter().flat_map(|path| (1..path.len()).map(|end| path[..end].to_vec())).collect();
    paths.iter().filter(|path| !directories.contains(*path)).map(|path| path.join(&b'/')).collect()
}

proptest! {
    #[test]
    fn a_tree_holds_the_paths_that_were_added_in_any_order(
        paths in any_paths().prop_map(without_conflicts).prop_shuffle()
    ) {
        let none = dataset(&[]);
        let catalog = Catalog::from(tree(&paths).unwrap());
        check_consistent(&catalog, &none);
        let model: BTreeMap<&[u8], u64> =
            paths.iter().enumerate().map(|(i, path)| (path.as_slice(), i as u64)).collect();
        for (path, sample) in &model {
            prop_assert_eq!(catalog.find(&none, path).unwrap(), Some(Node::Sample(*sample)));
            let mut longer = path.to_vec();
            longer.extend_from_slice(b"/a");
            prop_assert_eq!(catalog.find(&none, &longer).unwrap(), None);
        }
        let wanted: Vec<u64> = (0..paths.len() as u64).rev().collect();
        let reversed: Vec<_> = paths.iter().rev().cloned().collect();
        prop_assert_eq!(catalog.paths(&none, &wanted).unwrap(), reversed);
        // Every directory is listed by name, in order of bytes.
        for directory in 0..catalog.directories() {
            let names: Vec<_> =
                list(&catalog, &none, directory, 0).into_iter().map(|(name, _)| name).collect();
            prop_assert!(names.is_sorted());
        }
    }

    #[test]
    fn a_walk_visits_directories_before_what_is_in_them(
        paths in any_paths().prop_map(without_conflicts)
    ) {
        let none = dataset(&[]);
        let catalog = Catalog::from(tree(&paths).unwrap());
        let mut seen = BTreeSet::from([Vec::new()]);
        catalog
            .walk(&none, ROOT, &mut |path, _| {
                let cut = path.iter().rposition(|&b| b == b'/').unwrap_or(0);
                assert!(seen.contains(&path[..cut]), "its directory was visited");
                assert!(seen.insert(path.to_vec()), "visited once");
            })
            .unwrap();
        prop_assert_eq!(seen.len() as u64, catalog.samples() + catalog.directories());
    }

    #[test]
    fn a_stored_tree_comes_back_through_its_container(
        paths in any_paths().prop_map(without_conflicts),
        first in 0usize..3,
    ) {
        let mut root = Directory::default();
        for (sample, path) in paths.iter().enumerate() {
            add(&mut root, path, (sample + first) as u64);
        }
        let leading: Vec<_> = (0..first).map(|_| container(&[vec![1]])).collect();
        let spare = (0..first as u64).map(|i| (format!("spare {i}").into_bytes().into(), Entry::File(i)));
        root.entries.extend(spare);
        let (dataset, names) =
            stored(leading.into_iter().chain([packed(paths.len(), root.entries)]).collect());
        let StoredNames::Tree(tree) = names else { panic!("a tree") };
        let catalog = Catalog::from(tree);
        check_consistent(&catalog, &dataset);
        for (sample, path) in paths.iter().enumerate() {
            let found = catalog.find(&dataset, path).unwrap();
            prop_assert_eq!(found, Some(Node::Sample((sample + first) as u64)));
        }
    }
}

/// Adds a path to a directory.
fn add(directory: &mut Directory, path: &[u8], sample: u64) {
    let Some(slash) = path.iter().position(|&b| b == b'/') else {
        directory.entries.push((path.into(), Entry::File(sample)));
        return;
    };
    let name = &path[..slash];
    let known = directory.entries.iter().position(|(known, _)| **known == *name);
    let place = known.unwrap_or_else(|| {
        directory.entries.push((name.into(), Entry::Directory(Directory::default())));
        directory.entries.len() - 1
    });
    let Entry::Directory(inner) = &mut directory.entries[place].1 else { panic!("no conflicts") };
    add(inner, &path[slash + 1..], sample);
}

/// A kept tree after a change of its column `number`, with the checksum that it should have.
fn changed(tree: &Tree, number: usize, change: impl Fn(&mut [u8])) -> Option<Tree> {
    const HEAD: usize = 8 + 8 * 7;
    let mut bytes = Vec::new();
    tree.write(&mut bytes).unwrap();
    let length = |number: usize| {
        let at = 8 + 8 * number;
        u64::from_le_bytes(*bytes[at..].first_chunk().unwrap()) as usize
    };
    let start = HEAD + 8 + (0..number).map(length).sum::<usize>();
    let end = start + length(number);
    change(&mut bytes[start..end]);
    let mut crc = crc32fast::Hasher::new();
    crc.update(&bytes[..HEAD]);
    crc.update(&bytes[HEAD + 8..]);
    let crc = u64::from(crc.finalize()).to_le_bytes();
    bytes[HEAD..HEAD + 8].copy_from_slice(&crc);
    let source: Arc<dyn format::Source> = Arc::new(format::MemorySource::new("kept", bytes));
    Tree::read(&source).unwrap()
}

#[test]
fn a_kept_tree_whose_directories_lie_in_each_other_or_in_several_has_an_end() {
    const TARGETS: usize = 2;
    const ARENA: usize = 3;
    let built = tree(&["a/x", "b/y", "c/z"]).unwrap();
    let walk = |tree: Tree| {
        let mut visited = 0;
        let walked = Catalog::from(tree).walk(&dataset(&[]), ROOT, &mut |_, _| {
            visited += 1;
            assert!(visited < 1000);
        });
        walked.map(|()| visited).map_err(|error| error.to_string())
    };
    let set_all = |target: u32| {
        changed(&built, TARGETS, |targets| {
            targets.chunks_mut(4).for_each(|one| one.copy_from_slice(&target.to_le_bytes()));
        })
    };
    assert_eq!(walk(changed(&built, TARGETS, |_| ()).unwrap()), Ok(6));
    // All targets are the root, or all are one of its directories.
    assert!(walk(set_all(0).unwrap()).unwrap_err().contains("damaged"));
    assert_eq!(walk(set_all(1).unwrap()), Ok(6));
    // Two ways lead from each directory to the next one: 2³⁰ to the last.
    let ways = (0..30).flat_map(|depth| ["s/x", "t/x"].map(|end| "s/".repeat(depth) + end));
    let deep = tree(&ways.collect::<Vec<_>>()).unwrap();
    let mut targets = Vec::new();
    for directory in 0..deep.directories() {
        let mut add = |name: &[u8], node| {
            let (Node::Directory(target) | Node::Sample(target)) = node;
            let before = targets.last().copied();
            targets.push(before.filter(|_| name == b"t").unwrap_or(target as u32));
            true
        };
        deep.list(directory, 0, &mut add).unwrap();
    }
    let shared = changed(&deep, TARGETS, |column| {
        for (place, target) in column.chunks_mut(4).zip(&targets) {
            place.copy_from_slice(&target.to_le_bytes());
        }
    });
    assert!(walk(shared.unwrap()).unwrap_err().contains("damaged"));
    // Names that no directory can have lead nowhere.
    for byte in [b'/', 0, b'.'] {
        let named = changed(&built, ARENA, |names| names.fill(byte));
        assert!(walk(named.unwrap()).unwrap_err().contains("damaged"), "{byte}");
    }
}

fn add_members(paths: impl Iterator<Item = Vec<u8>>) -> Result<Tree, NameError> {
    let mut builder = TreeBuilder::default();
    builder.duplicates(Duplicates::Number);
    for (sample, path) in (0..).zip(paths) {
        let node = format::Node::Sample(sample);
        builder.add_member(b"", &format::Member { path: &path, node }, 0)?;
    }
    builder.build()
}

#[test]
fn paths_of_very_many_directories_are_refused_and_deep_ones_are_not() {
    let bomb = |member: usize| [member.to_string().as_bytes(), &b"/a".repeat(3000)].concat();
    let refused = add_members((0..1000).map(bomb)).unwrap_err();
    assert_eq!(refused, NameError::TooManyDirectories { members: 2 });
    let deep = |member: usize| [member.to_string().as_bytes(), &b"/a".repeat(10)].concat();
    assert!(add_members((0..10_000).map(deep)).is_ok());
    assert!(add_members((0..1).map(|_| b"a/".repeat(2000))).is_ok());
}

#[test]
fn many_long_names_that_are_cut_to_one_are_numbered_on() {
    // If the number of tries grew with the square of the names, this would take minutes.
    const PAIRS: usize = 30_000;
    let name = |pair: usize| [&[b'x'; 247][..], format!("{pair:08}").as_bytes()].concat();
    let built = add_members((0..2 * PAIRS).map(|member| name(member / 2))).unwrap();
    let mut names = BTreeSet::new();
    built.list(ROOT, 0, &mut |name, _| names.insert(name.to_vec())).unwrap();
    assert_eq!(names.len(), 2 * PAIRS);
}
