//! Any bytes as a TFRecord file; or as the data of its records, with right lengths and checksums but perhaps for the last.

#![no_main]

use ffrfs::format::ChecksumKind;
use libfuzzer_sys::fuzz_target;

#[path = "shared/records.rs"]
mod records;

fuzz_target!(|input: &[u8]| {
    let Some((&mode, bytes)) = input.split_first() else { return };
    match mode & 2 {
        0 => records::open("TFRecord", mode, bytes),
        _ => records::open("TFRecord", mode, &sealed(bytes, mode & 4 != 0)),
    }
});

/// Records whose lengths are given by a byte before each, with checksums that are right but perhaps for the last.
fn sealed(mut bytes: &[u8], is_last_wrong: bool) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((length, rest)) = bytes.split_first() {
        let (data, behind) = rest.split_at(usize::from(*length).min(rest.len()));
        let head = (data.len() as u64).to_le_bytes();
        let wrong = u32::from(is_last_wrong && behind.is_empty());
        out.extend(head);
        out.extend(ChecksumKind::MaskedCrc32c.of(&head).value().to_le_bytes());
        out.extend(data);
        out.extend((ChecksumKind::MaskedCrc32c.of(data).value() ^ wrong).to_le_bytes());
        bytes = behind;
    }
    out
}
