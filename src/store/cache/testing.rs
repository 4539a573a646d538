//! Objects that tests put into caches.

use crate::store::remote::{Location, Object};
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

/// The byte that stands at `offset` of every object of the tests.
pub(super) fn byte(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// The bytes of a range.
pub(super) fn bytes(range: std::ops::Range<u64>) -> Vec<u8> {
    range.map(byte).collect()
}
