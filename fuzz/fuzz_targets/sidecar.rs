//! Any bytes as a sidecar: refused, or every row can be read, and the rows are written as the same bytes again.

#![no_main]

use ffrfs::format::sidecar::{read, write};
use ffrfs::format::{MemorySource, Source};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

const HEAD_BYTES: usize = 72;

fuzz_target!(|input: &[u8]| {
    let Some((&mode, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    // Random bytes have no right checksum.
    if mode & 1 != 0 && bytes.len() >= HEAD_BYTES {
        seal(&mut bytes);
    }
    let source: Arc<dyn Source> = Arc::new(MemorySource::new("fuzz.ffrsum", bytes.clone()));
    let Ok(sections) = read(&source) else { return };
    let mut again = Vec::new();
    for section in &sections {
        let rows = (0..section.key().samples()).map_while(|row| {
            section.crc32(row).expect("a row of each sample, or of none")
        });
        write(&mut again, section.key(), &rows.collect::<Vec<_>>()).expect("memory takes it");
    }
    assert!(again == bytes, "it was written in another way");
});

/// Makes the first section readable: its magic number, its number of rows, its checksums.
fn seal(bytes: &mut [u8]) {
    let rows = u64::from(bytes[16]) % ((bytes.len() - HEAD_BYTES) as u64 / 4 + 1);
    bytes[..8].copy_from_slice(b"FFRFSUM1");
    for at in [24, 32] {
        bytes[at..at + 8].copy_from_slice(&rows.to_le_bytes());
    }
    if bytes[17] & 1 == 0 {
        bytes[40..48].fill(0);
    }
    let of_rows = crc32fast::hash(&bytes[HEAD_BYTES..HEAD_BYTES + rows as usize * 4]);
    bytes[12..16].copy_from_slice(&of_rows.to_le_bytes());
    let of_head = crc32fast::hash(&bytes[12..HEAD_BYTES]);
    bytes[8..12].copy_from_slice(&of_head.to_le_bytes());
}
