use super::*;
use crate::format::testing::{compare, files, look_at, open_as, open_fixture, truncate_and_flip};
use proptest::prelude::*;

/// A key with its type, and the bytes of each item's array.
type Model = Vec<(String, String, Vec<Vec<u8>>)>;

fn text(name: &str) -> Vec<u8> {
    [name.as_bytes(), b"\0"].concat()
}

fn document(elements: &[u8]) -> Vec<u8> {
    [&(elements.len() as i32 + 5).to_le_bytes()[..], elements, b"\0"].concat()
}

fn binary(name: &str, numbers: &[i64]) -> Vec<u8> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    let length = (bytes.len() as i32).to_le_bytes();
    [&[0x05][..], &text(name), &length, b"\0", &bytes].concat()
}

fn entry(key: &str, offsets: &[i64], sizes: &[i64], dtype: &str) -> Vec<u8> {
    let dtype = text(dtype);
    let string = [&[0x02][..], b"dtype\0", &(dtype.len() as i32).to_le_bytes(), &dtype].concat();
    let inner = [binary("offset", offsets), binary("size", sizes), string].concat();
    [&[0x03][..], &text(key), &document(&inner)].concat()
}

fn assemble(data: &[u8], metadata: &[u8]) -> Vec<u8> {
    let offset = (22 + data.len() as i64).to_le_bytes();
    let length = (metadata.len() as i64).to_le_bytes();
    [b"GS\0\0\x02\0", &offset[..], &length, data, metadata].concat()
}

/// Writes item after item, key after key, as the package does.
fn write(model: &Model) -> Vec<u8> {
    let mut data = Vec::new();
    let mut extents = vec![(Vec::new(), Vec::new()); model.len()];
    for item in 0..model.first().map_or(0, |(.., arrays)| arrays.len()) {
        for ((.., arrays), (offsets, sizes)) in model.iter().zip(&mut extents) {
            offsets.push(22 + data.len() as i64);
            sizes.push(arrays[item].len() as i64);
            data.extend_from_slice(&arrays[item]);
        }
    }
    let entries: Vec<u8> = model
        .iter()
        .zip(&extents)
        .flat_map(|((key, dtype, _), (offsets, sizes))| entry(key, offsets, sizes, dtype))
        .collect();
    assemble(&data, &document(&entries))
}

fn small() -> Model {
    vec![
        ("x".into(), "float32".into(), vec![vec![1; 8], vec![], vec![2; 4]]),
        ("caption".into(), "str".into(), vec![b"one".to_vec(), b"".to_vec(), b"three".to_vec()]),
    ]
}

fn open(file: &[u8]) -> Result<Box<dyn Container>> {
    open_as(NAME, file, &OpenOptions::default())
}

fn refusal(file: &[u8]) -> String {
    open(file).err().expect("refused").to_string()
}

fn with(options: View) -> OpenOptions {
    OpenOptions { view: options, ..OpenOptions::default() }
}

#[test]
fn every_fixture_is_shown_or_refused_as_the_reference_package_has_it() {
    for name in
        ["features.syr", "mixed.syr", "bad_magic.syr", "negative_offset.syr", "truncated.syr"]
    {
        compare(name);
    }
}

#[test]
fn the_raw_view_shows_the_stored_bytes_under_the_bare_key() {
    let (file, container) = open_fixture("mixed.syr", &with(View::Raw));
    let (_, typed) = open_fixture("mixed.syr", &OpenOptions::default());
    let (raw, typed) =
        (files(&file, container.unwrap().as_ref()), files(&file, typed.unwrap().as_ref()));
    assert_eq!(raw.len(), typed.len());
    for (path, bytes) in &raw {
        let bytes = bytes.as_ref().unwrap();
        match typed.get(&format!("{path}.npy")) {
            Some(array) => assert_eq!(&array.as_ref().unwrap()[128..], bytes),
            None => assert_eq!(typed[&format!("{path}.txt")].as_ref(), Some(bytes)),
        }
    }
}

#[test]
fn a_dataset_without_a_key_or_without_an_item_is_empty() {
    for file in [assemble(b"", &document(b"")), write(&vec![("x".into(), "int8".into(), vec![])])] {
        let container = open(&file).unwrap();
        assert!(container.is_empty() && container.data_bytes() == 0);
        assert_eq!(container.index_checksum(), IndexChecksum::None);
    }
}

#[test]
fn an_unknown_type_and_a_part_of_an_element_are_shown_as_stored_with_a_warning() {
    let model = vec![
        ("a".into(), "complex64".into(), vec![vec![1; 8], vec![2; 8]]),
        ("b".into(), "int32".into(), vec![vec![3; 4], vec![4; 5]]),
    ];
    let file = write(&model);
    let container = open(&file).unwrap();
    let files = files(&file, container.as_ref());
    let names: Vec<_> = files.keys().map(String::as_str).collect();
    assert_eq!(names, ["000000/a", "000000/b.npy", "000001/a", "000001/b"]);
    assert_eq!(files["000001/b"].as_deref(), Some(&[4; 5][..]));
    let [unknown, odd] = container.warnings() else { panic!("{:?}", container.warnings()) };
    assert!(unknown.contains(r#""a" is of the unknown type "complex64""#), "{unknown}");
    assert!(odd.contains(r#""b": 1 array holds a part of an element of int32"#), "{odd}");
}

#[test]
fn keys_that_are_no_names_are_escaped_and_never_collide() {
    let keys = ["", ".", "..", "a/b", "x", "x.npy", &"k".repeat(300)];
    let dtypes = ["int8", "what", "what", "int8", "int8", "what", "int8"];
    let model: Model = keys
        .into_iter()
        .zip(dtypes)
        .map(|(key, dtype)| (key.to_owned(), dtype.to_owned(), vec![vec![1]]))
        .collect();
    let file = write(&model);
    let container = open(&file).unwrap();
    look_at(&file, container.as_ref());
    let name = |index| String::from_utf8(container.field_name(index).unwrap()).unwrap();
    let names: Vec<_> = (0..6).map(name).collect();
    assert_eq!(names, [".npy", "%2E", "%2E%2E", "a%2Fb.npy", "x.npy", "x (1).npy"]);
    assert!(name(6).len() == 255 && name(6).ends_with(".npy"));
}

#[test]
fn a_header_that_was_never_finished_says_that_the_writer_died() {
    let mut file = write(&small());
    file[6..22].fill(0);
    assert!(refusal(&file).contains("the writer died"));
}

#[test]
fn metadata_that_are_not_in_the_file_are_refused_at_their_byte() {
    let file = write(&small());
    for (at, value, byte) in [
        (6, -5, "byte 6"),
        (6, 21, "byte 6"),
        (6, 1 << 40, "byte 6"),
        (14, -1, "byte 14"),
        (14, 1 << 40, "byte 14"),
        (14, i64::MAX, "byte 14"),
    ] {
        let mut bad = file.clone();
        bad[at..at + 8].copy_from_slice(&i64::to_le_bytes(value));
        let message = refusal(&bad);
        assert!(message.contains(byte) && message.contains(&value.to_string()), "{message}");
    }
    let mut shorter = file.clone();
    shorter[14] -= 1;
    assert!(refusal(&shorter).contains("a BSON document"));
}

#[test]
fn metadata_of_other_types_or_lengths_are_refused() {
    let good = entry("x", &[22], &[4], "int8");
    let refused = |entries: &[u8], says: &str| {
        let message = refusal(&assemble(b"data", &document(entries)));
        assert!(message.contains(says), "{says:?} is not in: {message}");
    };
    refused(&[good.clone(), good.clone()].concat(), "each key once");
    refused(&entry("x", &[22], &[4, 4], "int8"), "an array of 8 bytes, as the first one");
    let other = entry("y", &[22, 22], &[4, 4], "int8");
    refused(&[good.clone(), other].concat(), "an array of 8 bytes, as the first one");
    refused(&[&[0x02][..], b"x\0", &[2, 0, 0, 0], b"a\0"].concat(), "type 0x02");
    let inner = [binary("offset", &[22]), binary("size", &[4])].concat();
    refused(&[&[0x03][..], b"x\0", &document(&inner)].concat(), "not all of them");
    let inner = [binary("offset", &[22]), binary("offset", &[4])].concat();
    refused(&[&[0x03][..], b"x\0", &document(&inner)].concat(), "each once");
    let odd = [&[0x05][..], b"offset\0", &[7, 0, 0, 0, 0], &[0; 7]].concat();
    let rest = [binary("size", &[4]), [&[2][..], b"dtype\0", &[1, 0, 0, 0, 0]].concat()].concat();
    refused(&[&[0x03][..], b"x\0", &document(&[odd, rest].concat())].concat(), "8-byte numbers");
    refused(&[&[0x03][..], &[b'k'; 5000], b"\0"].concat(), "a name of at most 4096 bytes");
}

#[test]
fn an_array_outside_the_data_is_refused_or_alone_is_damaged() {
    for (offset, size) in [(21, 1), (22, 5), (27, 0), (-1, 1), (22, -1), (i64::MAX, i64::MAX)] {
        let metadata = document(&entry("x", &[22, offset], &[4, size], "int8"));
        let file = assemble(b"data", &metadata);
        let message = refusal(&file);
        assert!(message.contains(&format!("{} at {offset}", counted(size, "byte"))), "{message}");
        let options = OpenOptions { allow_damaged: true, ..OpenOptions::default() };
        let container = open_as(NAME, &file, &options).unwrap();
        look_at(&file, container.as_ref());
        assert!(!container.sample(0).unwrap().damaged && container.sample(1).unwrap().damaged);
        assert_eq!(container.warnings().len(), 1);
    }
}

#[test]
fn bytes_behind_the_metadata_are_accepted_with_a_warning() {
    let file = [write(&small()), vec![0; 9]].concat();
    assert!(open(&file).unwrap().warnings()[0].contains("9 bytes after the metadata"));
}

#[test]
fn more_keys_than_a_record_may_have_are_refused() {
    let entries: Vec<u8> =
        (0..65_536).flat_map(|key| entry(&key.to_string(), &[], &[], "int8")).collect();
    assert!(refusal(&assemble(b"", &document(&entries))).contains("at most 65535 keys"));
}

#[test]
fn extents_of_many_chunks_are_checked_to_the_end() {
    let mut offsets = vec![22; 200_000];
    let sizes = vec![1; 200_000];
    let file = assemble(b"x", &document(&entry("x", &offsets, &sizes, "int8")));
    assert_eq!(open(&file).unwrap().len(), 200_000);
    offsets[199_999] = 23;
    let file = assemble(b"x", &document(&entry("x", &offsets, &sizes, "int8")));
    assert!(refusal(&file).contains("item 199999"));
}

#[test]
fn every_truncation_and_every_flipped_bit_is_refused_or_shown_without_a_panic() {
    let file = write(&small());
    for allow_damaged in [false, true] {
        let options = OpenOptions { allow_damaged, ..OpenOptions::default() };
        truncate_and_flip(NAME, &file, &options);
    }
}

#[test]
fn every_truncation_is_refused() {
    let file = write(&small());
    for length in 0..file.len() {
        assert!(open(&file[..length]).is_err(), "{length}");
    }
}

fn models() -> impl Strategy<Value = Model> {
    (0usize..6, 0usize..5).prop_flat_map(|(items, keys)| {
        let dtype = prop_oneof![
            proptest::sample::select(DTYPES).prop_map(|(dtype, _)| dtype.to_owned()),
            Just("str".to_owned()),
            "[a-z]{0,6}"
        ];
        let array = proptest::collection::vec(any::<u8>(), 0..40);
        let arrays = proptest::collection::vec(array, items);
        let key = ("[^\\x00]{0,12}", dtype, arrays);
        proptest::collection::btree_map("[^\\x00]{0,12}", key, keys)
            .prop_map(|keys| keys.into_iter().map(|(name, (_, d, a))| (name, d, a)).collect())
    })
}

proptest! {
    #[test]
    fn any_arrays_come_back_as_they_were_written(model in models()) {
        let file = write(&model);
        let container = open(&file).unwrap();
        let items = model.first().map_or(0, |(.., arrays)| arrays.len());
        prop_assert_eq!(container.len(), (items * model.len()) as u64);
        look_at(&file, container.as_ref());
        for item in 0..items {
            for (key, (_, dtype, arrays)) in model.iter().enumerate() {
                let index = (item * model.len() + key) as u64;
                let sample = container.sample(index).unwrap();
                let start = sample.offset_bytes as usize;
                let stored = &file[start..start + sample.length_bytes as usize];
                prop_assert_eq!(stored, arrays[item].as_slice());
                let known = DTYPES.iter().find(|(name, _)| name == dtype);
                let whole = known.is_some_and(|(_, descr)| {
                    (stored.len() as u64).is_multiple_of(npy::item_bytes(descr).unwrap())
                });
                prop_assert_eq!(sample.content != Content::Stored, whole);
            }
        }
    }

    #[test]
    fn any_bytes_as_metadata_are_opened_or_refused_without_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        places in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        allow_damaged: bool,
    ) {
        let options = OpenOptions { allow_damaged, ..OpenOptions::default() };
        let mut changed = write(&small());
        for (place, byte) in places {
            let at = place.index(changed.len());
            changed[at] = byte;
        }
        for file in [assemble(b"data", &document(&bytes)), changed, bytes] {
            if let Ok(container) = open_as(NAME, &file, &options) {
                look_at(&file, container.as_ref());
            }
        }
    }
}
