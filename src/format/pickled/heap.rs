//! The values that a pickle has made so far, and the bytes that they refer to.
//!
//! Imports the values.

use super::value::{Id, Value};
use std::ops::Range;

/// Values, and the bytes of their pickle.
pub(super) struct Heap<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) values: Vec<Value>,
}

impl Heap<'_> {
    pub(super) fn get(&self, id: Id) -> Option<&Value> {
        self.values.get(usize::try_from(id).ok()?)
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut Value> {
        self.values.get_mut(usize::try_from(id).ok()?)
    }

    /// Bytes of the pickle; an empty slice if the pickle does not have them.
    pub(super) fn at(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }
}

/// Makes pairs of items: key, value, key, value …
pub(super) fn pairs(items: &[Id]) -> Option<impl Iterator<Item = (Id, Id)>> {
    let (pairs, rest) = items.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[key, value]| (*key, *value)))
}
