//! Bounds of all formats whose containers are read as a whole, whatever is in them: what opening one reads, and what is kept of
//! it, beside its length.

use super::testing::{Noted, fixture};
use super::{ChecksumKind, FORMATS, OpenOptions, Source};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index as Place;
use std::sync::Arc;

/// Of each file, by its format: how many times its length may be read, and kept.
const FILES: &[(&str, &str, (u64, u64))] = &[
    ("TFRecord", "mixed.tfrecord", (2, 8)),
    ("TFRecord", "steps.tfrecord", (2, 8)),
    ("MDS", "mds/shard.00000.mds", (2, 8)),
    ("LMDB", "data.mdb", (4, 8)),
    ("HDF5", "tiny-earliest.h5", (8, 8)),
    ("HDF5", "tiny-latest.h5", (8, 8)),
    ("Parquet", "rows.parquet", (4, 16)),
    ("Parquet", "indexed.parquet", (4, 16)),
    ("safetensors", "tensors.safetensors", (4, 8)),
];
/// So much of any file may be read, and kept.
const FREE_BYTES: u64 = 64 << 10;

/// How many bytes opening a file reads, and how long its kept index is. `None`: it is refused.
fn cost(format: &str, bytes: &[u8], options: &OpenOptions) -> (u64, Option<u64>) {
    let format = FORMATS.iter().find(|known| known.name() == format).unwrap();
    let noted = Arc::new(Noted::new(bytes.to_vec()));
    let opened = format.open(Arc::clone(&noted) as Arc<dyn Source>, options);
    let read = noted.reads().iter().map(|(_, length)| length).sum();
    let kept = opened.ok().map(|container| {
        let mut kept = Vec::new();
        container.keep(&mut kept).unwrap();
        kept.len() as u64
    });
    (read, kept)
}

fn check(name: &str, format: &str, bytes: &[u8], (reads, keeps): (u64, u64)) -> Option<u64> {
    let length = bytes.len() as u64;
    let mut last = None;
    for allow_damaged in [false, true] {
        let options = OpenOptions { allow_damaged, rows: allow_damaged, ..OpenOptions::default() };
        let (read, kept) = cost(format, bytes, &options);
        assert!(read <= length * reads + FREE_BYTES, "{name}: {read} of {length} bytes are read");
        let kept_bytes = kept.unwrap_or(0);
        assert!(kept_bytes <= length * keeps + FREE_BYTES, "{name}: {kept_bytes} for {length}");
        last = kept;
    }
    last
}

fn tfrecord(data: &[u8]) -> Vec<u8> {
    let crc = |bytes: &[u8]| ChecksumKind::MaskedCrc32c.of(bytes).value().to_le_bytes();
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &crc(&length), data, &crc(data)].concat()
}

#[test]
fn the_smallest_records_cost_no_more_than_a_few_times_their_length() {
    const RECORDS: usize = 20_000;
    // An example of one feature of no values, whose name is that of no other record.
    let example = |number: usize| {
        let name = format!("{number:06}");
        let entry = [&[10, 6][..], name.as_bytes()].concat();
        tfrecord(&[&[10, 10, 10, 8][..], &entry].concat())
    };
    let tensor =
        |number| format!(r#""{number}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#);
    let tensors = format!("{{{}}}", (0..RECORDS).map(tensor).collect::<Vec<_>>().join(","));
    let columns = br#"{"column_names":["a"],"column_encodings":["bytes"],"column_sizes":[1]}"#;
    let first = (8 + 4 * RECORDS + columns.len()) as u32;
    let offsets = (0..=RECORDS as u32).flat_map(|number| (first + number).to_le_bytes());
    let mds: Vec<u8> = (RECORDS as u32).to_le_bytes().into_iter().chain(offsets).collect();
    for (format, bytes, bounds) in [
        ("TFRecord", tfrecord(b"").repeat(RECORDS), (2, 2)),
        ("TFRecord", (0..RECORDS).flat_map(example).collect(), (2, 2)),
        ("RecordIO", [0x0a, 0x23, 0xd7, 0xce, 0, 0, 0, 0].repeat(RECORDS), (2, 4)),
        ("MDS", [&mds[..], columns, &vec![7; RECORDS]].concat(), (2, 8)),
        (
            "safetensors",
            [&(tensors.len() as u64).to_le_bytes()[..], tensors.as_bytes()].concat(),
            (2, 4),
        ),
    ] {
        let kept = check("small records", format, &bytes, bounds);
        assert!(kept.is_some(), "{format} is refused");
    }
}

#[test]
fn what_packages_write_costs_no_more_than_a_few_times_its_length() {
    for (format, name, bounds) in FILES {
        let bytes = std::fs::read(fixture(name)).unwrap();
        assert!(check(name, format, &bytes, *bounds).is_some(), "{name} is refused");
    }
}

proptest! {
    #[test]
    fn bytes_that_are_changed_cost_no_more(
        file in 0..FILES.len(),
        changes in vec((any::<Place>(), any::<u8>()), 1..6),
        end in any::<Option<Place>>(),
    ) {
        let (format, name, bounds) = FILES[file];
        let mut bytes = std::fs::read(fixture(name)).unwrap();
        for (place, value) in changes {
            let at = place.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(end.map_or(bytes.len(), |end| end.index(bytes.len())));
        check(name, format, &bytes, bounds);
    }
}
