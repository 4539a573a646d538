//! Headers of arrays and images, which stand before the bytes of a file and are not in the container.
//!
//! Each is stored once, among the targets of links: `u16 length | header`, and `u64` the number of bytes behind it, if
//! these are decoded. Imports the tables of an index.

use super::builder::Builder;
use super::index::Index;
use super::row::SampleRow;
use crate::format::Result;
use std::collections::HashMap;

/// Length of the field that holds a header's length.
const LENGTH_BYTES: u64 = 2;

/// The most bytes of all headers of an index: headers may be larger than the small values behind them.
const MAX_BYTES: usize = 256 << 20;

/// The places of the headers that were added to an index.
#[derive(Debug, Default)]
pub(in crate::format) struct Headers {
    places: HashMap<Vec<u8>, u32>,
    bytes: usize,
}

impl Headers {
    /// The place of a header, with the number of bytes behind it if they are decoded; adds the header if it is new. `None`
    /// if there are too many headers, or this one is too long.
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

    /// The header at a place.
    ///
    /// # Errors
    /// As [`Index::sample`].
    pub(in crate::format) fn header(&self, place: u32) -> Result<Vec<u8>> {
        let length = self.header_bytes(place)?;
        self.target(u64::from(place).saturating_add(LENGTH_BYTES), length.into())
    }

    /// The length of a header and of the decoded bytes behind it.
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
