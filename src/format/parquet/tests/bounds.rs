//! Limits of footers, pages and labels, and the parts of lists that are decoded.

use super::super::budget::{Budget, MAX_HELD_BYTES};
use super::super::cells::{State, room_for};
use super::super::dictionaries::NO_DICTIONARY;
use super::super::fields::{self, Field, FieldKind};
use super::super::labels;
use super::super::page::Header;
use super::super::rows::{Context, Rows, Shown};
use super::super::schema::Schema;
use super::super::texts::Pages;
use super::super::units::{Kind, Unit, Units};
use super::super::{footer, scan};
use super::writer::{Column, Entry, Style, Value, element, file};
use super::*;
use crate::format::stream::Intervals;
use crate::format::testing::{Noted, shown};

/// A file of nothing but this footer.
fn with_footer(footer: &[u8]) -> Vec<u8> {
    [b"PAR1", footer, &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat()
}

/// A list of structures without fields: its head, and a byte for each.
fn nothings(count: usize) -> Vec<u8> {
    structures(&[0], count)
}

/// A list of equal structures.
fn structures(each: &[u8], count: usize) -> Vec<u8> {
    let mut out = vec![0xfc];
    let mut left = count;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
    out.extend(each.repeat(count));
    out
}

#[test]
fn footers_of_more_parts_than_any_writer_makes_are_refused() {
    // Fields 2 and 4 of a footer are lists; so is field 1 of a row group.
    let elements = [&[0x29][..], &nothings((1 << 18) + 1)].concat();
    assert!(refused(&with_footer(&elements)).contains("a schema of 2¹⁸ elements at most"));
    let groups =
        [&[0x49][..], &structures(&[0x16, 0, 0x26, 0, 0x16, 0, 0], (1 << 21) + 1)].concat();
    assert!(refused(&with_footer(&groups)).contains("2²¹ row groups at most"));
    let chunk = [&[0x3c, 0x16, 0, 0x16, 0, 0x16, 0, 0x16, 0][..], &[0x15, 0, 0]].concat();
    let chunks =
        [&[0x49, 0x1c, 0x19][..], &structures(&[&chunk[..], &[0]].concat(), (1 << 21) + 1)];
    assert!(refused(&with_footer(&chunks.concat())).contains("2²¹ chunks of columns at most"));
}

#[test]
fn parts_that_are_too_short_for_what_they_must_have_are_refused_at_the_first() {
    let groups = [&[0x49][..], &nothings(1000)].concat();
    let said = refused(&with_footer(&groups));
    assert!(said.contains("byte 8: expected a row group of 7 bytes or more"), "{said}");
    let chunk = [0x3c, 0x15, 2, 0x55, 2, 0, 0];
    let chunks = [&[0x49, 0x1c, 0x19][..], &structures(&chunk, 1000)].concat();
    let said = refused(&with_footer(&chunks));
    assert!(said.contains("byte 10: expected a chunk of a column of 12 bytes or more"), "{said}");
}

#[test]
fn the_names_of_structures_do_not_take_memory_for_each_of_their_columns() {
    let fields = |name: usize, count: u64| {
        let group = |name, children| footer::Element { name, children, ..Default::default() };
        let leaf = footer::Element { physical: Some(1), name: b"a".to_vec(), ..Default::default() };
        let head = [group(Vec::new(), 1), group(vec![b's'; name], count)];
        let elements = [&head[..], &vec![leaf; count as usize]].concat();
        fields::of(&Schema::new(&elements).unwrap()).map(|fields| fields.len())
    };
    assert_eq!(fields(3997, 10), Ok(10));
    assert_eq!(fields(3998, 10).unwrap_err(), "4001 bytes of column 0");
    // Tables with the most columns that are allowed, and names of the usual length.
    assert_eq!(fields(900, 1 << 16), Ok(1 << 16));
    assert_eq!(fields(1000, 1 << 16).unwrap_err(), "more in all");
    let elements =
        [&[0x29, 0x2c, 0x48, 1, b'r', 0x15, 2, 0, 0x15, 2, 0x25, 0, 0x18][..], &[0xa1, 0x1f]];
    let footer = [&elements.concat()[..], &[b'a'; 4001], &[0, 0x16, 0, 0x19, 0x0c, 0]].concat();
    let said = refused(&with_footer(&footer));
    assert!(said.contains("paths of columns of up to 4000 bytes"), "{said}");
}

#[test]
fn labels_are_left_out_if_their_names_or_what_they_stand_in_take_too_much() {
    let leaf = footer::Element { physical: Some(2), name: b"a".to_vec(), ..Default::default() };
    let root = footer::Element { children: 1, ..Default::default() };
    let schema = Schema::new(&[root, leaf]).unwrap();
    let kind = FieldKind::Value { leaf: 0, name: None };
    let fields = [Field { path: vec![b"a".to_vec()], kind }];
    let labels = |names: &str, behind: usize| {
        let names = format!(r#"{{"a":{{"_type":"ClassLabel","names":[{names}]}}}}"#);
        let json = format!(r#"{{"info":{{"features":{names}}}}}{}"#, " ".repeat(behind));
        labels::labels(&schema, &fields, Some(json.as_bytes()))[0].len()
    };
    assert_eq!(labels(r#""x","y""#, 100), 2);
    assert_eq!(labels(r#""x","y""#, 16 << 20), 0);
    // Each name takes 32 bytes besides its own; all names may take 16 MiB.
    let empty = |count: usize| vec![r#""""#; count].join(",");
    assert_eq!(labels(&empty(1 << 19), 0), 1 << 19);
    assert_eq!(labels(&empty((1 << 19) + 1), 0), 0);
    // Some entries are not names, or the JSON is invalid.
    assert_eq!(labels(r#""x",[["y"],{}],"z""#, 0), 0);
    assert_eq!(labels(r#""x"],"names":["#, 0), 0);
    assert_eq!(labels(r#""x"]},"a":{"_type":"ClassLabel","names":["x","y""#, 0), 2);
    assert_eq!(labels(r#""x"]}}}]"#, 0), 0);
}

#[test]
fn what_the_columns_hold_and_decode_is_bounded_and_what_is_dropped_is_free_again() {
    let budget = Budget::new(50, 10, 1000);
    assert!(budget.take_index(50) && !budget.take_index(1));
    let first = budget.hold(MAX_HELD_BYTES - 1).unwrap();
    let why = budget.hold(2).err().unwrap();
    assert!(why.contains("take 2 bytes of memory") && why.contains("512 MiB"), "{why}");
    drop(first);
    assert!(budget.hold(MAX_HELD_BYTES).is_ok());
    let body = [0x15, 0, 0x15, 200, 1, 0x15, 2, 0x2c, 0x15, 12, 0x15, 0, 0, 0];
    let (header, _) = Header::read(&body).unwrap();
    assert_eq!((header.values, header.decoded), (6, 100));
    budget.take(&header).unwrap();
    assert!(budget.take(&header).unwrap_err().contains("too many values"));
    assert!(budget.take_text(900).is_ok() && budget.take_text(1).is_err());
    assert!(room_for(1 << 22).is_ok() && room_for((1 << 22) + 1).is_err());
}

const STYLE: Style = Style {
    codec: 6,
    is_second_version: true,
    has_dictionary: true,
    has_checksums: false,
    page_values: 50,
    group_rows: 100_000,
};

fn list(name: &str, item: Value) -> Vec<Value> {
    vec![element(name, None, 1, 1, Some(3)), element("list", None, 2, 1, None), item]
}

fn numbers(rows: usize) -> Column {
    let entry = |row: usize, place: usize| -> Entry {
        (place.min(1) as u32, 2, Some((((row + place) % 7) as u32).to_le_bytes().to_vec()))
    };
    Column {
        elements: list("n", element("element", Some(1), 0, 0, None)),
        stored_type: 1,
        levels: (1, 2),
        rows: (0..rows).map(|row| (0..5).map(|place| entry(row, place)).collect()).collect(),
    }
}

fn word(row: usize) -> String {
    format!("{:04}{}", row % 20, "x".repeat(2000))
}

/// Lists of one word of two thousand letters and one null.
fn words(rows: usize) -> Column {
    let stored = |word: String| [&(word.len() as u32).to_le_bytes()[..], word.as_bytes()].concat();
    Column {
        elements: list("w", element("element", Some(6), 1, 0, Some(0))),
        stored_type: 6,
        levels: (1, 3),
        rows: (0..rows).map(|row| vec![(0, 3, Some(stored(word(row)))), (1, 2, None)]).collect(),
    }
}

fn units(bytes: &[u8]) -> Units {
    let source = MemorySource::new("x", bytes.to_vec());
    scan::scan(&source, &OpenOptions::default()).unwrap().0
}

#[test]
fn a_dictionary_of_lists_is_decoded_once_for_all_pages() {
    let bytes = file(STYLE, vec![numbers(300)]);
    let units = units(&bytes);
    assert!(units.units.len() > 20);
    assert_eq!((units.dictionaries.pages.len(), units.dictionaries.decoded()), (1, 0));
    for (number, unit) in units.units.iter().enumerate() {
        assert_eq!(unit.kind, Kind::Values);
        let stored = unit.stored as usize..(unit.stored + u64::from(unit.stored_bytes)) as usize;
        let mut out = vec![0; unit.decoded_bytes as usize];
        units.decode(number as u64, &bytes[stored], &mut out).unwrap();
        assert_eq!(units.dictionaries.decoded(), 1);
    }
}

#[test]
fn json_of_many_rows_is_several_units_each_of_which_is_decoded_by_itself() {
    const ROWS: usize = 2000;
    for has_dictionary in [false, true] {
        let bytes = file(Style { has_dictionary, ..STYLE }, vec![words(ROWS)]);
        let units = units(&bytes);
        let json = units.units.iter().filter(|unit| unit.kind == Kind::Json).count();
        assert!((3..20).contains(&json), "{json}");
        assert!(units.units.iter().all(|unit| unit.decoded_bytes < 2 << 20));
        // The first part begins where the chunk does; the others need the dictionary.
        assert_eq!(units.dictionaries.pages.len(), usize::from(has_dictionary));
        let container = open(&bytes).unwrap();
        let mut kept = Vec::new();
        container.keep(&mut kept).unwrap();
        let source = Arc::new(MemorySource::new("x", bytes.clone()));
        let kept = Arc::new(MemorySource::new("kept", kept));
        let again = Parquet.open_kept(source, kept).unwrap().unwrap();
        let expected = |row| format!("[\"{}\",null]", word(row)).into_bytes();
        for container in [container, again] {
            assert_eq!(container.len(), ROWS as u64);
            // Each row that is looked at decodes a unit.
            for row in (0..ROWS).step_by(61).chain([ROWS - 1]) {
                assert_eq!(container.field_name(row as u64).unwrap(), b"w.json");
                let content = shown(&bytes, container.as_ref(), row as u64);
                assert!(content == Some(expected(row)), "{row}");
            }
        }
    }
}

#[test]
fn json_behind_a_broken_page_is_damaged_and_that_before_it_stays() {
    let style = Style { has_dictionary: false, codec: 0, has_checksums: true, ..STYLE };
    let mut bytes = file(style, vec![words(2000)]);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let container = open(&bytes).unwrap();
    let said = container.warnings().join("\n");
    assert!(said.contains("page at byte") && said.contains("checksum"), "{said}");
    let is_good = |row: &u64| !container.sample(*row).unwrap().damaged;
    let good = (0..container.len()).take_while(is_good).count() as u64;
    assert!((500..1500).contains(&good), "{good}");
    assert!(!(good..2000).any(|row| is_good(&row)));
    assert_eq!(container.len(), 2000);
    for row in [0, good - 1] {
        assert!(shown(&bytes, container.as_ref(), row).is_some(), "{row}");
    }
}

#[test]
fn pages_of_numbers_that_have_an_index_are_not_read_when_a_file_is_opened() {
    let bytes = read("indexed.parquet");
    let footer = scan::outline(Reader::new(&MemorySource::new("x", bytes.clone()), NAME));
    let footer = footer.unwrap().units.footer;
    let noted = Noted::new(bytes);
    let (units, _) = scan::scan(&noted, &OpenOptions::default()).unwrap();
    let reads = noted.reads();
    let columns = ["small", "flag", "f4", "f8", "when", "size"];
    let elements = footer.schema.iter().filter(|element| element.physical.is_some());
    let mut passed = 0;
    for (column, element) in elements.enumerate() {
        let chunk = footer.groups[0].chunks[column];
        let of_column = |unit: &&Unit| unit.column as usize == column;
        let pages: Vec<u64> =
            units.units.iter().filter(of_column).map(|unit| unit.stored).collect();
        let last = pages.iter().copied().max().unwrap_or(0);
        // The header of an only page is read in any case.
        if pages.len() < 2 || !columns.iter().any(|name| element.name == name.as_bytes()) {
            continue;
        }
        // The first read, for the footer, may reach far back.
        let is_read = reads
            .iter()
            .skip(1)
            .any(|(at, length)| (chunk.at..=last).contains(at) && at + length > last);
        assert!(!is_read, "{:?}", element.name);
        passed += 1;
    }
    assert!(passed >= 3, "{passed}");
}

#[test]
fn dictionaries_of_indexed_pages_take_half_of_the_memory_at_most_to_the_end_of_the_pass() {
    let budget = Budget::new(50, 10, 1000);
    let others = budget.hold(MAX_HELD_BYTES / 2 - 10).unwrap();
    assert_eq!(budget.keep_for_good(vec![0; 10]), Some(0));
    assert_eq!(budget.keep_for_good(vec![0; 1]), None);
    drop(others);
    assert!(budget.hold(MAX_HELD_BYTES - 9).is_err() && budget.hold(MAX_HELD_BYTES - 10).is_ok());
    assert_eq!(budget.keep_for_good(vec![0; 1]), Some(1));
}

#[test]
fn pages_whose_dictionary_finds_no_room_are_looked_at() {
    let source = MemorySource::new("x", read("indexed.parquet"));
    let reader = Reader::new(&source, NAME);
    let outline = scan::outline(reader).unwrap();
    let (schema, group) = (&outline.units.schema, &outline.units.footer.groups[0]);
    for is_full in [false, true] {
        let budget = Budget::new(1 << 20, 1 << 20, 1 << 30);
        let _others = is_full.then(|| budget.hold(MAX_HELD_BYTES / 2).unwrap());
        let pages = Pages { reader, budget: &budget };
        let context =
            Context { pages: &pages, schema, group, number: 0, groups: 1, slots: 1 << 40 };
        for field in &outline.fields {
            let mut rows = Rows::new(context, field, false);
            for _ in 0..group.rows {
                let add = &mut |_, shown| {
                    let is_bad =
                        matches!(shown, Shown::Value(cell, _) if cell.state == State::Damaged);
                    assert!(!is_bad);
                    Ok(())
                };
                rows.next(add).unwrap();
            }
        }
        let units = budget.units.borrow();
        let is_kept = |unit: &Unit| unit.is_indexed && unit.dictionary != NO_DICTIONARY;
        assert_eq!(units.iter().any(is_kept), !is_full);
        assert!(units.iter().any(|unit| unit.is_indexed) && budget.notes.borrow().is_empty());
    }
}

#[test]
fn an_index_that_does_not_agree_with_its_chunk_is_not_used() {
    let bytes = read("indexed.parquet");
    let expected = files(&bytes, open(&bytes).unwrap().as_ref());
    let source = MemorySource::new("x", bytes.clone());
    let reader = Reader::new(&source, NAME);
    let groups = scan::outline(reader).unwrap().units.footer.groups;
    for chunk in &groups[0].chunks {
        for (at, length) in [chunk.offset_index, chunk.column_index] {
            assert!(length > 0);
            // Each place decodes all files: half of the places are enough.
            for place in (at as usize..at as usize + length as usize).step_by(2) {
                let mut bad = bytes.clone();
                bad[place] ^= 4;
                let container = open(&bad).unwrap();
                for (path, content) in files(&bad, container.as_ref()) {
                    // A lie that the index does not show is found when the page is decoded.
                    assert!(content.is_none() || expected[&path] == content, "{place}: {path}");
                }
            }
        }
    }
}

#[test]
fn a_page_with_nulls_is_refused_where_the_page_index_says_that_it_has_none() {
    let bytes = read("nulls.parquet");
    let mut units = units(&bytes);
    let mut refused = 0;
    for number in 0..units.units.len() {
        let unit = units.units[number];
        if unit.kind != Kind::Values {
            continue;
        }
        let stored = &bytes[unit.stored as usize..][..unit.stored_bytes as usize];
        let mut out = vec![0; unit.decoded_bytes as usize];
        units.decode(number as u64, stored, &mut out).unwrap();
        units.units[number].is_indexed = true;
        let found = units.decode(number as u64, stored, &mut out);
        refused +=
            usize::from(found.is_err_and(|why| why.to_string().contains("the page index says")));
    }
    assert!(refused > 0);
}
