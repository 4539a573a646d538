//! What stands before the bytes of a file and is not in the container: the header of an array, or of an image.
//!
//! Each stands once, among the targets of links: `u16 length | header`, and of bytes that are decoded how many they are.
//! Imports the tables of an index.

use super::builder::Builder;
use super::index::Index;
use super::row::SampleRow;
use crate::format::Result;
use std::collections::HashMap;

/// Length of what says how long a header is.
const LENGTH_BYTES: u64 = 2;

/// What all headers of an index have at most: small values may have headers that are larger than they are.
const MAX_BYTES: usize = 256 << 20;

/// Where the headers are that were added to an index.
#[derive(Debug, Default)]
pub(in crate::format) struct Headers {
    places: HashMap<Vec<u8>, u32>,
    bytes: usize,
}

impl Headers {
    /// The place of a header, with the number of bytes that are decoded to stand behind it. `None`: there are too many
    /// headers, or this one is too long.
    pub(in crate::format) fn place<R: SampleRow>(
        &mut self,
        index: &mut Builder<R>,
        header: &[u8],
        decoded_bytes: Option<u64>,
    ) -> Option<u32> {
        let length = u16::try_from(header.len()).ok()?;
        let mut text = [&length.to_le_bytes(), header].concat();
        if let Some(bytes) = decoded_bytes {
            text.extend_from_slice(&bytes.to_le_bytes());
        }
        if let Some(place) = self.places.get(&text) {
            return Some(*place);
        }
        let bytes = self.bytes.saturating_add(text.len());
        if bytes > MAX_BYTES {
            return None;
        }
        self.bytes = bytes;
        let (at, _) = index.target(&text);
        let place = u32::try_from(at).ok()?;
        self.places.insert(text, place);
        Some(place)
    }
}

impl<R: SampleRow> Index<R> {
    /// The length of a header.
    ///
    /// # Errors
    /// As [`Index::sample`].
    pub(in crate::format) fn header_bytes(&self, place: u32) -> Result<u16> {
        let length = self.target(place.into(), LENGTH_BYTES)?.first_chunk().copied();
        Ok(u16::from_le_bytes(length.unwrap_or_default()))
    }

    /// A header.
    ///
    /// # Errors
    /// As [`Index::sample`].
    pub(in crate::format) fn header(&self, place: u32) -> Result<Vec<u8>> {
        let length = self.header_bytes(place)?;
        self.target(u64::from(place).saturating_add(LENGTH_BYTES), length.into())
    }

    /// The length of a header with the bytes behind it that are decoded.
    ///
    /// # Errors
    /// As [`Index::sample`].
    pub(in crate::format) fn decoded_bytes(&self, place: u32) -> Result<u64> {
        let header_bytes = u64::from(self.header_bytes(place)?);
        let behind = u64::from(place).saturating_add(LENGTH_BYTES).saturating_add(header_bytes);
        let decoded = self.target(behind, 8)?.first_chunk().copied();
        Ok(u64::from_le_bytes(decoded.unwrap_or_default()).saturating_add(header_bytes))
    }
}
