use super::*;
use crate::format::records::tests::{Files, all_files, array, opened, truncate_and_flip};
use crate::format::testing::open_as;
use crate::format::{Names, View};
use proptest::collection::vec;
use proptest::prelude::*;

/// A record as dmlc-core writes it: cut where its data have the magic number at a multiple of 4.
fn record(data: &[u8]) -> Vec<u8> {
    let magic = MAGIC.to_le_bytes();
    let mut parts = vec![Vec::new()];
    for word in data.chunks(4) {
        match word == magic {
            true => parts.push(Vec::new()),
            false => parts.last_mut().unwrap().extend_from_slice(word),
        }
    }
    let last = parts.len() - 1;
    let mut out = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let kind = match (number, last) {
            (0, 0) => 0,
            (0, _) => 1,
            (number, last) if number == last => 3,
            _ => 2,
        };
        out.extend(magic);
        out.extend((kind << 29 | part.len() as u32).to_le_bytes());
        out.extend(part);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    out
}

/// An image record, as `mx.recordio.pack` makes it.
fn image(labels: &[f32], value: &[u8]) -> Vec<u8> {
    let (count, label) = match labels {
        [label] => (0, *label),
        _ => (labels.len() as u32, 0.0),
    };
    let mut out = count.to_le_bytes().to_vec();
    out.extend(label.to_le_bytes());
    out.extend([7_u64, 0].iter().flat_map(|id| id.to_le_bytes()));
    if count > 0 {
        out.extend(labels.iter().flat_map(|label| label.to_le_bytes()));
    }
    [&out[..], value].concat()
}

fn labels_of(labels: &[f32]) -> Option<Vec<u8>> {
    let bytes: Vec<u8> = labels.iter().flat_map(|label| label.to_le_bytes()).collect();
    match labels {
        [_] => array("<f4", &[], &bytes),
        _ => array("<f4", &[labels.len() as u64], &bytes),
    }
}

fn open(file: &[u8], allow_damaged: bool) -> Result<Box<dyn Container>> {
    open_as(NAME, file, &OpenOptions { allow_damaged, ..OpenOptions::default() })
}

const JPEG: &[u8] = b"\xff\xd8\xff\xe0 and so on, for some more bytes";

#[test]
fn image_records_are_a_label_and_data() {
    let file = [
        record(&image(&[3.0], JPEG)),
        record(&image(&[1.0, 2.5], b"text")),
        record(&image(&[4.0], b"")),
    ]
    .concat();
    assert_eq!(open(&file, false).unwrap().names(0).unwrap(), Names::Fields(2));
    let files = opened(NAME, &file, &OpenOptions::default());
    let expected: Files = [
        ("0/data.jpg", Some(JPEG.to_vec())),
        ("0/label.npy", labels_of(&[3.0])),
        ("1/data.txt", Some(b"text".to_vec())),
        ("1/label.npy", labels_of(&[1.0, 2.5])),
        ("2/data.txt", Some(Vec::new())),
        ("2/label.npy", labels_of(&[4.0])),
    ]
    .map(|(path, bytes)| (path.to_owned(), bytes))
    .into();
    assert_eq!(files, expected);
    let raw = OpenOptions { view: View::Raw, ..OpenOptions::default() };
    assert_eq!(opened(NAME, &file, &raw)["0"], Some(image(&[3.0], JPEG)));
}

#[test]
fn records_without_the_header_of_images_are_files() {
    let file = [record(JPEG), record(b"short"), record(b"")].concat();
    assert_eq!(open(&file, false).unwrap().names(0).unwrap(), Names::None);
    assert_eq!(opened(NAME, &file, &OpenOptions::default())["1"], Some(b"short".to_vec()));
}

#[test]
fn parts_of_a_record_are_joined_with_the_magic_number_between_them() {
    let magic = MAGIC.to_le_bytes();
    let value = [JPEG, b"..", &magic, &magic, b"1234", &magic].concat();
    // Behind 24 bytes of header, 38 bytes of the value come before the first magic number.
    let data = image(&[1.0], &value);
    let written = record(&data);
    assert_eq!(written.windows(4).filter(|word| *word == magic).count(), 4);
    let file = [written, record(&image(&[2.0], b"x"))].concat();
    let files = opened(NAME, &file, &OpenOptions::default());
    assert_eq!(files["0/data.jpg"], Some(value));
    assert_eq!(files["0/label.npy"], labels_of(&[1.0]));
    let raw = OpenOptions { view: View::Raw, ..OpenOptions::default() };
    assert_eq!(opened(NAME, &file, &raw)["0"], Some(data));
}

#[test]
fn what_is_no_record_refuses_the_file_and_is_named_or_ends_what_is_shown() {
    let good = record(&image(&[1.0], JPEG));
    let mut file = [&good[..], &good, &good].concat();
    file[good.len() + 2] ^= 1;
    let error = open(&file, false).err().unwrap().to_string();
    assert!(
        error.contains(&format!("at byte {}: expected the magic number", good.len())),
        "{error}"
    );
    assert_eq!(open(&file, true).unwrap().len(), 2);
    let cut = &[&good[..], &good].concat()[..good.len() * 2 - 6];
    let error = open(cut, false).err().unwrap().to_string();
    assert!(error.contains(&format!("at byte {}", good.len())), "{error}");
    assert_eq!(open(cut, true).unwrap().len(), 2);
    // The last part of a record that never began.
    let part = [MAGIC.to_le_bytes(), (3_u32 << 29).to_le_bytes()].concat();
    assert!(open(&part, false).err().unwrap().to_string().contains("a part of kind 3"));
}

#[test]
fn a_record_of_very_many_parts_is_refused() {
    // Two pieces for each magic number in the data: the number, and the bytes behind it.
    for (numbers, is_refused) in [(1 << 15, false), ((1 << 15) + 1, true), (1 << 17, true)] {
        let file = record(&MAGIC.to_le_bytes().repeat(numbers));
        let error = open(&file, false).err().map(|error| error.to_string());
        let said = error.unwrap_or_default();
        assert_eq!(said.contains("the next part of a record"), is_refused, "{said}");
        // No part of a refused record is shown.
        assert_eq!(open(&file, true).unwrap().len(), u64::from(!is_refused));
    }
}

#[test]
fn long_values_and_many_labels_are_not_read_to_find_an_ending() {
    let text = |length: usize| image(&[1.0], &vec![b'a'; length]);
    let labels = |count: usize| image(&vec![1.0; count], b"text");
    for (data, ending) in [
        (text(1 << 20), ".txt"),
        (text((1 << 20) + 1), ".bin"),
        (labels(((1 << 20) - 24) / 4), ".txt"),
        (labels(((1 << 20) - 20) / 4), ".bin"),
    ] {
        let container = open(&record(&data), false).unwrap();
        let name = String::from_utf8(container.field_name(1).unwrap()).unwrap();
        assert_eq!(name, format!("data{ending}"));
    }
}

#[test]
fn every_truncation_and_flip_is_refused_or_right() {
    let value = [&b"12345678"[..], &MAGIC.to_le_bytes(), b"abcd"].concat();
    let file = [record(&image(&[1.0], &value)), record(&image(&[1.0, 2.0], JPEG)), record(b"x")];
    truncate_and_flip(NAME, &file.concat());
}

proptest! {
    #[test]
    fn any_records_come_back(
        records in vec((vec(-9.0_f32..9.0, 1..4), vec(any::<u8>(), 0..60), any::<bool>()), 0..8),
    ) {
        let (mut file, mut expected) = (Vec::new(), Files::new());
        for (number, (labels, value, has_magic)) in records.iter().enumerate() {
            let mut value = value.clone();
            if *has_magic {
                value.extend(MAGIC.to_le_bytes().repeat(3));
            }
            let data = image(labels, &value);
            file.extend(record(&data));
            expected.insert(format!("{number}/label.npy"), labels_of(labels));
            expected.insert(format!("{number}/data"), Some(value));
        }
        let found = opened(NAME, &file, &OpenOptions::default());
        let stem = |path: &str| match path.split_once("/data") {
            Some((number, _)) => format!("{number}/data"),
            None => path.to_owned(),
        };
        let found: Files = found.into_iter().map(|(path, bytes)| (stem(&path), bytes)).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn any_bytes_behind_a_header_do_no_harm(bytes in vec(any::<u8>(), 0..200), word: u32) {
        for word in [word, bytes.len() as u32, word & 63, 1 << 29 | word & 63] {
            let file = [&MAGIC.to_le_bytes()[..], &word.to_le_bytes(), &bytes].concat();
            for container in [open(&file, false), open(&file, true)].into_iter().flatten() {
                all_files(&file, container.as_ref());
            }
        }
    }
}
