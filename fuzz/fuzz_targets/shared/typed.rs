//! The code that the targets of the formats with typed values share.

use ffrfs::format::{
    Container, Content, FORMATS, MemorySource, Names, Node, OpenOptions, View,
};
use std::collections::HashSet;
use std::sync::Arc;

/// The most samples that are looked at in one run.
const MAX_SAMPLES: u64 = 64;

/// Opens `input` without its first byte, which chooses the options.
pub fn open(format: &str, input: &[u8]) {
    let Some((&mode, bytes)) = input.split_first() else { return };
    let format = FORMATS.iter().find(|known| known.name() == format).expect("a known format");
    let source = Arc::new(MemorySource::new("fuzz", bytes.to_vec()));
    let _ = format.detect(source.as_ref()).expect("memory can be read");
    let view = match mode & 3 {
        0 => View::Raw,
        1 => View::Npy,
        _ => View::Typed,
    };
    let (allow_damaged, pickles) = (mode & 4 != 0, mode & 8 != 0);
    let options = OpenOptions { allow_damaged, pickles, view, ..OpenOptions::default() };
    if let Ok(container) = format.open(source, &options) {
        look_at(container.as_ref(), bytes.len() as u64);
    }
}

fn look_at(container: &dyn Container, file_bytes: u64) {
    let samples = container.len();
    let fields = match container.names(samples).expect("memory can be read") {
        Names::Fields(fields) => fields,
        Names::Members => return look_at_members(container, file_bytes),
        _ => return assert_eq!(samples, 0),
    };
    assert!(samples <= file_bytes / 8, "every sample takes 8 bytes of metadata");
    assert!(samples.is_multiple_of(fields));
    let last = samples.saturating_sub(fields)..samples;
    for first in [0..samples, last] {
        look_at_records(container, first.take(MAX_SAMPLES as usize), fields, file_bytes);
    }
    assert!(container.sample(samples).is_err());
}

fn look_at_records(
    container: &dyn Container,
    samples: impl Iterator<Item = u64>,
    fields: u64,
    file_bytes: u64,
) {
    let mut names = HashSet::new();
    for index in samples {
        if index.is_multiple_of(fields) {
            names.clear();
        }
        let name = container.field_name(index).expect("every field has a name");
        assert!((1..=255).contains(&name.len()) && !name.iter().any(|b| matches!(b, 0 | b'/')));
        assert!(name != b"." && name != b"..");
        assert!(names.insert(name), "two fields of one name");
        look_at_sample(container, index, file_bytes);
    }
}

fn look_at_members(container: &dyn Container, file_bytes: u64) {
    let visit = &mut |member: ffrfs::format::Member<'_>| {
        if let Node::Sample(index) = member.node {
            look_at_sample(container, index, file_bytes);
        }
        Ok(())
    };
    container.members(visit).expect("memory can be read");
    assert!(container.sample(container.len()).is_err());
}

fn look_at_sample(container: &dyn Container, index: u64, file_bytes: u64) {
    let sample = container.sample(index).expect("memory can be read");
    if sample.damaged {
        assert_ne!(sample.length_bytes, 0);
        return;
    }
    assert!(sample.end_bytes() <= file_bytes);
    let prefix = container.prefix(index).expect("memory can be read").len() as u64;
    match sample.content {
        Content::Stored => assert_eq!(prefix, 0),
        Content::Prefixed(bytes) => assert_eq!(prefix, u64::from(bytes)),
        // A header, and bytes that are stored as at least as many characters of a pickle.
        Content::Encoded(bytes) => assert!(bytes <= sample.length_bytes + u64::from(u16::MAX)),
        other => panic!("{other:?}"),
    }
}
