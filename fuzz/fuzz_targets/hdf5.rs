//! Any bytes as an HDF5 file: refused, or its samples lie within the file, and chunks decode to as many bytes as they
//! say, or to an error.

#![no_main]

use ffrfs::format::{Content, FORMATS, Member, MemorySource, Node, OpenOptions, View};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// The most samples that are looked at in one run, and the most bytes that are decoded at once.
const MAX_SAMPLES: u64 = 64;
const MAX_BYTES: u64 = 1 << 20;

fuzz_target!(|input: &[u8]| {
    let Some((&mode, bytes)) = input.split_first() else { return };
    let format = FORMATS.iter().find(|known| known.name() == "HDF5").expect("a known format");
    let source = Arc::new(MemorySource::new("fuzz", bytes.to_vec()));
    let _ = format.detect(source.as_ref()).expect("memory can be read");
    let view = if mode & 1 != 0 { View::Raw } else { View::Typed };
    let options = OpenOptions {
        allow_damaged: mode & 2 != 0,
        rows: mode & 4 != 0,
        view,
        ..OpenOptions::default()
    };
    let Ok(container) = format.open(source, &options) else { return };
    let mut seen = 0;
    let visit = &mut |member: Member<'_>| {
        let Node::Sample(index) = member.node else { return Ok(()) };
        seen += 1;
        assert!(index < container.len());
        if seen > MAX_SAMPLES {
            return Ok(());
        }
        let sample = container.sample(index).expect("memory can be read");
        let prefix = container.prefix(index).expect("memory can be read").len() as u64;
        assert!(sample.damaged || sample.end_bytes() <= bytes.len() as u64);
        container.link_target(index).expect("memory can be read");
        match sample.content {
            _ if sample.damaged => assert_ne!(sample.length_bytes, 0),
            Content::Stored => assert_eq!(prefix, 0),
            Content::Prefixed(length) => assert_eq!(prefix, u64::from(length)),
            Content::Encoded(size) => {
                assert!(size >= prefix);
                if size <= MAX_BYTES {
                    let stored = &bytes[sample.offset_bytes as usize..sample.end_bytes() as usize];
                    let _ = container.decode(index, stored, &mut vec![0; size as usize]);
                }
                pieces(container.as_ref(), (index, prefix, size), bytes);
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    };
    container.members(visit).expect("memory can be read");
    assert!(container.sample(container.len()).is_err());
});

/// Looks at the first intervals of a sample.
fn pieces(
    container: &dyn ffrfs::format::Container,
    (index, prefix, size): (u64, u64, u64),
    bytes: &[u8],
) {
    let intervals = container.intervals(index).expect("it is in chunks");
    let mut at = prefix;
    for _ in 0..8 {
        let Some(piece) = container.piece(index, at).expect("memory can be read") else { return };
        assert!(piece.at_bytes >= at && piece.length_bytes > 0);
        assert!(piece.at_bytes + piece.length_bytes <= size);
        let interval = intervals.interval(piece.offset_bytes).expect("it lies in one");
        assert!(interval.decoded.contains(&piece.offset_bytes));
        assert!(interval.stored.end <= bytes.len() as u64);
        let length = interval.decoded.end - interval.decoded.start;
        if length <= MAX_BYTES {
            let stored = &bytes[interval.stored.start as usize..interval.stored.end as usize];
            let _ = intervals.decode(interval.number, stored, &mut vec![0; length as usize]);
        }
        at = piece.at_bytes + piece.length_bytes;
    }
}
