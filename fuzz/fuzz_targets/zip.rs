//! Any bytes as a zip file: refused or listed, and every place that a member is said to lie at is within the
//! file. That its bytes match their checksum is for the file system: `container` asks for that.

#![no_main]

use ffrfs::format::zip::Zip;
use ffrfs::format::{Container, Content, Format, MemorySource, Node, OpenOptions, Secret};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// Members looked at in one run, and the largest that is decoded.
const MAX_MEMBERS: u64 = 64;
const MAX_BYTES: u64 = 1 << 20;

fuzz_target!(|input: &[u8]| {
    // The last byte chooses the options, so that seeds are plain archives + 1 byte.
    let Some((&mode, bytes)) = input.split_last() else { return };
    let source = Arc::new(MemorySource::new("fuzz.zip", bytes.to_vec()));
    let _ = Zip.detect(source.as_ref());
    let encoding = [None, Some("raw"), Some("cp437"), Some("shift_jis")][usize::from(mode >> 2 & 3)];
    let options = OpenOptions {
        allow_damaged: mode & 1 != 0,
        password: (mode & 2 != 0).then(|| Secret::new(b"password")),
        encoding: encoding.map(str::to_owned),
        ..OpenOptions::default()
    };
    let Ok(container) = Zip.open(source, &options) else { return };
    let mut named = 0;
    container
        .members(&mut |member| {
            if let Node::Sample(index) = member.node {
                assert!(index < container.len(), "a name of no sample");
                named += 1;
            }
            Ok(())
        })
        .expect("the directory was read before");
    assert!(named >= container.len(), "every sample has a name");
    for index in 0..container.len().min(MAX_MEMBERS) {
        let _ = container.attributes(index).expect("a sample has attributes");
        let _ = container.link_target(index);
        read(bytes, container.as_ref(), index);
    }
});

fn read(bytes: &[u8], container: &dyn Container, index: u64) -> Option<()> {
    let mut sample = container.sample(index).expect("a sample");
    assert!(!sample.damaged || (sample.length_bytes > 0 && sample.size_bytes() > 0));
    for _ in 0..2 {
        if sample.damaged || sample.lead_bytes == 0 {
            break;
        }
        let at = sample.offset_bytes as usize;
        let lead = &bytes[at - sample.lead_bytes as usize..at];
        let is_here = container.check_lead(index, lead).ok()?;
        sample = container.sample(index).expect("a sample");
        assert!(!is_here || sample.lead_bytes == 0, "it was checked");
    }
    if sample.damaged || sample.size_bytes() > MAX_BYTES {
        return None;
    }
    let stored = &bytes[sample.offset_bytes as usize..sample.end_bytes() as usize];
    if let Content::Encoded(size) = sample.content {
        let mut out = vec![0; size as usize];
        container.decode(index, stored, &mut out).ok()?;
        let _ = container.decoder(index, None);
    } else {
        assert_eq!(sample.content, Content::Stored);
    }
    Some(())
}
