//! Objects for the tests of the cache.

use crate::store::remote::{Location, Object};
use std::ops::Range;
use std::sync::LazyLock;
use std::time::UNIX_EPOCH;

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
