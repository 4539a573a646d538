//! Trees that are written, read back, and cut.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io;

#[test]
fn the_writer_refuses_what_the_reader_would() {
    let names: [&[u8]; 6] = [b"", b".", b"..", b"a/b", b"\0", &[b'x'; 256]];
    for (name, index) in names.map(|name| (name, 0)).into_iter().chain([(&b"a"[..], 1 << 63)]) {
        let tree = Directory { entries: vec![file(name, index)] };
        let error = encode(&tree, &mut io::sink()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn indices_of_every_size_survive_a_round_trip() {
    for bit in 0..63 {
        for index in [1_u64 << bit, (1 << bit) - 1, (1 << bit) + 1, i64::MAX as u64] {
            let tree = Directory { entries: vec![file(b"a", index)] };
            assert_eq!(decode(&encoded(&tree), ANY).as_ref(), Ok(&tree));
        }
    }
}

/// The tests' model of an entry.
#[derive(Debug, Clone)]
enum Model {
    File,
    Directory(BTreeMap<Vec<u8>, Model>),
}

fn any_name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-z0-9 _.é€😀\\\\'\"\n]{1,12}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 1..20),
        prop::collection::vec(any::<u8>(), 240..=255),
    ]
    .prop_filter("a file's name", |name| super::super::check_name(name).is_ok())
}

fn any_tree() -> impl Strategy<Value = Model> {
    let leaf = prop_oneof![3 => Just(Model::File), 1 => Just(Model::Directory(BTreeMap::new()))];
    let tree = leaf.prop_recursive(8, 200, 12, |inner| {
        prop::collection::btree_map(any_name(), inner, 0..12).prop_map(Model::Directory)
    });
    prop::collection::btree_map(any_name(), tree, 0..12).prop_map(Model::Directory)
}

/// Numbers files from `next` on, in steps that need every opcode for integers.
fn build(model: &BTreeMap<Vec<u8>, Model>, next: &mut u64) -> Directory {
    let mut directory = Directory::default();
    for (name, model) in model {
        let entry = match model {
            Model::File => {
                *next += 1 + (*next / 3).min(1 << 50);
                Entry::File(*next)
            }
            Model::Directory(model) => Entry::Directory(build(model, next)),
        };
        directory.entries.push((name.as_slice().into(), entry));
    }
    directory
}

proptest! {
    #[test]
    fn a_tree_survives_a_round_trip(model in any_tree(), cut in any::<prop::sample::Index>()) {
        let Model::Directory(model) = model else { unreachable!() };
        let tree = build(&model, &mut 0);
        let pickle = encoded(&tree);
        prop_assert_eq!(decode(&pickle, ANY), Ok(tree));
        prop_assert!(decode(&pickle[..cut.index(pickle.len())], ANY).is_err());
    }

    #[test]
    fn spliced_pickles_never_panic(cuts in prop::collection::vec(any::<(u16, u16, u8)>(), 1..8)) {
        let mut spliced = Vec::new();
        for (from, len, writer) in cuts {
            let (_, pickle) = written::WRITTEN[usize::from(writer) % written::WRITTEN.len()];
            let from = usize::from(from) % pickle.len();
            let len = usize::from(len) % (pickle.len() - from);
            spliced.extend_from_slice(&pickle[from..=from + len]);
        }
        if let Ok(tree) = decode(&spliced, ANY) {
            check(&tree, 1);
        }
    }
}
