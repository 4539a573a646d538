//! Dictionaries that the pages of a chunk share: kept as they are stored, decoded once.
//!
//! Imports pages, values and the schema.

use super::page::{Header, Kind as PageKind, Page};
use super::schema::Leaf;
use super::values::{self, Values};
use crate::format::Fault;
use std::sync::{Arc, Mutex, PoisonError};

/// Instead of the number of a dictionary.
pub(super) const NO_DICTIONARY: u32 = u32::MAX;
/// Decoded dictionaries take so much memory in all.
const MAX_DECODED_BYTES: u64 = 64 << 20;

/// Dictionaries by their numbers.
#[derive(Debug, Default)]
pub(super) struct Dictionaries {
    /// Their pages, with the headers.
    pub(super) pages: Vec<Vec<u8>>,
    /// Those that were used last, the latest behind.
    decoded: Mutex<Vec<(u32, Arc<Values>)>>,
}

impl Dictionaries {
    pub(super) fn new(pages: Vec<Vec<u8>>) -> Self {
        Self { pages, decoded: Mutex::default() }
    }

    /// The values of a dictionary of a leaf whose chunk has a codec.
    ///
    /// # Errors
    /// Its page is no dictionary: why.
    pub(super) fn get(&self, number: u32, leaf: &Leaf, codec: i32) -> Result<Arc<Values>, Fault> {
        let lock = || self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        let found = {
            let mut decoded = lock();
            let place = decoded.iter().rposition(|(known, _)| *known == number);
            place.map(|place| decoded.remove(place)).map(|(number, values)| {
                decoded.push((number, Arc::clone(&values)));
                values
            })
        };
        if let Some(values) = found {
            return Ok(values);
        }
        let page = self.pages.get(number as usize).ok_or("there is no such dictionary")?;
        let values = Arc::new(decode(page, leaf, codec)?);
        let mut decoded = lock();
        decoded.retain(|(known, _)| *known != number);
        decoded.push((number, Arc::clone(&values)));
        let mut left = MAX_DECODED_BYTES;
        let fit = decoded.iter().rev().take_while(|(_, values)| {
            let fewer = left.checked_sub(values.held_bytes());
            left = fewer.unwrap_or(0);
            fewer.is_some()
        });
        let dropped = decoded.len().saturating_sub(fit.count());
        decoded.drain(..dropped);
        Ok(values)
    }

    #[cfg(test)]
    pub(super) fn decoded(&self) -> usize {
        self.decoded.lock().unwrap().len()
    }
}

/// The values of a dictionary, from its page.
///
/// # Errors
/// It is no dictionary: why.
pub(super) fn decode(stored: &[u8], leaf: &Leaf, codec: i32) -> Result<Values, Fault> {
    let (header, body) = Header::split(stored)?;
    let page = Page::open(header, body, leaf, codec)?;
    if page.header.kind != PageKind::Dictionary {
        return Err("another page than a dictionary".into());
    }
    // PLAIN, whichever way it is called.
    Ok(values::decode(leaf, 0, &page.bytes, header.values as usize, None)?)
}
