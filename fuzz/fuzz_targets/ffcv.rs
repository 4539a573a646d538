//! Any bytes as a FFCV file: refused, or its samples lie within the file, are as long as they say with the prefix
//! before them, and have names of their own that a directory can hold.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "shared/typed.rs"]
mod typed;

fuzz_target!(|input: &[u8]| typed::open("FFCV", input));
