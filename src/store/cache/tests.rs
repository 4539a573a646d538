//! A cache, used by the clients of several daemons: each `Cache` stands for one daemon.

mod damage;
mod eviction;
mod killed;
mod model;
mod replaced;

use super::testing::{bytes, object};
use super::*;
use crate::format::Source;
use std::fs;
use std::time::Duration;
use tempfile::TempDir;

const LENGTH: u64 = 3 * BLOCK_BYTES + 1000;

fn daemon(directory: &TempDir) -> Arc<Cache> {
    Cache::open(directory.path(), None).unwrap()
}

/// As [`daemon`], after boot number `run` of the machine.
fn daemon_in_run(directory: &TempDir, run: u8) -> Arc<Cache> {
    Cache::open_in_run(directory.path(), None, vec![run]).unwrap()
}

/// Writes a block and publishes it, if the cache has room.
fn fill(entry: &Entry, block: u64) -> bool {
    let mut claim = entry.claim(block);
    if let Claim::Unchecked(unchecked) = claim {
        claim = unchecked.check();
    }
    match claim {
        Claim::Fetch(mut fetching) => {
            let range = fetching.range();
            fetching.write(range.start, &bytes(range)).unwrap();
            fetching.publish().unwrap();
            true
        }
        Claim::Present => true,
        Claim::NoRoom => false,
        Claim::Elsewhere | Claim::Unchecked(_) => panic!("nobody else fetches"),
    }
}

/// As [`fill`], and measures the cache before: a measurement in the background counts a block twice that it meets on its
/// way, and until the first one has ended, a cache takes few blocks.
fn fill_measured(cache: &Cache, entry: &Entry, block: u64) -> bool {
    (0..1000).any(|_| {
        cache.room.look().unwrap();
        fill(entry, block)
    })
}

fn fill_all(entry: &Entry) {
    for block in 0..map::blocks_of(entry.length_bytes()) {
        assert!(fill(entry, block), "block {block}");
    }
}

/// Reads a range from the entry's file.
fn read(entry: &Entry, range: std::ops::Range<u64>) -> Vec<u8> {
    let mut read = vec![0; (range.end - range.start) as usize];
    entry.file().read_exact_at(&mut read, range.start).unwrap();
    read
}

#[test]
fn a_block_is_present_once_it_is_published_and_for_other_daemons_too() {
    let directory = CacheDirectory::make();
    let (one, other) = (daemon(&directory), daemon(&directory));
    let object = object("s3://bucket/key", "\"1\"", LENGTH);
    let (mine, theirs) = (one.entry(&object, "").unwrap(), other.entry(&object, "").unwrap());
    let all = 0..LENGTH;
    assert!(!mine.is_present(&all) && !theirs.is_present(&(0..1)));
    let Claim::Fetch(mut fetching) = mine.claim(1) else { panic!() };
    assert!(matches!(mine.claim(1), Claim::Elsewhere));
    assert!(matches!(theirs.claim(1), Claim::Elsewhere));
    assert!(theirs.is_fetched_elsewhere(1) && mine.is_fetched_elsewhere(1));
    assert!(!theirs.wait(1, Duration::from_millis(20)));
    let range = fetching.range();
    fetching.write(range.start, &bytes(range.start..range.start + 1000)).unwrap();
    assert!(fetching.write(range.start + 1001, &[0]).is_err());
    assert!(fetching.publish().is_err());
    let Claim::Fetch(mut fetching) = theirs.claim(1) else { panic!() };
    // Pieces that overlap, and extend past the block.
    fetching.write(range.start, &bytes(range.start..range.start + 1000)).unwrap();
    fetching.write(range.start + 10, &bytes(range.start + 10..range.end + 10)).unwrap();
    fetching.publish().unwrap();
    assert!(matches!(mine.claim(1), Claim::Present));
    fill_all(&mine);
    for entry in [&mine, &theirs] {
        assert!(entry.is_present(&all) && entry.is_whole());
        assert!(read(entry, all.clone()) == bytes(all.clone()));
    }
    assert_eq!(one.figures().published, 3);
    assert_eq!(other.figures().joined, 1);
    mine.invalidate(2);
    assert!(!mine.is_present(&all));
    assert!(fill(&mine, 2));
}

#[test]
fn one_daemon_gets_all_blocks_of_a_run_or_none() {
    let directory = CacheDirectory::make();
    let (one, other) = (daemon(&directory), daemon(&directory));
    let object = object("s3://bucket/key", "\"1\"", LENGTH);
    let (mine, theirs) = (one.entry(&object, "").unwrap(), other.entry(&object, "").unwrap());
    let claims = mine.claim_run(1..4, None).unwrap();
    assert!(claims.len() == 3 && claims.iter().all(|claim| matches!(claim, Claim::Fetch(_))));
    assert!(theirs.claim_run(0..2, None).is_none() && mine.claim_run(0..2, None).is_none());
    assert!((1..4).all(|block| matches!(theirs.claim(block), Claim::Elsewhere)));
    let Claim::Fetch(_first) = theirs.claim(0) else {
        panic!("a run that is refused holds blocks")
    };
    drop(claims);
    assert!(mine.claim_run(0..4, None).is_none() && theirs.claim_run(1..4, None).is_some());
    assert!(mine.claim_run(1..4, None).is_some(), "what was dropped is held");
}

#[test]
fn a_waiter_is_let_go_when_the_block_is_published_by_another_daemon() {
    let directory = CacheDirectory::make();
    let (one, other) = (daemon(&directory), daemon(&directory));
    let object = object("s3://bucket/key", "\"1\"", 10);
    let (mine, theirs) = (one.entry(&object, "").unwrap(), other.entry(&object, "").unwrap());
    let Claim::Fetch(mut fetching) = mine.claim(0) else { panic!() };
    let waiter = std::thread::spawn(move || theirs.wait(0, Duration::from_mins(1)));
    fetching.write(0, &bytes(0..10)).unwrap();
    fetching.publish().unwrap();
    assert!(waiter.join().unwrap());
}

#[test]
fn an_empty_object_is_present() {
    let directory = CacheDirectory::make();
    let entry = daemon(&directory).entry(&object("s3://bucket/key", "\"1\"", 0), "").unwrap();
    assert!(entry.is_present(&(0..0)) && entry.is_present(&(0..100)) && entry.is_whole());
}

#[test]
fn after_a_restart_of_the_machine_each_block_is_checked_once() {
    let directory = CacheDirectory::make();
    let object = object("s3://bucket/key", "\"1\"", LENGTH);
    fill_all(&daemon_in_run(&directory, 1).entry(&object, "").unwrap());
    let data = fs::read_dir(directory.path().join("objects/entries")).unwrap();
    let mut data = data.map(|found| found.unwrap().path());
    let data = data.find(|path| path.extension().unwrap() == "data").unwrap();
    let file = fs::File::options().write(true).open(data).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[1, 2, 3], 2 * BLOCK_BYTES + 5).unwrap();

    let (one, other) = (daemon_in_run(&directory, 2), daemon_in_run(&directory, 2));
    let entry = one.entry(&object, "").unwrap();
    for block in 0..4 {
        let range = map::block_range(block, LENGTH);
        assert!(!entry.is_present(&range));
        let Claim::Unchecked(unchecked) = entry.claim(block) else { panic!() };
        match unchecked.check() {
            Claim::Present => assert_ne!(block, 2),
            Claim::Fetch(_) => assert_eq!(block, 2),
            _ => panic!("block {block}"),
        }
        assert_eq!(entry.is_present(&range), block != 2);
    }
    assert!(matches!(entry.claim(2), Claim::Fetch(_)), "it is not checked again");
    let figures = one.figures();
    assert_eq!((figures.checked, figures.damaged), (3, 1));
    let theirs = other.entry(&object, "").unwrap();
    assert!(theirs.is_present(&(0..2 * BLOCK_BYTES)) && !theirs.is_present(&(0..LENGTH)));
}

#[test]
fn a_block_that_is_not_trusted_stays_absent_while_others_are_looked_for() {
    let directory = CacheDirectory::make();
    let cache = daemon(&directory);
    let entry = cache.entry(&object("s3://b/k", "\"1\"", LENGTH), "").unwrap();
    let (is_done, other) = (AtomicBool::new(false), BLOCK_BYTES..2 * BLOCK_BYTES);
    let outcomes = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Relaxed) {
                assert!(!entry.is_present(&other));
            }
        });
        let outcomes: Vec<_> = (0..200)
            .map(|_| {
                let is_filled = fill_measured(&cache, &entry, 0);
                entry.invalidate(0);
                (is_filled, entry.is_known(0))
            })
            .collect();
        is_done.store(true, Relaxed);
        outcomes
    });
    assert_eq!(outcomes, [(true, false); 200]);
}

#[test]
fn thousands_of_entries_take_few_descriptors() {
    let directory = CacheDirectory::make();
    let cache = daemon(&directory);
    let entries: Vec<_> = (0..2500)
        .map(|at| cache.entry(&object(&format!("s3://b/{at}"), "\"1\"", 1 << 30), "").unwrap())
        .collect();
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(descriptors < 3 * MOST_OPEN + 100, "{descriptors}");
    for entry in entries.iter().step_by(500) {
        assert!(fill(entry, 1000));
        assert!(
            read(entry, 1000 * BLOCK_BYTES..1001 * BLOCK_BYTES)
                .ends_with(&bytes(1001 * BLOCK_BYTES - 9..1001 * BLOCK_BYTES))
        );
    }
}

#[test]
fn a_directory_that_others_may_write_is_refused_unless_root_shares_it() {
    use std::os::unix::fs::PermissionsExt;
    let directory = CacheDirectory::make();
    let open_with = |mode| {
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
        Cache::open(directory.path(), None)
    };
    for mode in [0o777, 0o1777, 0o707, 0o770, 0o2777] {
        let error = open_with(mode).err().expect("refused");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{mode:o}");
    }
    assert!(open_with(0o755).is_ok());
    if nix::unistd::geteuid().is_root() {
        let shared = CacheDirectory::make();
        fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o2770)).unwrap();
        let entry = daemon(&shared).entry(&object("s3://b/k", "\"1\"", 5), "").unwrap();
        assert!(fill(&entry, 0));
        for path in ["objects", "objects/entries", "objects/lock"] {
            let mode = fs::metadata(shared.path().join(path)).unwrap().permissions().mode();
            assert_eq!(mode & 0o60, 0o60, "{path}");
        }
    }
}
