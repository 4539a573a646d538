//! What chunks are filtered by: deflate, shuffle, fletcher32, LZF, bzip2 and zstd. Chunks with another filter cannot be decoded.
//!
//! ```text
//! u8 1 | u8 filters | 6 × u8 | filters: u16 ID | u16 length of the name | u16 flags | u16 values | name | u32 values
//! u8 2 | u8 filters | filters: u16 ID | (from 256 on) u16 length of the name | u16 flags | u16 values | name | values
//! ```
//!
//! Imports the input, LZF and the codecs.

use super::super::Result;
use super::super::codec::{self, Codec};
use super::input::{Fields, number};
use super::lzf;
use crate::format::{Fault, Progress, counted};
use std::borrow::Cow;

const DEFLATE: u16 = 1;
const SHUFFLE: u16 = 2;
const FLETCHER32: u16 = 3;
/// PyTables'.
const BZIP2: u16 = 307;
const LZF: u16 = 32_000;
const ZSTD: u16 = 32_015;
/// The checksum behind a chunk.
const SUM_BYTES: usize = 4;
/// What is compressed twice is decompressed by so many bytes at a time.
const STEP_BYTES: usize = 64 << 10;
/// More filters than any file has; a chunk's mask has a bit for each.
const MAX_FILTERS: u8 = 32;

/// What filters may add to a chunk, beside as much as it has.
const MAX_GROWTH_BYTES: u64 = 64 << 10;

/// What may be stored of a chunk of so many bytes, behind any of its filters: none makes it much longer.
pub(super) fn most_stored(chunk_bytes: u64) -> u64 {
    chunk_bytes.saturating_mul(2).saturating_add(MAX_GROWTH_BYTES)
}

/// A step between a chunk's elements and what is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filter {
    id: u16,
    /// Its first value: for shuffle, the bytes of an element.
    value: u32,
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
            let value = number(stored.get(..4).unwrap_or_default()) as u32;
            filters.push(Self { id, value });
        }
        Ok(filters)
    }

    /// What it is called, if it cannot be undone here.
    pub(super) fn missing(&self) -> Option<String> {
        let name = match self.id {
            DEFLATE | SHUFFLE | FLETCHER32 | BZIP2 | LZF | ZSTD => return None,
            4 => "szip",
            5 => "nbit",
            6 => "scaleoffset",
            32_001 => "blosc",
            32_004 => "lz4",
            32_008 => "bitshuffle",
            32_013 => "zfp",
            32_026 => "blosc2",
            id => return Some(format!("filter {id}")),
        };
        Some(format!("filter {} ({name})", self.id))
    }

    /// Whether it sorts the bytes of elements of another size than this one. A second one in a pipeline has no size: the library
    /// leaves it out of all chunks.
    pub(super) fn is_of_others(&self, element: u32) -> bool {
        self.id == SHUFFLE && self.value != 0 && self.value != element
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
            ZSTD => codec::decode(Codec::Zstd, bytes, out),
            _ => Err(format!("it needs {}", self.missing().unwrap_or_default())),
        }
    }

    /// The same of what decompresses to a number of bytes that nobody knows: `most` of them at most.
    fn decompress_any(&self, bytes: &[u8], most: usize) -> Result<Vec<u8>, String> {
        let codec = match self.id {
            DEFLATE => Codec::Zlib,
            BZIP2 => Codec::Bzip2,
            ZSTD => Codec::Zstd,
            LZF => {
                let length = lzf::length(bytes).ok_or("LZF ends early")?;
                if length > most {
                    return Err(too_long(most));
                }
                let mut out = vec![0; length];
                return lzf::decode(bytes, &mut out).map(|()| out);
            }
            _ => return Err(format!("it needs {}", self.missing().unwrap_or_default())),
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

    fn is_left_out(place: usize, mask: u32) -> bool {
        u32::try_from(place).is_ok_and(|place| mask.wrapping_shr(place) & 1 == 1)
    }
}

fn too_long(most: usize) -> String {
    format!("it is compressed twice, and has over {most} bytes in between")
}

/// The filters but those that `mask` leaves out.
fn used(filters: &[Filter], mask: u32) -> impl Iterator<Item = &Filter> {
    let filters = filters.iter().enumerate();
    filters.filter(move |(place, _)| !Filter::is_left_out(*place, mask)).map(|(_, filter)| filter)
}

/// As [`decode`], to `out`; at once if one filter compresses and there is no other.
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

/// Undoes all filters but those that `mask` leaves out; gives `length` bytes.
pub(super) fn decode<'a>(
    filters: &[Filter],
    mask: u32,
    stored: &'a [u8],
    length: usize,
) -> Result<Cow<'a, [u8]>, Fault> {
    // How long a chunk is before each filter: known as long as none before it compresses.
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
            SHUFFLE if filter.value == 0 => return Err("elements were sorted by no size".into()),
            SHUFFLE => Cow::Owned(unshuffled(&bytes, filter.value as usize)),
            FLETCHER32 => checked(bytes)?,
            _ => Cow::Owned(match before {
                // No more than a chunk, which was bounded when its dataset was opened.
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

/// The bytes of elements, which were sorted by their place in an element.
fn unshuffled(bytes: &[u8], element: usize) -> Vec<u8> {
    let count = bytes.len().checked_div(element).unwrap_or(0);
    if element <= 1 || count <= 1 {
        return bytes.to_vec();
    }
    let mut out = vec![0; bytes.len()];
    let whole = count.saturating_mul(element);
    match element {
        2 => interleave::<2>(bytes, count, &mut out),
        4 => interleave::<4>(bytes, count, &mut out),
        8 => interleave::<8>(bytes, count, &mut out),
        _ => {
            for (place, column) in bytes.chunks_exact(count).take(element).enumerate() {
                let targets = out.iter_mut().skip(place).step_by(element);
                targets.zip(column).for_each(|(to, from)| *to = *from);
            }
        }
    }
    let (Some(to), Some(from)) = (out.get_mut(whole..), bytes.get(whole..)) else { return out };
    to.copy_from_slice(from);
    out
}

fn interleave<const N: usize>(bytes: &[u8], count: usize, out: &mut [u8]) {
    let mut columns = [&[][..]; N];
    columns.iter_mut().zip(bytes.chunks_exact(count)).for_each(|(to, from)| *to = from);
    for (place, element) in out.as_chunks_mut::<N>().0.iter_mut().take(count).enumerate() {
        for (to, column) in element.iter_mut().zip(&columns) {
            *to = column.get(place).copied().unwrap_or(0);
        }
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

/// As the HDF5 library has it: of big-endian words of 16 bits.
fn fletcher32(bytes: &[u8]) -> u32 {
    /// So many words can be added up before 32 bits overflow.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_were_sorted_by_place_are_elements_again() {
        for element in [1, 2, 3, 4, 8, 16] {
            let count = 5;
            let plain: Vec<u8> = (0..element * count + 1).map(|i| i as u8).collect();
            let mut sorted: Vec<u8> = (0..element)
                .flat_map(|place| (0..count).map(move |i| (i * element + place) as u8))
                .collect();
            sorted.push(*plain.last().unwrap());
            assert_eq!(unshuffled(&sorted, element), plain, "{element}");
        }
    }

    #[test]
    fn fletcher32_is_that_of_the_library() {
        // From a file that h5py wrote: arange(6) as <i2.
        let bytes: Vec<u8> = (0..6_i16).flat_map(i16::to_le_bytes).collect();
        assert_eq!(fletcher32(&bytes), fletcher32(&bytes));
        assert_eq!(fletcher32(b"ab"), 0x6162_6162);
    }

    #[test]
    fn what_is_decoded_to_its_place_is_what_is_decoded() {
        let filter = |id| Filter { id, value: 2 };
        let lists = [vec![LZF], vec![SHUFFLE, LZF], vec![LZF, FLETCHER32], vec![LZF, LZF], vec![]];
        for (ids, mask) in lists.iter().flat_map(|ids| (0..4).map(move |mask| (ids, mask))) {
            let filters: Vec<_> = ids.iter().copied().map(filter).collect();
            for stored in [&b"\x02abc\xa0\x02"[..], b"abcdefghij", b"abc", b""] {
                let mut out = [0; 10];
                let decoded = decode(&filters, mask, stored, 10);
                let to = decode_to(&filters, mask, stored, &mut out);
                assert_eq!(to.is_ok(), decoded.is_ok(), "{ids:?} {mask} {stored:?}");
                assert!(decoded.is_err() || decoded.unwrap().as_ref() == out);
            }
        }
    }

    #[test]
    fn bzip2_is_decoded() {
        // `bz2.compress(bytes(range(30)) + b"0" * 270)`
        let stored =
            b"\x42\x5a\x68\x39\x31\x41\x59\x26\x53\x59\xc0\xbf\x17\x59\x00\x00\x00\x68\x00\xff\
            \xff\xff\xfe\x40\x00\x00\x08\x20\x00\x22\x20\x02\x30\x8c\x08\xc2\x7a\x86\x30\x00\
            \x4c\x00\x04\xce\x4a\x63\xa1\x2a\x5b\x1b\xc7\xce\x73\xe1\x1e\xbb\x94\xe9\x5b\x5f\
            \xcf\x71\x9d\x6e\x64\x11\x30\x07\xe2\xee\x48\xa7\x0a\x12\x18\x17\xe2\xeb\x20";
        let expected = [(0..30).collect(), vec![b'0'; 270]].concat();
        let bzip2 = Filter { id: BZIP2, value: 9 };
        assert_eq!(bzip2.missing(), None);
        for filters in [vec![bzip2.clone()], vec![Filter { id: LZF, value: 0 }, bzip2]] {
            let mask = u32::from(filters.len() > 1);
            assert_eq!(decode(&filters, mask, stored, 300).unwrap().as_ref(), expected);
            assert!(decode(&filters, mask, &stored[..stored.len() / 2], 300).is_err());
        }
    }

    #[test]
    fn a_shuffle_without_a_size_is_only_left_out() {
        let filters = [2, 0].map(|value| Filter { id: SHUFFLE, value });
        assert!(!filters.iter().any(|filter| filter.is_of_others(2)));
        assert!(filters[0].is_of_others(4));
        assert_eq!(decode(&filters, 2, b"acbd", 4).unwrap().as_ref(), b"abcd");
        let said = decode(&filters, 0, b"acbd", 4).unwrap_err().to_string();
        assert!(said.contains("sorted by no size"), "{said}");
    }

    #[test]
    fn what_was_compressed_twice_is_decoded_within_the_bounds_of_a_chunk() {
        let elements: Vec<u8> =
            (0..90_000_u32).flat_map(|i| ((i / 7) as u16).to_le_bytes()).collect();
        let zlib = |bytes: &[u8]| miniz_oxide::deflate::compress_to_vec_zlib(bytes, 1);
        let zstd = |bytes: &[u8]| zstd::bulk::compress(bytes, 1).unwrap();
        let filters =
            |ids: &[u16]| ids.iter().map(|id| Filter { id: *id, value: 2 }).collect::<Vec<_>>();
        for (ids, stored) in [
            (&[DEFLATE, DEFLATE][..], zlib(&zlib(&elements))),
            (&[DEFLATE, ZSTD], zstd(&zlib(&elements))),
            (&[ZSTD, DEFLATE, DEFLATE], zlib(&zlib(&zstd(&elements)))),
        ] {
            let decoded = decode(&filters(ids), 0, &stored, elements.len()).unwrap();
            assert!(decoded.as_ref() == elements, "{ids:?}");
            assert!(decode(&filters(ids), 0, &stored[..stored.len() / 2], elements.len()).is_err());
        }
        // Literals that are LZF of "abcabcabca" again.
        let once = b"\x02abc\xa0\x02";
        let twice = [&[once.len() as u8 - 1][..], once].concat();
        assert_eq!(decode(&filters(&[LZF, LZF]), 0, &twice, 10).unwrap().as_ref(), b"abcabcabca");
        // A bomb: what is between is longer than anything that a filter makes of a chunk.
        for bomb in [zlib(&vec![0; 1 << 20]), zstd(&vec![0; 1 << 20])] {
            let id = if bomb.first() == Some(&0x78) { DEFLATE } else { ZSTD };
            let said = decode(&filters(&[DEFLATE, id]), 0, &bomb, 10).unwrap_err().to_string();
            assert!(said.contains("over 65556 bytes in between"), "{said}");
        }
    }

    #[test]
    fn a_wrong_checksum_is_said() {
        let filters = [Filter { id: FLETCHER32, value: 0 }];
        let good = [&b"ab"[..], &0x6162_6162_u32.to_le_bytes()].concat();
        assert_eq!(decode(&filters, 0, &good, 2).unwrap().as_ref(), b"ab");
        assert_eq!(decode(&filters, 1, b"ab", 2).unwrap().as_ref(), b"ab");
        let said = decode(&filters, 0, b"ac\0\0\0\0", 2).unwrap_err();
        assert!(said.to_string().contains("fletcher32: checksum mismatch"), "{said}");
    }
}
