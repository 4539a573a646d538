//! A cache, used as a client uses it.

use super::testing::{bytes, object};
use super::*;
use std::time::Duration;

const LENGTH: u64 = 3 * BLOCK_BYTES + 1000;

fn fill(entry: &Entry, block: u64) {
    let Claim::Fetch(mut fetching) = entry.claim(block) else { panic!("not to be fetched") };
    let range = fetching.range();
    fetching.write(range.start, &bytes(range)).unwrap();
    fetching.publish().unwrap();
}

#[test]
fn a_block_is_present_once_it_is_published_and_for_other_daemons_too() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Cache::open(&directory.path().join("cache"), None).unwrap();
    let (one, other) = (open(), open());
    let object = object("s3://bucket/key", "\"1\"", LENGTH);
    let (mine, theirs) = (one.entry(&object, "").unwrap(), other.entry(&object, "").unwrap());
    let all = 0..LENGTH;
    assert!(!mine.is_present(&all) && !theirs.is_present(&(0..1)));
    let Claim::Fetch(mut fetching) = mine.claim(1) else { panic!() };
    assert!(matches!(mine.claim(1), Claim::Elsewhere));
    assert!(matches!(theirs.claim(1), Claim::Elsewhere));
    assert!(!theirs.wait(1, Duration::from_millis(20)));
    let range = fetching.range();
    fetching.write(range.start, &bytes(range.start..range.start + 1000)).unwrap();
    assert!(fetching.write(range.start + 1001, &[0]).is_err());
    drop(fetching);
    let Claim::Fetch(mut fetching) = theirs.claim(1) else { panic!() };
    fetching.write(range.start, &bytes(range.clone())).unwrap();
    fetching.publish().unwrap();
    assert!(matches!(mine.claim(1), Claim::Present));
    for block in [0, 2, 3] {
        fill(&mine, block);
    }
    for entry in [&mine, &theirs] {
        assert!(entry.is_present(&all) && entry.is_whole());
        let mut read = vec![0; LENGTH as usize];
        entry.file().read(&mut read, 0, LENGTH as usize).unwrap();
        assert!(read == bytes(all.clone()));
    }
    assert_eq!(one.figures().published, 3);
    assert_eq!(other.figures().joined, 1);
}
