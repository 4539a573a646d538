//! Any bytes as an LMDB database: refused, or its values lie within the file.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "shared/typed.rs"]
mod typed;

fuzz_target!(|input: &[u8]| typed::open("LMDB", input));
