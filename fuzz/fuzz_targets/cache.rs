//! Any bytes as the map and the meta file of a cached object. Nothing panics, and a block counts as present only if
//! its record was written for this block of this object: the bytes that are read then are those that were written.

#![no_main]

use ffrfs::format::Source;
use ffrfs::store::cache::{BLOCK_BYTES, Cache, Claim, Contents};
use ffrfs::store::remote::{Location, Object};
use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

const LENGTH: u64 = 2 * BLOCK_BYTES + 100;
/// The offset in a map where the records begin.
const HEADER_BYTES: usize = 4096;

struct World {
    directory: PathBuf,
    cache: Arc<Cache>,
    object: Object,
    map: PathBuf,
    meta: PathBuf,
    /// A map whose blocks are all present.
    whole: Mutex<Vec<u8>>,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let directory = std::env::temp_dir().join(format!("ffrfs-fuzz-cache-{}", std::process::id()));
    let cache = Cache::open(&directory, None).expect("a directory of ours");
    let object = Object {
        location: Location::parse("s3://bucket/key").expect("a URL").expect("a good one"),
        length_bytes: LENGTH,
        modified: None,
        version_id: None,
        etag: Some("\"1\"".to_owned()),
    };
    fill(&cache, &object);
    let file = |extension: &str| {
        let found = std::fs::read_dir(directory.join("objects/entries")).expect("the entry's files");
        let mut paths = found.map(|entry| entry.expect("a file").path());
        paths.find(|path| path.extension().is_some_and(|found| found == extension)).expect("it")
    };
    let (map, meta) = (file("map"), file("meta"));
    let whole = Mutex::new(std::fs::read(&map).expect("the map"));
    World { cache, object, map, meta, whole, directory }
});

fn fill(cache: &Cache, object: &Object) {
    let entry = cache.entry(object, "").expect("an entry");
    for block in 0..LENGTH.div_ceil(BLOCK_BYTES) {
        if let Claim::Fetch(mut fetching) = entry.claim(block) {
            let range = fetching.range();
            let bytes = vec![block as u8 + 1; (range.end - range.start) as usize];
            fetching.write(range.start, &bytes).expect("room");
            fetching.publish().expect("room");
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&mode, bytes)) = input.split_first() else { return };
    let world = &*WORLD;
    let mut whole = world.whole.lock().unwrap_or_else(PoisonError::into_inner);
    if mode & 1 != 0 {
        std::fs::write(&world.meta, bytes).expect("room");
    } else {
        // Bytes of the whole map are changed, from its beginning or from its records.
        let start = if mode & 2 != 0 { HEADER_BYTES } else { 0 };
        let mut map = whole.clone();
        map.truncate(if mode & 4 != 0 { start + bytes.len() } else { map.len() });
        for (byte, change) in map[start..].iter_mut().zip(bytes) {
            *byte ^= change;
        }
        std::fs::write(&world.map, map).expect("room");
    }
    let entry = world.cache.entry(&world.object, "").expect("an entry");
    for block in 0..LENGTH.div_ceil(BLOCK_BYTES) {
        let start = block * BLOCK_BYTES;
        if entry.is_present(&(start..start + 1)) {
            let mut byte = [0];
            entry.file().read_exact_at(&mut byte, start).expect("a present block can be read");
            assert_eq!(byte, [block as u8 + 1], "block {block}");
        }
    }
    drop(entry);
    let contents = Contents::open(&world.directory).expect("ours").expect("it exists");
    assert_eq!(contents.list().expect("it can be listed").len(), 1);
    // A refused entry is made anew, and has another map.
    fill(&world.cache, &world.object);
    *whole = std::fs::read(&world.map).expect("the map");
});
