//! The filters of chunks: those of the HDF5 library (deflate, shuffle, fletcher32, szip, N-bit, scale-offset), and
//! others: LZF, bzip2, Blosc, LZ4, bitshuffle and zstd. Chunks with another filter cannot be decoded.
//!
//! ```text
//! u8 1 | u8 filters | 6 × u8 | filters: u16 ID | u16 length of the name | u16 flags | u16 values | name | u32 values
//! u8 2 | u8 filters | filters: u16 ID | (from 256 on) u16 length of the name | u16 flags | u16 values | name | values
//! ```
//!
//! Imports the input and the codecs.

mod bits;
mod bitshuffle;
mod blosc;
mod blosclz;
mod copies;
mod length;
mod lz4;
mod lzf;
mod nbit;
mod scaleoffset;
mod shuffle;
mod szip;
#[cfg(test)]
mod tests;

use super::super::Result;
use super::super::codec::{self, Codec};
use super::input::{Fields, number};
use crate::format::{Fault, Progress, counted};
use std::borrow::Cow;

const DEFLATE: u16 = 1;
const SHUFFLE: u16 = 2;
const FLETCHER32: u16 = 3;
const SZIP: u16 = 4;
const NBIT: u16 = 5;
const SCALEOFFSET: u16 = 6;
/// The filter of PyTables.
const BZIP2: u16 = 307;
const LZF: u16 = 32_000;
const BLOSC: u16 = 32_001;
const LZ4: u16 = 32_004;
const BITSHUFFLE: u16 = 32_008;
const ZSTD: u16 = 32_015;
/// Bytes of the checksum behind a chunk.
const SUM_BYTES: usize = 4;
/// Bytes that are decompressed at a time, of a chunk that is compressed twice.
const STEP_BYTES: usize = 64 << 10;
/// The most filters of a dataset: no file has more, and a chunk's mask has a bit for each.
const MAX_FILTERS: u8 = 32;

/// Bytes that filters may add to a chunk, besides as many as the chunk has.
const MAX_GROWTH_BYTES: u64 = 64 << 10;

/// The most bytes that filters may make of a chunk of `chunk_bytes`: no filter makes a chunk much longer.
pub(super) fn most_stored(chunk_bytes: u64) -> u64 {
    chunk_bytes.saturating_mul(2).saturating_add(MAX_GROWTH_BYTES)
}

/// A step between a chunk's elements and its stored bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filter {
    id: u16,
    /// The parameters of the filter; for shuffle, the first one is the size of an element, in bytes.
    values: Box<[u32]>,
}

impl Filter {
    pub(super) fn read_all(fields: &mut Fields<'_>) -> Result<Vec<Self>> {
        let before = fields.clone();
        let (version, count) = (fields.u8()?, fields.u8()?);
        if !matches!(version, 1 | 2) || count > MAX_FILTERS {
            let found = format!("{count} of version {version}");
            return Err(before.wrong("up to 32 filters of version 1 or 2", found));
        }
        if version == 1 {
            fields.take(6)?;
        }
        let mut filters = Vec::new();
        for _ in 0..count {
            let id = fields.u16()?;
            let has_name = version == 1 || id >= 256;
            let name = if has_name { fields.u16()? } else { 0 };
            fields.u16()?;
            let values = usize::from(fields.u16()?);
            fields.take(name.into())?;
            let stored = fields.take(values.saturating_mul(4))?;
            if version == 1 && values & 1 == 1 {
                fields.take(4)?;
            }
            let values = stored.chunks_exact(4).map(|value| number(value) as u32).collect();
            filters.push(Self { id, values });
        }
        Ok(filters)
    }

    /// The filter's name, if the filter cannot be undone here.
    pub(super) fn missing(&self) -> Option<String> {
        let name = match self.id {
            DEFLATE | SHUFFLE | FLETCHER32 | SZIP | NBIT | SCALEOFFSET => return None,
            BZIP2 | LZF | BLOSC | LZ4 | BITSHUFFLE | ZSTD => return None,
            32_013 => "zfp",
            32_026 => "blosc2",
            id => return Some(format!("filter {id}")),
        };
        Some(format!("filter {} ({name})", self.id))
    }

    /// Whether the filter is a shuffle of elements of another size than `element`. A second shuffle in a pipeline has no
    /// size: the library leaves it out of all chunks.
    pub(super) fn is_of_others(&self, element: u32) -> bool {
        self.id == SHUFFLE && ![0, element].contains(&self.element())
    }

    /// The size of the elements whose bytes are sorted, in bytes.
    fn element(&self) -> u32 {
        self.values.first().copied().unwrap_or(0)
    }

    pub(super) fn is_checksum(&self) -> bool {
        self.id == FLETCHER32
    }

    /// Undoes a filter that compresses; fills `out`.
    fn decompress(&self, bytes: &[u8], out: &mut [u8]) -> Result<(), String> {
        match self.id {
            DEFLATE => codec::decode(Codec::Zlib, bytes, out),
            BZIP2 => codec::decode(Codec::Bzip2, bytes, out),
            LZF => lzf::decode(bytes, out),
            SZIP => szip::decode(&self.values, bytes, out),
            NBIT => nbit::decode(&self.values, bytes, out),
            SCALEOFFSET => scaleoffset::decode(&self.values, bytes, out),
            BLOSC => blosc::decode(bytes, out),
            LZ4 => lz4::decode(bytes, out),
            BITSHUFFLE => bitshuffle::decode(&self.values, bytes, out),
            ZSTD => codec::decode(Codec::Zstd, bytes, out),
            _ => Err(format!("it needs {}", self.missing().unwrap_or_default())),
        }
    }

    /// Undoes a filter that compresses, where the decompressed length is not known; fails if that exceeds `most` bytes.
    fn decompress_any(&self, bytes: &[u8], most: usize) -> Result<Vec<u8>, String> {
        let codec = match self.id {
            DEFLATE => Codec::Zlib,
            BZIP2 => Codec::Bzip2,
            ZSTD => Codec::Zstd,
            _ => return self.decompress_to(self.length(bytes), bytes, most),
        };
        let mut decoder = codec::decoder(codec, None)?.ok_or("it has no decoder")?;
        let (mut rest, mut out, mut buffer) = (bytes, Vec::new(), vec![0; STEP_BYTES]);
        loop {
            let step = decoder.decode(rest, &mut buffer, true)?;
            out.extend_from_slice(buffer.get(..step.given).unwrap_or_default());
            if out.len() > most {
                return Err(too_long(most));
            }
            if step.is_end {
                return Ok(out);
            }
            if step == Progress::default() {
                return Err(format!("it ends after {}", counted(out.len(), "byte")));
            }
            rest = rest.get(step.taken..).unwrap_or_default();
        }
    }

    /// The decompressed length, if the chunk or the filter says it.
    fn length(&self, bytes: &[u8]) -> Option<usize> {
        match self.id {
            LZF => lzf::length(bytes),
            SZIP => szip::length(bytes),
            NBIT => nbit::length(&self.values),
            SCALEOFFSET => scaleoffset::length(&self.values),
            BLOSC => blosc::length(bytes),
            LZ4 => lz4::length(bytes),
            BITSHUFFLE => bitshuffle::length(&self.values, bytes),
            _ => None,
        }
    }

    /// As `decompress_any`, where the chunk or the filter says the decompressed length.
    fn decompress_to(
        &self,
        length: Option<usize>,
        bytes: &[u8],
        most: usize,
    ) -> Result<Vec<u8>, String> {
        let length = length.ok_or("it does not say how many bytes it has")?;
        if length > most {
            return Err(too_long(most));
        }
        let mut out = vec![0; length];
        self.decompress(bytes, &mut out).map(|()| out)
    }

    /// Whether the filter changes no bytes, according to its values.
    fn is_plain(&self) -> bool {
        match self.id {
            NBIT => nbit::is_plain(&self.values),
            SCALEOFFSET => scaleoffset::is_plain(&self.values),
            _ => false,
        }
    }

    fn is_left_out(place: usize, mask: u32) -> bool {
        u32::try_from(place).is_ok_and(|place| mask.wrapping_shr(place) & 1 == 1)
    }
}

fn too_long(most: usize) -> String {
    format!("it is compressed twice, and has over {most} bytes in between")
}

/// The filters, without those that `mask` leaves out and those that change no bytes.
fn used(filters: &[Filter], mask: u32) -> impl Iterator<Item = &Filter> {
    let filters = filters.iter().enumerate();
    let used = filters.filter(move |(place, _)| !Filter::is_left_out(*place, mask));
    used.map(|(_, filter)| filter).filter(|filter| !filter.is_plain())
}

/// As [`decode`], into `out`: directly if the only filter is one that compresses.
pub(super) fn decode_to(
    filters: &[Filter],
    mask: u32,
    stored: &[u8],
    out: &mut [u8],
) -> Result<(), Fault> {
    let mut used = used(filters, mask);
    match (used.next(), used.next()) {
        (Some(only), None) if !matches!(only.id, SHUFFLE | FLETCHER32) => {
            Ok(only.decompress(stored, out)?)
        }
        _ => {
            out.copy_from_slice(&decode(filters, mask, stored, out.len())?);
            Ok(())
        }
    }
}

/// Undoes all filters but those that `mask` leaves out; returns `length` bytes.
pub(super) fn decode<'a>(
    filters: &[Filter],
    mask: u32,
    stored: &'a [u8],
    length: usize,
) -> Result<Cow<'a, [u8]>, Fault> {
    // The length of a chunk before each filter: it is known as long as no filter before it compresses.
    let (mut steps, mut before) = (Vec::new(), Some(length));
    for filter in used(filters, mask) {
        steps.push((filter, before));
        before = match filter.id {
            SHUFFLE => before,
            FLETCHER32 => before.map(|length| length.saturating_add(SUM_BYTES)),
            _ => None,
        };
    }
    let most = usize::try_from(most_stored(length as u64)).unwrap_or(usize::MAX);
    let mut bytes = Cow::Borrowed(stored);
    for (filter, before) in steps.into_iter().rev() {
        bytes = match filter.id {
            SHUFFLE if filter.element() == 0 => {
                return Err("elements were sorted by no size".into());
            }
            SHUFFLE => Cow::Owned(shuffle::undo(&bytes, filter.element() as usize)),
            FLETCHER32 => checked(bytes)?,
            _ => Cow::Owned(match before {
                // No longer than a chunk, whose length was bounded when its dataset was opened.
                Some(length) => {
                    let mut out = vec![0; length];
                    filter.decompress(&bytes, &mut out)?;
                    out
                }
                None => filter.decompress_any(&bytes, most)?,
            }),
        };
    }
    match bytes.len() == length {
        true => Ok(bytes),
        false => Err(format!("a chunk of {}, not {length}", counted(bytes.len(), "byte")).into()),
    }
}

fn checked(bytes: Cow<'_, [u8]>) -> Result<Cow<'_, [u8]>, Fault> {
    let length = bytes.len().checked_sub(SUM_BYTES).ok_or("a chunk without its fletcher32")?;
    let (data, stored) = bytes.split_at_checked(length).unwrap_or_default();
    let (stored, found) = (number(stored) as u32, fletcher32(data));
    // Releases before 1.6.3 wrote the bytes of each half in the other order.
    let [a, b, c, d] = found.to_be_bytes();
    if stored != found && stored != u32::from_be_bytes([b, a, d, c]) {
        let what = "fletcher32".to_owned();
        return Err(Fault::PartChecksum { what, expected: stored, found });
    }
    Ok(match bytes {
        Cow::Borrowed(bytes) => Cow::Borrowed(bytes.get(..length).unwrap_or_default()),
        Cow::Owned(mut bytes) => {
            bytes.truncate(length);
            Cow::Owned(bytes)
        }
    })
}

/// The checksum as the HDF5 library computes it: of big-endian words of 16 bits.
fn fletcher32(bytes: &[u8]) -> u32 {
    /// Bytes of the words that can be added up before 32 bits overflow.
    const RUN_BYTES: usize = 720;
    let fold = |sum: u32| (sum & 0xffff).wrapping_add(sum >> 16);
    let (mut low, mut high) = (0_u32, 0_u32);
    for run in bytes.chunks(RUN_BYTES) {
        for word in run.chunks(2) {
            let word = match word {
                [first, second] => u16::from_be_bytes([*first, *second]),
                [first] => u16::from_be_bytes([*first, 0]),
                _ => 0,
            };
            low = low.wrapping_add(word.into());
            high = high.wrapping_add(low);
        }
        (low, high) = (fold(low), fold(high));
    }
    fold(high) << 16 | fold(low)
}
