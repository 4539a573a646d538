//! Files that ask for more than they have, and lists that end in a broken page.

use super::super::page::Header;
use super::super::schema::Schema;
use super::super::{footer, scan};
use super::writer::{Column, Entry, Style, Value, element, file};
use super::*;
use crate::format::testing::Noted;

/// A file of one row group of `rows` rows, of integers; a chunk is its offset, its length, and its number of values.
fn raw(leaves: Vec<Value>, body: &[u8], rows: i64, chunks: &[(usize, usize, i64)]) -> Vec<u8> {
    // Leaves without a chunk are groups, of two each.
    let columns = leaves.len() - 2 * (leaves.len() - chunks.len());
    let mut out = [b"PAR1", body].concat();
    let chunk = |&(at, length, values): &(usize, usize, i64)| {
        let fields = [(1, 1), (4, 0)].map(|(id, value)| (id, Value::I32(value)));
        let places = [(5, values), (7, length as i64), (9, at as i64)];
        let places = places.map(|(id, value)| (id, Value::I64(value)));
        let fields = fields.into_iter().chain(places).collect();
        Value::Struct(vec![(2, Value::I64(0)), (3, Value::Struct(fields))])
    };
    let chunks = Value::List(chunks.iter().map(chunk).collect());
    let group = Value::Struct(vec![(1, chunks), (2, Value::I64(0)), (3, Value::I64(rows))]);
    let mut schema = vec![element("schema", None, 0, columns as i32, None)];
    schema.extend(leaves);
    let at = out.len();
    let (rows, groups) = (Value::I64(rows), Value::List(vec![group]));
    Value::Struct(vec![(1, Value::I32(2)), (2, Value::List(schema)), (3, rows), (4, groups)])
        .write(&mut out);
    let length = (out.len() - at) as u32;
    [&out[..], &length.to_le_bytes(), b"PAR1"].concat()
}

/// A page of version 1; `encodings` has those of its values and of its levels.
fn data_page(values: i32, encodings: (i32, i32), body: &[u8]) -> Vec<u8> {
    page_of(body.len() as i32, values, encodings, body)
}

/// As `data_page`, for a page that has `decoded` bytes once it is decompressed.
fn page_of(decoded: i32, values: i32, (encoding, levels): (i32, i32), body: &[u8]) -> Vec<u8> {
    let header = [values, encoding, levels, levels].map(Value::I32);
    let lengths = [decoded, body.len() as i32].map(Value::I32);
    let header = Value::Struct((1..).zip(header).collect());
    let mut out = Vec::new();
    let [decoded, stored] = lengths;
    Value::Struct(vec![(1, Value::I32(0)), (2, decoded), (3, stored), (5, header)]).write(&mut out);
    [&out[..], body].concat()
}

#[test]
fn a_page_too_long_to_be_decoded_is_damaged_and_those_behind_it_are_not() {
    let good = data_page(2, (0, 3), &[7, 0, 0, 0, 9, 0, 0, 0]);
    let long = page_of((256 << 20) + 1, 2, (0, 3), &[0; 8]);
    let body = [&long[..], &good].concat();
    let bytes = raw(vec![integers("a", 0)], &body, 4, &[(4, body.len(), 4)]);
    let container = open(&bytes).unwrap();
    let said = container.warnings().join("\n");
    assert!(said.contains("the page at byte 4: it has 268435457 bytes, over 256 MiB"), "{said}");
    let found: Vec<_> = files(&bytes, container.as_ref()).into_values().collect();
    assert_eq!(found[..2], [None, None]);
    assert!(found[2].as_ref().unwrap().ends_with(&[7, 0, 0, 0]));
    assert!(found[3].as_ref().unwrap().ends_with(&[9, 0, 0, 0]));
    // More values than a page can have.
    let many = data_page((1 << 24) + 1, (0, 3), &[0; 8]);
    let said = Header::split(&many).unwrap_err();
    assert!(said.contains("16777217 values, over 2²⁴"), "{said}");
}

fn integers(name: &str, repetition: i32) -> Value {
    element(name, Some(1), repetition, 0, None)
}

#[test]
fn structures_of_one_field_in_each_other_are_passed_once() {
    let group = footer::Element { children: 1, name: b"a".to_vec(), ..footer::Element::default() };
    let leaf = footer::Element { physical: Some(1), name: b"b".to_vec(), ..group.clone() };
    let mut elements = vec![group; 40];
    elements.push(footer::Element { children: 0, ..leaf });
    let schema = Schema::new(&elements).unwrap();
    assert_eq!(schema.columns[0].leaves(), 0..1);
}

#[test]
fn chunks_that_overlap_are_refused() {
    let page = data_page(1, (0, 3), &7_u32.to_le_bytes());
    let (leaves, length) = (|| vec![integers("a", 0), integers("b", 0)], page.len());
    let body = [&page[..], &page].concat();
    assert!(open(&raw(leaves(), &body, 1, &[(4, length, 1), (4 + length, length, 1)])).is_ok());
    let said = refused(&raw(leaves(), &page, 1, &[(4, length, 1), (4, length, 1)]));
    assert!(said.contains("chunks that do not overlap") && said.contains("byte"), "{said}");
}

#[test]
fn chunks_of_other_counts_than_their_row_groups_are_refused() {
    let body = data_page(2, (0, 3), &[0; 8]);
    for (values, repetition) in [(1, 0), (3, 0), (1, 1), (3, 1), (1, 2)] {
        let place = [(4, body.len(), values)];
        let said = refused(&raw(vec![integers("a", repetition)], &body, 2, &place));
        let is_said = said.contains("2 values") && said.contains(&format!("{values} in row"));
        assert!(is_said, "{said}");
    }
}

#[test]
fn a_page_of_nulls_only_needs_no_dictionary() {
    // Two values of level 0, and nothing behind them.
    for encoding in [0, 5, 8] {
        let body = data_page(2, (encoding, 3), &[2, 0, 0, 0, 4, 0]);
        let container =
            open(&raw(vec![integers("a", 1)], &body, 2, &[(4, body.len(), 2)])).unwrap();
        assert!(container.warnings().is_empty(), "{:?}", container.warnings());
        assert_eq!(container.len(), 0);
    }
}

#[test]
fn levels_in_another_encoding_are_named() {
    let body = data_page(2, (0, 4), &[2, 0, 0, 0, 4, 0]);
    let container = open(&raw(vec![integers("a", 1)], &body, 2, &[(4, body.len(), 2)])).unwrap();
    let said = container.warnings().join("\n");
    assert!(said.contains("encoding 4 of its levels"), "{said}");
}

const STYLE: Style = Style {
    codec: 0,
    is_second_version: false,
    has_dictionary: false,
    has_checksums: true,
    page_values: 7,
    group_rows: 100,
};

/// Four rows of a list of five values each, in pages of seven; and the offsets of the second page and the third.
fn lists(stored_type: i32) -> (Vec<u8>, usize, usize) {
    let value = |number: u32| match stored_type {
        1 => (number + 0x5a5a_0000).to_le_bytes().to_vec(),
        _ => [&4_u32.to_le_bytes()[..], &(number + 0x5a5a_0000).to_le_bytes()].concat(),
    };
    let entry = |row: u32, place: u32| (place.min(1), 1, Some(value(row * 5 + place)));
    let row = |row| (0..5).map(|place| entry(row, place)).collect::<Vec<Entry>>();
    let column = Column {
        elements: vec![element("list", Some(stored_type), 2, 0, None)],
        stored_type,
        levels: (1, 1),
        rows: (0..4).map(row).collect(),
    };
    let bytes = file(STYLE, vec![column]);
    let behind = |number: u32| {
        let value = (number + 0x5a5a_0000).to_le_bytes();
        bytes.windows(4).position(|found| found == value).unwrap() + 4
    };
    let (second, third) = (behind(6), behind(13));
    (bytes, second, third)
}

/// The path of each file, and whether the file is damaged.
fn damaged(bytes: &[u8], options: &OpenOptions) -> Vec<(String, bool)> {
    let container = open_as(NAME, bytes, options).unwrap();
    assert!(!container.warnings().is_empty());
    let found = files(bytes, container.as_ref());
    found.into_iter().map(|(path, content)| (path, content.is_none())).collect()
}

#[test]
fn a_list_that_runs_into_a_broken_page_is_damaged() {
    let (mut bytes, _, third) = lists(1);
    bytes[third - 1] ^= 1;
    let found = damaged(&bytes, &OpenOptions::default());
    let expected = [false, true, true, true];
    assert_eq!(found.iter().map(|(_, is_bad)| *is_bad).collect::<Vec<_>>(), expected, "{found:?}");
    // A list that is shown as files: those that can be read, and one that tells that more are missing.
    let (mut bytes, _, third) = lists(6);
    bytes[third - 1] ^= 1;
    let found = damaged(&bytes, &OpenOptions::default());
    for row in 0..4 {
        let of_row = found.iter().filter(|(path, _)| path.starts_with(&format!("00000{row}/")));
        let of_row: Vec<bool> = of_row.map(|(_, is_bad)| *is_bad).collect();
        let expected = match row {
            0 => vec![false; 5],
            1 => vec![false, false, true],
            _ => vec![true],
        };
        assert_eq!(of_row, expected, "{row}: {found:?}");
    }
}

#[test]
fn lists_behind_a_wrong_header_of_a_page_stay_and_are_damaged() {
    let (mut bytes, second, _) = lists(1);
    // A field whose type does not exist.
    bytes[second] = 0x1d;
    assert!(refused(&bytes).contains("row 1"));
    let options = OpenOptions { allow_damaged: true, ..OpenOptions::default() };
    let found = damaged(&bytes, &options);
    let expected = [false, true, true, true];
    assert_eq!(found.iter().map(|(_, is_bad)| *is_bad).collect::<Vec<_>>(), expected, "{found:?}");
}

/// Lists of numbers that may be null, given as entries.
fn nullable_lists(rows: Vec<Vec<Entry>>) -> Vec<u8> {
    let item = element("element", Some(1), 1, 0, None);
    let column = Column {
        elements: vec![element("n", None, 1, 1, Some(3)), element("list", None, 2, 1, None), item],
        stored_type: 1,
        levels: (1, 3),
        rows,
    };
    file(STYLE, vec![column])
}

fn three(numbers: [Option<i32>; 3]) -> Vec<Entry> {
    let entry = |(place, number): (usize, Option<i32>)| -> Entry {
        let value = number.map(|number| number.to_le_bytes().to_vec());
        (place.min(1) as u32, if value.is_some() { 3 } else { 2 }, value)
    };
    numbers.into_iter().enumerate().map(entry).collect()
}

#[test]
fn a_null_array_with_an_entry_for_each_element_is_one_row() {
    let null = || -> Vec<Entry> { vec![(0, 0, None), (1, 0, None), (1, 0, None)] };
    let bytes = nullable_lists(vec![
        null(),
        three([Some(1), Some(2), Some(3)]),
        null(),
        three([Some(4), None, Some(6)]),
        null(),
        three([Some(7), Some(8), Some(9)]),
    ]);
    let found = files(&bytes, open(&bytes).unwrap().as_ref());
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(names, ["000001/n.npy", "000003/n.json", "000005/n.npy"]);
    let numbers = |name: &str| found[name].as_ref().unwrap()[128..].to_vec();
    let of = |numbers: [i32; 3]| numbers.map(i32::to_le_bytes).concat();
    assert_eq!(numbers("000001/n.npy"), of([1, 2, 3]));
    assert_eq!(found["000003/n.json"].as_deref(), Some(&b"[4,null,6]"[..]));
    assert_eq!(numbers("000005/n.npy"), of([7, 8, 9]));
}

#[test]
fn a_null_array_that_has_a_value_is_damaged() {
    let value = 5_i32.to_le_bytes().to_vec();
    let rows = vec![vec![(0, 0, None), (1, 3, Some(value))], three([Some(1), Some(2), Some(3)])];
    let bytes = nullable_lists(rows);
    let container = open(&bytes).unwrap();
    let is_damaged = |index| container.sample(index).unwrap().damaged;
    assert_eq!((0..container.len()).map(is_damaged).collect::<Vec<_>>(), [true, false]);
}

/// Pages of repeated integers, one for each number of rows, all of them in one chunk.
fn repeated(pages: &[i32]) -> Vec<u8> {
    let page = |count: &i32| {
        let run = (*count << 1) as u8;
        let levels = [2, 0, 0, 0, run, 0, 2, 0, 0, 0, run, 1];
        let values = (0..*count).flat_map(|value| (value + 0x5a5a).to_le_bytes());
        data_page(*count, (0, 3), &levels.into_iter().chain(values).collect::<Vec<_>>())
    };
    pages.iter().flat_map(page).collect()
}

#[test]
fn values_behind_those_of_a_row_group_are_damage_of_its_column() {
    let leaves = || vec![integers("list", 2)];
    // The number of values that a chunk claims, the rows of each page, and whether the column is damaged.
    let cases: [(i64, &[i32], bool); 9] = [
        (3, &[3], false),
        (4, &[4], true),
        (4, &[3, 1], true),
        (3, &[3, 2], true),
        (3, &[3, 0], false),
        (9, &[3, 2, 4], true),
        (7, &[4, 3], true),
        (3, &[3, 0, 2], true),
        (3, &[3, 0, 0, 0], false),
    ];
    for (values, pages, is_bad) in cases {
        let body = repeated(pages);
        let file = raw(leaves(), &body, 3, &[(4, body.len(), values)]);
        let container = open(&file).unwrap();
        let found = files(&file, container.as_ref());
        assert_eq!(found.len(), 3, "{pages:?}");
        assert!(found.values().all(|content| content.is_none() == is_bad), "{pages:?}: {found:?}");
        let said = container.warnings().join("\n");
        let is_said = ["t: row group 0", "column list", "3 rows", "page at byte 4"]
            .iter()
            .all(|word| said.contains(word));
        assert!(said.is_empty() != is_bad && (is_said || !is_bad), "{said}");
    }
}

#[test]
fn values_behind_those_of_a_row_group_are_damage_of_json_but_not_of_other_columns() {
    let leaves = || {
        let group = element("pairs", None, 2, 2, None);
        vec![group, integers("a", 0), integers("b", 0), integers("n", 0)]
    };
    let number = data_page(3, (0, 3), &[7; 12]);
    let cases: [(i64, &[i32], bool); 6] = [
        (3, &[3], false),
        (4, &[4], true),
        (3, &[3, 1], true),
        (9, &[3, 2, 4], true),
        (3, &[3, 0, 2], true),
        (3, &[3, 0], false),
    ];
    for (values, pages, is_bad) in cases {
        let (first, second) = (repeated(&[3]), repeated(pages));
        let (body, at) = ([&first[..], &second, &number].concat(), 4 + first.len());
        let chunks =
            [(4, first.len(), 3), (at, second.len(), values), (at + second.len(), number.len(), 3)];
        let file = raw(leaves(), &body, 3, &chunks);
        let container = open(&file).unwrap();
        for (path, content) in files(&file, container.as_ref()) {
            assert_eq!(content.is_none(), is_bad && path.contains("pairs"), "{path} {pages:?}");
        }
        let said = container.warnings().join("\n");
        assert_eq!(said.contains("column pairs has values behind"), is_bad, "{said}");
    }
}

/// A page of empty lists, each a row.
fn empty_lists(count: i32) -> Vec<u8> {
    let mut run = Vec::new();
    let mut left = (count as u32) << 1;
    while left > 0x7f {
        run.push(left as u8 | 0x80);
        left >>= 7;
    }
    run.extend([left as u8, 0]);
    let levels = [&(run.len() as u32).to_le_bytes()[..], &run].concat();
    data_page(count, (0, 3), &levels.repeat(2))
}

#[test]
fn values_behind_those_of_a_row_group_that_only_a_later_pass_finds_are_damage_too() {
    let leaves = || vec![integers("a", 2), integers("b", 2), integers("n", 0)];
    // Of the values that may be looked at, those behind the first column leave too few for those behind the second.
    let most = 1 << 23;
    let first = [repeated(&[3]), empty_lists(most)].concat();
    let second = [repeated(&[3]), empty_lists(100_000)].concat();
    let number = data_page(3, (0, 3), &[7; 12]);
    let (body, at) = ([&first[..], &second, &number].concat(), 4 + first.len());
    let chunks = [
        (4, first.len(), 3 + i64::from(most)),
        (at, second.len(), 100_003),
        (at + second.len(), number.len(), 3),
    ];
    let file = raw(leaves(), &body, 3, &chunks);
    let container = open(&file).unwrap();
    for (path, content) in files(&file, container.as_ref()) {
        assert_eq!(content.is_none(), !path.contains("/n"), "{path}");
    }
    let said = container.warnings().join("\n");
    for column in ["column a has values behind", "column b has values behind"] {
        assert_eq!(said.matches(column).count(), 1, "{said}");
    }
}

#[test]
fn a_chunk_without_values_is_not_looked_through_wherever_it_says_that_it_lies() {
    let page = data_page(3, (0, 3), &[7; 12]);
    let number: fn() -> Vec<Value> = || vec![integers("n", 0)];
    let lists: fn() -> Vec<Value> =
        || vec![element("pairs", None, 2, 2, None), integers("a", 0), integers("b", 0)];
    for (leaves, chunks) in [(number, 1), (lists, 2)] {
        for (at, length) in [(4, page.len()), (4, 1 << 40), (1 << 40, 1 << 40)] {
            let file = raw(leaves(), &page, 0, &vec![(at, length, 0); chunks]);
            let end = file.len() as u64;
            let noted = Noted::new(file);
            assert!(scan::scan(&noted, &OpenOptions::default()).is_ok());
            for (at, length) in noted.reads() {
                let is_page = (4..4 + page.len() as u64).contains(&at);
                assert!(!is_page && at + length <= end, "{length} bytes at {at}");
            }
        }
    }
}
