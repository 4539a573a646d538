//! Objects for the tests of the cache.

use super::key::EntryId;
use super::map::{RECORD_BYTES, Record, Records, record_range};
use super::state::read_up_to;
use crate::store::remote::{Location, Object};
use std::fs::{self, File};
use std::io;
use std::ops::{Deref, Range};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};
use tempfile::TempDir;

/// A temporary directory for a cache, removed with the value. It is in memory if possible: a cache leaves part of its file
/// system free, which a build disk may not have.
pub(in crate::store) struct CacheDirectory(TempDir);

impl CacheDirectory {
    pub(in crate::store) fn make() -> Self {
        Self(tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap()))
    }
}

impl Deref for CacheDirectory {
    type Target = TempDir;

    fn deref(&self) -> &TempDir {
        &self.0
    }
}

impl Drop for CacheDirectory {
    /// Tries again: a measurement in the background, which outlives its cache, may make the lock anew meanwhile.
    fn drop(&mut self) {
        let is_left = || match fs::remove_dir_all(self.path()) {
            Err(error) => error.kind() != io::ErrorKind::NotFound,
            Ok(()) => false,
        };
        for _ in 0..1000 {
            if !is_left() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// An object at `url`, of this version and length.
pub(super) fn object(url: &str, etag: &str, length_bytes: u64) -> Object {
    Object {
        location: Location::parse(url).unwrap().unwrap(),
        length_bytes,
        modified: Some(UNIX_EPOCH),
        version_id: None,
        etag: Some(etag.to_owned()),
    }
}

/// The period of every test object's bytes: a prime number, so that no two blocks are equal.
const PERIOD: u64 = 1_000_003;

/// The bytes of a range of every object.
pub(super) fn bytes(range: Range<u64>) -> Vec<u8> {
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
        (0..PERIOD).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
    });
    let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
    let mut at = range.start;
    while at < range.end {
        let start = at % PERIOD;
        let end = PERIOD.min(start + range.end - at);
        bytes.extend_from_slice(&BYTES[start as usize..end as usize]);
        at += end - start;
    }
    bytes
}

/// Changes the only entry of a cache, which must not be open, to its state after a crash of the machine: all blocks are of
/// another boot, and byte `at` of the object is wrong.
pub(in crate::store) fn boot_anew(cache: &Path, at: u64) {
    let found = fs::read_dir(cache.join("objects/entries")).unwrap();
    let paths: Vec<_> = found.map(|entry| entry.unwrap().path()).collect();
    let path = |extension| paths.iter().find(|path| path.extension().unwrap() == extension);
    let open = |path: &Path| File::options().read(true).write(true).open(path).unwrap();
    let (data, map) = (open(path("data").unwrap()), open(path("map").unwrap()));
    let mut byte = [0];
    data.read_exact_at(&mut byte, at).unwrap();
    data.write_all_at(&[byte[0] ^ 1], at).unwrap();
    let stem = path("map").unwrap().file_stem().unwrap().to_str().unwrap();
    let records = Records::new(&EntryId::from_stem(stem).unwrap(), 1);
    let mut record = [0; RECORD_BYTES as usize];
    for block in (0..).take_while(|block| record_range(*block).end <= map.metadata().unwrap().len())
    {
        let bytes = read_up_to(&map, &mut record, record_range(block).start);
        if let Record::Unchecked(crc) = records.read(block, &record[..bytes]) {
            map.write_all_at(&records.write(block, crc), record_range(block).start).unwrap();
        }
    }
}

/// Reproducible pseudo-random numbers.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}
