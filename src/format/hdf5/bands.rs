//! Elements that lie in the file as they are, as chunks of whole rows: where they are not shown as they lie.
//!
//! Imports datasets, chunks, and the texts within elements.

use super::chunked::Chunked;
use super::dataset::Dataset;
use super::padded::Texts;
use super::table::{Chunk, MAX_CHUNK_BYTES};
use crate::format::View;

/// What is decoded at once.
const BAND_BYTES: u64 = 1 << 20;

/// Where elements are.
pub(super) enum Data {
    At(u64),
    Chunked(Box<Chunked>),
}

impl Data {
    /// The same, with NULs behind each text within an element.
    pub(super) fn without_padding(self, dataset: &Dataset, view: View) -> Self {
        let texts = Texts::of(&dataset.datatype);
        if view == View::Raw || texts.is_empty() {
            return self;
        }
        match self {
            Data::Chunked(chunked) => Data::Chunked(Box::new(chunked.trimmed(texts, false))),
            Data::At(at) => match bands(dataset, at) {
                Some(chunked) => Data::Chunked(Box::new(chunked.trimmed(texts, true))),
                None => Data::At(at),
            },
        }
    }
}

/// Elements from a byte of the file on as chunks of whole rows. `None`: there are none, or a row is too long.
fn bands(dataset: &Dataset, at: u64) -> Option<Chunked> {
    let all = dataset.bytes().filter(|all| *all > 0)?;
    let rows = dataset.shape.first().copied().unwrap_or(1);
    let row = all.checked_div(rows).filter(|row| *row <= MAX_CHUNK_BYTES)?;
    let band = BAND_BYTES.checked_div(row).unwrap_or(0).clamp(1, rows);
    let mut shape = dataset.shape.clone();
    match shape.first_mut() {
        Some(first) => *first = band,
        None => shape.push(1),
    }
    let band_bytes = band.checked_mul(row)?;
    let chunk = |number: u64| {
        let start = number.checked_mul(band_bytes)?;
        let bytes = u32::try_from(all.checked_sub(start)?.min(band_bytes)).ok()?;
        Some(Chunk { number, at: at.checked_add(start)?, bytes, mask: 0 })
    };
    let table = (0..rows.div_ceil(band)).map(chunk).collect::<Option<_>>()?;
    Some(Chunked::new(dataset, shape, table))
}
