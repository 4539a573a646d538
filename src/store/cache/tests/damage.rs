//! Cache files that are torn, truncated, replaced, forged or deleted.

use super::*;
use proptest::prelude::*;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const BLOCKS: u64 = 4;

/// The file with this extension of the only entry.
fn file(directory: &TempDir, extension: &str) -> PathBuf {
    let found = fs::read_dir(directory.path().join("objects/entries")).unwrap();
    let mut paths = found.map(|entry| entry.unwrap().path());
    paths.find(|path| path.extension().is_some_and(|found| found == extension)).unwrap()
}

/// A change to a file.
#[derive(Debug, Clone)]
enum Change {
    Set {
        at: prop::sample::Index,
        value: u8,
    },
    Truncate(prop::sample::Index),
    Append(Vec<u8>),
    Replace(Vec<u8>),
    Delete,
    /// Replaced by a directory.
    Directory,
}

fn changes() -> impl Strategy<Value = Change> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        6 => (at(), any::<u8>()).prop_map(|(at, value)| Change::Set { at, value }),
        2 => at().prop_map(Change::Truncate),
        1 => prop::collection::vec(any::<u8>(), 1..50).prop_map(Change::Append),
        1 => prop::collection::vec(any::<u8>(), 0..200).prop_map(Change::Replace),
        1 => Just(Change::Delete),
        1 => Just(Change::Directory),
    ]
}

fn change(path: &PathBuf, change: &Change) {
    let bytes = || fs::read(path).unwrap();
    match change {
        Change::Set { at, value } => {
            let mut bytes = bytes();
            let at = at.index(bytes.len());
            bytes[at] = *value;
            fs::write(path, bytes).unwrap();
        }
        Change::Truncate(at) => {
            let length = bytes().len();
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_len(at.index(length) as u64).unwrap();
        }
        Change::Append(more) => fs::write(path, [bytes(), more.clone()].concat()).unwrap(),
        Change::Replace(other) => fs::write(path, other).unwrap(),
        Change::Delete => fs::remove_file(path).unwrap(),
        Change::Directory => {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        }
    }
}

/// Checks that all blocks that count as present have the right bytes.
fn check(entry: &Entry) {
    for block in 0..BLOCKS {
        let range = map::block_range(block, entry.length_bytes());
        if entry.is_present(&range) {
            assert!(read(entry, range.clone()) == bytes(range), "block {block}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..<_>::default() })]

    #[test]
    fn a_map_or_meta_that_is_made_up_gives_no_wrong_byte(
        filled in 0..1u8 << BLOCKS,
        extension in prop::sample::select(vec!["map", "meta"]),
        changes in prop::collection::vec(changes(), 1..4),
        while_open in any::<bool>(),
        restarts in any::<bool>(),
    ) {
        let directory = CacheDirectory::make();
        let object = object("s3://bucket/key", "\"1\"", 3 * BLOCK_BYTES + 7);
        let first = daemon_in_run(&directory, 1);
        let entry = first.entry(&object, "").unwrap();
        for block in (0..BLOCKS).filter(|block| filled >> block & 1 != 0) {
            fill(&entry, block);
        }
        let path = file(&directory, extension);
        let held = while_open.then_some(entry);
        for (at, next) in changes.iter().enumerate() {
            if at == 0 || fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() > 0) {
                change(&path, next);
            }
        }
        if let Some(entry) = &held {
            check(entry);
            (0..BLOCKS).for_each(|block| assert!(fill(entry, block) || !entry.has_room()));
            check(entry);
        }
        drop((held, first));
        let next = daemon_in_run(&directory, if restarts { 2 } else { 1 });
        // The cache repairs everything except a directory in the place of a file.
        if let Ok(entry) = next.entry(&object, "") {
            check(&entry);
            fill_all(&entry);
            check(&entry);
        }
        drop(Contents::open(directory.path()).unwrap().unwrap().list().unwrap());
    }
}

#[test]
fn data_that_was_truncated_replaced_or_deleted_is_fetched_again() {
    for change in ["truncate", "replace", "delete"] {
        let directory = CacheDirectory::make();
        let object = object("s3://bucket/key", "\"1\"", LENGTH);
        fill_all(&daemon(&directory).entry(&object, "").unwrap());
        let path = file(&directory, "data");
        match change {
            "truncate" => {
                let data = fs::File::options().write(true).open(&path).unwrap();
                data.set_len(BLOCK_BYTES + 1).unwrap();
            }
            "replace" => {
                fs::rename(&path, path.with_extension("old")).unwrap();
                fs::write(&path, vec![0; LENGTH as usize]).unwrap();
            }
            _ => fs::remove_file(&path).unwrap(),
        }
        let entry = daemon(&directory).entry(&object, "").unwrap();
        assert!((0..4).all(|block| !entry.is_present(&map::block_range(block, LENGTH))));
        fill_all(&entry);
        assert!(read(&entry, 0..LENGTH) == bytes(0..LENGTH), "{change}");
    }
}

#[test]
fn data_that_is_truncated_while_it_is_open_ends_in_an_error_and_not_in_zeros() {
    let directory = CacheDirectory::make();
    let entry = daemon(&directory).entry(&object("s3://b/k", "\"1\"", LENGTH), "").unwrap();
    fill_all(&entry);
    fs::File::options().write(true).open(file(&directory, "data")).unwrap().set_len(5).unwrap();
    let error = entry.file().read(&mut [0; 100], BLOCK_BYTES, 100);
    assert!(error.is_err());
    entry.lose();
    assert!(!entry.is_present(&(0..1)) && matches!(entry.claim(0), Claim::NoRoom));
}

#[test]
fn a_cache_that_is_deleted_serves_what_is_open_and_takes_new_entries() {
    let directory = CacheDirectory::make();
    let cache = daemon(&directory);
    let (one, other) = (object("s3://b/1", "\"1\"", LENGTH), object("s3://b/2", "\"1\"", LENGTH));
    let entry = cache.entry(&one, "").unwrap();
    assert!(fill(&entry, 0));
    // A measurement in the background may create a part of the directory again.
    let objects = directory.path().join("objects");
    while objects.exists() {
        let _ = fs::remove_dir_all(&objects);
    }
    assert!(entry.is_present(&(0..BLOCK_BYTES)) && !entry.is_present(&(0..LENGTH)));
    assert!(read(&entry, 0..BLOCK_BYTES) == bytes(0..BLOCK_BYTES));
    assert!(matches!(entry.claim(1), Claim::NoRoom) && !entry.has_room());
    fill_all(&cache.entry(&other, "").unwrap());
    // Another daemon makes the entry anew, with a new file: its blocks are not in the file that is open here.
    fill_all(&daemon(&directory).entry(&one, "").unwrap());
    assert!(!entry.is_present(&(0..LENGTH)));
    assert!(matches!(entry.claim(1), Claim::NoRoom));
}

#[test]
fn a_full_file_system_is_served_on_without_the_cache() {
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let directory = CacheDirectory::make();
    let options = Some("size=24m,mode=0700");
    if mount(Some("tmpfs"), directory.path(), Some("tmpfs"), MsFlags::empty(), options).is_err() {
        return;
    }
    let cache = daemon(&directory);
    let entry = cache.entry(&object("s3://b/k", "\"1\"", 64 * BLOCK_BYTES), "").unwrap();
    assert!(fill(&entry, 0));
    let Claim::Fetch(mut fetching) = entry.claim(1) else { panic!() };
    // Another program fills the file system.
    let other = fs::File::create(directory.path().join("other")).unwrap();
    let mut filled = 0;
    while std::os::unix::fs::FileExt::write_at(&other, &[1; 4096], filled).is_ok_and(|n| n > 0) {
        filled += 4096;
    }
    let range = fetching.range();
    let error = fetching.write(range.start, &bytes(range)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    drop(fetching);
    assert!(matches!(entry.claim(2), Claim::NoRoom) && !entry.has_room());
    assert!(read(&entry, 0..BLOCK_BYTES) == bytes(0..BLOCK_BYTES));
    assert!(!entry.is_present(&(0..2 * BLOCK_BYTES)));
    drop((entry, cache, other));
    umount2(directory.path(), MntFlags::MNT_DETACH).unwrap();
}

#[test]
fn a_daemon_compares_blocks_that_others_have_fetched_and_keeps_those_that_match() {
    let directory = CacheDirectory::make();
    let (one, other) = (daemon(&directory), daemon(&directory));
    let object = object("s3://bucket/key", "\"1\"", LENGTH);
    let (mine, theirs) = (one.entry(&object, "").unwrap(), other.entry(&object, "").unwrap());
    let all = 0..LENGTH;
    fill_all(&mine);
    let data = fs::File::options().write(true).open(file(&directory, "data")).unwrap();
    data.write_all_at(&[!bytes(BLOCK_BYTES..BLOCK_BYTES + 1)[0]], BLOCK_BYTES).unwrap();
    assert_eq!(mine.compare(&all), 0, "it has written them itself");
    let third = daemon(&directory).entry(&object, "").unwrap();
    assert!(third.is_present(&all) && theirs.is_present(&all));
    assert_eq!(theirs.compare(&(0..BLOCK_BYTES)), 0, "only what is asked for is compared");
    assert_eq!(theirs.compare(&(BLOCK_BYTES + 10..LENGTH + 10)), 1);
    assert_eq!((one.figures().damaged, other.figures().damaged), (0, 1));
    // A daemon that looked at the map before the record was removed does not trust the block either.
    assert!(third.is_present(&all));
    assert_eq!(third.compare(&all), 0);
    assert!(!third.is_present(&all));
    let present = |block| theirs.is_present(&map::block_range(block, LENGTH));
    assert_eq!([0, 1, 2, 3].map(present), [true, false, true, true]);
    // Blocks are compared only once.
    data.write_all_at(&[0; 10], 0).unwrap();
    assert_eq!(theirs.compare(&all), 0);
    assert!(present(0));
    assert!(fill(&theirs, 1) && read(&theirs, BLOCK_BYTES..LENGTH) == bytes(BLOCK_BYTES..LENGTH));
}

#[test]
fn links_that_others_put_into_a_shared_cache_are_not_followed() {
    for name in ["trash", "users", "entries"] {
        let (directory, victim) = (CacheDirectory::make(), CacheDirectory::make());
        let precious = victim.path().join("user-precious");
        fs::write(&precious, "precious").unwrap();
        let cache = daemon(&directory);
        fill_all(&cache.entry(&object("s3://b/k", "\"1\"", LENGTH), "").unwrap());
        let found = Contents::open(directory.path()).unwrap().unwrap();
        let listed = found.list().unwrap();
        let shared = directory.path().join("objects").join(name);
        fs::rename(&shared, directory.path().join("before")).unwrap();
        std::os::unix::fs::symlink(victim.path(), &shared).unwrap();
        // The call may fail, and removes nothing elsewhere.
        let _ = found.remove(&listed.iter().collect::<Vec<_>>());
        let _ = found.list();
        cache.room.look().ok();
        drop(cache);
        assert_eq!(fs::read_dir(victim.path()).unwrap().count(), 1, "{name}");
        assert_eq!(fs::read(&precious).unwrap(), b"precious", "{name}");
        let Err(error) = Cache::open(directory.path(), None) else { panic!("{name}") };
        let said = error.to_string();
        assert!(said.contains(name) && said.contains("links"), "{said}");
    }
}

#[test]
fn no_file_is_made_through_a_link_for_the_tag_of_a_cache() {
    let (directory, elsewhere) = (CacheDirectory::make(), CacheDirectory::make());
    fs::create_dir(directory.path().join("objects")).unwrap();
    let target = elsewhere.path().join("nologin");
    std::os::unix::fs::symlink(&target, directory.path().join("objects/CACHEDIR.TAG")).unwrap();
    daemon(&directory);
    assert!(!target.exists());
}
