//! Any columns in any pages, against the values that were put into them.

use super::super::*;
use super::writer::{Column, Entry, Style, element, file};
use crate::format::npy;
use crate::format::testing::{files, open_as};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A row: the value of each column.
#[derive(Debug, Clone)]
struct Row {
    number: Option<i64>,
    text: Option<Vec<u8>>,
    list: Option<Vec<i32>>,
    words: Option<Vec<Option<String>>>,
    required: i32,
}

fn row() -> impl Strategy<Value = Row> {
    let text = prop_oneof![
        2 => prop::collection::vec(any::<u8>(), 0..40),
        1 => Just(b"\xff\xd8\xff\xe0".to_vec()),
        1 => "[a-z]{0,9}".prop_map(String::into_bytes),
    ];
    let words = prop::collection::vec(prop::option::of("[a-zä\"]{0,4}"), 0..4);
    (
        prop::option::weighted(0.9, prop_oneof![Just(7), any::<i64>()]),
        prop::option::weighted(0.9, text),
        prop::option::weighted(0.9, prop::collection::vec(0..5_i32, 0..9)),
        prop::option::weighted(0.9, words),
        any::<i32>(),
    )
        .prop_map(|(number, text, list, words, required)| Row {
            number,
            text,
            list,
            words,
            required,
        })
}

fn style() -> impl Strategy<Value = Style> {
    (
        prop_oneof![Just(0), Just(1), Just(6)],
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        1..40_usize,
        1..30_usize,
    )
        .prop_map(|(codec, is_second_version, has_dictionary, has_checksums, page, group)| {
            Style {
                codec,
                is_second_version,
                has_dictionary,
                has_checksums,
                page_values: page,
                group_rows: group,
            }
        })
}

fn prefixed(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat()
}

/// The entries of an optional list, whose items have the level `present`; a `None` in the list is a null.
fn entries(list: Option<Vec<Option<Vec<u8>>>>, present: u32) -> Vec<Entry> {
    let Some(list) = list else { return vec![(0, 0, None)] };
    if list.is_empty() {
        return vec![(0, 1, None)];
    }
    let levels = (0..).map(|number: u32| number.min(1));
    let item = |(level, item): (u32, Option<Vec<u8>>)| {
        (level, if item.is_some() { present } else { present - 1 }, item)
    };
    levels.zip(list).map(item).collect()
}

fn columns(rows: &[Row]) -> Vec<Column> {
    let flat = |name: &str, stored_type, make: &dyn Fn(&Row) -> Option<Vec<u8>>| Column {
        elements: vec![element(name, Some(stored_type), 1, 0, None)],
        stored_type,
        levels: (0, 1),
        rows: rows.iter().map(|row| vec![(0, u32::from(make(row).is_some()), make(row))]).collect(),
    };
    let list = |name: &str, item| {
        vec![element(name, None, 1, 1, Some(3)), element("list", None, 2, 1, None), item]
    };
    let numbers = |row: &Row| {
        let list = row.list.as_ref()?.iter();
        Some(list.map(|value| Some(value.to_le_bytes().to_vec())).collect())
    };
    let words = |row: &Row| {
        let list = row.words.as_ref()?.iter();
        Some(list.map(|word| word.as_ref().map(|word| prefixed(word.as_bytes()))).collect())
    };
    vec![
        flat("number", 2, &|row| Some(row.number?.to_le_bytes().to_vec())),
        flat("text", 6, &|row| Some(prefixed(row.text.as_ref()?))),
        Column {
            elements: list("list", element("element", Some(1), 0, 0, None)),
            stored_type: 1,
            levels: (1, 2),
            rows: rows.iter().map(|row| entries(numbers(row), 2)).collect(),
        },
        Column {
            elements: list("words", element("element", Some(6), 1, 0, Some(0))),
            stored_type: 6,
            levels: (1, 3),
            rows: rows.iter().map(|row| entries(words(row), 3)).collect(),
        },
        Column {
            elements: vec![element("required", Some(1), 0, 0, None)],
            stored_type: 1,
            levels: (0, 0),
            rows: rows
                .iter()
                .map(|row| vec![(0, 0, Some(row.required.to_le_bytes().to_vec()))])
                .collect(),
        },
    ]
}

/// The files that these rows are shown as.
fn expected(rows: &[Row]) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for (number, row) in rows.iter().enumerate() {
        let mut add = |name: String, bytes| all.insert(format!("{number:06}/{name}"), bytes);
        let array = |descr, shape: &[u64], elements: &[u8]| {
            [npy::header(descr, shape), elements.to_vec()].concat()
        };
        if let Some(value) = row.number {
            add("number.npy".into(), array("<i8", &[], &value.to_le_bytes()));
        }
        if let Some(text) = &row.text {
            let ending = crate::format::ending::named(crate::format::ending::code_of(text));
            add(format!("text{ending}"), text.clone());
        }
        if let Some(list) = &row.list {
            let elements: Vec<u8> = list.iter().flat_map(|value| value.to_le_bytes()).collect();
            add("list.npy".into(), array("<i4", &[list.len() as u64], &elements));
        }
        if let Some(words) = &row.words {
            add("words.json".into(), serde_json::to_vec(words).unwrap());
        }
        add("required.npy".into(), array("<i4", &[], &row.required.to_le_bytes()));
    }
    all
}

proptest! {
    #[test]
    fn any_columns_are_shown_as_they_were_put_in(
        rows in prop::collection::vec(row(), 0..70),
        style in style(),
    ) {
        let bytes = file(style, columns(&rows));
        let container = open_as(NAME, &bytes, &OpenOptions::default()).unwrap();
        prop_assert!(container.warnings().is_empty(), "{:?}", container.warnings());
        if !rows.is_empty() {
            let found = files(&bytes, container.as_ref());
            let found: BTreeMap<_, _> =
                found.into_iter().map(|(path, bytes)| (path, bytes.unwrap_or_default())).collect();
            prop_assert_eq!(found, expected(&rows));
        }
    }
}
