//! Texts within elements: each loses its padding, however many there are and however long their row is.

use super::super::bands::Data;
use super::super::dataset::{Dataset, Layout};
use super::super::datatype::{Datatype, Kind, Padding};
use super::super::padded::Texts;
use crate::format::View;

fn datatype(bytes: u32, kind: Kind) -> Datatype {
    Datatype { bytes, kind, is_unknown: None }
}

fn text() -> Datatype {
    datatype(4, Kind::Text(Padding::Spaces))
}

fn number() -> Datatype {
    datatype(4, Kind::Plain("<i4".to_owned()))
}

fn array(count: u32, of: Datatype) -> Datatype {
    datatype(count * of.bytes, Kind::Array(vec![count.into()], Box::new(of)))
}

/// Fields one behind the other.
fn compound(fields: &[Datatype]) -> Datatype {
    let mut members = Vec::new();
    let mut end = 0;
    for of in fields {
        members.push((vec![b'a'.wrapping_add(members.len() as u8)], end, of.clone()));
        end += of.bytes;
    }
    datatype(end, Kind::Compound(members))
}

fn trimmed(of: &Datatype, element: &[u8]) -> Vec<u8> {
    let mut element = element.to_vec();
    Texts::of(of).trim(&mut element, of.bytes.into());
    element
}

#[test]
fn texts_in_arrays_of_any_length_and_depth_end_where_their_padding_begins() {
    let of = array(5000, text());
    assert_eq!(trimmed(&of, &b"ab  ".repeat(5000)), b"ab\0\0".repeat(5000));
    let pair = compound(&[number(), array(3, text())]);
    let of = compound(&[array(7, pair), text(), array(9, number())]);
    let stored = [b"    a   bc  d   ".repeat(7), b"e   ".to_vec(), b"    ".repeat(9)].concat();
    let wanted = [b"    a\0\0\0bc\0\0d\0\0\0".repeat(7), b"e\0\0\0".to_vec(), b"    ".repeat(9)];
    assert_eq!(trimmed(&of, &stored), wanted.concat());
}

#[test]
fn text_beside_fields_that_share_bytes_is_trimmed_and_they_are_not() {
    let twice = vec![(b"x".to_vec(), 0, text()), (b"y".to_vec(), 2, text())];
    let of = compound(&[text(), datatype(6, Kind::Compound(twice)), text()]);
    assert_eq!(of.descr().unwrap().0, "[('a', '|S4'), ('b', '|V6'), ('c', '|S4')]");
    assert_eq!(trimmed(&of, b"a   b     c   "), b"a\0\0\0b     c\0\0\0");
}

#[test]
fn a_type_that_is_repeated_in_a_type_is_looked_at_once() {
    let mut of = text();
    // Nearly 2^32 bytes: a thousand million texts.
    for _ in 0..3 {
        of = array(1000, compound(&[of]));
    }
    let fields: Vec<_> = std::iter::repeat_n(number(), 4000).collect();
    let mut wide = compound(&fields);
    for _ in 0..27 {
        wide = compound(&[wide, text()]);
    }
    let many = array(4096, wide);
    for _ in 0..200 {
        assert!(!Texts::of(&of).is_empty() && !Texts::of(&many).is_empty());
    }
}

#[test]
fn a_row_of_any_length_with_text_in_its_elements_is_trimmed() {
    let element = compound(&[text(), number()]);
    let lengths = [1 << 26, 1 << 17, (1 << 17) + 3, 7, 1];
    for (length, rows) in lengths.into_iter().flat_map(|length| [(length, 1), (length, 3)]) {
        let dataset = Dataset {
            shape: vec![rows, length],
            most: vec![rows, length],
            datatype: element.clone(),
            layout: Layout::Contiguous(Some(0), None),
            filters: Vec::new(),
            fill: Vec::new(),
        };
        let data = Data::At(96).without_padding(&dataset, View::default());
        let Ok(Data::Chunked(chunked)) = data else { panic!("{length}: not trimmed") };
        let (count, all) = chunked.intervals();
        assert_eq!(all, rows * length * 8);
        let mut end = (96, 0);
        for number in 0..count {
            let interval = chunked.interval(number).unwrap();
            assert_eq!((interval.stored.start, interval.decoded.start), end);
            end = (interval.stored.end, interval.decoded.end);
            let size = (end.1 - interval.decoded.start) as usize;
            assert!(size <= 1 << 20 && size.is_multiple_of(8), "{size}");
            if number < 2 || number + 1 == count {
                let mut out = vec![1; size];
                chunked.decode(number, &b"ab  cd  ".repeat(size / 8), &mut out).unwrap();
                assert!(out == b"ab\0\0cd  ".repeat(size / 8));
            }
        }
        assert_eq!(end, (96 + all, all));
    }
}

#[test]
fn an_element_with_text_that_is_too_long_for_memory_is_refused_and_never_shown_untrimmed() {
    let dataset = Dataset {
        shape: vec![2],
        most: vec![2],
        datatype: array(1 << 27, text()),
        layout: Layout::Contiguous(Some(0), None),
        filters: Vec::new(),
        fill: Vec::new(),
    };
    assert!(Data::At(0).without_padding(&dataset, View::default()).is_err());
    assert!(matches!(Data::At(0).without_padding(&dataset, View::Raw), Ok(Data::At(0))));
}
