//! Files that the reference package writes, files that lie, and any tensors against a model.

use super::*;
use crate::format::testing::{compare, files, open_as, truncate_and_flip};
use proptest::collection::vec;
use proptest::prelude::*;

/// A file with this header and `data_bytes` bytes of data, which count up.
fn file(header: &str, data_bytes: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend((0..data_bytes).map(|number| number as u8));
    file
}

fn refused(header: &str, data_bytes: usize) -> String {
    let opened = open_as(NAME, &file(header, data_bytes), &OpenOptions::default());
    opened.err().expect("refused").to_string()
}

fn open(bytes: &[u8], view: View) -> Box<dyn Container> {
    open_as(NAME, bytes, &OpenOptions { view, ..OpenOptions::default() }).unwrap()
}

const TWO: &str = r#"{"__metadata__": {"format": "pt"},
    "b.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [4, 28]},
    "a/x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}   "#;

#[test]
fn what_the_package_wrote_is_shown_as_it_reads_it() {
    compare("tensors.safetensors");
    compare("empty.safetensors");
}

#[test]
fn tensors_are_arrays_and_what_numpy_does_not_have_is_shown_as_it_is() {
    let bytes = file(TWO, 28);
    let container = open(&bytes, View::Typed);
    let data: Vec<u8> = (0..28).collect();
    let shown = files(&bytes, container.as_ref());
    assert_eq!(shown.len(), 3);
    assert_eq!(shown["__metadata__.json"].as_deref(), Some(&br#"{"format": "pt"}"#[..]));
    assert_eq!(shown["a/x.bin"].as_deref(), Some(&data[..4]));
    let array = [&npy::header("<f4", &[2, 3])[..], &data[4..]].concat();
    assert_eq!(shown["b.weight.npy"], Some(array.clone()));
    assert_eq!(container.data_bytes(), (16 + 4 + array.len()) as u64);
    let [note] = container.warnings() else { panic!("{:?}", container.warnings()) };
    assert!(note.contains("1 tensor of BF16, which NumPy does not have"), "{note}");
}

#[test]
fn metadata_that_are_null_are_none() {
    let header =
        r#"{"__metadata__": null, "a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}}"#;
    let bytes = file(header, 2);
    let shown = files(&bytes, open(&bytes, View::Typed).as_ref());
    assert_eq!(shown.keys().collect::<Vec<_>>(), ["a.npy"]);
}

#[test]
fn the_raw_view_shows_the_stored_bytes_under_the_names() {
    let bytes = file(TWO, 28);
    let shown = files(&bytes, open(&bytes, View::Raw).as_ref());
    assert_eq!(shown.keys().collect::<Vec<_>>(), ["__metadata__.json", "a/x", "b.weight"]);
    assert_eq!(shown["b.weight"].as_ref().map(Vec::len), Some(24));
}

#[test]
fn samples_are_numbered_in_the_order_of_their_data() {
    let bytes = file(TWO, 28);
    let container = open(&bytes, View::Typed);
    let at: Vec<_> = (0..3).map(|index| container.sample(index).unwrap().offset_bytes).collect();
    assert!(at.is_sorted(), "{at:?}");
}

#[test]
fn a_header_that_lies_is_refused_with_the_byte() {
    let one = |rest: &str| format!(r#"{{"t": {{{rest}}}}}"#);
    let fields = |dtype: &str, shape: &str, offsets: &str| {
        one(&format!(r#""dtype": "{dtype}", "shape": {shape}, "data_offsets": {offsets}"#))
    };
    let many = format!("[{}1]", "1,".repeat(64));
    for (header, expected) in [
        (fields("F32", "[2]", "[0, 9]"), "\"t\" within the 8 bytes of data, found 0 to 9"),
        (fields("F32", "[2]", "[8, 0]"), "found 8 to 0"),
        (fields("F32", "[1]", "[4, 8]"), "the data of \"t\" to begin at 0, found 4"),
        (
            fields("F32", "[3]", "[0, 8]"),
            "12 bytes of \"t\", as its type and shape ask for, found 8",
        ),
        (fields("F4", "[3]", "[0, 8]"), "expected whole bytes"),
        (fields("U8", "[4]", "[0, 4]"), "found 4 bytes of no tensor"),
        (fields("U8", "[4294967296, 4294967296]", "[0, 8]"), "expected whole bytes"),
        (fields("U8", &many, "[0, 8]"), "list of up to 64 lengths"),
        (fields("U8", "[-1]", "[0, 8]"), "expected u64"),
        (fields("U8", "[8]", "[0, 8, 8]"), "a tensor's dtype, shape and data_offsets"),
        (one(r#""dtype": "U8", "shape": [8]"#), "missing field `data_offsets`"),
        (r#"{"__metadata__": {"a": 1}}"#.to_owned(), "__metadata__ as an object of strings"),
        (r#"{"__metadata__": {}, "__metadata__": {}}"#.to_owned(), "expected one __metadata__"),
        ("[]".to_owned(), "a header of JSON"),
        ("{} x".to_owned(), "trailing characters"),
        ("{\"a\": ".to_owned(), "EOF while parsing"),
    ] {
        let said = refused(&header, 8);
        assert!(said.starts_with("t: ") && said.contains("at byte "), "{said}");
        assert!(said.contains(expected), "{header}: {said}");
    }
}

#[test]
fn the_byte_is_that_of_the_wrong_value() {
    let header = "{\n\"t\": {\"dtype\": \"U8\",\n\"shape\": [x], \"data_offsets\": [0, 0]}}";
    let at = 8 + header.find('x').unwrap();
    assert!(refused(header, 0).contains(&format!("at byte {at}:")), "{}", refused(header, 0));
    let header = r#"{"t": {"dtype": "U8", "shape": [1], "data_offsets": [3, 4]}}"#;
    let at = 8 + header.find(r#"{"dtype"#).unwrap();
    assert!(refused(header, 4).contains(&format!("at byte {at}:")));
}

#[test]
fn a_name_that_stands_twice_is_refused() {
    let tensor = r#""t": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}"#;
    let said = refused(&format!("{{{tensor}, {tensor}}}"), 0);
    assert!(said.contains("expected each tensor once, found a second \"t\""), "{said}");
}

#[test]
fn a_header_that_is_too_long_or_not_all_there_is_refused() {
    for (length, hint) in [(100_000_001_u64, "bytes"), (u64::MAX, "bytes"), (30, "truncated")] {
        let bytes = [&length.to_le_bytes()[..], b"{\"a\""].concat();
        let said = open_as(NAME, &bytes, &OpenOptions::default()).err().unwrap().to_string();
        assert!(said.contains("at byte 0: expected a header of up to"), "{said}");
        assert!(said.ends_with(hint), "{said}");
    }
    assert!(open_as(NAME, b"short", &OpenOptions::default()).is_err());
}

#[test]
fn damage_is_confined_to_the_tensors_that_have_it_if_that_is_allowed() {
    let options = OpenOptions { allow_damaged: true, ..OpenOptions::default() };
    let bytes = file(TWO, 20);
    let container = open_as(NAME, &bytes, &options).unwrap();
    let shown = files(&bytes, container.as_ref());
    assert_eq!(shown["b.weight.npy"], None);
    assert_eq!(shown["a/x.bin"].as_deref(), Some(&[0, 1, 2, 3][..]));
    assert!(container.warnings().iter().any(|text| text.contains("truncated")));
    let behind = file(TWO, 30);
    let container = open_as(NAME, &behind, &options).unwrap();
    assert!(files(&behind, container.as_ref()).values().all(Option::is_some));
    assert!(container.warnings().iter().any(|text| text.contains("2 bytes of no")));
}

#[test]
fn a_type_that_is_not_known_is_shown_as_it_is_stored() {
    let header = r#"{"t": {"dtype": "Q7", "shape": [9], "data_offsets": [0, 5], "more": [{}]}}"#;
    let bytes = file(header, 5);
    let container = open(&bytes, View::Typed);
    assert_eq!(files(&bytes, container.as_ref())["t.bin"].as_deref(), Some(&[0, 1, 2, 3, 4][..]));
    assert!(container.warnings()[0].contains("1 tensor of an unknown type"));
}

#[test]
fn the_content_tells_the_format() {
    let detect = |bytes: &[u8]| {
        Safetensors.detect(&crate::format::MemorySource::new("t", bytes.to_vec())).unwrap()
    };
    assert_eq!(detect(&file(TWO, 28)), Detected::Yes);
    assert_eq!(detect(&file("{}", 0)), Detected::Yes);
    assert_eq!(detect(&file(TWO, 28)[..60]), Detected::Perhaps);
    assert_eq!(detect(&file("[1]", 0)), Detected::No);
    assert_eq!(detect(b"12345678"), Detected::No);
    assert_eq!(detect(&[0; 40]), Detected::No);
}

#[test]
fn nothing_that_is_cut_or_flipped_panics() {
    for allow_damaged in [false, true] {
        let options = OpenOptions { allow_damaged, ..OpenOptions::default() };
        truncate_and_flip(NAME, &file(TWO, 28), &options);
    }
}

proptest! {
    #[test]
    fn any_tensors_are_shown_as_the_model_has_them(
        tensors in vec(("[a-z./]{1,8}", 0..13_usize, vec(0..4_u64, 0..4)), 0..12),
        order in any::<proptest::sample::Index>(),
    ) {
        const TYPES: [(&str, &str, u64); 13] = [
            ("BOOL", "|b1", 1), ("U8", "|u1", 1), ("I8", "|i1", 1), ("U16", "<u2", 2),
            ("I16", "<i2", 2), ("F16", "<f2", 2), ("U32", "<u4", 4), ("I32", "<i4", 4),
            ("F32", "<f4", 4), ("U64", "<u8", 8), ("I64", "<i8", 8), ("F64", "<f8", 8),
            ("C64", "<c8", 8),
        ];
        let mut expected = BTreeMap::new();
        let (mut entries, mut at) = (Vec::new(), 0);
        for (name, kind, shape) in tensors {
            let (dtype, descr, item) = TYPES[kind];
            let size = item * shape.iter().product::<u64>();
            let data: Vec<u8> = (at..at + size).map(|number| number as u8).collect();
            let array = [npy::header(descr, &shape), data].concat();
            if expected.insert(format!("{name}.npy"), Some(array)).is_none() {
                let offsets = [at, at + size];
                let value = serde_json::json!(
                    {"dtype": dtype, "shape": shape, "data_offsets": offsets}
                );
                entries.push(format!("{}:{value}", serde_json::json!(name)));
                at += size;
            } else {
                return Ok(());
            }
        }
        if !entries.is_empty() {
            let middle = order.index(entries.len());
            entries.rotate_left(middle);
        }
        let bytes = file(&format!("{{{}}}", entries.join(",")), at as usize);
        let container = open(&bytes, View::Typed);
        prop_assert_eq!(files(&bytes, container.as_ref()), expected);
    }

    #[test]
    fn any_header_is_refused_or_can_be_looked_at(
        text in "[{}\\[\\]:,\" a0-9-]{0,60}", data in 0..40_usize
    ) {
        let bytes = file(&text, data);
        if let Ok(container) = open_as(NAME, &bytes, &OpenOptions::default()) {
            files(&bytes, container.as_ref());
        }
    }
}
