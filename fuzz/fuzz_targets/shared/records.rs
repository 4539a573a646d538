//! The code that the targets of formats of records share.

use ffrfs::format::{Container, Content, FORMATS, Names, Node, OpenOptions, View};

#[path = "scanned.rs"]
mod scanned;

/// Opens bytes by a pass, by a pass over a stream, and by the kept index, which must find the same; and looks at all files.
pub fn open(format: &str, mode: u8, bytes: &[u8]) {
    let format = FORMATS.iter().find(|known| known.name() == format).expect("a known format");
    let view = if mode & 8 != 0 { View::Raw } else { View::Typed };
    let (allow_damaged, pickles) = (mode & 1 != 0, mode & 16 != 0);
    let options = OpenOptions { allow_damaged, pickles, view, ..OpenOptions::default() };
    if let Some(container) = scanned::open(*format, bytes, "fuzz.mds", &options) {
        look_at(container.as_ref(), bytes);
    }
}

fn look_at(container: &dyn Container, bytes: &[u8]) {
    match container.names(container.len()).expect("names can be read") {
        Names::None => {}
        Names::Fields(fields) => {
            assert!(container.len().is_multiple_of(fields));
            for index in 0..container.len() {
                assert!(!container.field_name(index).expect("every field has a name").is_empty());
            }
        }
        Names::Records(records) => container
            .members(&mut |member| {
                let number = member.path.split(|byte| *byte == b'/').next().unwrap_or_default();
                let number: u64 = std::str::from_utf8(number).unwrap().parse().expect("a number");
                assert!(number < records);
                assert!(!matches!(member.node, Node::Sample(sample) if sample >= container.len()));
                Ok(())
            })
            .expect("names can be read"),
        other => panic!("{other:?}"),
    }
    for index in 0..container.len() {
        let sample = container.sample(index).expect("rows can be read");
        if sample.damaged {
            assert_ne!(sample.length_bytes, 0);
            continue;
        }
        assert!(sample.end_bytes() <= bytes.len() as u64);
        let stored = &bytes[sample.offset_bytes as usize..sample.end_bytes() as usize];
        match sample.content {
            Content::Stored => {}
            Content::Prefixed(length) => {
                assert_eq!(container.prefix(index).expect("a header").len(), length as usize);
            }
            Content::Encoded(size) => {
                let mut out = vec![0; size as usize];
                container.decode(index, stored, &mut out).expect("it was decoded in the pass");
                assert!(sample.checksum.is_none_or(|checksum| checksum.check(&out).is_ok()));
            }
            Content::Sparse(size) => {
                let mut at = 0;
                while let Some(piece) = container.piece(index, at).expect("pieces can be read") {
                    assert_eq!(piece.at_bytes, at, "a hole");
                    assert!(piece.offset_bytes >= sample.offset_bytes);
                    assert!(piece.offset_bytes + piece.length_bytes <= sample.end_bytes());
                    at += piece.length_bytes;
                }
                assert_eq!(at, size);
            }
        }
    }
    assert!(container.sample(container.len()).is_err());
}
