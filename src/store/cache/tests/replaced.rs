//! Single blocks of an open entry that make room for others: no reader sees a byte of a hole meanwhile.

use super::*;
use crate::io::Reading;
use crate::store::cache::testing::Random;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::AtomicU64;

const BLOCKS: u64 = 8;

fn limited(directory: &TempDir, blocks: u64) -> Arc<Cache> {
    Cache::open(directory.path(), Some(CacheMax::Bytes(blocks * BLOCK_BYTES))).unwrap()
}

fn the_object() -> crate::store::remote::Object {
    object("s3://b/k", "\"1\"", BLOCKS * BLOCK_BYTES)
}

fn publish(claim: Claim) -> bool {
    let Claim::Fetch(mut fetching) = claim else { return false };
    let range = fetching.range();
    fetching.write(range.start, &bytes(range)).unwrap();
    fetching.publish().unwrap();
    true
}

/// Evicts blocks. Tests that share this process may read meanwhile for so long that the blocks stay: then it tries again.
fn evict(entry: &Entry, blocks: &[u64]) -> Freed {
    (0..1000).find_map(|_| entry.replace(blocks)).unwrap()
}

/// Whether a block is present; then all its bytes are right.
fn has(entry: &Entry, block: u64) -> bool {
    has_range(entry, map::block_range(block, entry.length_bytes()))
}

fn has_range(entry: &Entry, range: std::ops::Range<u64>) -> bool {
    let _reading = Reading::begin();
    let is_present = entry.is_present(&range);
    assert!(!is_present || read(entry, range.clone()) == bytes(range.clone()), "{range:?}");
    is_present
}

fn data_path(directory: &TempDir) -> std::path::PathBuf {
    let files = fs::read_dir(directory.path().join("objects/entries")).unwrap();
    let mut paths = files.map(|found| found.unwrap().path());
    paths.find(|path| path.extension().unwrap() == "data").unwrap()
}

#[test]
fn evicted_blocks_give_their_room_to_the_blocks_that_they_were_evicted_for() {
    let directory = CacheDirectory::make();
    let cache = limited(&directory, 3);
    let entry = cache.entry(&the_object(), "").unwrap();
    assert!((0..3).all(|block| fill_measured(&cache, &entry, block)));
    let on_disk = || fs::metadata(data_path(&directory)).unwrap().blocks() * 512;
    let before = on_disk();
    let mut freed = evict(&entry, &[1, 2, 5]);
    assert_eq!((freed.bytes(), before - on_disk()), (2 * BLOCK_BYTES, 2 * BLOCK_BYTES));
    assert!(has(&entry, 0) && !has(&entry, 1) && !has(&entry, 2));
    assert!(!fill(&entry, 6), "a block without a right takes the room");
    let claims = entry.claim_run(4..7, Some(&mut freed)).unwrap();
    let cached: Vec<bool> = claims.into_iter().map(publish).collect();
    assert_eq!((cached, freed.bytes()), (vec![true, true, false], 0));
    assert!(has(&entry, 4) && has(&entry, 5) && !has(&entry, 6));
    assert_eq!(cache.figures().replaced, 2);
    cache.room.look().unwrap();
    assert!(!entry.has_room() && on_disk() == before);
    // Room that is not used is given back.
    drop(evict(&entry, &[0]));
    assert!(fill_measured(&cache, &entry, 1));
}

#[test]
fn an_object_that_is_whole_is_not_whole_without_an_evicted_block() {
    let directory = CacheDirectory::make();
    let entry = daemon(&directory).entry(&the_object(), "").unwrap();
    fill_all(&entry);
    assert!(entry.is_whole());
    drop(evict(&entry, &[3]));
    assert!(!entry.is_whole() && !entry.is_present(&(0..BLOCKS * BLOCK_BYTES)));
    assert_eq!(entry.present_bytes(), (BLOCKS - 1) * BLOCK_BYTES);
    assert!((0..BLOCKS).all(|block| has(&entry, block) == (block != 3)));
    fill_all(&entry);
    assert!(entry.is_whole() && has(&entry, 3));
}

#[test]
fn blocks_that_another_daemon_may_read_or_that_are_pinned_or_fetched_stay() {
    let directory = CacheDirectory::make();
    let (one, other) = (daemon(&directory), daemon(&directory));
    let entry = one.entry(&the_object(), "").unwrap();
    fill_all(&entry);
    let theirs = other.entry(&the_object(), "").unwrap();
    assert!(entry.replace(&[0, 1]).is_none() && theirs.replace(&[0, 1]).is_none());
    drop(theirs);
    let contents = Contents::open(directory.path()).unwrap().unwrap();
    let listed = contents.list().unwrap();
    contents.set_pinned(&listed[0], true).unwrap();
    assert!(entry.replace(&[0, 1]).is_none());
    contents.set_pinned(&listed[0], false).unwrap();
    entry.invalidate(0);
    let Claim::Fetch(fetching) = entry.claim(0) else { panic!() };
    assert!(entry.replace(&[0]).is_none());
    drop(fetching);
    assert_eq!(evict(&entry, &[0, 1]).bytes(), BLOCK_BYTES);
    // A daemon whose lease was deleted is not seen by others.
    fs::remove_dir_all(directory.path().join("objects/users")).unwrap();
    fs::create_dir(directory.path().join("objects/users")).unwrap();
    assert!(entry.replace(&[2]).is_none() && has(&entry, 2));
}

/// Whether an eviction that meets a read of block 0 succeeds once the read ends. On a busy machine the read may last longer
/// than the eviction waits.
fn goes_when_its_read_has_ended(entry: &Entry) -> bool {
    let range = 0..BLOCK_BYTES;
    let reading = Reading::begin();
    assert!(entry.is_present(&range));
    std::thread::scope(|scope| {
        let evicting = scope.spawn(|| entry.replace(&[0]).is_some());
        while entry.is_known(0) && !evicting.is_finished() {
            std::thread::yield_now();
        }
        // New reads find the block absent, and the read under way finds its bytes.
        let is_absent = !entry.is_present(&range) && matches!(entry.claim(0), Claim::Elsewhere);
        assert!(read(entry, range.clone()) == bytes(range.clone()));
        drop(reading);
        let has_gone = evicting.join().unwrap();
        assert!(is_absent || !has_gone, "a read could find it until it was gone");
        has_gone
    })
}

#[test]
fn a_block_goes_when_the_reads_of_it_have_ended_and_stays_if_they_do_not_end() {
    let directory = CacheDirectory::make();
    let entry = daemon(&directory).entry(&the_object(), "").unwrap();
    fill_all(&entry);
    let reading = Reading::begin();
    assert!(entry.is_present(&(0..BLOCK_BYTES)));
    assert!(entry.replace(&[0]).is_none(), "it is being read");
    assert!(has(&entry, 0) && entry.is_whole());
    drop(reading);
    assert!((0..100).any(|_| goes_when_its_read_has_ended(&entry)));
    assert!(!has(&entry, 0));
}

#[test]
fn readers_and_daemons_that_come_and_go_find_right_bytes_while_blocks_are_evicted() {
    let directory = CacheDirectory::make();
    let cache = daemon(&directory);
    let entry = cache.entry(&the_object(), "").unwrap();
    let (end, reads) = (std::time::Instant::now() + Duration::from_mins(5), AtomicU64::new(0));
    let has_evicted = || cache.figures().replaced > 50;
    let is_over = || has_evicted() || std::time::Instant::now() > end;
    std::thread::scope(|scope| {
        for reader in 0..16 {
            let (entry, reads, is_over) = (&entry, &reads, &is_over);
            scope.spawn(move || {
                let mut random = Random::new(reader);
                while !is_over() {
                    let block = random.below(BLOCKS);
                    let start = block * BLOCK_BYTES + random.below(50) * 20_000;
                    match has_range(entry, start..start + 20_000) {
                        true => drop(reads.fetch_add(1, Relaxed)),
                        false => drop(publish(entry.claim(block))),
                    }
                }
            });
        }
        for seed in 100..102 {
            let (entry, is_over) = (&entry, &is_over);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while !is_over() {
                    drop(entry.replace(&[random.below(BLOCKS), random.below(BLOCKS)]));
                }
            });
        }
        scope.spawn(|| {
            let (other, mut random) = (daemon(&directory), Random::new(7));
            while !is_over() {
                let entry = other.entry(&the_object(), "").unwrap();
                for _ in 0..random.below(8) {
                    let block = random.below(BLOCKS);
                    if !has(&entry, block) {
                        publish(entry.claim(block));
                    }
                }
                drop(entry);
                std::thread::sleep(Duration::from_millis(random.below(20)));
            }
        });
    });
    assert!(has_evicted(), "{:?}", cache.figures());
    assert!(reads.into_inner() > 0);
    fill_all(&entry);
    assert!((0..BLOCKS).all(|block| has(&entry, block)));
}

#[test]
fn a_check_of_the_cache_finds_no_damage_while_blocks_are_evicted() {
    let directory = CacheDirectory::make();
    let entry = daemon(&directory).entry(&the_object(), "").unwrap();
    let contents = Contents::open(directory.path()).unwrap().unwrap();
    let listed = contents.list().unwrap();
    std::thread::scope(|scope| {
        let checks = scope.spawn(|| {
            (0..30).map(|_| contents.check(&listed[0], &mut |_| true).unwrap().damaged).sum::<u64>()
        });
        let mut random = Random::new(3);
        while !checks.is_finished() {
            let block = random.below(BLOCKS);
            // The check may hold the block's lock.
            publish(entry.claim(block));
            drop(entry.replace(&[random.below(BLOCKS)]));
        }
        assert_eq!(checks.join().unwrap(), 0);
    });
    assert!((0..BLOCKS).all(|block| fill(&entry, block) && has(&entry, block)));
}

#[test]
fn a_hole_whose_record_survived_a_crash_of_the_machine_is_fetched_again() {
    let directory = CacheDirectory::make();
    fill_all(&daemon_in_run(&directory, 1).entry(&the_object(), "").unwrap());
    let data = fs::File::options().write(true).open(data_path(&directory)).unwrap();
    crate::io::punch_hole(&data, &(BLOCK_BYTES..2 * BLOCK_BYTES)).unwrap();
    let entry = daemon_in_run(&directory, 2).entry(&the_object(), "").unwrap();
    assert!(!has(&entry, 1));
    let Claim::Unchecked(unchecked) = entry.claim(1) else { panic!() };
    assert!(matches!(unchecked.check(), Claim::Fetch(_)));
    fill_all(&entry);
    assert!((0..BLOCKS).all(|block| has(&entry, block)));
}
