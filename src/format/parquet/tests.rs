//! Files that pyarrow wrote, files that lie, and any columns against a model.

mod bounds;
mod json;
mod limits;
mod model;
mod writer;

use super::*;
use crate::format::testing::{compare, files, fixture, open_as};
use crate::format::{Content, Fault, Member, MemorySource, Names, Node, View};
use std::collections::BTreeMap;

const FIXTURES: [&str; 6] = [
    "rows.parquet",
    "nulls.parquet",
    "plain.parquet",
    "checked.parquet",
    "split.parquet",
    "indexed.parquet",
];

fn read(name: &str) -> Vec<u8> {
    std::fs::read(fixture(name)).unwrap()
}

fn open(bytes: &[u8]) -> Result<Box<dyn Container>> {
    open_as(NAME, bytes, &OpenOptions::default())
}

fn refused(bytes: &[u8]) -> String {
    open(bytes).err().expect("refused").to_string()
}

/// Looks at all of a container that may be anything: samples and intervals lie within the file, and decode to as many
/// bytes as they say, or to an error.
fn look_at(file: &[u8], container: &dyn Container) {
    for index in 0..container.len() {
        let sample = container.sample(index).unwrap();
        let prefix = container.prefix(index).unwrap().len() as u64;
        if sample.damaged {
            assert!(sample.length_bytes > 0);
            continue;
        }
        assert!(sample.end_bytes() <= file.len() as u64);
        match sample.content {
            Content::Stored => assert_eq!(prefix, 0),
            Content::Prefixed(length) => assert_eq!(prefix, u64::from(length)),
            Content::Encoded(size) => {
                assert!(size >= prefix);
                let piece = container.piece(index, prefix).unwrap().unwrap();
                assert_eq!((piece.at_bytes, piece.length_bytes), (prefix, size - prefix));
                let intervals = container.intervals(index).unwrap();
                let interval = intervals.interval(piece.offset_bytes).unwrap();
                assert!(interval.stored.end <= file.len() as u64);
                if size < 1 << 20 {
                    let stored = sample.offset_bytes as usize..sample.end_bytes() as usize;
                    let _ = container.decode(index, &file[stored], &mut vec![0; size as usize]);
                }
            }
            other @ Content::Sparse(_) => panic!("{other:?}"),
        }
        container.field_name(index).unwrap();
    }
    let visit = &mut |member: Member<'_>| {
        assert!(!matches!(member.node, Node::Sample(sample) if sample >= container.len()));
        Ok(())
    };
    container.members(visit).unwrap();
    assert!(container.sample(container.len()).is_err());
}

#[test]
fn what_pyarrow_wrote_is_shown_as_it_reads_it() {
    FIXTURES.iter().for_each(|name| compare(name));
}

#[test]
fn rows_of_the_same_files_have_their_names_once() {
    let names = |name| open(&read(name)).unwrap().names(0).unwrap();
    assert_eq!(names("rows.parquet"), Names::Fields(15));
    assert_eq!(names("nulls.parquet"), Names::Records(12));
}

#[test]
fn a_kept_index_shows_the_same_files() {
    for name in FIXTURES {
        let bytes = read(name);
        let first = open(&bytes).unwrap();
        let mut kept = Vec::new();
        first.keep(&mut kept).unwrap();
        let again = |file: &[u8], kept: &[u8]| {
            let source = Arc::new(MemorySource::new("t", file.to_vec()));
            Parquet.open_kept(source, Arc::new(MemorySource::new("kept", kept.to_vec())))
        };
        let second = again(&bytes, &kept).unwrap().expect("of this version");
        assert_eq!(files(&bytes, first.as_ref()), files(&bytes, second.as_ref()));
        assert_eq!(first.warnings(), second.warnings());
        // A kept index that is cut, or changed, is not used.
        for length in (0..kept.len()).step_by(37) {
            assert!(!matches!(again(&bytes, &kept[..length]), Ok(Some(_))), "{length}");
        }
        for at in (16..kept.len()).step_by(53) {
            let mut bad = kept.clone();
            bad[at] ^= 4;
            assert!(!matches!(again(&bytes, &bad), Ok(Some(_))), "{at}");
        }
    }
}

#[test]
fn the_raw_view_has_stored_bytes_without_endings() {
    let bytes = read("rows.parquet");
    let options = OpenOptions { view: View::Raw, ..OpenOptions::default() };
    let container = open_as(NAME, &bytes, &options).unwrap();
    let files = files(&bytes, container.as_ref());
    assert_eq!(files["000002/small"].as_deref(), Some(&[0xfc][..]));
    assert_eq!(files["000002/label"].as_deref(), Some(&2_u64.to_le_bytes()[..]));
    assert!(!files.contains_key("000002/label.txt"));
}

#[test]
fn what_is_not_compressed_is_served_in_place_and_what_has_a_checksum_is_checked() {
    let container = open(&read("plain.parquet")).unwrap();
    let mut in_place = 0;
    for index in 0..container.len() {
        let name = String::from_utf8(container.field_name(index).unwrap()).unwrap();
        let stem = name.split('.').next().unwrap();
        let is_plain = matches!(stem, "image" | "caption" | "f4" | "f8" | "when" | "meta/url");
        assert!(!is_plain || container.intervals(index).is_none(), "{name}");
        assert!(!container.checks_intervals(index), "{name}");
        in_place += usize::from(is_plain);
    }
    assert_eq!(in_place, 6 * 12);
    let container = open(&read("checked.parquet")).unwrap();
    for index in 0..container.len() {
        let name = String::from_utf8(container.field_name(index).unwrap()).unwrap();
        // Names of labels are in the footer; JSON is made of several pages.
        let is_made = name == "label.txt" || name.ends_with(".json");
        assert!(
            is_made || container.intervals(index).is_none() || container.checks_intervals(index),
            "{name}"
        );
    }
}

#[test]
fn every_bit_flipped_and_every_end_is_refused_or_shown_within_the_file() {
    let file = read("tiny.parquet");
    for allow_damaged in [false, true] {
        let options = OpenOptions { allow_damaged, ..OpenOptions::default() };
        let look = |bytes: &[u8]| {
            if let Ok(container) = open_as(NAME, bytes, &options) {
                look_at(bytes, container.as_ref());
            }
        };
        (0..file.len()).for_each(|length| look(&file[..length]));
        let mut bad = file.clone();
        for bit in (0..file.len() * 8).step_by(if allow_damaged { 5 } else { 1 }) {
            bad[bit / 8] ^= 1 << (bit % 8);
            look(&bad);
            bad[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn bytes_changed_in_files_of_all_encodings_are_refused_or_shown_within_the_file() {
    for name in ["split.parquet", "plain.parquet", "checked.parquet", "indexed.parquet"] {
        let mut file = read(name);
        for at in (0..file.len()).step_by(17) {
            for change in [1 << (at % 8), 0xff] {
                file[at] ^= change;
                if let Ok(container) = open(&file) {
                    look_at(&file, container.as_ref());
                }
                file[at] ^= change;
            }
        }
    }
}

#[test]
fn a_truncated_file_and_one_whose_footer_lies_are_refused_with_the_byte() {
    let file = read("tiny.parquet");
    let said = refused(&file[..file.len() - 9]);
    assert!(
        said.contains("\"PAR1\" at the end of the file") && said.contains("truncated"),
        "{said}"
    );
    let mut long = file.clone();
    let tail = file.len() - 8;
    long[tail..tail + 4].copy_from_slice(&(file.len() as u32 - 7).to_le_bytes());
    let said = refused(&long);
    assert!(said.contains(&format!("byte {tail}")) && said.contains("within the file"), "{said}");
    let mut locked = file.clone();
    let end = file.len() - 4;
    locked[end..].copy_from_slice(b"PARE");
    assert!(refused(&locked).contains("encrypted"));
    assert!(refused(b"PAR1PAR1PAR1").contains("the length of a footer"));
}

#[test]
fn a_page_that_fails_its_checksum_fails_for_its_rows_only_and_is_named() {
    let file = read("checked.parquet");
    let good = open(&file).unwrap();
    let all = files(&file, good.as_ref());
    // A byte within the page of the images, whose bytes are stored first.
    let place = good.sample(0).unwrap();
    let mut bad = file.clone();
    bad[place.end_bytes() as usize - 1] ^= 1;
    let container = open(&bad).unwrap();
    let said = container.warnings().join("\n");
    for word in ["t: from row", "page at byte", "checksum mismatch"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let found: BTreeMap<_, _> = files(&bad, container.as_ref());
    let damaged = found.iter().filter(|(_, bytes)| bytes.is_none()).count();
    let same = found.iter().filter(|(path, bytes)| all.get(*path) == Some(bytes)).count();
    assert_eq!(damaged, 12, "{said}");
    assert_eq!(damaged + same, found.len());
    // Each damaged sample names its fault, also by the kept index.
    let mut kept = Vec::new();
    container.keep(&mut kept).unwrap();
    let source = Arc::new(MemorySource::new("x", bad));
    let by_index = Parquet.open_kept(source, Arc::new(MemorySource::new("kept", kept))).unwrap();
    for container in [container, by_index.unwrap()] {
        let bad = (0..container.len()).filter(|index| container.sample(*index).unwrap().damaged);
        let faults: Vec<_> = bad.map(|index| container.fault(index)).collect();
        let is_it = |fault: &Option<Fault>| match fault {
            Some(Fault::PartChecksum { what, .. }) => what.contains("the page at byte"),
            _ => false,
        };
        assert!(faults.len() == 12 && faults.iter().all(is_it), "{faults:?}");
    }
}

#[test]
fn it_is_told_by_its_first_mark() {
    let detect = |bytes: Vec<u8>| Parquet.detect(&MemorySource::new("x", bytes)).unwrap();
    assert_eq!(detect(read("tiny.parquet")), Detected::Yes);
    assert_eq!(detect(b"PARE01234567".to_vec()), Detected::Yes);
    assert_eq!(detect(b"PAR1".to_vec()), Detected::No);
    assert_eq!(detect(vec![0; 100]), Detected::No);
}

#[test]
fn decimals_of_256_bits_are_the_digits_that_pyarrow_reads() {
    let file = read("decimals.parquet");
    let shown = files(&file, open(&file).unwrap().as_ref());
    let nines = "9".repeat(38);
    let wide = [
        format!("{nines}.{nines}"),
        format!("-{nines}.{nines}"),
        format!("0.{}", "0".repeat(38)),
        format!("-0.{:038}", 1),
        format!("0.{:038}", 12_345_678_901_234_567_890_123_456_789_005_u128),
    ];
    let whole = [
        (1_u128 << 127).to_string(),
        format!("-{}", 1_u128 << 127),
        "-1".to_owned(),
        "9".repeat(39),
        "7".to_owned(),
        "0".to_owned(),
    ];
    let named = |name: &str, texts: &[String]| -> Vec<_> {
        let texts = texts.iter().enumerate();
        texts.map(|(row, text)| (format!("{row:06}/{name}.txt"), text.clone())).collect()
    };
    let expected: BTreeMap<_, _> =
        named("wide", &wide).into_iter().chain(named("whole", &whole)).collect();
    let shown: BTreeMap<_, _> = shown
        .into_iter()
        .map(|(path, bytes)| (path, String::from_utf8(bytes.unwrap()).unwrap()))
        .collect();
    assert_eq!(shown, expected);
}
