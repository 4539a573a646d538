//! Any bytes as a zip file: refused or listed, and the range of every member is within the file. The file
//! system compares members with their checksums: `container` tests that.

#![no_main]

use ffrfs::format::zip::Zip;
use ffrfs::format::{Container, Content, Format, MemorySource, Node, OpenOptions};
use ffrfs::format::{Progress, Checkpoint, Secret};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// The most members that are looked at in one run, and the size of the largest that is decoded.
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
        if sample.damaged || sample.header_bytes == 0 {
            break;
        }
        let at = sample.offset_bytes as usize;
        let header = &bytes[at - sample.header_bytes as usize..at];
        let is_here = container.check_header(index, header).ok()?;
        sample = container.sample(index).expect("a sample");
        assert!(!is_here || sample.header_bytes == 0, "it was checked");
    }
    if sample.damaged || sample.size_bytes() > MAX_BYTES {
        return None;
    }
    let stored = &bytes[sample.offset_bytes as usize..sample.end_bytes() as usize];
    if let Content::Encoded(size) = sample.content {
        if let Some((whole, Some(checkpoint))) = steps(container, index, None, stored) {
            let (rest, _) = steps(container, index, Some(&checkpoint), stored).expect("it decoded before");
            assert!(rest == whole[checkpoint.decoded_bytes as usize..]);
        }
        let mut out = vec![0; size as usize];
        container.decode(index, stored, &mut out).ok()?;
    } else {
        assert_eq!(sample.content, Content::Stored);
    }
    Some(())
}

/// The bytes that a member is decoded to step by step, and the last checkpoint. `None` on an error.
fn steps(
    container: &dyn Container,
    index: u64,
    from: Option<&Checkpoint>,
    stored: &[u8],
) -> Option<(Vec<u8>, Option<Checkpoint>)> {
    let mut decoder = container.decoder(index, from).ok()??;
    let (mut out, mut checkpoint) = (Vec::new(), None);
    let mut buf = vec![0; 700];
    let mut at = from.map_or(0, |from| from.stored_bytes as usize);
    loop {
        let input = &stored[at..stored.len().min(at + 100)];
        let step = decoder.decode(input, &mut buf, at + input.len() == stored.len()).ok()?;
        at += step.taken;
        out.extend_from_slice(&buf[..step.given]);
        if step.is_end || out.len() as u64 > MAX_BYTES {
            return Some((out, checkpoint));
        }
        assert!(step != Progress::default(), "it is stuck");
        checkpoint = decoder.checkpoint().or(checkpoint);
    }
}
