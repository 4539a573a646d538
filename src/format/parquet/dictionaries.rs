//! Dictionaries that the pages of a chunk share: kept as they are stored, decoded once.
//!
//! Imports pages, values and the schema.

use super::page::{Header, Kind as PageKind, Page};
use super::schema::Leaf;
use super::values::{self, Values};
use crate::format::Fault;
use std::sync::{Arc, Mutex, PoisonError};

/// In place of the number of a dictionary, if there is no dictionary.
pub(super) const NO_DICTIONARY: u32 = u32::MAX;
/// The most bytes of memory that all decoded dictionaries take.
const MAX_DECODED_BYTES: u64 = 64 << 20;

/// Dictionaries by their numbers.
#[derive(Debug, Default)]
pub(super) struct Dictionaries {
    /// The stored pages, with their headers.
    pub(super) pages: Vec<Vec<u8>>,
    /// The decoded dictionaries that were used last, the latest one last.
    decoded: Mutex<Vec<(u32, Arc<Values>)>>,
}

impl Dictionaries {
    pub(super) fn new(pages: Vec<Vec<u8>>) -> Self {
        Self { pages, decoded: Mutex::default() }
    }

    /// Returns the values of a dictionary of a leaf whose chunk has the codec `codec`.
    ///
    /// # Errors
    /// Its page is not a dictionary; the fault says why.
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

/// Decodes the values of a dictionary from its page.
///
/// # Errors
/// The page is not a dictionary; the fault says why.
pub(super) fn decode(stored: &[u8], leaf: &Leaf, codec: i32) -> Result<Values, Fault> {
    let (header, body) = Header::split(stored)?;
    let page = Page::open(header, body, leaf, codec)?;
    if page.header.kind != PageKind::Dictionary {
        return Err("another page than a dictionary".into());
    }
    // A dictionary is PLAIN, whichever encoding its header names.
    Ok(values::decode(leaf, 0, &page.bytes, header.values as usize, None)?)
}
