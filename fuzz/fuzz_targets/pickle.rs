//! Any bytes decode to a refusal or to a tree that keeps the decoder's promises and survives a
//! round trip.
#![no_main]

use std::collections::HashSet;

use ffrfs::format::ffrecord::pickle::{Entry, Directory, MAX_DEPTH, decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // The last byte chooses the number of samples, so that seeds are plain pickles + 1 byte.
    let Some((&bits, pickle)) = input.split_last() else { return };
    let samples = u64::MAX.checked_shr(u32::from(bits)).unwrap_or(0) >> 1;
    let Ok(tree) = decode(pickle, samples) else { return };
    check(&tree, 1, samples, &mut HashSet::new());

    let mut again = Vec::new();
    encode(&tree, &mut again).expect("what was decoded can be encoded");
    assert_eq!(decode(&again, samples), Ok(tree));
});

fn check(directory: &Directory, level: u16, samples: u64, used: &mut HashSet<u64>) {
    assert!(level <= MAX_DEPTH);
    let mut names = HashSet::new();
    for (name, entry) in &directory.entries {
        assert!((1..=255).contains(&name.len()) && !name.contains(&b'/') && !name.contains(&0));
        assert!(**name != *b"." && **name != *b"..");
        assert!(names.insert(name));
        match entry {
            Entry::File(index) => assert!(*index < samples && used.insert(*index)),
            Entry::Directory(child) => check(child, level + 1, samples, used),
        }
    }
}
