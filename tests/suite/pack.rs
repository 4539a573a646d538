//! `ffrfs pack`: packed files come back, through the library, a mount and other readers; `pack` refuses some inputs
//! and outputs, and leaves nothing behind when it fails.

mod failing;
mod readers;

use super::common::{
    FFRFS, Mount, Outcome, TempDir, Transport, ffrfs, for_each_transport, noise, run, temp_dir,
};
use ffrfs::catalog::{Catalog, Dataset, Naming, Node, Numbered, ROOT, StoredNames, Suffix};
use ffrfs::format::{ChecksumKind, OpenOptions, Source};
use ffrfs::io;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A path as its names: sorted as `pack` sorts, by name, directory by directory.
type Names = Vec<Vec<u8>>;

/// Files with their bytes, and directories.
#[derive(Debug, Default, PartialEq)]
struct Tree {
    files: BTreeMap<Names, Vec<u8>>,
    directories: BTreeSet<Names>,
}

fn path_of(names: &[Vec<u8>]) -> PathBuf {
    names.iter().map(|name| OsStr::from_bytes(name)).collect()
}

impl Tree {
    fn write(&self, root: &Path) {
        fs::create_dir(root).unwrap();
        for directory in &self.directories {
            fs::create_dir_all(root.join(path_of(directory))).unwrap();
        }
        for (names, bytes) in &self.files {
            fs::write(root.join(path_of(names)), bytes).unwrap();
        }
    }

    /// Reads the tree below a directory, such as a mount.
    fn read(root: &Path) -> Self {
        let mut tree = Self::default();
        let mut pending = vec![Names::new()];
        while let Some(directory) = pending.pop() {
            for entry in fs::read_dir(root.join(path_of(&directory))).unwrap() {
                let entry = entry.unwrap();
                let mut names = directory.clone();
                names.push(entry.file_name().into_vec());
                if entry.file_type().unwrap().is_dir() {
                    tree.directories.insert(names.clone());
                    pending.push(names);
                } else {
                    tree.files.insert(names, fs::read(entry.path()).unwrap());
                }
            }
        }
        tree
    }

    /// The files in order, under their numbers.
    fn flat(&self) -> Self {
        let name = |i: usize| vec![format!("{i:06}").into_bytes()];
        let files = self.files.values().enumerate();
        let files = files.map(|(i, bytes)| (name(i), bytes.clone())).collect();
        Self { files, directories: BTreeSet::new() }
    }

    /// The tree that the library finds in containers.
    fn of_containers(paths: &[PathBuf]) -> Self {
        let open = |path: &PathBuf| Arc::new(io::File::open(path).unwrap());
        let files: Vec<_> = paths.iter().map(open).collect();
        let containers = files.iter().map(|file| {
            let source = Arc::clone(file) as Arc<dyn Source>;
            ffrfs::format::open(source, &OpenOptions::default()).unwrap()
        });
        let dataset = Dataset::new(containers.collect());
        let stored = dataset.stored_names(&Naming::default(), &mut Vec::new());
        let catalog: Catalog = match stored.unwrap() {
            StoredNames::Tree(tree) => tree.into(),
            StoredNames::Unused(why) => panic!("{why}"),
            StoredNames::Mixed { .. } => panic!("some containers have no names"),
            StoredNames::None | StoredNames::Fields(_) | StoredNames::Twice { .. } => {
                Numbered::new(dataset.len(), None, Suffix::Fixed(String::new())).into()
            }
        };
        let mut tree = Self::default();
        let mut visit = |path: &[u8], node| {
            let names: Names = path.split(|&b| b == b'/').map(<[u8]>::to_vec).collect();
            let Node::Sample(sample) = node else {
                tree.directories.insert(names);
                return;
            };
            let at = dataset.locate(sample).unwrap().unwrap();
            let mut bytes = vec![0; at.sample.length_bytes as usize];
            files[at.part].read_exact_at(&mut bytes, at.sample.offset_bytes).unwrap();
            assert_eq!(Some(ChecksumKind::Crc32.of(&bytes)), at.sample.checksum);
            tree.files.insert(names, bytes);
        };
        catalog.walk(&dataset, ROOT, &mut visit).unwrap();
        tree
    }
}

/// Any name that Linux takes, with a liking for odd ones.
fn any_name() -> impl Strategy<Value = Vec<u8>> {
    let odd = [
        "é",
        "日本語.jpg",
        "a b",
        " ",
        "new\nline",
        "-rf",
        "*",
        "a\\b",
        "\"",
        "'",
        ".hidden",
        "...",
        "a\tb",
        "\u{1f600}",
        "000000",
        "PART_00000.ffr",
        "e\u{301}",
    ];
    prop_oneof![
        3 => "[a-c]{1,2}".prop_map(String::into_bytes),
        2 => prop::sample::select(odd.to_vec()).prop_map(|name| name.as_bytes().to_vec()),
        1 => vec(1u8.., 1..12),
        1 => vec(prop_oneof![Just(0xffu8), Just(0xed), Just(0xa0), Just(b'x')], 250..256),
    ]
    .prop_filter("a name", |name| {
        // A mount does not show what macOS leaves in directories.
        let is_left = name.starts_with(b"._");
        !name.contains(&b'/') && !is_left && !matches!(&name[..], b"." | b".." | b".ffrfs")
    })
}

/// A few files and directories, some of them empty.
fn any_tree() -> impl Strategy<Value = Tree> {
    let size = prop_oneof![
        2 => Just(0usize),
        6 => 1usize..2000,
        1 => 4095usize..4098,
        1 => 100_000usize..400_000,
    ];
    let file = (vec(any_name(), 1..4), size);
    (vec(file, 0..25), vec(vec(any_name(), 1..4), 0..4)).prop_map(|(files, hollow)| {
        let mut tree = Tree::default();
        for (number, (names, size)) in files.into_iter().enumerate() {
            let below = |other: &Names| names.starts_with(other) || other.starts_with(&names);
            if tree.files.keys().any(below) || tree.directories.contains(&names) {
                continue;
            }
            tree.directories.extend((1..names.len()).map(|end| names[..end].to_vec()));
            tree.files.insert(names, noise(number as u64, size));
        }
        for names in hollow {
            let free = |end: &usize| !tree.files.contains_key(&names[..*end]);
            let free: Vec<_> = (1..=names.len()).take_while(free).collect();
            tree.directories.extend(free.into_iter().map(|end| names[..end].to_vec()));
        }
        tree
    })
}

fn pack(directory: &Path, out: &Path, args: &[&str]) -> Outcome {
    run(Command::new(FFRFS).arg("pack").arg(directory).arg(out).args(args))
}

/// A directory with these files, each holding its own path.
fn directory_of(parent: &TempDir, files: &[&str]) -> PathBuf {
    let root = parent.path().join("in");
    fs::create_dir_all(&root).unwrap();
    for file in files {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    root
}

/// The sorted names in a directory.
fn names_in(directory: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

/// Packs a tree, reads it back in every way.
fn check(transport: Transport, tree: &Tree, parts: Option<u32>, flat: bool) {
    let work = temp_dir();
    let input = work.path().join("in");
    tree.write(&input);
    let out = work.path().join("out.ffr");
    let count = parts.map(|parts| parts.to_string());
    let mut args: Vec<&str> = count.iter().flat_map(|count| ["--parts", count]).collect();
    args.extend(flat.then_some("--flat"));
    pack(&input, &out, &args).ok();
    assert_eq!(names_in(work.path()), ["in", "out.ffr"], "nothing else is left");
    let containers = match parts {
        None => vec![out.clone()],
        Some(_) => names_in(&out).iter().map(|name| out.join(name)).collect(),
    };
    assert_eq!(containers.len(), parts.unwrap_or(1) as usize);
    let flattened = flat.then(|| tree.flat());
    let expected = flattened.as_ref().unwrap_or(tree);
    assert!(&Tree::of_containers(&containers) == expected, "the library reads the same");
    let mount = Mount::new(transport, &out, &[]);
    assert!(&Tree::read(mount.point()) == expected, "a mount shows the same");
    assert_eq!(ffrfs(&["verify".as_ref(), out.as_os_str()]).code, 0);
}

#[test]
fn any_directory_comes_back_as_it_was_packed() {
    for_each_transport(|transport| {
        let config = ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() };
        let strategy = (any_tree(), proptest::option::of(1u32..9), any::<bool>());
        let tested = TestRunner::new(config).run(&strategy, |(tree, parts, flat)| {
            check(transport, &tree, parts, flat);
            Ok(())
        });
        tested.unwrap();
    });
}

#[test]
fn a_directory_without_files_is_a_dataset_without_samples() {
    for_each_transport(|transport| {
        for parts in [None, Some(1), Some(3)] {
            for flat in [false, true] {
                check(transport, &Tree::default(), parts, flat);
            }
        }
        let hollow = Tree { directories: [vec![b"hollow".to_vec()]].into(), ..Tree::default() };
        check(transport, &hollow, None, false);
    });
}

#[test]
fn the_same_directory_gives_the_same_bytes() {
    let work = temp_dir();
    let input = directory_of(&work, &["z", "a", "m/b", "m/a", "é"]);
    let (first, second) = (work.path().join("1.ffr"), work.path().join("2.ffr"));
    pack(&input, &first, &[]).ok();
    // A new directory with the same files, made in another order.
    let copy = work.path().join("copy");
    fs::create_dir_all(copy.join("m")).unwrap();
    for file in ["m/a", "é", "z", "m/b", "a"] {
        fs::copy(input.join(file), copy.join(file)).unwrap();
    }
    pack(&copy, &second, &[]).ok();
    assert_eq!(fs::read(&first).unwrap(), fs::read(&second).unwrap());
}

#[test]
fn flat_samples_are_in_the_order_of_names_directory_by_directory() {
    let work = temp_dir();
    let input = directory_of(&work, &["b", "a/z", "a.b", "a/b/c", "B", "é", "10", "9"]);
    let out = work.path().join("out.ffr");
    pack(&input, &out, &["--flat"]).ok();
    let read = Tree::of_containers(&[out]);
    let texts: Vec<_> = read.files.values().map(|bytes| str::from_utf8(bytes).unwrap()).collect();
    assert_eq!(texts, ["10", "9", "B", "a/b/c", "a/z", "a.b", "b", "é"]);
}

#[test]
fn parts_are_of_about_the_same_size_and_the_last_one_has_the_names() {
    let work = temp_dir();
    let input = work.path().join("in");
    fs::create_dir(&input).unwrap();
    for file in 0..40 {
        fs::write(input.join(format!("{file:02}")), noise(file, 2500)).unwrap();
    }
    let out = work.path().join("out");
    pack(&input, &out, &["--parts", "4"]).ok();
    let parts = names_in(&out);
    let expected = ["PART_00000.ffr", "PART_00001.ffr", "PART_00002.ffr", "PART_00003.ffr"];
    assert_eq!(parts, expected);
    for part in &parts {
        let bytes = fs::metadata(out.join(part)).unwrap().len();
        assert!((25_000..27_000).contains(&bytes), "{part:?}: {bytes} bytes");
        let magic = fs::read(out.join(part)).unwrap().windows(9).any(|run| run == b"piouhjgbr");
        assert_eq!(magic, part == "PART_00003.ffr");
    }
}

#[test]
fn links_are_followed_and_neither_files_nor_directories_are_left_out_with_a_warning() {
    let work = temp_dir();
    let input = directory_of(&work, &["file", "dir/inner"]);
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, input.join(name)).unwrap();
    link("file", "to file");
    link("dir", "to dir");
    link("../dir/inner", "dir/round");
    fs::hard_link(input.join("file"), input.join("twin")).unwrap();
    let pipe = input.join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(input.join("socket")).unwrap();
    let out = work.path().join("out.ffr");
    let outcome = pack(&input, &out, &[]).ok();
    let said = &outcome.stderr;
    assert!(said.contains("in/pipe: left out") && said.contains("in/socket: left out"), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
    let read = Tree::of_containers(&[out]);
    let found: Vec<_> = read.files.iter().map(|(names, bytes)| (path_of(names), bytes)).collect();
    let expected = [
        ("dir/inner", "dir/inner"),
        ("dir/round", "dir/inner"),
        ("file", "file"),
        ("to dir/inner", "dir/inner"),
        ("to dir/round", "dir/inner"),
        ("to file", "file"),
        ("twin", "file"),
    ];
    let expected = expected.map(|(path, text)| (PathBuf::from(path), text.as_bytes().to_vec()));
    assert!(
        found.iter().map(|(path, bytes)| (path, *bytes)).eq(expected.iter().map(|(p, b)| (p, b)))
    );
}

#[test]
fn the_output_has_the_permissions_that_the_umask_leaves() {
    let work = temp_dir();
    let input = directory_of(&work, &["a"]);
    for (umask, file_mode, directory_mode) in
        [("022", 0o644, 0o755), ("027", 0o640, 0o750), ("0", 0o666, 0o777)]
    {
        let script = format!("umask {umask} && exec \"$0\" pack \"$@\"");
        let pack = |out: &Path, args: &[&str]| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &script, FFRFS]).arg(&input).arg(out).args(args);
            run(&mut shell).ok();
        };
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let (file, directory) = (work.path().join("out.ffr"), work.path().join("out"));
        pack(&file, &["--force"]);
        pack(&directory, &["--force", "--parts=2"]);
        assert_eq!(mode(&file), file_mode, "umask {umask}");
        assert_eq!(mode(&directory), directory_mode, "umask {umask}");
        assert_eq!(mode(&directory.join("PART_00001.ffr")), file_mode, "umask {umask}");
    }
}
