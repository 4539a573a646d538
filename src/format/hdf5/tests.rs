//! Files that h5py wrote, files that lie, and any chunks against a model.

mod groups;
mod heads;
mod model;
mod padded;
mod repeated;

use super::datatype::{Datatype, Kind};
use super::*;
use crate::format::testing::{compare, files, fixture, look_at, open_as};
use crate::format::{Content, MemorySource, SliceSource};
use std::collections::BTreeMap;

fn open(bytes: &[u8]) -> Result<Box<dyn Container>> {
    open_as(NAME, bytes, &OpenOptions::default())
}

fn refused(bytes: &[u8]) -> String {
    open(bytes).err().expect("refused").to_string()
}

fn tiny(libver: &str) -> Vec<u8> {
    std::fs::read(fixture(&format!("tiny-{libver}.h5"))).unwrap()
}

/// The offset of occurrence `number` of these bytes, counted from 0.
fn find(file: &[u8], wanted: &[u8], number: usize) -> usize {
    let places = file.windows(wanted.len()).enumerate().filter(|(_, bytes)| *bytes == wanted);
    places.map(|(at, _)| at).nth(number).unwrap()
}

#[test]
fn what_h5py_wrote_is_shown_as_it_reads_it() {
    compare("earliest.h5");
    compare("v110.h5");
    compare("latest.h5");
    compare("short-lengths.h5");
    compare("padded-earliest.h5");
    compare("padded-latest.h5");
    compare("packed.h5");
    compare("plugins.h5");
}

#[test]
fn a_second_name_of_a_dataset_that_is_left_out_is_left_out() {
    let file = std::fs::read(fixture("short-lengths.h5")).unwrap();
    let container = open(&file).unwrap();
    let kinds = (0..container.len()).map(|index| container.attributes(index).unwrap().kind);
    assert!(kinds.into_iter().all(|kind| kind == crate::format::Kind::File));
}

#[test]
fn addresses_and_lengths_of_unequal_sizes_are_read() {
    let file = std::fs::read(fixture("unequal-sizes.h5")).unwrap();
    let shown = files(&file, open(&file).unwrap().as_ref());
    let array = shown["a.npy"].as_ref().unwrap();
    assert_eq!(array[array.len() - 6..], [0, 0, 1, 0, 2, 0]);
}

#[test]
fn fields_that_are_not_in_the_order_of_their_bytes_are_shown_in_it() {
    let number = |descr: &str, bytes| Datatype {
        bytes,
        kind: Kind::Plain(descr.to_owned()),
        is_unknown: None,
    };
    let compound = |fields: &[(&str, u32, Datatype)]| {
        let fields =
            fields.iter().map(|(name, at, of)| (name.as_bytes().to_vec(), *at, of.clone()));
        Datatype { bytes: 12, kind: Kind::Compound(fields.collect()), is_unknown: None }
    };
    let (one, eight) = (number("|u1", 1), number("<i8", 8));
    let unordered = compound(&[("z", 8, one.clone()), ("a", 0, eight.clone())]);
    let descr = unordered.descr().unwrap().0;
    assert_eq!(descr, "[('a', '<i8'), ('z', '|u1'), ('', '|V3')]");
    assert_eq!(unordered.unknown(), None);
    let shared = compound(&[("z", 4, one), ("a", 0, eight)]);
    assert_eq!(shared.descr().unwrap().0, "'|V12'");
    assert_eq!(shared.unknown(), Some("a layout of fields"));
}

/// An old group of `count` symbols that all have the same name, of `bytes` bytes.
fn same_names(count: u16, bytes: usize) -> Vec<u8> {
    let heap = [b"HEAP\0\0\0\0", &(bytes as u64 + 1).to_le_bytes()[..], &[0xff; 8]].concat();
    let mut file = [&heap[..], &32_u64.to_le_bytes(), &vec![b'a'; bytes], &[0; 8]].concat();
    let node = file.len() as u64;
    file.extend([b"SNOD\x01\0", &count.to_le_bytes()[..]].concat());
    file.extend([0; 40].repeat(count.into()));
    file.extend([b"TREE\0\0\x01\0", &[0xff; 16][..], &[0; 8], &node.to_le_bytes()].concat());
    file
}

#[test]
fn many_symbols_with_one_long_name_are_refused() {
    let names = |count, bytes| {
        let file = same_names(count, bytes);
        let tree = (file.len() - 40) as u64;
        let source = MemorySource::new("x", file);
        let input = input::Input::new(input::reader(&source), 0);
        let bytes = [tree.to_le_bytes(), 0_u64.to_le_bytes()].concat();
        let kind = object::SYMBOL_TABLE;
        let message = object::Message { kind, at: 0, bytes, is_elsewhere: false };
        group::links(&input, &[message]).map(|links| links.len())
    };
    assert_eq!(names(1000, 1000).unwrap(), 1);
    let said = names(1000, 100_000).unwrap_err().to_string();
    assert!(said.contains("structures that are each referred to once"), "{said}");
}

#[test]
fn a_structure_is_not_longer_than_what_is_read_at_once() {
    let file = vec![0; 64];
    let source = SliceSource::new("x".into(), Arc::new(MemorySource::new("x", file)), 0, 1 << 40);
    let input = input::Input::new(input::reader(&source), 0);
    let said = input.block("a block", 0, (1 << 30) + 1).err().unwrap().to_string();
    assert!(said.contains("a block of 1073741824 bytes at most"), "{said}");
}

#[test]
fn every_byte_changed_and_every_end_is_refused_or_shown_within_the_file() {
    for libver in ["earliest", "latest"] {
        let file = tiny(libver);
        for (rows, allow_damaged) in [(false, false), (true, true)] {
            let options = OpenOptions { rows, allow_damaged, ..OpenOptions::default() };
            let look = |bytes: &[u8]| {
                if let Ok(container) = open_as(NAME, bytes, &options) {
                    look_at(bytes, container.as_ref());
                }
            };
            (0..file.len()).step_by(17).for_each(|length| look(&file[..length]));
            let mut bad = file.clone();
            for at in 0..file.len() {
                // Zeros among zeros are free space.
                let around = at.saturating_sub(16)..file.len().min(at + 16);
                if file[around].iter().all(|byte| *byte == 0) {
                    continue;
                }
                for change in [1 << (at % 8), 0xff] {
                    bad[at] ^= change;
                    look(&bad);
                    bad[at] ^= change;
                }
            }
        }
    }
}

#[test]
fn a_tree_that_points_at_itself_is_refused() {
    let mut file = tiny("earliest");
    let node = find(&file, b"TREE\0", 0);
    // The node is one level up, and its own child.
    file[node + 5] = 1;
    let child = node + 24 + 8;
    file[child..child + 8].copy_from_slice(&(node as u64).to_le_bytes());
    let said = refused(&file);
    assert!(said.contains("each node once") && said.contains("byte"), "{said}");
}

#[test]
fn chunks_that_lie_about_their_length_or_place_are_refused() {
    let file = tiny("earliest");
    let node = find(&file, b"TREE\x01", 0);
    let (key, child) = (node + 24, node + 24 + 32);
    let mut long = file.clone();
    long[key..key + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(refused(&long).contains("a chunk of 12 bytes, filtered, found 4294967295"));
    let mut far = file.clone();
    far[child..child + 8].copy_from_slice(&(file.len() as u64 - 3).to_le_bytes());
    let said = refused(&far);
    assert!(said.contains("a chunk of") && said.contains("truncated"), "{said}");
    // If damage is allowed, the bytes that lie in the file are shown.
    let options = OpenOptions { allow_damaged: true, ..OpenOptions::default() };
    let container = open_as(NAME, &far, &options).unwrap();
    look_at(&far, container.as_ref());
}

#[test]
fn a_shape_that_overflows_is_refused_unless_chunks_of_it_may_be_missing() {
    let file = tiny("earliest");
    let shape = [6_u64.to_le_bytes(), 4_u64.to_le_bytes()].concat();
    let places = file.windows(16).enumerate().filter(|(_, bytes)| *bytes == shape);
    let said: Vec<String> = places
        .map(|(at, _)| {
            let mut bad = file.clone();
            bad[at..at + 16].copy_from_slice(&[(1_u64 << 62).to_le_bytes(); 2].concat());
            match open(&bad) {
                Err(error) => error.to_string(),
                Ok(container) => {
                    let samples = (0..container.len()).map(|n| container.sample(n).unwrap());
                    let bad = samples.filter(|sample| sample.damaged).count();
                    format!("{bad} of {}: {}", container.len(), container.warnings().join("\n"))
                }
            }
        })
        .collect();
    let is_said = |words: &[&str]| said.iter().any(|it| words.iter().all(|word| it.contains(word)));
    assert!(is_said(&["fewer than 2⁶³ bytes of elements"]), "{said:?}");
    assert!(is_said(&["1 of 3: ", "\"g/c\" cannot be read: it has 2⁶³ bytes"]), "{said:?}");
}

#[test]
fn heaps_and_headers_that_lie_out_of_range_are_refused_with_the_byte() {
    let file = tiny("earliest");
    let mut bad = file.clone();
    let heap = find(&file, b"HEAP", 0);
    bad[heap + 24..heap + 32].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    let said = refused(&bad);
    assert!(said.contains("the names of a group") && said.contains("byte"), "{said}");
    let mut bad = tiny("latest");
    let header = find(&bad, b"OHDR", 0);
    bad[header + 8] ^= 1;
    assert!(refused(&bad).contains("with checksum"));
}

#[test]
fn it_is_told_by_its_mark_also_behind_a_user_block() {
    let file = tiny("latest");
    let detect = |bytes: Vec<u8>| Hdf5.detect(&MemorySource::new("x", bytes)).unwrap();
    assert_eq!(detect(file.clone()), Detected::Yes);
    for user_block in [512, 1024, 4096] {
        let behind = [vec![7; user_block], file.clone()].concat();
        // In an unknown file, no superblock is looked for further behind; if the format is given, the file is opened.
        let expected = if user_block <= 2048 { Detected::Perhaps } else { Detected::No };
        assert_eq!(detect(behind.clone()), expected);
        let container = open(&behind).unwrap();
        assert!(container.len() > 2);
        look_at(&behind, container.as_ref());
    }
    assert_eq!(detect([vec![7; 513], file].concat()), Detected::No);
    assert_eq!(detect(Vec::new()), Detected::No);
}

#[test]
fn texts_of_a_shape_without_elements_are_as_many_empty_lists() {
    let json = |shape: &[u64], most| {
        let count = shape.iter().product();
        let text = &mut |_| Ok::<_, crate::format::Error>(b"a".to_vec());
        let found = values::json(shape, count, most, text).unwrap();
        found.map(|text| String::from_utf8(text).unwrap())
    };
    for (shape, text) in [
        (&[0][..], "[]"),
        (&[0, 3], "[]"),
        (&[3, 0], "[[],[],[]]"),
        (&[2, 1, 0, 4], "[[[]],[[]]]"),
        (&[2, 1], "[[\"a\"],[\"a\"]]"),
    ] {
        assert_eq!(json(shape, 100).as_deref(), Some(text), "{shape:?}");
    }
    assert_eq!(json(&[1 << 40, 0], 1000), None);
}

#[test]
fn rows_in_place_are_ranges_and_rows_of_chunks_are_encoded() {
    let file = tiny("latest");
    let options = OpenOptions { rows: true, ..OpenOptions::default() };
    let container = open_as(NAME, &file, &options).unwrap();
    let (mut stored, mut encoded) = (0, 0);
    for index in 0..container.len() {
        match container.sample(index).unwrap().content {
            Content::Prefixed(128) => stored += 1,
            Content::Encoded(136) => encoded += 1,
            Content::Stored => (),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((stored, encoded), (6, 6));
}

/// All files that a fixture shows, which is compressed, as it is mostly empty; and the warnings.
fn decompressed(name: &str) -> (BTreeMap<String, Vec<u8>>, Vec<String>) {
    let stored = std::fs::read(fixture(name)).unwrap();
    let file = miniz_oxide::inflate::decompress_to_vec_zlib(&stored).unwrap();
    let container = open(&file).unwrap();
    let shown = files(&file, container.as_ref());
    let shown = shown.into_iter().map(|(path, bytes)| (path, bytes.unwrap())).collect();
    (shown, container.warnings().to_vec())
}

#[test]
fn chunks_in_any_page_of_an_extensible_array_are_found() {
    let (shown, _) = decompressed("pages.h5.zz");
    let mut expected = vec![0; 1_200_000];
    for at in [3, 50_000, 131_059, 131_060, 140_000, 149_491, 149_492, 163_827, 163_828, 170_000]
        .into_iter()
        .chain([199_999, 262_131, 262_132, 400_000, 1_048_560, 1_199_999])
    {
        expected[at] = (at % 251 + 1) as u8;
    }
    for name in ["bare.npy", "filtered.npy"] {
        let found = &shown[name][128..];
        let wrong = found.iter().zip(&expected).position(|(found, wanted)| found != wanted);
        assert_eq!((found.len(), wrong), (expected.len(), None), "{name}");
    }
}

#[test]
fn a_link_too_long_for_the_blocks_of_its_heap_loses_no_other() {
    let (shown, warnings) = decompressed("odd.h5.zz");
    assert_eq!(shown.keys().filter(|path| path.starts_with('n')).count(), 20);
    assert!(warnings.iter().any(|said| said.contains("\"far\" is a link to nothing")));
    assert!(!warnings.iter().any(|said| said.contains("near")), "{warnings:?}");
}

#[test]
fn what_is_said_of_datasets_and_links_names_their_paths() {
    let mut file = std::fs::read(fixture("unknown.h5")).unwrap();
    // An unknown filter in the place of a known one: a filter's number stands before its name.
    let at = find(&file, b"scaleoffset", 0) - 8;
    file[at..at + 2].copy_from_slice(&32_013_u16.to_le_bytes());
    let container = open(&file).unwrap();
    let said = container.warnings().join("\n");
    for word in [
        "t: \"g/h/short\" has integers of another precision",
        "\"g/h/bfloat\" has floats of another format",
        "\"g/h/references\" has references",
        "\"g/h/scaled\" cannot be read: it needs filter 32013 (zfp)",
        "\"g/h/far\" is a link to \"other.h5:/x\"",
        "\"g/h/dangling\" is a link to nothing",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    // Opaque bytes are shown as they were written, without a warning.
    assert!(!said.contains("opaque"), "{said}");
}

#[test]
fn of_a_dataset_that_cannot_be_read_nothing_is_said_of_its_type() {
    let mut bytes = std::fs::read(fixture("unknown.h5")).unwrap();
    // The address of the references leads out of the file.
    let at = 4008_u64.to_le_bytes();
    let place = bytes.windows(8).position(|found| found == at).unwrap();
    bytes[place..place + 8].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    let options = OpenOptions { allow_damaged: true, ..OpenOptions::default() };
    let container = open_as(NAME, &bytes, &options).unwrap();
    let said = container.warnings().join("\n");
    let notes: Vec<_> = said.lines().filter(|line| line.contains("references\"")).collect();
    assert!(notes.len() == 1 && notes[0].contains("\"g/h/references\" cannot be read"), "{said}");
}

#[test]
fn truth_values_are_those_that_h5py_takes_for_them() {
    let (shown, _) = decompressed("odd.h5.zz");
    for name in ["truth.npy", "turned.npy"] {
        let (header, values) = shown[name].split_at(128);
        assert!(String::from_utf8_lossy(header).contains("'|b1'"), "{name}");
        assert_eq!(values, [1, 0, 1], "{name}");
    }
}

#[test]
fn texts_that_are_not_utf_8_stay_different() {
    let (shown, _) = decompressed("odd.h5.zz");
    assert_eq!(shown["latin.json"], b"[\"a+RzZQ==\",\"a/ZzZQ==\",\"text\"]");
}

#[test]
fn elements_of_variable_length_have_one_size() {
    let mut file = tiny("earliest");
    let at = find(&file, b"\x19\x01\x01\0\x10\0\0\0", 0);
    file[at + 4] = 8;
    let said = match open(&file) {
        Ok(container) => container.warnings().join("\n"),
        Err(error) => error.to_string(),
    };
    assert!(said.contains("a type of variable length with elements of 16 bytes"), "{said}");
}

#[test]
fn links_lead_to_what_is_shown_and_never_out_of_the_mount() {
    for (link, target, wanted) in [
        (&b"l"[..], &b"d/x"[..], &b"d/x"[..]),
        (b"a/././l", b"d", b"../d"),
        (b"a/l", b"./d/./x", b"../d/x"),
        (b"a//l", b"..", b"../%2E%2E"),
        (b"l", b"", b"."),
    ] {
        assert_eq!(
            file::relative(link, target).escape_ascii().to_string(),
            wanted.escape_ascii().to_string()
        );
    }
    let shown = file::relative(b"l", &[b'n'; 300]);
    assert_eq!(shown.len(), crate::format::name::MAX_NAME_BYTES);
}

#[test]
fn chunks_of_a_tree_are_each_there_once_and_at_their_place() {
    let file = tiny("earliest");
    let node = find(&file, b"TREE\x01", 0);
    // The key of a chunk: length, filters, a place in two dimensions and in an element.
    let (key, next) = (node + 24 + 8, node + 24 + 8 + 40);
    let mut twice = file.clone();
    twice.copy_within(key..key + 24, next);
    assert!(refused(&twice).contains("the length and place of a chunk"));
    // Off the grid; within an element; behind the next chunk; behind the last possible chunk.
    for (at, byte) in [(next, 1), (next + 8, 1), (next + 16, 1), (key, 2), (key + 7, 0x80)] {
        let mut bad = file.clone();
        bad[at] ^= byte;
        let said = refused(&bad);
        assert!(said.contains("the length and place of a chunk"), "{at}: {said}");
    }
}

#[test]
fn a_shape_or_a_type_that_its_layout_does_not_agree_with_is_refused() {
    let file = tiny("earliest");
    let shape = [6_u64.to_le_bytes(), 4_u64.to_le_bytes()].concat();
    let said = |change: &dyn Fn(&mut Vec<u8>, usize)| {
        let places = file.windows(16).enumerate().filter(|(_, bytes)| *bytes == shape);
        let changed = places.map(|(at, _)| {
            let mut bad = file.clone();
            change(&mut bad, at);
            open(&bad).err().map(|error| error.to_string()).unwrap_or_default()
        });
        changed.collect::<Vec<_>>().join("\n")
    };
    let longer = said(&|bad, at| bad[at] = 7);
    assert!(longer.contains("expected 56 bytes, found 48 bytes"), "{longer}");
    // The filter shuffles elements of another size.
    let shuffled = std::fs::read(fixture("earliest.h5")).unwrap();
    let mut names = shuffled.windows(12).enumerate();
    let (name, _) = names.find(|(_, bytes)| *bytes == b"shuffle\0\x04\0\0\0").unwrap();
    let mut bad = shuffled;
    bad[name + 8] = 8;
    assert!(refused(&bad).contains("shuffled elements of 4 bytes, found others"));
    // Chunks have elements of another size, which stands behind the lengths of a chunk.
    let chunk = [2_u32.to_le_bytes(), 3_u32.to_le_bytes(), 2_u32.to_le_bytes()].concat();
    let mut bad = file.clone();
    let at = find(&file, &chunk, 0);
    bad[at + 8] = 4;
    let said = refused(&bad);
    assert!(said.contains("chunks of elements of 2 bytes, found 4"), "{said}");
}

#[test]
fn a_list_of_names_has_the_size_of_its_integers() {
    let kind = |bytes: u8| {
        let head = [0x18, 1, 0, 0, bytes, 0, 0, 0];
        let integer = [0x10, 8, 0, 0, 4, 0, 0, 0, 0, 0, 32, 0];
        let message = [&head[..], &integer, b"A\0\0\0\0\0\0\0", &[7, 0, 0, 0]].concat();
        let source = MemorySource::new("x", Vec::new());
        let input = input::Input::new(input::reader(&source), 0);
        let read = datatype::Datatype::read(&mut input.fields_at(&message, 0));
        read.map(|found| found.descr().unwrap().0).map_err(|error| error.to_string())
    };
    assert_eq!(kind(4).unwrap(), "'<i4'");
    let said = kind(8).unwrap_err();
    assert!(said.contains("integers of 8 bytes for those of a list, found 4"), "{said}");
}

#[test]
fn a_float_whose_highest_bit_is_stored_is_none_of_numpys() {
    let kind = |bits: u8| {
        let properties = [0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0];
        let message = [&[0x11, bits, 31, 0, 4, 0, 0, 0][..], &properties].concat();
        let source = MemorySource::new("x", Vec::new());
        let input = input::Input::new(input::reader(&source), 0);
        datatype::Datatype::read(&mut input.fields_at(&message, 0)).unwrap().descr().unwrap().0
    };
    assert_eq!([0x20, 0x21].map(kind), ["'<f4'", "'>f4'"]);
    // The first bit of the mantissa is not implied, or stored as 1; or the order is that of VAX.
    assert_eq!([0x00, 0x10, 0x61].map(kind), ["'|V4'"; 3]);
}

#[test]
fn a_link_whose_name_is_an_ending_alone_leads_out_of_its_directory() {
    let mut file = std::fs::read(fixture("links-earliest.h5")).unwrap();
    // The names of links, not parts of their targets.
    let names = file.windows(6).enumerate().filter(|(_, bytes)| *bytes == b"\0soft\0");
    let places: Vec<_> = names.map(|(at, _)| at + 1).collect();
    places.iter().for_each(|at| file[*at..at + 4].copy_from_slice(b".\0\0\0"));
    let container = open(&file).unwrap();
    let mut links = Vec::new();
    let visit = &mut |member: crate::format::Member<'_>| {
        if let crate::format::Node::Sample(sample) = member.node {
            links.push((member.path.to_vec(), sample));
        }
        Ok(())
    };
    container.members(visit).unwrap();
    let link = links.iter().find(|(path, _)| path.ends_with(b"/..npy")).unwrap();
    assert_eq!(container.link_target(link.1).unwrap().escape_ascii().to_string(), "../hard.npy");
}
