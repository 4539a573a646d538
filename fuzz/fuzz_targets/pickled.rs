//! Any bytes as a pickled sample: the sample stays one file, or its files lie within it and are as long as they say.

#![no_main]

use ffrfs::format::pickled::Pickled;
use ffrfs::format::{Content, Format, MemorySource, OpenOptions};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|input: &[u8]| {
    // crc (none) | n | crcs[1] | offsets[1] | the sample
    let mut file = vec![0; 4];
    file.extend_from_slice(&1_u64.to_le_bytes());
    file.extend_from_slice(&crc32fast::hash(input).to_le_bytes());
    file.extend_from_slice(&24_u64.to_le_bytes());
    file.extend_from_slice(input);
    let length = file.len() as u64;
    let source = Arc::new(MemorySource::new("fuzz", file.clone()));
    let options = OpenOptions { pickles: true, ..OpenOptions::default() };
    let Ok(container) = Pickled.open(source, &options) else { return };
    for index in 0..container.len() {
        let sample = container.sample(index).expect("memory can be read");
        if sample.damaged {
            continue;
        }
        assert!(sample.end_bytes() <= length);
        let stored = &file[sample.offset_bytes as usize..sample.end_bytes() as usize];
        let checked = match sample.content {
            Content::Stored => stored.to_vec(),
            Content::Prefixed(bytes) => {
                let prefix = container.prefix(index).expect("a header");
                assert_eq!(prefix.len() as u64, u64::from(bytes));
                stored.to_vec()
            }
            Content::Encoded(size) => {
                let mut out = vec![0; size as usize];
                container.decode(index, stored, &mut out).expect("what was found in the pass");
                out
            }
            other => panic!("{other:?}"),
        };
        let checksum = sample.checksum.expect("each file has one");
        assert!(checksum.check(&checked).is_ok());
    }
});
