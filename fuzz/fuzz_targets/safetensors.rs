//! Any bytes as a safetensors file: refused, or its samples lie within the file, and are as long as they say with
//! the prefix before them.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "shared/typed.rs"]
mod typed;

fuzz_target!(|input: &[u8]| typed::open("safetensors", input));
