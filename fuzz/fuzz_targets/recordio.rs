//! Any bytes as a RecordIO file; or as the words of a file whose magic numbers are right.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "shared/records.rs"]
mod records;

fuzz_target!(|input: &[u8]| {
    let Some((&mode, bytes)) = input.split_first() else { return };
    match mode & 2 {
        0 => records::open("RecordIO", mode, bytes),
        _ => records::open("RecordIO", mode, &marked(bytes)),
    }
});

/// Parts of records; a byte before each gives its kind and length.
fn marked(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((word, rest)) = bytes.split_first() {
        let (data, behind) = rest.split_at(usize::from(word & 0x3f).min(rest.len()));
        out.extend(0xced7_230a_u32.to_le_bytes());
        out.extend((u32::from(word >> 6) << 29 | data.len() as u32).to_le_bytes());
        out.extend(data);
        out.resize(out.len().next_multiple_of(4), 0);
        bytes = behind;
    }
    out
}
