//! The table of a dataset's chunks, from any of the six kinds of index.
//!
//! Imports datasets, filters, trees and arrays of this directory.

use super::super::Result;
use super::arrays;
use super::dataset::{ChunkIndex, ChunkLayout, Dataset, Refusal, unsupported};
use super::filter::most_stored;
use super::input::Input;
use super::tree1::{self, Keys};
use super::tree2;
use crate::format::counted;

/// The types of records of chunks that are not filtered, and of filtered ones.
const CHUNKS: [u8; 2] = [10, 11];
/// The most bytes of a chunk: all of it is decoded, and kept, to read any of its bytes.
pub(super) const MAX_CHUNK_BYTES: u64 = 256 << 20;

/// The cost of a chunk in a table, taken from the budget of reads: indexes often name chunks in few bytes or none.
const CHUNK_COST: u64 = 8;

/// The place of a chunk: 24 bytes in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    /// The chunk's number among all chunks of the dataset's shape, in C order.
    pub(super) number: u64,
    /// The offset in the file.
    pub(super) at: u64,
    /// The length in the file; 0 if the chunk is not all in the file.
    pub(super) bytes: u32,
    /// Filters that were left out.
    pub(super) mask: u32,
}

impl Chunk {
    /// Fails if not all of the chunk is in the file.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.bytes {
            0 => Err(format!("chunk {} is not all in the file", self.number)),
            _ => Ok(()),
        }
    }

    /// The chunk's name in messages.
    pub(super) fn place(&self) -> String {
        format!("chunk {} at byte {}", self.number, self.at)
    }
}

/// The number of chunks in each dimension.
pub(super) fn grid(shape: &[u64], chunk: &[u64]) -> Vec<u64> {
    shape.iter().zip(chunk).map(|(length, chunk)| length.div_ceil((*chunk).max(1))).collect()
}

/// The number of a place in C order.
fn number_in(grid: &[u64], place: &[u64]) -> u64 {
    let both = place.iter().zip(grid);
    both.fold(0_u64, |all, (place, length)| all.saturating_mul(*length).saturating_add(*place))
}

/// Goes on to the next place in C order; false if there is no further one.
fn go_on(place: &mut [u64], grid: &[u64]) -> bool {
    for (at, length) in place.iter_mut().zip(grid).rev() {
        *at = at.saturating_add(1);
        if *at < *length {
            return true;
        }
        *at = 0;
    }
    false
}

/// Bytes of a whole chunk; `None` if they exceed `MAX_CHUNK_BYTES`.
pub(super) fn chunk_bytes(dataset: &Dataset, layout: &ChunkLayout) -> Option<u64> {
    let element = u64::from(dataset.datatype.bytes);
    let bytes = layout.chunk.iter().try_fold(element, |all, length| all.checked_mul(*length));
    bytes.filter(|bytes| *bytes <= MAX_CHUNK_BYTES)
}

struct Collect<'a> {
    input: &'a Input<'a>,
    dataset: &'a Dataset,
    layout: &'a ChunkLayout,
    grid: Vec<u64>,
    chunk_bytes: u64,
    allow_damaged: bool,
    table: Vec<Chunk>,
}

/// Reads all chunks of a dataset that were written, in the order of their numbers.
pub(super) fn read(
    input: &Input<'_>,
    dataset: &Dataset,
    layout: &ChunkLayout,
    allow_damaged: bool,
) -> Result<Vec<Chunk>, Refusal> {
    let Some(chunk_bytes) = chunk_bytes(dataset, layout) else {
        return unsupported(format!("a chunk has more than {} MiB", MAX_CHUNK_BYTES >> 20));
    };
    let grid = grid(&dataset.shape, &layout.chunk);
    let Some(address) = layout.address else { return Ok(Vec::new()) };
    let table = Vec::new();
    let mut collect = Collect { input, dataset, layout, grid, chunk_bytes, allow_damaged, table };
    collect.all(address)?;
    let mut table = collect.table;
    table.sort_unstable_by_key(|chunk| chunk.number);
    let twice = table.chunk_by(|a, b| a.number == b.number).find(|equal| equal.len() > 1);
    if let Some(chunk) = twice.and_then(<[Chunk]>::first) {
        let found = format!("chunk {} of a dataset twice", chunk.number);
        let at = input.base.saturating_add(address);
        return Err(input.reader.malformed(at, "each chunk once", found, "").into());
    }
    table.shrink_to_fit();
    Ok(table)
}

impl Collect<'_> {
    fn all(&mut self, address: u64) -> Result<()> {
        let (input, rank) = (self.input, self.layout.chunk.len());
        match self.layout.index {
            ChunkIndex::Tree1 => {
                let mut last: Option<Vec<u64>> = None;
                tree1::walk(input, address, Keys::Chunks(rank), &mut |key, child| {
                    let before = key.clone();
                    let filtered = (u64::from(key.u32()?), key.u32()?);
                    let mut place = Vec::with_capacity(rank);
                    let mut is_right = true;
                    for (length, most) in self.layout.chunk.iter().zip(&self.dataset.most) {
                        let first = key.u64()?;
                        is_right &= first.is_multiple_of(*length) && first < *most;
                        place.push(first.checked_div(*length).unwrap_or(0));
                    }
                    is_right &= key.u64()? == 0;
                    is_right &= !self.dataset.filters.is_empty() || filtered.0 == self.chunk_bytes;
                    is_right &= last.as_ref().is_none_or(|last| *last < place);
                    if !is_right {
                        let found = format!("{} behind {place:?} chunks", filtered.0);
                        return Err(before.wrong("the length and place of a chunk", found));
                    }
                    self.add(&place, child, Some(filtered))?;
                    last = Some(place);
                    Ok(())
                })
            }
            ChunkIndex::Single(filtered) => self.add(&vec![0; rank], address, filtered),
            ChunkIndex::Implicit => self.implicit(address),
            ChunkIndex::FixedArray => {
                let order: Vec<usize> = (0..rank).collect();
                arrays::fixed(input, address, &mut |number, address, filtered| {
                    let place = self.place(number, &order);
                    self.add(&place, address, filtered)
                })
            }
            ChunkIndex::ExtensibleArray => {
                let grows = self.dataset.most.iter().position(|most| *most == u64::MAX);
                let grows = grows.unwrap_or(0);
                let order: Vec<usize> = std::iter::once(grows)
                    .chain((0..rank).filter(|place| *place != grows))
                    .collect();
                arrays::extensible(input, address, &mut |number, address, filtered| {
                    let place = self.place(number, &order);
                    self.add(&place, address, filtered)
                })
            }
            ChunkIndex::Tree2 => tree2::walk(input, address, &CHUNKS, &mut |record, bytes| {
                let before = record.clone();
                let Some(address) = record.address()? else { return Ok(()) };
                let plain = rank.saturating_mul(8).saturating_add(input.address_bytes);
                let filtered = match bytes.checked_sub(plain) {
                    Some(0) => None,
                    Some(more) if more > 4 => {
                        Some((record.number(more.saturating_sub(4))?, record.u32()?))
                    }
                    _ => return Err(before.wrong("a record of a chunk", counted(bytes, "byte"))),
                };
                let mut place = Vec::with_capacity(rank);
                for _ in 0..rank {
                    place.push(record.u64()?);
                }
                self.add(&place, address, filtered)
            }),
        }
    }

    /// Adds chunks that lie one after the other, as many as the dataset may grow to. Only the chunks of its present shape
    /// are passed: there may be as many others as the file has bytes.
    fn implicit(&mut self, address: u64) -> Result<()> {
        let most = grid(&self.dataset.most, &self.layout.chunk);
        let at = self.input.base.saturating_add(address);
        if self.grid.iter().zip(&most).any(|(length, most)| length > most) {
            let expected = format!("a shape of up to {most:?} chunks");
            return Err(self.input.reader.malformed(at, expected, format!("{:?}", self.grid), ""));
        }
        let count = most.iter().try_fold(1_u64, |all, length| all.checked_mul(*length));
        let count = count.unwrap_or(u64::MAX);
        if !self.allow_damaged {
            self.input.place("chunks", address, count.saturating_mul(self.chunk_bytes))?;
        }
        let left = self.input.reader.len().saturating_sub(at);
        let count = count.min(left.checked_div(self.chunk_bytes).unwrap_or(0));
        let mut place = vec![0; most.len()];
        loop {
            let number = number_in(&most, &place);
            if number >= count {
                return Ok(());
            }
            let within = number.saturating_mul(self.chunk_bytes);
            self.add(&place, address.saturating_add(within), None)?;
            if !go_on(&mut place, &self.grid) {
                return Ok(());
            }
        }
    }

    /// The place of a chunk in the grid, by its number in an array whose slowest dimension is the first of `order`.
    fn place(&self, number: u64, order: &[usize]) -> Vec<u64> {
        let most = grid(&self.dataset.most, &self.layout.chunk);
        let (mut place, mut rest) = (vec![0; order.len()], number);
        for dimension in order.iter().skip(1).rev() {
            let length = most.get(*dimension).copied().unwrap_or(1).max(1);
            if let Some(place) = place.get_mut(*dimension) {
                *place = rest.checked_rem(length).unwrap_or(0);
            }
            rest = rest.checked_div(length).unwrap_or(0);
        }
        if let Some(place) = order.first().and_then(|first| place.get_mut(*first)) {
            *place = rest;
        }
        place
    }

    fn add(&mut self, place: &[u64], address: u64, filtered: Option<(u64, u32)>) -> Result<()> {
        // Chunks that a dataset lost when it was shrunk stay in its index.
        if place.iter().zip(&self.grid).any(|(place, length)| place >= length) {
            return Ok(());
        }
        let number = number_in(&self.grid, place);
        let (bytes, mut mask) = match filtered {
            Some(filtered) if !self.dataset.filters.is_empty() => filtered,
            _ => (self.chunk_bytes, 0),
        };
        if self.layout.edges_are_plain && self.is_at_an_edge(place) {
            mask = u32::MAX;
        }
        if bytes > most_stored(self.chunk_bytes) {
            let at = self.input.base.saturating_add(address);
            let expected = format!("a chunk of {}, filtered", counted(self.chunk_bytes, "byte"));
            return Err(self.input.reader.malformed(at, expected, counted(bytes, "byte"), ""));
        }
        let lies = self.input.place("a chunk", address, bytes);
        let chunk = match (lies, u32::try_from(bytes)) {
            (Ok(at), Ok(bytes)) if bytes > 0 => Chunk { number, at, bytes, mask },
            (Err(error), _) if !self.allow_damaged => return Err(error),
            _ => Chunk { number, at: 0, bytes: 0, mask },
        };
        self.input.charge(self.input.base.saturating_add(address), CHUNK_COST)?;
        self.input.take_chunk(chunk.at, chunk.bytes.into())?;
        self.table.push(chunk);
        Ok(())
    }

    fn is_at_an_edge(&self, place: &[u64]) -> bool {
        let dimensions = place.iter().zip(&self.layout.chunk).zip(&self.dataset.shape);
        dimensions.into_iter().any(|((place, chunk), length)| {
            place.saturating_add(1).saturating_mul(*chunk) > *length
        })
    }
}
