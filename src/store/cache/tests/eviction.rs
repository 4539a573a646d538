//! Which entries are evicted, and when the cache takes no more blocks.

use super::*;
use std::collections::BTreeSet;
use std::time::Instant;

fn limited(directory: &TempDir, blocks: u64) -> Arc<Cache> {
    Cache::open(directory.path(), Some(CacheMax::Bytes(blocks * BLOCK_BYTES))).unwrap()
}

fn urls(directory: &TempDir) -> Vec<String> {
    let listed = Contents::open(directory.path()).unwrap().unwrap().list().unwrap();
    listed.into_iter().filter(|object| object.cached_bytes > 0).map(|object| object.url).collect()
}

/// Caches a block of a new object, and measures the cache.
fn fill_new(cache: &Cache, url: &str) -> bool {
    // Without this pause, two objects may have the same time of use.
    std::thread::sleep(Duration::from_millis(10));
    let is_filled = fill(&cache.entry(&object(url, "\"1\"", BLOCK_BYTES), "").unwrap(), 0);
    measure(cache, 0);
    is_filled
}

/// Measures while `open` entries are open, which evicts until there is room for another block. A measurement in the
/// background, as on a busy machine, ends before: both might evict.
fn measure(cache: &Cache, open: usize) {
    end_measurement(cache, open);
    cache.room.look().unwrap();
}

/// Waits for the end of a measurement in the background, while `open` entries are open.
fn end_measurement(cache: &Cache, open: usize) {
    let deadline = Instant::now() + Duration::from_mins(1);
    // Each open entry holds the room, and so does a measurement.
    while Arc::strong_count(&cache.room) > 1 + open {
        assert!(Instant::now() < deadline, "the measurement never ends");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Fills the first blocks of an entry of 8 blocks, until `most` are cached.
fn fill_up_to(most: usize, cache: &Cache, entry: &Entry) -> BTreeSet<u64> {
    let mut cached = BTreeSet::new();
    for _ in 0..200 {
        cached.extend((0..8).filter(|block| fill(entry, *block)));
        if cached.len() >= most {
            break;
        }
        // A measurement may count a block twice that is written meanwhile: the next one finds the room.
        std::thread::sleep(Duration::from_millis(20));
        cache.room.look().unwrap();
    }
    cached
}

#[test]
fn a_full_cache_evicts_what_was_not_used_for_longest_and_never_what_is_open_or_pinned() {
    let directory = CacheDirectory::make();
    // The fifth block fills the cache, and the next measurement evicts one.
    let cache = limited(&directory, 5);
    let (open, other) = (object("s3://b/open", "\"1\"", BLOCK_BYTES), limited(&directory, 5));
    let held = other.entry(&open, "").unwrap();
    assert!(fill(&held, 0));
    measure(&other, 1);
    for url in ["s3://b/pinned", "s3://b/old", "s3://b/new"] {
        assert!(fill_new(&cache, url), "{url}");
    }
    let contents = Contents::open(directory.path()).unwrap().unwrap();
    let listed = contents.list().unwrap();
    let pinned = listed.iter().find(|object| object.url == "s3://b/pinned").unwrap();
    contents.set_pinned(pinned, true).unwrap();
    assert!(fill_new(&cache, "s3://b/third"));
    assert_eq!(urls(&directory), ["s3://b/new", "s3://b/open", "s3://b/pinned", "s3://b/third"]);
    assert_eq!((cache.figures().evicted, cache.figures().evicted_bytes), (1, BLOCK_BYTES));
    drop(held);
    contents.set_pinned(pinned, false).unwrap();
    for url in ["s3://b/4", "s3://b/5", "s3://b/6", "s3://b/7"] {
        assert!(fill_new(&cache, url), "{url}");
    }
    assert_eq!(urls(&directory), ["s3://b/4", "s3://b/5", "s3://b/6", "s3://b/7"]);
    assert!(fs::read_dir(directory.path().join("objects/trash")).unwrap().next().is_none());
}

#[test]
fn nothing_is_evicted_or_removed_while_it_is_not_known_what_a_process_has_open() {
    let directory = CacheDirectory::make();
    let cache = limited(&directory, 3);
    // A link is not followed: like the file of another user, it cannot be opened.
    let unknown = directory.path().join("objects/users/user-other");
    std::os::unix::fs::symlink("none", &unknown).unwrap();
    let all = ["s3://b/1", "s3://b/2", "s3://b/3"];
    for url in all {
        assert!(fill_new(&cache, url), "{url}");
    }
    assert_eq!(urls(&directory), all);
    let contents = Contents::open(directory.path()).unwrap().unwrap();
    let listed = contents.list().unwrap();
    let refused = contents.remove(&[&listed[0]]).unwrap_err().to_string();
    assert!(refused.contains("user-other"), "{refused}");
    assert_eq!(urls(&directory), all);
    fs::remove_file(unknown).unwrap();
    measure(&cache, 0);
    assert_eq!(urls(&directory), all[1..]);
}

#[test]
fn other_versions_of_an_object_in_use_are_evicted_first() {
    let directory = CacheDirectory::make();
    let cache = limited(&directory, 3);
    assert!(fill_new(&cache, "s3://b/unrelated"));
    assert!(fill_new(&cache, "s3://b/changed"));
    let changed = object("s3://b/changed", "\"2\"", BLOCK_BYTES);
    let entry = cache.entry(&changed, "").unwrap();
    assert!(fill(&entry, 0));
    measure(&cache, 1);
    assert_eq!(urls(&directory), ["s3://b/changed", "s3://b/unrelated"]);
}

#[test]
fn a_cache_that_is_smaller_than_what_is_open_keeps_what_it_has_and_refuses_more() {
    let directory = CacheDirectory::make();
    let cache = limited(&directory, 3);
    let entry = cache.entry(&object("s3://b/k", "\"1\"", 8 * BLOCK_BYTES), "").unwrap();
    let cached = fill_up_to(3, &cache, &entry);
    assert_eq!(cached.len(), 3);
    cache.room.look().unwrap();
    let left: Vec<u64> = (0..8).filter(|block| !cached.contains(block)).collect();
    assert!(!entry.has_room() && !fill(&entry, left[0]));
    let range = |block: &u64| block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
    assert!(cached.iter().all(|block| entry.is_present(&range(block))));
    // Room that was given back can be taken again.
    let other = limited(&directory, 4);
    let theirs = other.entry(&object("s3://b/k", "\"1\"", 8 * BLOCK_BYTES), "").unwrap();
    drop((cache, entry));
    other.room.look().unwrap();
    let Claim::Fetch(fetching) = theirs.claim(left[1]) else { panic!() };
    assert!(matches!(theirs.claim(left[2]), Claim::NoRoom));
    // The measurement would count room as used that is given back before its end.
    end_measurement(&other, 1);
    drop(fetching);
    assert!(fill(&theirs, left[2]));
}

#[test]
fn what_fills_the_cache_is_still_there_when_it_is_opened_again() {
    let directory = CacheDirectory::make();
    let object = object("s3://b/k", "\"1\"", 8 * BLOCK_BYTES);
    {
        let entry = limited(&directory, 100).entry(&object, "").unwrap();
        assert!((0..3).all(|block| fill(&entry, block)));
    }
    let again = limited(&directory, 3);
    let entry = again.entry(&object, "").unwrap();
    assert!(entry.is_present(&(0..3 * BLOCK_BYTES)));
    again.room.look().unwrap();
    assert!(entry.is_present(&(0..3 * BLOCK_BYTES)), "it is in use");
}

#[test]
fn a_cache_that_holds_more_than_a_new_smaller_maximum_evicts_the_excess_first() {
    let directory = CacheDirectory::make();
    let large = daemon(&directory);
    let old = large.entry(&object("s3://b/old", "\"1\"", 8 * BLOCK_BYTES), "").unwrap();
    assert!((0..8).all(|block| fill(&old, block)));
    drop((old, large));
    let cache = limited(&directory, 3);
    let entry = cache.entry(&object("s3://b/k", "\"1\"", 8 * BLOCK_BYTES), "").unwrap();
    cache.room.look().unwrap();
    assert_eq!(fill_up_to(3, &cache, &entry).len(), 3);
    assert_eq!(urls(&directory), ["s3://b/k"]);
}

#[test]
fn a_client_that_was_told_that_there_is_no_room_learns_of_new_room() {
    let directory = CacheDirectory::make();
    let (cache, other) = (limited(&directory, 1), limited(&directory, 1));
    let theirs = other.entry(&object("s3://b/1", "\"1\"", BLOCK_BYTES), "").unwrap();
    assert!(fill(&theirs, 0));
    cache.room.look().unwrap();
    let entry = cache.entry(&object("s3://b/2", "\"1\"", BLOCK_BYTES), "").unwrap();
    assert!(!entry.has_room());
    drop(theirs);
    let deadline = Instant::now() + Duration::from_mins(5);
    while !entry.has_room() {
        assert!(Instant::now() < deadline, "it never looks");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(fill(&entry, 0));
}

#[test]
fn what_is_in_use_is_not_removed_and_a_killed_daemon_uses_nothing() {
    let directory = CacheDirectory::make();
    let cache = daemon(&directory);
    let entry = cache.entry(&object("s3://b/k", "\"1\"", BLOCK_BYTES), "").unwrap();
    assert!(fill(&entry, 0));
    let contents = Contents::open(directory.path()).unwrap().unwrap();
    let listed = contents.list().unwrap();
    assert_eq!(
        (listed[0].users, listed[0].length_bytes, listed[0].cached_bytes),
        (1, BLOCK_BYTES, BLOCK_BYTES)
    );
    assert_eq!(contents.remove(&[&listed[0]]).unwrap(), Vec::<&CachedObject>::new());
    // An unlocked file, as a killed process leaves it.
    let users = directory.path().join("objects/users");
    let lease = fs::read_dir(&users).unwrap().next().unwrap().unwrap().path();
    fs::copy(lease, users.join("user-dead")).unwrap();
    drop((entry, cache));
    assert_eq!(contents.list().unwrap()[0].users, 0);
    assert_eq!(contents.remove(&[&listed[0]]).unwrap(), [&listed[0]]);
    assert!(contents.list().unwrap().is_empty());
    assert!(fs::read_dir(users).unwrap().next().is_none());
}

#[test]
fn a_check_finds_damaged_blocks_and_lets_them_be_fetched_again() {
    let directory = CacheDirectory::make();
    let object = object("s3://b/k", "\"1\"", LENGTH);
    fill_all(&daemon(&directory).entry(&object, "").unwrap());
    let contents = Contents::open(directory.path()).unwrap().unwrap();
    let listed = contents.list().unwrap();
    let mut read = 0;
    let mut more = |bytes| {
        read += bytes;
        true
    };
    let whole = Checked { blocks: 4, damaged: 0 };
    assert_eq!(contents.check(&listed[0], &mut more).unwrap(), whole);
    assert_eq!(read, LENGTH);
    let data = fs::read_dir(directory.path().join("objects/entries")).unwrap();
    let mut data = data.map(|found| found.unwrap().path());
    let data = data.find(|path| path.extension().unwrap() == "data").unwrap();
    let file = fs::File::options().write(true).open(data).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"wrong", 10).unwrap();
    let one = Checked { blocks: 3, damaged: 1 };
    assert_eq!(contents.check(&listed[0], &mut |_| true).unwrap(), one);
    assert!(!daemon(&directory).entry(&object, "").unwrap().is_present(&(0..10)));
}
