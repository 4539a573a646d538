//! JSON of columns as no current writer makes them: times of any year, and old lists and maps.

use super::writer::{Column, Entry, Style, Value, element, file};
use super::*;

fn text(text: &str) -> Option<Vec<u8>> {
    Some([&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat())
}

/// The files that a column is shown as, in pages of all kinds.
fn shown(make: &dyn Fn() -> Column) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for (has_dictionary, is_second_version) in
        [(false, false), (false, true), (true, false), (true, true)]
    {
        let (codec, page_values) = (if is_second_version { 6 } else { 0 }, 3);
        let group_rows = 100;
        let style = Style {
            codec,
            is_second_version,
            has_dictionary,
            has_checksums: true,
            page_values,
            group_rows,
        };
        let bytes = file(style, vec![make()]);
        let container = open(&bytes).unwrap();
        assert!(container.warnings().is_empty(), "{:?}", container.warnings());
        let found = files(&bytes, container.as_ref());
        let found: BTreeMap<_, _> =
            found.into_iter().map(|(path, bytes)| (path, bytes.unwrap())).collect();
        assert!(all.is_empty() || all == found);
        all = found;
    }
    all
}

fn json(files: &BTreeMap<String, Vec<u8>>, path: &str) -> String {
    String::from_utf8(files[path].clone()).unwrap()
}

/// An optional list or map of one optional leaf: the names of its groups, and a leaf.
fn list(converted: i32, leaf: Value) -> Vec<Value> {
    let group = element("c", None, 1, 1, Some(converted));
    vec![group, element("list", None, 2, 1, None), leaf]
}

#[test]
fn times_of_96_bits_in_lists_with_nulls_have_the_year_that_is_stored() {
    let time = |of_day: i64, day: i64| {
        let day = (2_440_588 + day) as u32;
        [&of_day.to_le_bytes()[..], &day.to_le_bytes()].concat()
    };
    let column = || Column {
        elements: list(3, element("element", Some(3), 1, 0, None)),
        stored_type: 3,
        levels: (1, 3),
        rows: vec![
            vec![(0, 3, Some(time(1, 2_932_896))), (1, 2, None), (1, 3, Some(time(0, -719_162)))],
            vec![(0, 3, Some(time(5, 1))), (1, 2, None)],
            vec![(0, 3, Some(time(5, 1))), (1, 3, Some(time(0, 2_932_896)))],
        ],
    };
    let files = shown(&column);
    let (last, first) = ("9999-12-31T00:00:00.000000001", "0001-01-01T00:00:00.000000000");
    assert_eq!(json(&files, "000000/c.json"), format!("[\"{last}\",null,\"{first}\"]"));
    assert_eq!(json(&files, "000001/c.json"), "[\"1970-01-02T00:00:00.000000005\",null]");
    // The type of times in an array is nanoseconds.
    let times = [86_400_000_000_005_i64.to_le_bytes(), i64::MIN.to_le_bytes()].concat();
    assert!(files["000002/c.npy"].ends_with(&times));
}

#[test]
fn a_key_that_is_null_is_the_name_null() {
    let column = || Column {
        elements: list(1, element("key", Some(6), 1, 0, Some(0))),
        stored_type: 6,
        levels: (1, 3),
        rows: vec![vec![(0, 3, text("a")), (1, 2, None), (1, 3, text("null"))], vec![(0, 1, None)]],
    };
    let files = shown(&column);
    assert_eq!(json(&files, "000000/c.json"), r#"{"a":null,"null":null,"null":null}"#);
    assert_eq!(json(&files, "000001/c.json"), "{}");
}

#[test]
fn items_of_old_lists_that_are_maps_are_maps() {
    let entries: Vec<Entry> = vec![(0, 3, text("a")), (2, 3, text("b")), (1, 3, text("c"))];
    let column = || Column {
        elements: vec![
            element("c", None, 1, 1, Some(3)),
            element("maps", None, 2, 1, Some(1)),
            element("map", None, 2, 1, None),
            element("key", Some(6), 0, 0, Some(0)),
        ],
        stored_type: 6,
        levels: (2, 3),
        rows: vec![entries.clone()],
    };
    let files = shown(&column);
    assert_eq!(json(&files, "000000/c.json"), r#"[{"a":null,"b":null},{"c":null}]"#);
}
