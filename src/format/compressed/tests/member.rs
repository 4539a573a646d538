//! Containers that are members of others, opened by their kept indexes.

use super::*;
use crate::format::testing::{Noted, fixture};
use crate::format::{ChecksumKind, PartName};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index as Place;
use std::sync::LazyLock;

/// Containers of formats that scan and of formats that do not. Tests of mounts have zip, whose samples have header bytes.
const FIXTURES: [&str; 4] =
    ["packed_folder.ffr", "pickled.ffr", "tensors.safetensors", "mixed.tfrecord"];

fn containers() -> Vec<Vec<u8>> {
    let mut all = FIXTURES.map(|name| std::fs::read(fixture(name)).unwrap()).to_vec();
    all.push(tar(&[("a".to_owned(), text(900)), ("b".to_owned(), text(40))]));
    all
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    streams(bytes).into_iter().find(|(codec, _)| *codec == Codec::Gzip).unwrap().1
}

/// A member that is stored as `stored`, a gzip stream of `bytes`.
fn member(stored: &[u8], bytes: &[u8]) -> MemberSource {
    let name = PartName::from("in");
    let checksum = ChecksumKind::Crc32.with_value(crc32fast::hash(bytes));
    MemberSource {
        source: Arc::new(MemorySource::new(name.clone(), stored.to_vec())),
        name,
        coding: Coding::Stream(Codec::Gzip, Some(checksum), Arc::new(RecentIntervals::new(1, 0))),
    }
}

fn again(member: MemberSource, kept: &[u8]) -> Result<Option<Box<dyn Container>>> {
    let kept: Arc<dyn Source> = Arc::new(MemorySource::new("index", kept.to_vec()));
    open_kept_member(member, &kept, &OpenOptions::default())
}

/// All that a mount asks of a container before the first read.
fn described(container: &dyn Container) -> String {
    let mut said = format!("{} {:?}", container.format(), container.names(container.len()));
    for index in 0..container.len() {
        let (sample, attributes) = (container.sample(index), container.attributes(index));
        said += &format!("\n{:?} {:?}", sample.unwrap(), attributes.unwrap());
    }
    container
        .members(&mut |member| {
            said += &format!("\n{:?} {:?}", String::from_utf8_lossy(member.path), member.node);
            Ok(())
        })
        .unwrap();
    said
}

#[test]
fn a_member_is_opened_by_what_was_kept_of_it_without_a_byte_of_its_stream() {
    for bytes in containers() {
        let stored = gzip(&bytes);
        let options = OpenOptions::default();
        let (first, kept) = open_member(member(&stored, &bytes), &options, true).unwrap();
        let (_, nothing) = open_member(member(&stored, &bytes), &options, false).unwrap();
        assert!(nothing.is_none());
        let blind = vec![0; stored.len()];
        let second = again(member(&blind, &bytes), &kept.unwrap()).unwrap().unwrap();
        assert_eq!(described(first.as_ref()), described(second.as_ref()));
    }
}

#[test]
fn what_is_encoded_in_a_stream_counts_in_memory_and_is_checked_as_outside_of_it() {
    let (mut encoded, mut checked) = (0, 0);
    for name in ["latest.h5", "pickled.ffr"] {
        let bytes = std::fs::read(fixture(name)).unwrap();
        let stored = gzip(&bytes);
        let inner = opened(name, bytes.clone()).unwrap();
        let opened = open_member(member(&stored, &bytes), &OpenOptions::default(), false);
        let (outer, _) = opened.unwrap();
        for index in 0..inner.len() {
            let (within, shown) = (inner.sample(index).unwrap(), outer.sample(index).unwrap());
            if matches!(within.content, Content::Encoded(_)) && !within.damaged {
                assert_eq!(shown.scratch_bytes, within.length_bytes, "{name}: sample {index}");
                encoded += within.length_bytes;
            }
            assert_eq!(outer.checks_encoding(index), inner.checks_intervals(index));
            checked += u64::from(outer.checks_encoding(index));
        }
    }
    assert!(encoded > 0 && checked > 0);
}

#[test]
fn members_of_one_interval_are_opened_by_decoding_it_once() {
    let bytes = containers().swap_remove(3);
    let (all, length) = (bytes.repeat(5), bytes.len() as u64);
    let source = Arc::new(Noted::new(gzip(&all)));
    let stream =
        StreamIndex::build(source.as_ref(), Codec::Gzip, INTERVAL_BYTES, &mut |_, _| Ok(()));
    let (stream, recent) = (Arc::new(stream.unwrap()), Arc::new(RecentIntervals::new(2, 0)));
    let before = source.reads().len();
    for number in 0..5 {
        let range = number * length..(number + 1) * length;
        let member = MemberSource {
            source: Arc::clone(&source) as Arc<dyn Source>,
            name: PartName::from("in"),
            coding: Coding::Range(Arc::clone(&stream), range, (Arc::clone(&recent), 7)),
        };
        let (opened, _) = open_member(member, &OpenOptions::default(), false).unwrap();
        assert!(!opened.is_empty());
    }
    assert_eq!(source.reads().len() - before, 1);
}

#[test]
fn what_was_kept_of_another_version_or_is_cut_is_of_no_use() {
    let bytes = containers().swap_remove(0);
    let stored = gzip(&bytes);
    let (_, kept) = open_member(member(&stored, &bytes), &OpenOptions::default(), true).unwrap();
    let kept = kept.unwrap();
    for at in 0..kept.len() {
        let mut wrong = kept.clone();
        wrong[at] ^= 1;
        assert!(!matches!(again(member(&stored, &bytes), &wrong), Ok(Some(_))), "byte {at}");
    }
    for end in 0..kept.len() {
        let cut = again(member(&stored, &bytes), &kept[..end]);
        assert!(!matches!(cut, Ok(Some(_))), "cut at {end} of {}", kept.len());
    }
}

/// The bytes of each container, the same bytes compressed, and the kept index.
static KEPT: LazyLock<Vec<[Vec<u8>; 3]>> = LazyLock::new(|| {
    let kept = |bytes: Vec<u8>| {
        let stored = gzip(&bytes);
        let opened = open_member(member(&stored, &bytes), &OpenOptions::default(), true);
        [bytes, stored, opened.unwrap().1.unwrap()]
    };
    containers().into_iter().map(kept).collect()
});

proptest! {
    #[test]
    fn whatever_was_kept_of_a_member_nothing_panics(
        number in 0..FIXTURES.len() + 1,
        changes in vec((any::<Place>(), any::<u8>()), 1..6),
        in_head in vec((0_usize..56, any::<u8>()), 0..3),
        is_right in any::<bool>(),
    ) {
        let [bytes, stored, kept] = &KEPT[number];
        let mut kept = kept.clone();
        for (at, value) in changes {
            let at = at.index(kept.len());
            kept[at] = value;
        }
        for (at, value) in in_head {
            kept[at] = value;
        }
        if is_right {
            let end = kept.len() - 4;
            let checksum = crc32fast::hash(&kept[..end]);
            kept[end..].copy_from_slice(&checksum.to_le_bytes());
        }
        if let Ok(Some(container)) = again(member(stored, bytes), &kept) {
            for index in 0..container.len() {
                let _ = container.sample(index);
                let _ = container.piece(index, 0);
            }
            let _ = container.names(container.len());
            let _ = container.members(&mut |_| Ok(()));
        }
    }
}
