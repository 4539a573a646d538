//! The index of an invented format: written, read back, and falsified.

use super::row::DIRECTORY_BIT;
use super::*;
use crate::format::{Attributes, Error, MemorySource, Node, Piece};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index as Place;

/// A row of an invented format, whose records have a masked checksum each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Row {
    offset: u64,
    length: u32,
    checksum: u32,
}

impl SampleRow for Row {
    const FORMAT: &'static str = "records";
    const VERSION: u32 = 3;
}

impl Packed for Row {
    const BYTES: usize = 16;

    fn pack(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&self.checksum.to_le_bytes());
    }

    fn unpack(fields: &mut Fields) -> Self {
        Self { offset: fields.u64(), length: fields.u32(), checksum: fields.u32() }
    }
}

/// The same rows in a later version.
struct Later(Row);

impl SampleRow for Later {
    const FORMAT: &'static str = "records";
    const VERSION: u32 = 4;
}

impl Packed for Later {
    const BYTES: usize = 16;

    fn pack(&self, out: &mut Vec<u8>) {
        self.0.pack(out);
    }

    fn unpack(fields: &mut Fields) -> Self {
        Self(Row::unpack(fields))
    }
}

fn row(number: u64) -> Row {
    Row { offset: number << 40, length: number as u32 * 3, checksum: !(number as u32) }
}

fn attributes(number: u64) -> Attributes {
    let modified = number.is_multiple_of(2).then_some((-(number as i64), 5));
    let mode = number.is_multiple_of(3).then_some(number as u16);
    Attributes { modified, mode, ..Attributes::default() }
}

fn piece(number: u64) -> Piece {
    Piece { at_bytes: number * 10, length_bytes: 7, offset_bytes: 1000 + number * 7 }
}

/// An index of `samples` samples, each of which has a name, with directories between them, and files in pieces.
fn index(samples: u64) -> Index<Row> {
    let mut builder = Builder::<Row>::default();
    for number in 0..samples {
        assert_eq!(builder.sample(&row(number), number), number);
        match number % 2 {
            0 => builder.name(format!("name {number}").as_bytes(), number).unwrap(),
            _ => builder.open_name(format!("{number}").as_bytes()).unwrap(),
        }
        builder.directory(b"d", &attributes(number)).unwrap();
        let pieces = (0..number % 4).map(piece);
        assert_eq!(u64::from(builder.pieced(100 + number, pieces).unwrap()), number);
    }
    builder.change(0, |row| row.length = 77);
    builder.set_samples((0..samples).filter(|number| number % 2 == 1)).unwrap();
    (0..40).for_each(|number| builder.warn(format!("warning\n{number}")));
    builder.finish("index".into())
}

fn written(index: &Index<Row>) -> Vec<u8> {
    let mut out = Vec::new();
    index.write(&mut out).unwrap();
    out
}

fn read(bytes: &[u8]) -> Result<Option<Index<Row>>> {
    Index::read(&MemorySource::new("index", bytes.to_vec()))
}

/// Puts the right checksum into the bytes of an index.
fn seal(bytes: &mut [u8]) {
    let Some((head, rest)) = bytes.split_at_mut_checked(16) else { return };
    head[12..].copy_from_slice(&crc32fast::hash(rest).to_le_bytes());
}

/// Looks at all of an index. Whatever it says, nothing may panic or take more memory than there is.
fn visit(index: &Index<Row>) {
    let _ = index.members(&mut |member| {
        if let Node::Sample(sample) = member.node {
            assert!(sample < index.len());
        }
        Ok(())
    });
    let _ = index.target(u64::MAX, 1);
    for number in (0..index.len().min(50)).chain([index.len(), u64::MAX]) {
        let _ = (index.sample(number), index.pieced_bytes(number), index.target(number, number));
        for offset in [0, 15, u64::MAX] {
            let _ = index.piece(number, offset);
        }
    }
}

#[test]
fn an_index_comes_back_as_it_was_built() {
    let first = index(9);
    let bytes = written(&first);
    let second = read(&bytes).unwrap().unwrap();
    assert_eq!(written(&second), bytes);
    for index in [first, second] {
        assert_eq!((index.len(), index.data_bytes(), index.has_pieces()), (9, 36, true));
        assert_eq!(index.sample(0).unwrap(), Row { length: 77, ..row(0) });
        (1..9).for_each(|number| assert_eq!(index.sample(number).unwrap(), row(number)));
        assert!(index.sample(9).is_err());
        assert_eq!(index.pieced_bytes(3).unwrap(), 103);
        assert_eq!(index.piece(3, 0).unwrap(), Some(piece(0)));
        assert_eq!(index.piece(3, 17).unwrap(), Some(piece(2)));
        assert_eq!(index.piece(3, 27).unwrap(), None);
        assert_eq!(index.piece(4, 0).unwrap(), None);
        assert_eq!((index.warnings().len(), &*index.warnings()[1]), (33, "warning 1"));
        assert_eq!(index.warnings()[32], "index: 8 more warnings");
        let mut samples = Vec::new();
        let mut directories = Vec::new();
        let mut see = |member: crate::format::Member| {
            match member.node {
                Node::Sample(sample) => samples.push((member.path.to_vec(), sample)),
                Node::Directory(stamp) => directories.push(stamp),
            }
            Ok(())
        };
        index.members(&mut see).unwrap();
        let name =
            |number| if number % 2 == 0 { format!("name {number}") } else { format!("{number}") };
        let expected: Vec<_> = (0..9).map(|number| (name(number).into_bytes(), number)).collect();
        assert_eq!(samples, expected);
        assert_eq!(directories, (0..9).map(attributes).collect::<Vec<_>>());
    }
}

#[test]
fn an_index_of_another_format_or_version_is_none_and_a_damaged_one_an_error() {
    let bytes = written(&index(2));
    assert!(read(b"").unwrap().is_none() && read(&[0; 500]).unwrap().is_none());
    let later = Index::<Later>::read(&MemorySource::new("index", bytes.clone()));
    assert!(later.unwrap().is_none());
    for bit in 0..bytes.len() * 8 {
        let mut wrong = bytes.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert!(!matches!(read(&wrong), Ok(Some(_))), "bit {bit}");
    }
    for length in 0..bytes.len() {
        assert!(!matches!(read(&bytes[..length]), Ok(Some(_))), "cut at {length}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(matches!(read(&longer), Err(Error::Checksum { .. })));
    let mut sealed = longer;
    seal(&mut sealed);
    assert!(matches!(read(&sealed), Err(Error::Malformed { .. })));
}

#[test]
fn a_name_of_a_sample_that_is_not_there_is_an_error() {
    let mut builder = Builder::<Row>::default();
    builder.sample(&row(0), 0);
    builder.name(b"a", 1).unwrap();
    let index = builder.finish("index".into());
    let error = index.members(&mut |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("expected one of 1 sample, found sample 1"), "{error}");
    let mut builder = Builder::<Row>::default();
    assert!(builder.name(b"a", u64::from(DIRECTORY_BIT) - 1).is_err());
}

proptest! {
    #[test]
    fn whatever_a_sealed_index_says_nothing_panics(
        samples in 0_u64..6,
        changes in vec((any::<Place>(), any::<u8>()), 0..12),
        end in any::<Option<Place>>(),
    ) {
        let mut bytes = written(&index(samples));
        for (place, value) in changes {
            let at = place.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(end.map_or(bytes.len(), |end| end.index(bytes.len())));
        seal(&mut bytes);
        if let Ok(Some(index)) = read(&bytes) {
            visit(&index);
        }
    }

    #[test]
    fn any_bytes_are_no_index_or_one_that_can_be_looked_at(bytes in vec(any::<u8>(), 0..300)) {
        let mut named = written(&index(1))[..48].to_vec();
        named.extend(bytes);
        seal(&mut named);
        if let Ok(Some(index)) = read(&named) {
            visit(&index);
        }
    }
}
