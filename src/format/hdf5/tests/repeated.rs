//! Structures with many references: each is read once, also if it cannot be read, within limits from the file's length.

use super::super::dataset::{ChunkIndex, ChunkLayout, Dataset, Layout};
use super::super::input;
use super::super::notes::Notes;
use super::super::object::{DATASPACE, DATATYPE, Extension, FILTERS, Headers, LAYOUT, Message};
use super::super::shown::Builder;
use super::super::table;
use super::super::values::Heaps;
use super::*;
use crate::format::testing::Noted;

const HEAP_BYTES: u64 = 4096;

/// A global heap of one object, which claims to have `length` bytes.
fn heap(length: u64) -> Vec<u8> {
    let head = [b"GCOL\x01\0\0\0", &HEAP_BYTES.to_le_bytes()[..]].concat();
    let object = [&1_u64.to_le_bytes()[..], &length.to_le_bytes()].concat();
    let mut heap = [head, object].concat();
    heap.resize(HEAP_BYTES as usize, 0);
    heap
}

fn element(heap: u64) -> Vec<u8> {
    [&1_u32.to_le_bytes()[..], &heap.to_le_bytes(), &1_u32.to_le_bytes()].concat()
}

#[test]
fn a_heap_that_cannot_be_read_is_read_once_for_all_values_in_it() {
    let source = Noted::new([heap(HEAP_BYTES), heap(3)].concat());
    let input = input::Input::new(input::reader(&source), 0);
    let mut heaps = Heaps::new(&input);
    // A read for each value would take more than all bytes that may be read of this file.
    for _ in 0..20_000 {
        let said = heaps.value(&element(0), 1).unwrap_err().to_string();
        assert!(said.contains("at byte"), "{said}");
        assert!(heaps.value(&element(1 << 40), 1).is_err());
    }
    assert_eq!(source.reads().len(), 2);
    let value = heaps.value(&element(HEAP_BYTES), 1).unwrap();
    assert_eq!(value, Some((HEAP_BYTES + 32, 1)));
}

#[test]
fn heaps_in_each_other_are_as_many_as_the_length_of_the_file_allows() {
    // A heap begins every 16 bytes.
    let source =
        Noted::new([&b"GCOL\x01\0\0\0"[..], &16_u64.to_le_bytes()].concat().repeat(1 << 19));
    let input = input::Input::new(input::reader(&source), 0);
    let mut heaps = Heaps::new(&input);
    let found = (0..1 << 19).map(|number| heaps.value(&element(number * 16), 1));
    let found = found.filter(Result::is_ok).count();
    assert!((300_000..450_000).contains(&found), "{found}");
}

/// An object header of version 1 with these messages: type, flags, bytes.
fn header(messages: &[(u16, u8, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (kind, flags, bytes) in messages {
        let size = bytes.len().next_multiple_of(8);
        body.extend(
            [&kind.to_le_bytes()[..], &(size as u16).to_le_bytes(), &[*flags, 0, 0, 0]].concat(),
        );
        body.extend_from_slice(bytes);
        body.resize(body.len() + size - bytes.len(), 0);
    }
    let count = (messages.len() as u16).to_le_bytes();
    let size = (body.len() as u32).to_le_bytes();
    [&[1, 0][..], &count, &[0; 4], &size, &[0; 4], &body].concat()
}

#[test]
fn a_type_of_many_datasets_is_read_once_and_so_is_one_that_is_not_there() {
    let type_at = |at: u64| [&[2, 0][..], &at.to_le_bytes()].concat();
    // A type, and an attribute that is as long as one may be.
    let shared = header(&[(DATATYPE, 0, &[7; 24]), (12, 0, &vec![0; 60_000])]);
    let good = shared.len() as u64;
    let first = header(&[(DATATYPE, 2, &type_at(0))]);
    let bad = good + first.len() as u64;
    let second = header(&[(LAYOUT, 2, &type_at(0))]);
    let source = Noted::new([shared, first, second].concat());
    let input = input::Input::new(input::reader(&source), 0);
    let mut headers = Headers::new(&input, Extension::default());
    for _ in 0..1000 {
        let found = headers.messages(good).unwrap();
        assert_eq!((found.len(), &found[0].bytes[..]), (1, &[7; 24][..]));
        let said = headers.messages(bad).err().unwrap().to_string();
        assert!(said.contains("an object with a message of type 8"), "{said}");
    }
    // Two reads, of the head and the messages, for each object; and two for each of the two shared messages.
    assert_eq!(source.reads().len(), 2 * 2000 + 2 * 2);
}

#[test]
fn a_type_is_found_where_a_shared_message_of_any_version_says() {
    let of = header(&[(DATATYPE, 0, &[7; 24])]);
    let at = of.len() as u64;
    let messages = [
        // The offset of a name in a heap stands before the address.
        [&[1, 0, 0, 0, 0, 0, 0, 0][..], &32_u64.to_le_bytes(), &0_u64.to_le_bytes()].concat(),
        [&[2, 0][..], &0_u64.to_le_bytes()].concat(),
        [&[3, 2][..], &0_u64.to_le_bytes()].concat(),
    ];
    for message in messages {
        let dataset = header(&[(DATATYPE, 2, &message)]);
        let source = MemorySource::new("x", [&of[..], &dataset].concat());
        let input = input::Input::new(input::reader(&source), 0);
        let found = Headers::new(&input, Extension::default()).messages(at).unwrap();
        assert_eq!((found.len(), &found[0].bytes[..]), (1, &[7; 24][..]), "{message:?}");
    }
}

#[test]
fn chunks_have_no_more_bytes_in_all_than_twice_the_length_of_the_file() {
    let source = MemorySource::new("x", vec![0; 64]);
    let input = input::Input::new(input::reader(&source), 0);
    input.take_chunk(0, 16 << 20).unwrap();
    input.take_chunk(0, 128).unwrap();
    let said = input.take_chunk(7, 1).unwrap_err().to_string();
    assert!(said.contains("byte 7: expected chunks that do not overlap"), "{said}");
}

#[test]
fn values_that_were_never_written_are_as_many_as_the_length_of_the_file_allows() {
    let message = |kind, bytes: Vec<u8>| Message { kind, at: 0, bytes, is_elsewhere: false };
    let messages = |count: u64| {
        let shape = [&[1, 1, 0, 0, 0, 0, 0, 0][..], &count.to_le_bytes()].concat();
        let of = [&[0x10, 0, 0, 0][..], &[1, 0, 0, 0, 0, 0, 8, 0]].concat();
        let sequence = [&[0x19, 0, 0, 0, 16, 0, 0, 0][..], &of].concat();
        let layout = [&[3, 1][..], &[0xff; 8], &(count * 16).to_le_bytes()].concat();
        [(DATASPACE, shape), (DATATYPE, sequence), (LAYOUT, layout)]
            .map(|(kind, bytes)| message(kind, bytes))
    };
    let source = MemorySource::new("x", vec![0; 1600]);
    let input = input::Input::new(input::reader(&source), 0);
    let options = OpenOptions::default();
    for (counts, samples) in [([1 << 20, 100], (1 << 20) + 100), ([1 << 20, 101], 1 << 20)] {
        let mut build = Builder::new(&input, &options);
        for count in counts {
            build.add(b"v", &messages(count)).unwrap();
        }
        assert_eq!(build.samples, samples);
        let said = build.notes.into_warnings(Notes::default(), source.name()).join("\n");
        let is_said = said.contains("101 values for so short a file");
        assert_eq!(is_said, samples == 1 << 20, "{said}");
    }
}

#[test]
fn chunks_of_a_file_are_not_more_than_a_table_of_them_may_take_memory() {
    let source = MemorySource::new("x", vec![0; 64]);
    let input = input::Input::new(input::reader(&source), 0);
    (0..1 << 26).for_each(|_| input.take_chunk(7, 0).unwrap());
    let said = input.take_chunk(7, 0).unwrap_err().to_string();
    assert!(said.contains("byte 7: expected a file of 67108864 chunks at most"), "{said}");
}

#[test]
fn chunks_of_texts_decode_to_no_more_in_all_than_those_of_a_dataset_may() {
    let chunk = 200_u32 << 20;
    let single = [&[4, 2, 2, 2, 4][..], &chunk.to_le_bytes(), &1_u32.to_le_bytes(), &[1]].concat();
    let stored = [&10_u64.to_le_bytes()[..], &[0; 4], &0_u64.to_le_bytes()].concat();
    let messages = [
        (DATASPACE, [&[1, 1, 0, 0, 0, 0, 0, 0][..], &1_u64.to_le_bytes()].concat()),
        (DATATYPE, vec![0x13, 0, 0, 0, 1, 0, 0, 0]),
        (FILTERS, vec![2, 1, 1, 0, 0, 0, 0, 0]),
        (LAYOUT, [single, stored].concat()),
    ];
    let messages =
        messages.map(|(kind, bytes)| Message { kind, at: 0, bytes, is_elsewhere: false });
    let source = MemorySource::new("x", vec![0; 64]);
    let input = input::Input::new(input::reader(&source), 0);
    let options = OpenOptions::default();
    let mut build = Builder::new(&input, &options);
    // A file without deflate streams may decode to 1 GiB, and a little for its own bytes.
    for name in [b"1", b"2", b"3", b"4", b"5", b"6"] {
        build.add(name, &messages).unwrap();
    }
    let said = build.notes.into_warnings(Notes::default(), source.name());
    let is_too_much: Vec<bool> =
        said.iter().map(|said| said.contains("decode to too much")).collect();
    assert_eq!(is_too_much, [false, false, false, false, false, true], "{said:#?}");
}

#[test]
fn of_chunks_one_behind_the_other_those_of_the_shape_alone_are_passed() {
    // More chunks than a reader could pass.
    let all = 1_u64 << 48;
    let file = Arc::new(MemorySource::new("x", Vec::new()));
    let source = SliceSource::new("x".into(), file, 0, all);
    let input = input::Input::new(input::reader(&source), 0);
    let places = |shape: &[u64], most: &[u64], chunk: &[u64]| {
        let layout = ChunkLayout {
            chunk: chunk.to_vec(),
            element: 1,
            index: ChunkIndex::Implicit,
            address: Some(0),
            edges_are_plain: false,
        };
        let dataset = Dataset {
            shape: shape.to_vec(),
            most: most.to_vec(),
            datatype: Datatype { bytes: 1, kind: Kind::Plain("|u1".to_owned()), is_unknown: None },
            layout: Layout::Chunked(layout.clone()),
            filters: Vec::new(),
            fill: Vec::new(),
        };
        let table = table::read(&input, &dataset, &layout, false);
        table.map(|table| table.iter().map(|chunk| (chunk.number, chunk.at)).collect::<Vec<_>>())
    };
    assert_eq!(places(&[1], &[all], &[1]).unwrap(), [(0, 0)]);
    let found = places(&[3, 5], &[1 << 20, 1 << 20], &[2, 2]).unwrap();
    // Rows of 2¹⁹ chunks of 4 bytes.
    let (row, chunk) = (4 << 19, 4);
    let expected = [(0, 0), (1, chunk), (2, 2 * chunk), (3, row), (4, row + chunk)];
    assert_eq!(found, [&expected[..], &[(5, row + 2 * chunk)]].concat());
    // The shape is larger than the largest one.
    assert!(places(&[5], &[4], &[1]).is_err());
}
