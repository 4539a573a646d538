//! Any bytes as the kept index of a container that must be read whole: of a tar archive, or of a compressed file.
//! The checksum is made right, so that the bytes behind it are looked at. Nothing panics, no name leads to a missing
//! sample, and no memory is taken for entries that the index does not have.

#![no_main]

use ffrfs::format::compressed::Compressed;
use ffrfs::format::tar::Tar;
use ffrfs::format::{Container, Format, MemorySource, Node, Source};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

/// The most samples that are looked at in one run.
const MOST: u64 = 256;

fuzz_target!(|input: &[u8]| {
    let Some((&mode, bytes)) = input.split_first() else { return };
    let mut index = bytes.to_vec();
    let is_tar = mode & 1 == 0;
    // In a compressed file's index, the head and the index of the stream come first.
    let stream_bytes = index.get(16..24).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()));
    let start = if is_tar { 0 } else { stream_bytes.saturating_add(40) };
    if let Some(part) = usize::try_from(start).ok().and_then(|start| index.get_mut(start..)) {
        seal(part);
    }
    let container = || -> Arc<dyn Source> { Arc::new(MemorySource::new("fuzz", vec![7; 2048])) };
    let index: Arc<dyn Source> = Arc::new(MemorySource::new("index", index));
    let opened = match is_tar {
        true => Tar.open_kept(container(), index),
        false => Compressed::GZIP.open_kept(container(), index),
    };
    if let Ok(Some(container)) = opened {
        visit(container.as_ref());
    }
});

/// Gives the index of a scanned format the checksum that it should have.
fn seal(bytes: &mut [u8]) {
    if let Some((head, rest)) = bytes.split_at_mut_checked(16) {
        head[12..].copy_from_slice(&crc32fast::hash(rest).to_le_bytes());
    }
}

fn visit(container: &dyn Container) {
    let samples = container.len();
    let _ = container.members(&mut |member| {
        if let Node::Sample(sample) = member.node {
            assert!(sample < samples);
        }
        Ok(())
    });
    for number in (0..samples.min(MOST)).chain([samples, u64::MAX]) {
        let _ = (container.sample(number), container.attributes(number));
        let _ = container.link_target(number);
        for offset in [0, 1000, u64::MAX] {
            let _ = container.piece(number, offset);
        }
    }
    let mut kept = Vec::new();
    container.keep(&mut kept).expect("memory takes it");
}
