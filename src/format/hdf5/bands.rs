//! Makes chunks of elements that lie in the file as they are, where they are not shown as they are stored.
//!
//! Imports datasets, chunks, and the texts within elements.

use super::chunked::Chunked;
use super::dataset::{Dataset, Refusal, unsupported};
use super::padded::Texts;
use super::table::{Chunk, MAX_CHUNK_BYTES};
use crate::format::View;

/// Bytes that are decoded at a time.
const BAND_BYTES: u64 = 1 << 20;

/// The place of a dataset's elements.
pub(super) enum Data {
    At(u64),
    Chunked(Box<Chunked>),
}

impl Data {
    /// The data with NULs behind each text within an element.
    pub(super) fn without_padding(self, dataset: &Dataset, view: View) -> Result<Self, Refusal> {
        if view == View::Raw || dataset.bytes().is_none_or(|all| all == 0) {
            return Ok(self);
        }
        let texts = Texts::of(&dataset.datatype);
        if texts.is_empty() {
            return Ok(self);
        }
        let (chunked, is_contiguous) = match self {
            Data::Chunked(chunked) => (*chunked, false),
            Data::At(at) => match bands(dataset, at) {
                Some(chunked) => (chunked, true),
                None => return unsupported("an element with text in its fields is too long"),
            },
        };
        Ok(Data::Chunked(Box::new(chunked.trimmed(texts, is_contiguous))))
    }
}

/// Makes chunks of the elements from byte `at` of the file on: of whole rows, or of parts of a long row. `None` if an
/// element is too long.
fn bands(dataset: &Dataset, at: u64) -> Option<Chunked> {
    let all = dataset.bytes()?;
    let element = u64::from(dataset.datatype.bytes);
    let row = all.checked_div(dataset.shape.first().copied().unwrap_or(1))?;
    let unit = if row <= BAND_BYTES { row } else { element };
    let whole = BAND_BYTES.checked_div(unit)?.saturating_mul(unit);
    let band = whole.max(unit).min(all);
    if band > MAX_CHUNK_BYTES {
        return None;
    }
    let chunk = |number: u64| {
        let start = number.checked_mul(band)?;
        let bytes = u32::try_from(all.checked_sub(start)?.min(band)).ok()?;
        Some(Chunk { number, at: at.checked_add(start)?, bytes, mask: 0 })
    };
    let table = (0..all.div_ceil(band)).map(chunk).collect::<Option<_>>()?;
    // The elements lie in one piece: their shape does not matter.
    let elements = Dataset { shape: vec![all.checked_div(element)?], ..dataset.clone() };
    Some(Chunked::new(&elements, vec![band.checked_div(element)?], table))
}
