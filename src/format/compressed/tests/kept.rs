//! The index of a compressed file as it is kept, and the decoded bytes at any offset.

use super::*;
use crate::format::stream::MAX_INTERVAL_BYTES;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index as Place;

fn files() -> Vec<(String, Vec<u8>)> {
    vec![("a".to_owned(), text(900)), ("b".to_owned(), text(40))]
}

fn kept(container: &dyn Container) -> Vec<u8> {
    let mut out = Vec::new();
    container.keep(&mut out).unwrap();
    out
}

fn open_kept(stored: &[u8], kept: Vec<u8>) -> Result<Option<Box<dyn Container>>> {
    let source = |name: &str, bytes: Vec<u8>| Arc::new(MemorySource::new(name, bytes));
    Compressed::GZIP.open_kept(source("t.tar.gz", stored.to_vec()), source("index", kept))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut streams = streams(bytes).into_iter();
    streams.find(|(codec, _)| *codec == Codec::Gzip).unwrap().1
}

#[test]
fn the_index_of_a_compressed_file_comes_back_as_it_was_written() {
    for bytes in [tar(&files()), text(700)] {
        let stored = gzip(&bytes);
        let first = opened("t.tar.gz", stored.clone()).unwrap();
        let index = kept(first.as_ref());
        let second = open_kept(&stored, index.clone()).unwrap().unwrap();
        assert_eq!(kept(second.as_ref()), index);
        assert_eq!(names(first.as_ref()), names(second.as_ref()));
        for sample in 0..first.len() {
            let shown = |of: &dyn Container| shown(of, &stored, sample).unwrap();
            assert_eq!(shown(first.as_ref()), shown(second.as_ref()));
        }
    }
}

#[test]
fn the_index_of_an_earlier_version_is_told_from_a_damaged_one() {
    let stored = gzip(&tar(&files()));
    let index = kept(opened("t.tar.gz", stored.clone()).unwrap().as_ref());
    // An index of an earlier version, which begins with the length of the stream's index.
    assert!(open_kept(&stored, index[16..].to_vec()).unwrap().is_none());
    for at in 0..index.len() {
        let mut wrong = index.clone();
        wrong[at] ^= 1;
        assert!(!matches!(open_kept(&stored, wrong), Ok(Some(_))), "byte {at}");
        assert!(!matches!(open_kept(&stored, index[..at].to_vec()), Ok(Some(_))), "cut at {at}");
    }
}

#[test]
fn a_compressed_file_in_itself_is_no_container_of_a_kept_index() {
    let stored = gzip(b"bytes");
    let index = kept(opened("t.gz", stored.clone()).unwrap().as_ref());
    let mut nested = index.clone();
    nested[24..28].copy_from_slice(b"gzip");
    nested.extend(&index);
    let error = open_kept(&stored, nested).err().unwrap().to_string();
    assert!(error.contains("expected the name of a format, found gzip"), "{error}");
}

proptest! {
    #[test]
    fn whatever_a_kept_index_says_nothing_panics(
        changes in vec((0_usize..60, any::<u8>()), 0..4),
        tail in vec(any::<u8>(), 0..100),
        end in any::<Place>(),
    ) {
        let stored = gzip(&tar(&files()));
        let mut index = kept(opened("t.tar.gz", stored.clone()).unwrap().as_ref());
        index.truncate(end.index(2 * index.len()).max(40));
        index.extend(tail);
        for (at, value) in changes.into_iter().filter(|(at, _)| *at < 40) {
            index[at] = value;
        }
        if let Ok(Some(container)) = open_kept(&stored, index) {
            (0..container.len()).for_each(|sample| drop(container.sample(sample)));
            let _ = container.members(&mut |_| Ok(()));
        }
    }

    #[test]
    fn decoded_bytes_are_read_at_any_offset(start in 0_u64..9000, length in 0_usize..5000) {
        let bytes = text(2000);
        let source: Arc<dyn Source> = Arc::new(MemorySource::new("t.gz", gzip(&bytes)));
        let intervals = 600.min(MAX_INTERVAL_BYTES);
        let stream =
            StreamIndex::build(source.as_ref(), Codec::Gzip, intervals, &mut |_, _| Ok(()));
        let decoded = DecodedSource::new(source, Arc::new(stream.unwrap()));
        prop_assert_eq!(decoded.len(), bytes.len() as u64);
        let mut found = vec![0; length];
        let read = decoded.read_exact_at(&mut found, start);
        let expected = bytes.get(start as usize..).and_then(|rest| rest.get(..length));
        prop_assert_eq!(read.is_ok(), expected.is_some() || length == 0);
        if let Some(expected) = expected {
            prop_assert_eq!(&found, expected);
            let mut copied = vec![0; length];
            let table = decoded.table(start, length as u64).unwrap();
            table.copy_to(0, &mut copied).unwrap();
            prop_assert_eq!(&copied, expected);
        }
        prop_assert!(decoded.table(start, u64::MAX - start).is_err());
    }
}
