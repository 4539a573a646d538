//! What the targets of formats of records share.

use ffrfs::format::scanned::FIRST_BYTES;
use ffrfs::format::{Container, Content, FORMATS, Format, MemorySource, Names, Node, OpenOptions, Source, View};
use std::sync::Arc;

/// Opens bytes by a pass, by a pass over a stream, and by the kept index, which must find the same; and looks at all files.
pub fn open(format: &str, mode: u8, bytes: &[u8]) {
    let format = FORMATS.iter().find(|known| known.name() == format).expect("a known format");
    let view = if mode & 8 != 0 { View::Raw } else { View::Typed };
    let options = OpenOptions { allow_damaged: mode & 1 != 0, view, ..OpenOptions::default() };
    let source: Arc<dyn Source> = Arc::new(MemorySource::new("fuzz.mds", bytes.to_vec()));
    let _ = format.detect(source.as_ref()).expect("memory can be read");
    let scanned = format.open(Arc::clone(&source), &options);
    if let Some(streamed) = stream(*format, bytes, &source, &options) {
        assert_eq!(scanned.is_ok(), streamed.is_some(), "the two ways to scan differ");
        if let (Ok(first), Some(second)) = (&scanned, &streamed) {
            assert!(kept(first.as_ref()) == kept(second.as_ref()), "the two ways to scan differ");
        }
    }
    let Ok(container) = scanned else { return };
    let index = kept(container.as_ref());
    let found = format.open_kept(source, Arc::new(MemorySource::new("index", index.clone())));
    let found = found.expect("it was just written").expect("of this version");
    assert!(index == kept(found.as_ref()), "it changed");
    look_at(container.as_ref(), bytes);
}

/// Scans bytes as a decoded stream. `None`: such a stream is not looked at as a container of the format.
fn stream(
    format: &dyn Format,
    bytes: &[u8],
    source: &Arc<dyn Source>,
    options: &OpenOptions,
) -> Option<Option<Box<dyn Container>>> {
    let first = &bytes[..bytes.len().min(FIRST_BYTES)];
    let mut scanner = format.scan_stream(source.name(), first, options).ok()??;
    let mut end = 0;
    while let Some((at, length)) = scanner.want() {
        assert!(at >= end, "it goes back");
        end = at + length;
        let to = end.min(bytes.len() as u64) as usize;
        let from = usize::try_from(at).unwrap_or(usize::MAX);
        if scanner.take(bytes.get(from..to).unwrap_or_default()).is_err() {
            return Some(None);
        }
    }
    Some(scanner.finish(Arc::clone(source)).ok())
}

fn kept(container: &dyn Container) -> Vec<u8> {
    let mut out = Vec::new();
    container.keep(&mut out).expect("memory takes it");
    out
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
