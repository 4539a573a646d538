//! Any bytes as a Parquet file: refused, or its samples lie within the file, and pages decode to as many bytes as they
//! say, or to an error.

#![no_main]

use ffrfs::format::{Content, FORMATS, Member, MemorySource, Names, OpenOptions, View};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// The most samples that are looked at in one run, and the largest sample that is decoded.
const MAX_SAMPLES: u64 = 64;
const MAX_BYTES: u64 = 1 << 20;

fuzz_target!(|input: &[u8]| {
    let Some((&mode, bytes)) = input.split_first() else { return };
    let format = FORMATS.iter().find(|known| known.name() == "Parquet").expect("a known format");
    let source = Arc::new(MemorySource::new("fuzz", bytes.to_vec()));
    let _ = format.detect(source.as_ref()).expect("memory can be read");
    let view = if mode & 1 != 0 { View::Raw } else { View::Typed };
    let options = OpenOptions { allow_damaged: mode & 2 != 0, view, ..OpenOptions::default() };
    let Ok(container) = format.open(source, &options) else { return };
    for index in 0..container.len().min(MAX_SAMPLES) {
        let sample = container.sample(index).expect("memory can be read");
        let prefix = container.prefix(index).expect("memory can be read").len() as u64;
        assert!(sample.damaged || sample.end_bytes() <= bytes.len() as u64);
        match sample.content {
            _ if sample.damaged => assert_ne!(sample.length_bytes, 0),
            Content::Stored => assert_eq!(prefix, 0),
            Content::Prefixed(length) => assert_eq!(prefix, u64::from(length)),
            Content::Encoded(size) => {
                let piece = container.piece(index, prefix).expect("memory can be read");
                let piece = piece.expect("it has bytes");
                assert_eq!((piece.at_bytes, piece.at_bytes + piece.length_bytes), (prefix, size));
                let intervals = container.intervals(index).expect("it lies in pages");
                let interval = intervals.interval(piece.offset_bytes).expect("it lies in one");
                assert!(interval.decoded.contains(&piece.offset_bytes));
                assert!(interval.stored.end <= bytes.len() as u64);
                if size <= MAX_BYTES {
                    let stored = &bytes[sample.offset_bytes as usize..sample.end_bytes() as usize];
                    let _ = container.decode(index, stored, &mut vec![0; size as usize]);
                }
            }
            other => panic!("{other:?}"),
        }
    }
    let mut seen = 0;
    let visit = &mut |member: Member<'_>| {
        seen += u64::from(!member.path.is_empty());
        Ok(())
    };
    container.members(visit).expect("memory can be read");
    match container.names(container.len()).expect("memory can be read") {
        Names::Fields(fields) => assert!(container.len().is_multiple_of(fields)),
        Names::Records(records) => assert!(records <= seen),
        Names::None => assert_eq!(container.len(), 0),
        other => panic!("{other:?}"),
    }
    assert!(container.sample(container.len()).is_err());
});
