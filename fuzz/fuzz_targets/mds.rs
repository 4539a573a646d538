//! Any bytes as an MDS shard.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "shared/records.rs"]
mod records;

fuzz_target!(|input: &[u8]| {
    let Some((&mode, bytes)) = input.split_first() else { return };
    records::open("MDS", mode, bytes);
});
