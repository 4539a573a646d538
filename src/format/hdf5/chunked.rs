//! The elements of a dataset in chunks, as intervals that are decoded on their own.
//!
//! All chunks that hold the same rows (a band) are one interval if they lie together in the file: it decodes to the rows
//! as they are, so that a file's bytes are a range of it. Else each chunk is an interval, and a file's bytes are runs in
//! several intervals. Chunks that were never written hold the fill value; they are holes if that is 0.
//!
//! Imports datasets, the table of chunks, filters, and the texts within elements.

use super::dataset::Dataset;
use super::filter::{self, Filter};
use super::padded::Texts;
use super::table::{Chunk, grid};
use crate::format::Fault;
use crate::format::stream::{Interval, MAX_INTERVAL_BYTES, Order};
use std::borrow::Cow;
use std::ops::Range;

/// The range that is fetched for an interval without stored bytes.
const NOTHING_STORED: Range<u64> = 0..8;
/// The most bytes between the chunks of a band, besides as many as the chunks have themselves.
const MAX_GAP_BYTES: u64 = 64 << 10;

/// The most holes that a read passes before it is given zeros: a reader of one byte does not wait until all are passed.
const MAX_HOLES: u32 = 4096;

/// The most bytes that are fetched at once for a band.
const MAX_BAND_BYTES: u64 = 2 * MAX_INTERVAL_BYTES;

/// A dataset in chunks.
#[derive(Debug)]
pub(super) struct Chunked {
    shape: Vec<u64>,
    chunk: Vec<u64>,
    grid: Vec<u64>,
    element: u64,
    chunk_bytes: u64,
    /// Bytes of a row: of all elements with one place in the first dimension.
    row_bytes: u64,
    filters: Vec<Filter>,
    fill: Vec<u8>,
    table: Vec<Chunk>,
    /// The range from the first chunk to the last, in the file.
    all_stored: Range<u64>,
    is_banded: bool,
    /// The texts that NULs are put behind.
    texts: Texts,
    /// Whether the chunks are parts of elements that lie in one piece: the last one may be shorter.
    is_contiguous: bool,
    /// The number of its first interval in the file, and the interval's offset in all decoded bytes.
    pub(super) first: u64,
    pub(super) base: u64,
}

/// Bytes of a dataset that lie together in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// The offset in the dataset's bytes.
    pub(super) at: u64,
    pub(super) length: u64,
    /// The offset in all decoded bytes.
    pub(super) decoded: u64,
}

fn product(lengths: &[u64]) -> u64 {
    lengths.iter().fold(1, |all: u64, length| all.saturating_mul(*length))
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl Chunked {
    /// A dataset whose chunks have the shape `chunk`, with at least one dimension and no length of 0.
    pub(super) fn new(dataset: &Dataset, chunk: Vec<u64>, table: Vec<Chunk>) -> Self {
        let shape = if dataset.shape.is_empty() { vec![1] } else { dataset.shape.clone() };
        let element = u64::from(dataset.datatype.bytes);
        let row_bytes = product(shape.get(1..).unwrap_or_default()).saturating_mul(element);
        let mut chunked = Self {
            grid: grid(&shape, &chunk),
            chunk_bytes: product(&chunk).saturating_mul(element),
            filters: dataset.filters.clone(),
            fill: dataset.fill.clone(),
            shape,
            chunk,
            element,
            row_bytes,
            all_stored: extent(&table),
            table,
            is_banded: false,
            texts: Texts::default(),
            is_contiguous: false,
            first: 0,
            base: 0,
        };
        chunked.is_banded = chunked.may_be_banded();
        chunked
    }

    /// The dataset with NULs behind texts within its elements.
    pub(super) fn trimmed(mut self, texts: Texts, is_contiguous: bool) -> Self {
        texts.trim(&mut self.fill, self.element);
        if is_contiguous {
            // Filtered elements never lie in one piece.
            self.filters.clear();
        }
        (self.texts, self.is_contiguous) = (texts, is_contiguous);
        self
    }

    /// Bytes of all elements.
    pub(super) fn bytes(&self) -> u64 {
        self.row_bytes.saturating_mul(self.shape.first().copied().unwrap_or(0))
    }

    /// Whether the chunks have checksums.
    pub(super) fn is_checked(&self) -> bool {
        self.filters.iter().any(Filter::is_checksum)
    }

    /// Bytes that are decoded from chunks, or made of a fill value.
    pub(super) fn made_bytes(&self) -> u64 {
        let stored = (self.table.len() as u64).saturating_mul(self.chunk_bytes);
        if self.fill.is_empty() { stored } else { stored.max(self.bytes()) }
    }

    /// The number of rows of a band.
    fn rows(&self) -> u64 {
        self.chunk.first().copied().unwrap_or(1).max(1)
    }

    fn band_bytes(&self) -> u64 {
        self.rows().saturating_mul(self.row_bytes).max(1)
    }

    fn chunks_in_band(&self) -> u64 {
        product(self.grid.get(1..).unwrap_or_default()).max(1)
    }

    fn may_be_banded(&self) -> bool {
        if self.band_bytes() > MAX_INTERVAL_BYTES {
            return false;
        }
        let each = self.chunks_in_band();
        let band = |chunk: &Chunk| chunk.number.checked_div(each).unwrap_or(0);
        each == 1
            || self.table.chunk_by(|a, b| band(a) == band(b)).all(|chunks| {
                let sum: u64 = chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum();
                let range = extent(chunks);
                let span = range.end.saturating_sub(range.start);
                span <= sum.saturating_mul(2).saturating_add(MAX_GAP_BYTES).min(MAX_BAND_BYTES)
            })
    }

    /// The chunks with these numbers.
    fn between(&self, numbers: Range<u64>) -> &[Chunk] {
        let start = self.table.partition_point(|chunk| chunk.number < numbers.start);
        let end = self.table.partition_point(|chunk| chunk.number < numbers.end);
        self.table.get(start..end).unwrap_or_default()
    }

    fn band(&self, number: u64) -> &[Chunk] {
        let each = self.chunks_in_band();
        let first = number.saturating_mul(each);
        self.between(first..first.saturating_add(each))
    }

    /// The number of the dataset's intervals, and the bytes that they decode to.
    pub(super) fn intervals(&self) -> (u64, u64) {
        match self.is_banded {
            true => (self.grid.first().copied().unwrap_or(0), self.bytes()),
            // The last interval is that of chunks that were never written.
            false => {
                let count = (self.table.len() as u64).saturating_add(1);
                (count, count.saturating_mul(self.chunk_bytes))
            }
        }
    }

    /// The interval that the decoded byte `decoded` lies in, counted from the beginning of the first interval.
    pub(super) fn interval_at(&self, decoded: u64) -> Option<Interval> {
        let each = if self.is_banded { self.band_bytes() } else { self.chunk_bytes };
        self.interval(decoded.checked_div(each)?)
    }

    /// The interval with this number among those of the dataset.
    pub(super) fn interval(&self, number: u64) -> Option<Interval> {
        let (count, all) = self.intervals();
        if number >= count {
            return None;
        }
        let each = if self.is_banded { self.band_bytes() } else { self.chunk_bytes };
        let start = number.saturating_mul(each);
        let end = start.saturating_add(each).min(all);
        let chunks = match self.is_banded {
            true => self.band(number),
            false => {
                self.table.get(size(number)..).and_then(|rest| rest.get(..1)).unwrap_or_default()
            }
        };
        Some(Interval {
            number: self.first.saturating_add(number),
            stored: extent(chunks),
            decoded: self.base.saturating_add(start)..self.base.saturating_add(end),
            crc32: 0,
        })
    }

    /// The place of the interval with this number among those of the dataset. `None` if rows lie in several intervals
    /// each, and come back to the same ones.
    pub(super) fn order(&self, number: u64) -> Option<Order> {
        let (count, _) = self.intervals();
        let last = self.first.saturating_add(count).checked_sub(1)?;
        let start = self.base.saturating_add(number.saturating_mul(self.band_bytes()));
        (self.is_banded && number < count).then_some(Order { start, last })
    }

    /// The stored extent of a range of the dataset's bytes: from the first chunk to the last.
    pub(super) fn stored(&self, range: Range<u64>) -> Range<u64> {
        // Each read asks for this: it must not look at all chunks.
        if range == (0..self.bytes()) {
            return self.all_stored.clone();
        }
        let each = self.band_bytes();
        let band = |at: u64| at.checked_div(each).unwrap_or(0);
        let (first, last) = (band(range.start), band(range.end.saturating_sub(1)));
        let chunks = self.chunks_in_band();
        let first = first.saturating_mul(chunks);
        extent(self.between(first..last.saturating_add(1).saturating_mul(chunks)))
    }

    /// Decodes an interval of the dataset from all of its stored bytes; fills `out`.
    pub(super) fn decode(&self, number: u64, stored: &[u8], out: &mut [u8]) -> Result<(), Fault> {
        if !self.is_banded {
            let Some(chunk) = self.table.get(size(number)) else {
                self.fill(out);
                return Ok(());
            };
            return self.decode_whole(chunk, stored, out);
        }
        let chunks = self.band(number);
        if let [chunk] = chunks
            && self.chunk.get(1..) == self.shape.get(1..)
            && out.len() == size(self.chunk_bytes)
        {
            return self.decode_whole(chunk, stored, out);
        }
        if (chunks.len() as u64) < self.chunks_in_band() {
            self.fill(out);
        }
        let start = extent(chunks).start;
        for chunk in chunks {
            let from = size(chunk.at.saturating_sub(start));
            let bytes = stored.get(from..from.saturating_add(chunk.bytes as usize));
            let decoded = self.decode_chunk(chunk, bytes.unwrap_or_default())?;
            let origin = self.origin(chunk.number);
            let column = origin.get(1..).unwrap_or_default();
            let to = self.place(column).ok_or("a chunk that is out of range")?;
            self.copy(0, &origin, &decoded, out.get_mut(to..).unwrap_or_default());
        }
        Ok(())
    }

    fn decode_chunk<'a>(&self, chunk: &Chunk, stored: &'a [u8]) -> Result<Cow<'a, [u8]>, Fault> {
        if self.is_contiguous || !self.texts.is_empty() {
            let mut out = vec![0; size(self.chunk_bytes)];
            return self.decode_whole(chunk, stored, &mut out).map(|()| Cow::Owned(out));
        }
        chunk.check()?;
        filter::decode(&self.filters, chunk.mask, stored, size(self.chunk_bytes))
            .map_err(|fault| fault.within(&chunk.place()))
    }

    /// Decodes a chunk whose elements are, in order, those of an interval.
    fn decode_whole(&self, chunk: &Chunk, stored: &[u8], out: &mut [u8]) -> Result<(), Fault> {
        chunk.check()?;
        match self.is_contiguous {
            true if stored.len() != chunk.bytes as usize => {
                return Err(format!("{} has other bytes than it should", chunk.place()).into());
            }
            true => out.iter_mut().zip(stored).for_each(|(to, from)| *to = *from),
            false => filter::decode_to(&self.filters, chunk.mask, stored, out)
                .map_err(|fault| fault.within(&chunk.place()))?,
        }
        self.texts.trim(out, self.element);
        Ok(())
    }

    fn fill(&self, out: &mut [u8]) {
        match self.fill.is_empty() {
            true => out.fill(0),
            false => out
                .chunks_mut(self.fill.len())
                .for_each(|to| to.iter_mut().zip(&self.fill).for_each(|(to, from)| *to = *from)),
        }
    }

    /// The place of a chunk's first element, in each dimension.
    fn origin(&self, number: u64) -> Vec<u64> {
        let (mut origin, mut rest) = (vec![0; self.grid.len()], number);
        for ((place, length), chunk) in origin.iter_mut().zip(&self.grid).zip(&self.chunk).rev() {
            *place = rest.checked_rem(*length).unwrap_or(0).saturating_mul(*chunk);
            rest = rest.checked_div(*length).unwrap_or(0);
        }
        origin
    }

    /// The offset of an element in a row, in bytes.
    fn place(&self, column: &[u64]) -> Option<usize> {
        let lengths = self.shape.get(1..)?;
        let place = column
            .iter()
            .zip(lengths)
            .fold(0_u64, |all, (at, length)| all.saturating_mul(*length).saturating_add(*at));
        usize::try_from(place.saturating_mul(self.element)).ok()
    }

    /// Copies the part of a chunk that lies within the shape, from dimension `dimension` on.
    fn copy(&self, dimension: usize, origin: &[u64], from: &[u8], to: &mut [u8]) {
        let behind = dimension.saturating_add(1);
        let (chunk, shape) = (self.chunk.get(behind..), self.shape.get(behind..));
        let (Some(chunk), Some(shape)) = (chunk, shape) else { return };
        let lengths = (self.chunk.get(dimension), self.shape.get(dimension), origin.get(dimension));
        let (Some(&whole), Some(&length), Some(&start)) = lengths else { return };
        let count = whole.min(length.saturating_sub(start));
        let from_step = size(product(chunk).saturating_mul(self.element));
        let to_step = size(product(shape).saturating_mul(self.element));
        if chunk == shape {
            let bytes = size(count).saturating_mul(to_step).min(to.len());
            if let (Some(to), Some(from)) = (to.get_mut(..bytes), from.get(..bytes)) {
                to.copy_from_slice(from);
            }
            return;
        }
        for number in 0..size(count) {
            let from = from.get(number.saturating_mul(from_step)..).unwrap_or_default();
            let Some(to) = to.get_mut(number.saturating_mul(to_step)..) else { return };
            self.copy(behind, origin, from, to);
        }
    }

    /// The first run at or behind `at` that is not a hole.
    pub(super) fn run_at(&self, mut at: u64) -> Option<Run> {
        let (all, mut holes) = (self.bytes(), 0_u32);
        while at < all {
            let band_bytes = self.band_bytes();
            let band = at.checked_div(band_bytes)?;
            let band_start = band.saturating_mul(band_bytes);
            let band_end = band_start.saturating_add(band_bytes).min(all);
            if self.fill.is_empty() {
                let each = self.chunks_in_band();
                let first = band.saturating_mul(each);
                let next = self.table.partition_point(|chunk| chunk.number < first);
                let next = self.table.get(next)?.number.checked_div(each)?;
                if next > band {
                    at = next.saturating_mul(band_bytes);
                    continue;
                }
            }
            if self.is_banded {
                let decoded = self.base.saturating_add(at);
                return Some(Run { at, length: band_end.saturating_sub(at), decoded });
            }
            let (number, within, length) = self.locate(at)?;
            let found = self.table.binary_search_by_key(&number, |chunk| chunk.number);
            let interval = match found {
                Ok(place) => place,
                Err(_) if self.fill.is_empty() && holes < MAX_HOLES => {
                    holes = holes.saturating_add(1);
                    at = at.saturating_add(length);
                    continue;
                }
                Err(_) => self.table.len(),
            } as u64;
            let start = interval.saturating_mul(self.chunk_bytes).saturating_add(within);
            return Some(Run { at, length, decoded: self.base.saturating_add(start) });
        }
        None
    }

    /// The chunk that a byte lies in: the chunk's number, the byte's offset in it, and how many bytes follow there as
    /// they do in the dataset.
    fn locate(&self, at: u64) -> Option<(u64, u64, u64)> {
        let within_element = at.checked_rem(self.element)?;
        let mut rest = at.checked_div(self.element)?;
        let dimensions = self.shape.iter().zip(&self.chunk).zip(&self.grid).rev();
        let (mut number, mut place, mut run) = (0_u64, 0_u64, 1_u64);
        let (mut numbers, mut places, mut is_run) = (1_u64, 1_u64, true);
        for ((length, chunk), grid) in dimensions {
            let coordinate = rest.checked_rem(*length)?;
            rest = rest.checked_div(*length)?;
            let (which, inside) =
                (coordinate.checked_div(*chunk)?, coordinate.checked_rem(*chunk)?);
            number = number.saturating_add(which.saturating_mul(numbers));
            place = place.saturating_add(inside.saturating_mul(places));
            if is_run {
                // The run ends with the chunk, or with the dataset, in the last dimension that a chunk does not fill.
                let left = chunk.saturating_sub(inside).min(length.saturating_sub(coordinate));
                let passed = place.saturating_sub(inside.saturating_mul(places));
                run = left.saturating_mul(places).saturating_sub(passed);
                is_run = chunk == length;
            }
            numbers = numbers.saturating_mul(*grid);
            places = places.saturating_mul(*chunk);
        }
        let within = place.saturating_mul(self.element).saturating_add(within_element);
        let length = run.saturating_mul(self.element).saturating_sub(within_element);
        Some((number, within, length))
    }

    /// Puts a range of the dataset's bytes together from intervals, whose stored bytes `fetch` gives.
    pub(super) fn read(
        &self,
        start: u64,
        out: &mut [u8],
        fetch: &mut dyn FnMut(Range<u64>) -> Result<Vec<u8>, String>,
    ) -> Result<(), Fault> {
        if !self.is_banded && start == 0 && out.len() as u64 == self.bytes() {
            return self.read_all(out, fetch);
        }
        out.fill(0);
        let end = start.saturating_add(out.len() as u64);
        let (mut at, mut kept) = (start, (None, Vec::new()));
        while let Some(run) = self.run_at(at).filter(|run| run.at < end) {
            let interval = self.interval_at(run.decoded.saturating_sub(self.base));
            let interval = interval.ok_or("an interval that is out of range")?;
            if kept.0 != Some(interval.number) {
                let stored = fetch(interval.stored.clone())?;
                let length = interval.decoded.end.saturating_sub(interval.decoded.start);
                kept = (Some(interval.number), vec![0; size(length)]);
                let own = interval.number.saturating_sub(self.first);
                self.decode(own, &stored, &mut kept.1)?;
            }
            let length = run.length.min(end.saturating_sub(run.at));
            let from = size(run.decoded.saturating_sub(interval.decoded.start));
            let to = size(run.at.saturating_sub(start));
            let source = kept.1.get(from..from.saturating_add(size(length)));
            let target = out.get_mut(to..to.saturating_add(size(length)));
            let (Some(source), Some(target)) = (source, target) else {
                return Err("a run that is out of range".into());
            };
            target.copy_from_slice(source);
            at = run.at.saturating_add(length);
        }
        Ok(())
    }

    /// Puts all of the dataset's bytes together, chunk by chunk: in the order of the bytes, each chunk has many runs.
    fn read_all(
        &self,
        out: &mut [u8],
        fetch: &mut dyn FnMut(Range<u64>) -> Result<Vec<u8>, String>,
    ) -> Result<(), Fault> {
        self.fill(out);
        for chunk in &self.table {
            let stored = fetch(extent(std::slice::from_ref(chunk)))?;
            let decoded = self.decode_chunk(chunk, &stored)?;
            let origin = self.origin(chunk.number);
            let (row, column) = origin.split_first().unwrap_or((&0, &[]));
            let place = self.place(column).ok_or("a chunk that is out of range")?;
            let to = size(row.saturating_mul(self.row_bytes)).saturating_add(place);
            self.copy(0, &origin, &decoded, out.get_mut(to..).unwrap_or_default());
        }
        Ok(())
    }
}

/// The range from the first byte of some chunks to the last.
fn extent(chunks: &[Chunk]) -> Range<u64> {
    let there = chunks.iter().filter(|chunk| chunk.bytes > 0);
    let start = there.clone().map(|chunk| chunk.at).min();
    let end = there.map(|chunk| chunk.at.saturating_add(chunk.bytes.into())).max();
    start.zip(end).map_or(NOTHING_STORED, |(start, end)| start..end)
}
