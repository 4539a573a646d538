use super::*;
use crate::format::records::tests::{Files, all_files, array, opened, truncate_and_flip};
use crate::format::testing::open_as;
use crate::format::{Names, View};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

/// A list of values as it is written.
#[derive(Debug, Clone)]
enum List {
    Bytes(Vec<Vec<u8>>),
    /// Floats, packed in runs of this length; 0 if they are not packed.
    Floats(Vec<u32>, usize),
    Integers(Vec<i64>, usize),
    Nothing,
}

fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let crc = |bytes: &[u8]| ChecksumKind::MaskedCrc32c.of(bytes).value().to_le_bytes();
    [&length[..], &crc(&length), data, &crc(data)].concat()
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2][..], &varint(bytes.len() as u64), bytes].concat()
}

fn feature(list: &List) -> Vec<u8> {
    match list {
        List::Nothing => Vec::new(),
        List::Bytes(values) => {
            field(1, &values.iter().flat_map(|value| field(1, value)).collect::<Vec<_>>())
        }
        List::Floats(values, run) => {
            let bytes = |values: &[u32]| -> Vec<u8> {
                values.iter().flat_map(|value| value.to_le_bytes()).collect()
            };
            let body: Vec<u8> = match run {
                0 => values.iter().flat_map(|v| [&[0x0d][..], &v.to_le_bytes()].concat()).collect(),
                run => values.chunks(*run).flat_map(|run| field(1, &bytes(run))).collect(),
            };
            field(2, &body)
        }
        List::Integers(values, run) => {
            let number = |value: &i64| varint(value.cast_unsigned());
            let body: Vec<u8> = match run {
                0 => values.iter().flat_map(|v| [&[8][..], &number(v)].concat()).collect(),
                run => values
                    .chunks(*run)
                    .flat_map(|run| field(1, &run.iter().flat_map(number).collect::<Vec<_>>()))
                    .collect(),
            };
            field(3, &body)
        }
    }
}

fn features<'a>(lists: impl IntoIterator<Item = (&'a str, &'a List)>) -> Vec<u8> {
    let entry = |(key, list): (&str, &List)| {
        field(1, &[field(1, key.as_bytes()), field(2, &feature(list))].concat())
    };
    lists.into_iter().flat_map(entry).collect()
}

fn example<'a>(lists: impl IntoIterator<Item = (&'a str, &'a List)>) -> Vec<u8> {
    field(1, &features(lists))
}

/// The files that a list is shown as.
fn files_of(path: &str, list: &List, files: &mut Files) {
    let ending = |value: &[u8]| crate::format::ending::named(crate::format::ending::code_of(value));
    match list {
        List::Bytes(values) if values.len() == 1 => {
            files.insert(format!("{path}{}", ending(&values[0])), Some(values[0].clone()));
        }
        List::Bytes(values) if !values.is_empty() => {
            for (number, value) in values.iter().enumerate() {
                files.insert(format!("{path}/{number}{}", ending(value)), Some(value.clone()));
            }
        }
        List::Bytes(_) | List::Nothing => {
            files.insert(format!("{path}/"), None);
        }
        List::Floats(values, _) => {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            files.insert(format!("{path}.npy"), array("<f4", &[values.len() as u64], &bytes));
        }
        List::Integers(values, _) => {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            files.insert(format!("{path}.npy"), array("<i8", &[values.len() as u64], &bytes));
        }
    }
}

fn open(file: &[u8], allow_damaged: bool) -> Result<Box<dyn Container>> {
    open_as(NAME, file, &OpenOptions { allow_damaged, ..OpenOptions::default() })
}

fn simple(label: i64) -> Vec<u8> {
    let image = List::Bytes(vec![b"\xff\xd8\xff\xe0 image".to_vec()]);
    example([("image", &image), ("label", &List::Integers(vec![label], 1))])
}

#[test]
fn a_list_that_a_feature_has_several_times_goes_on_and_one_of_another_kind_replaces_it() {
    let of = |lists: &[List]| lists.iter().flat_map(feature).collect::<Vec<u8>>();
    let entry = |key: &str, lists: &[List]| {
        field(1, &[field(1, key.as_bytes()), field(2, &of(lists))].concat())
    };
    let bytes = |text: &str| List::Bytes(vec![text.as_bytes().to_vec()]);
    let data = [
        entry("bytes", &[bytes("a"), bytes("b")]),
        entry("last", &[bytes("a"), List::Integers(vec![3], 1), bytes("c")]),
        entry("integers", &[List::Integers(vec![1, -2], 2), List::Integers(vec![300], 0)]),
        entry("floats", &[bytes("x"), List::Floats(vec![7, 8], 2), List::Floats(vec![9], 1)]),
    ];
    let file = record(&field(1, &data.concat()));
    let mut expected = Files::new();
    files_of("0/bytes", &List::Bytes(vec![b"a".to_vec(), b"b".to_vec()]), &mut expected);
    files_of("0/last", &bytes("c"), &mut expected);
    files_of("0/integers", &List::Integers(vec![1, -2, 300], 1), &mut expected);
    files_of("0/floats", &List::Floats(vec![7, 8, 9], 1), &mut expected);
    assert_eq!(opened(NAME, &file, &OpenOptions::default()), expected);
}

#[test]
fn of_a_key_that_stands_twice_the_last_counts_as_in_protocol_buffers() {
    let bytes = |text: &str| List::Bytes(vec![text.as_bytes().to_vec()]);
    let several = List::Bytes(vec![b"x".to_vec(), b"y".to_vec()]);
    let label = List::Integers(vec![7], 1);
    // Also if the map is in two parts, and if the other value has more files, or is of another kind.
    let parts = [
        field(1, &features([("a", &several), ("b", &bytes("first")), ("c", &label)])),
        field(1, &features([("b", &label), ("a", &bytes("last")), ("d", &several)])),
    ];
    let mut expected = Files::new();
    for (key, list) in [("a", &bytes("last")), ("b", &label), ("c", &label), ("d", &several)] {
        files_of(&format!("0/{key}"), list, &mut expected);
    }
    let file = record(&parts.concat());
    assert_eq!(opened(NAME, &file, &OpenOptions::default()), expected);
    // More keys than are compared one by one.
    let keys: Vec<String> = (0..40).map(|number| format!("key{number}")).collect();
    let once = keys.iter().map(|key| (&**key, &label));
    let file = record(&example(once.chain([("key39", &several), ("key38", &several)])));
    let files = opened(NAME, &file, &OpenOptions::default());
    assert_eq!(files.len(), 38 + 4);
    assert!(files.contains_key("0/key39/1.txt") && files.contains_key("0/key37.npy"));
    // Also for lists of steps.
    let steps = |lists: &[&List]| -> Vec<u8> {
        lists.iter().flat_map(|list| field(1, &feature(list))).collect()
    };
    let list = |steps: &[u8]| field(1, &[field(1, b"x"), field(2, steps)].concat());
    let lists = [list(&steps(&[&label, &label])), list(&steps(&[&several]))].concat();
    let files = opened(NAME, &record(&field(2, &lists)), &OpenOptions::default());
    let names: Vec<_> = files.keys().map(String::as_str).collect();
    assert_eq!(names, ["0/sequence/x/000000/0.txt", "0/sequence/x/000000/1.txt"]);
}

#[test]
fn records_that_are_alike_store_no_names_in_whatever_order_their_features_stand() {
    let label = List::Integers(vec![-1], 1);
    let other = example([("label", &label), ("image", &List::Bytes(vec![b"text".to_vec()]))]);
    let file = [record(&simple(7)), record(&other)].concat();
    let container = open(&file, false).unwrap();
    assert_eq!(container.names(0).unwrap(), Names::Fields(2));
    let files = opened(NAME, &file, &OpenOptions::default());
    let names: Vec<_> = files.keys().map(String::as_str).collect();
    assert_eq!(names, ["0/image.jpg", "0/label.npy", "1/image.txt", "1/label.npy"]);
    assert_eq!(files["1/label.npy"], array("<i8", &[1], &(-1_i64).to_le_bytes()));
}

#[test]
fn what_is_no_example_is_a_file() {
    let texts: [&[u8]; 5] = [b"plain", b"", b"\x0a\x00", b"\x0a\x02\x08\x01", b"\xff\xd8\xff"];
    let file: Vec<u8> = texts.iter().flat_map(|text| record(text)).collect();
    assert_eq!(open(&file, false).unwrap().names(0).unwrap(), Names::None);
    let files = opened(NAME, &file, &OpenOptions::default());
    assert!(
        files.values().eq(texts.iter().map(|text| Some(text.to_vec())).collect::<Vec<_>>().iter())
    );
    // Also beside examples.
    let file = [record(b"plain"), record(&simple(1)), record(b"again")].concat();
    let files = opened(NAME, &file, &OpenOptions::default());
    let names: Vec<_> = files.keys().map(String::as_str).collect();
    assert_eq!(names, ["0", "1/image.jpg", "1/label.npy", "2"]);
    let raw = OpenOptions { view: View::Raw, ..OpenOptions::default() };
    let files = opened(NAME, &file, &raw);
    assert_eq!(files["1"], Some(simple(1)));
}

#[test]
fn a_sequence_example_has_its_context_and_its_steps() {
    let steps: Vec<u8> = [vec![1.5_f32.to_bits()], vec![]]
        .iter()
        .flat_map(|values| field(1, &feature(&List::Floats(values.clone(), 8))))
        .collect();
    let lists = field(1, &[field(1, b"x"), field(2, &steps)].concat());
    let context = features([("id", &List::Integers(vec![300], 1))]);
    let file = record(&[field(1, &context), field(2, &lists)].concat());
    let files = opened(NAME, &file, &OpenOptions::default());
    let names: Vec<_> = files.keys().map(String::as_str).collect();
    let expected = ["0/context/id.npy", "0/sequence/x/000000.npy", "0/sequence/x/000001.npy"];
    assert_eq!(names, expected);
    assert_eq!(files[expected[1]], array("<f4", &[1], &1.5_f32.to_le_bytes()));
    assert_eq!(files[expected[2]], array("<f4", &[0], b""));
}

#[test]
fn a_record_that_does_not_match_its_checksum_gives_errors_and_the_others_are_served() {
    let mut file = [record(&simple(1)), record(&simple(2)), record(b"text")].concat();
    let second = record(&simple(1)).len() + 12;
    let at = file.windows(5).rposition(|bytes| bytes == b"image").unwrap();
    assert!(at > second);
    file[at] ^= 1;
    let container = open(&file, false).unwrap();
    assert!(container.warnings()[0].contains("1 record does not match"));
    let files = all_files(&file, container.as_ref());
    let bad: Vec<_> =
        files.iter().filter(|(_, bytes)| bytes.is_none()).map(|(p, _)| &**p).collect();
    assert_eq!(bad, ["1/image.jpg", "1/label.npy"]);
    let last = file.len() - 5;
    file[last] ^= 1;
    assert_eq!(all_files(&file, open(&file, false).unwrap().as_ref())["2"], None);
}

#[test]
fn a_wrong_length_or_a_cut_refuses_the_file_and_is_named_or_ends_what_is_shown() {
    let good = record(&simple(1));
    let mut file = [&good[..], &good, &good].concat();
    file[2 * good.len() + 9] ^= 1;
    let error = open(&file, false).err().unwrap().to_string();
    let at = format!("at byte {}: expected a length that matches its checksum", 2 * good.len());
    assert!(error.contains(&at) && error.contains("--allow-damaged"), "{error}");
    assert_eq!(open(&file, true).unwrap().len(), 4);
    for cut in 1..good.len() {
        let cut = &file[..good.len() + cut];
        let error = open(cut, false).err().unwrap().to_string();
        assert!(error.contains(&format!("at byte {}", good.len())), "{error}");
        assert_eq!(open(cut, true).unwrap().len(), 2);
    }
    assert!(open(b"", false).unwrap().is_empty());
    // A length that no file can have, with the right checksum.
    let length = (u64::MAX - 3).to_le_bytes();
    let crc = ChecksumKind::MaskedCrc32c.of(&length).value().to_le_bytes();
    assert!(open(&[&length[..], &crc, b"data"].concat(), false).is_err());
}

#[test]
fn small_lies_do_not_take_much_memory() {
    // A million empty values under a long name: as files they would take a gigabyte.
    let values = List::Bytes(vec![Vec::new(); 1_000_000]);
    let name = "n".repeat(1000);
    let file = record(&example([(&*name, &values)]));
    let container = open(&file, false).unwrap();
    assert_eq!((container.len(), container.names(0).unwrap()), (1, Names::None));
    // Many different features, so that each record has its own names.
    let keys: Vec<String> = (0..5000).map(|number| format!("key {number}")).collect();
    let list = List::Integers(vec![1], 1);
    let file = record(&example(keys.iter().map(|key| (&**key, &list))));
    assert_eq!(open(&file, false).unwrap().names(0).unwrap(), Names::Records(1));
    // More integers than are decoded, in a byte each.
    let list = field(3, &field(1, &vec![0; (8 << 20) + 1]));
    let entry = field(1, &[field(1, b"k"), field(2, &list)].concat());
    let container = open(&record(&field(1, &entry)), false).unwrap();
    assert_eq!((container.len(), container.names(0).unwrap()), (1, Names::None));
}

#[test]
fn a_record_over_256_mib_is_passed_over_and_one_file() {
    use crate::format::scanned::Scanner as _;
    for (length, is_read) in [(256 << 20, true), ((256 << 20) + 1, false)] {
        let bytes = u64::to_le_bytes(length);
        let crc = ChecksumKind::MaskedCrc32c.of(&bytes).value().to_le_bytes();
        let mut scanner = TfRecordScanner::new(&"x".into(), &OpenOptions::default());
        scanner.take(&[&bytes[..], &crc].concat()).unwrap();
        // The range includes the checksum, and the head of the next record.
        let wanted = if is_read { (12, length + 16) } else { (12 + length, 16) };
        assert_eq!(scanner.want(), Some(wanted));
    }
}

#[test]
fn every_truncation_and_flip_is_refused_or_right() {
    let more = example([
        ("a/b", &List::Bytes(vec![b"x".to_vec(), b"{}".to_vec()])),
        ("f", &List::Floats(vec![1, 2, 3], 2)),
        ("i", &List::Integers(vec![1, -1], 0)),
        ("n", &List::Nothing),
    ]);
    truncate_and_flip(NAME, &[record(&simple(5)), record(&more), record(b"raw")].concat());
}

fn list() -> impl Strategy<Value = List> {
    prop_oneof![
        vec(vec(any::<u8>(), 0..20), 0..4).prop_map(List::Bytes),
        (vec(any::<u32>(), 0..9), 0..5_usize).prop_map(|(v, run)| List::Floats(v, run)),
        (vec(any::<i64>(), 0..9), 0..5_usize).prop_map(|(v, run)| List::Integers(v, run)),
        Just(List::Nothing),
    ]
}

proptest! {
    #[test]
    fn any_features_come_back(
        records in vec(btree_map("[a-z]{1,3}(/[a-z]{1,2})?", list(), 1..5), 0..6),
        raw in vec(any::<u8>(), 0..30),
    ) {
        let (mut file, mut expected) = (Vec::new(), Files::new());
        for (number, lists) in records.iter().enumerate() {
            file.extend(record(&example(lists.iter().map(|(key, list)| (&**key, list)))));
            for (key, list) in lists {
                files_of(&format!("{number}/{key}"), list, &mut expected);
            }
        }
        // A record of text is not an example.
        let text = [b"~", &raw[..]].concat();
        file.extend(record(&text));
        expected.insert(records.len().to_string(), Some(text));
        prop_assert_eq!(opened(NAME, &file, &OpenOptions::default()), expected);
    }

    #[test]
    fn any_bytes_as_a_record_do_no_harm(data in vec(any::<u8>(), 0..200), more in vec(any::<u8>(), 0..60)) {
        for data in [&data[..], &field(1, &data), &field(1, &field(1, &data))] {
            let file = [record(data), more.clone()].concat();
            for container in [open(&file, false), open(&file, true)].into_iter().flatten() {
                all_files(&file, container.as_ref());
            }
        }
    }
}
