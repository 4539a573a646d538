//! Any bytes as a tar archive, given in one piece or as a stream: scanned, listed, kept and found again. No
//! member lies outside of the archive, and no piece of a sparse member outside of the member or out of order.

#![no_main]

use ffrfs::format::tar::Tar;
use ffrfs::format::{Container, Content, OpenOptions};
use libfuzzer_sys::fuzz_target;

#[path = "shared/scanned.rs"]
mod scanned;

fuzz_target!(|input: &[u8]| {
    let Some((&mode, bytes)) = input.split_first() else { return };
    // Random bytes have no right checksum.
    let mut bytes = bytes.to_vec();
    if mode & 2 != 0 {
        seal(&mut bytes);
    }
    let encoding = (mode & 4 != 0).then(|| "shift_jis".to_owned());
    let options = OpenOptions { allow_damaged: mode & 1 != 0, encoding, ..OpenOptions::default() };
    let Some(container) = scanned::open(&Tar, &bytes, "fuzz.tar.gz", &options) else { return };
    visit(container.as_ref(), bytes.len() as u64);
});

/// Gives every block that looks like a header its checksum.
fn seal(bytes: &mut [u8]) {
    for block in bytes.chunks_exact_mut(512).filter(|block| block[257..].starts_with(b"ustar")) {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
}

fn visit(container: &dyn Container, length: u64) {
    container.members(&mut |_| Ok(())).expect("names can be read");
    for index in 0..container.len() {
        let sample = container.sample(index).expect("rows can be read");
        container.attributes(index).expect("rows can be read");
        container.link_target(index).expect("targets can be read");
        assert!(sample.damaged || sample.end_bytes() <= length);
        let (Content::Sparse(size), false) = (sample.content, sample.damaged) else { continue };
        let mut at = 0;
        while let Some(piece) = container.piece(index, at).expect("pieces can be read") {
            assert!(piece.at_bytes >= at && piece.length_bytes > 0);
            assert!(piece.offset_bytes >= sample.offset_bytes);
            assert!(piece.offset_bytes + piece.length_bytes <= sample.end_bytes());
            at = piece.at_bytes + piece.length_bytes;
            assert!(at <= size);
        }
    }
}
