//! The index of a compressed stream, and how it is kept:
//!
//! ```text
//! "FFRSTRM\0" | u32 version | u32 codec | u64 stored | u64 decoded | u64 intervals | u64 bytes of states
//! intervals × { u64 stored offset | u64 decoded offset | u32 CRC-32 | u32 bytes of state }
//! states | u32 CRC-32 of all before it                                             little-endian
//! ```

use crate::format::Checkpoint;
use crate::format::bytes::{u32_at, u64_at};
use crate::format::codec::{Codec, decode_part};
use std::ops::Range;

/// How far apart checkpoints are at least, unless the caller says otherwise, in decoded bytes.
pub const INTERVAL_BYTES: u64 = 4 << 20;
/// How far apart they may be: one interval is decoded, and kept, to read any byte of it.
pub const MAX_INTERVAL_BYTES: u64 = 64 << 20;

const MAGIC: [u8; 8] = *b"FFRSTRM\0";
const VERSION: u32 = 2;
/// Beside the number of the codec: the stream is cut.
const CUT: u32 = 1 << 31;
const HEAD_BYTES: usize = 48;
const ROW_BYTES: usize = 24;
const CODECS: [Codec; 4] = [Codec::Gzip, Codec::Bzip2, Codec::Xz, Codec::Zstd];
const OTHER_CODECS: [Codec; 4] = [Codec::Deflate, Codec::Deflate64, Codec::Lzma, Codec::Ppmd];

/// Where a stream can be decoded from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamIndex {
    pub(super) codec: Codec,
    pub(super) stored_bytes: u64,
    pub(super) decoded_bytes: u64,
    pub(super) is_cut: bool,
    pub(super) rows: Vec<Row>,
    pub(super) states: Vec<u8>,
}

/// One interval. Its end is where the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Row {
    pub(super) stored: u64,
    pub(super) decoded: u64,
    pub(super) crc32: u32,
    /// Where its state ends.
    pub(super) state_end: usize,
}

/// A part of a stream that is decoded at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    /// Its number, from 0.
    pub number: u64,
    /// The stored bytes that it is decoded from, in the stream.
    pub stored: Range<u64>,
    /// The bytes that it is, in the decoded stream.
    pub decoded: Range<u64>,
    /// CRC-32 (zlib's) of the decoded bytes.
    pub crc32: u32,
}

impl StreamIndex {
    /// The codec.
    #[must_use]
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Whether the stream ended early.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Length of the stream as stored. What the file has behind that is none of it.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Length of the stream, decoded.
    #[must_use]
    pub fn decoded_bytes(&self) -> u64 {
        self.decoded_bytes
    }

    /// The number of intervals.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Whether there is no interval: the stream is one of no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// What the index takes in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let rows = self.rows.capacity().saturating_mul(size_of::<Row>());
        rows.saturating_add(self.states.capacity()).saturating_add(size_of::<Self>()) as u64
    }

    /// The interval that the byte at `decoded_offset` lies in.
    #[must_use]
    pub fn interval(&self, decoded_offset: u64) -> Option<Interval> {
        if decoded_offset >= self.decoded_bytes {
            return None;
        }
        let behind = self.rows.partition_point(|row| row.decoded <= decoded_offset);
        self.nth(behind.checked_sub(1)? as u64)
    }

    /// The interval of that number.
    #[must_use]
    pub fn nth(&self, number: u64) -> Option<Interval> {
        let at = usize::try_from(number).ok()?;
        let row = self.rows.get(at)?;
        let next = self.rows.get(at.checked_add(1)?);
        let (stored, decoded) = next
            .map_or((self.stored_bytes, self.decoded_bytes), |next| (next.stored, next.decoded));
        Some(Interval {
            number,
            stored: row.stored..stored,
            decoded: row.decoded..decoded,
            crc32: row.crc32,
        })
    }

    /// Decodes an interval from all of its stored bytes; fills `out`, which is as long as its decoded range,
    /// and checks its CRC-32.
    ///
    /// # Errors
    /// There is no such interval, the lengths are wrong, or the bytes are not what they were.
    pub fn decode(&self, number: u64, stored: &[u8], out: &mut [u8]) -> Result<(), String> {
        let interval = self.nth(number).ok_or_else(|| format!("there is no interval {number}"))?;
        let length = |range: &Range<u64>| range.end.saturating_sub(range.start);
        if length(&interval.stored) != stored.len() as u64
            || length(&interval.decoded) != out.len() as u64
        {
            return Err(format!("interval {number} has other lengths"));
        }
        let from = self.state(number).filter(|_| number > 0).map(|state| Checkpoint {
            stored_bytes: interval.stored.start,
            decoded_bytes: interval.decoded.start,
            state: state.into(),
        });
        let next = number.checked_add(1).and_then(|next| self.state(next));
        decode_part(self.codec, from.as_ref(), next, stored, out)?;
        match crc32fast::hash(out) == interval.crc32 {
            true => Ok(()),
            false => Err(format!("interval {number} does not match its checksum")),
        }
    }

    pub(super) fn state(&self, number: u64) -> Option<&[u8]> {
        let at = usize::try_from(number).ok()?;
        let row = self.rows.get(at)?;
        let before = at.checked_sub(1).and_then(|before| self.rows.get(before));
        self.states.get(before.map_or(0, |row| row.state_end)..row.state_end)
    }

    /// The index as bytes, to be kept.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let number = codecs().position(|codec| codec == self.codec).unwrap_or(0) as u32;
        out.extend_from_slice(&VERSION.to_le_bytes());
        let cut = if self.is_cut { CUT } else { 0 };
        out.extend_from_slice(&(number | cut).to_le_bytes());
        let counts = [self.rows.len() as u64, self.states.len() as u64];
        for value in [self.stored_bytes, self.decoded_bytes].into_iter().chain(counts) {
            out.extend_from_slice(&value.to_le_bytes());
        }
        let mut before = 0;
        for row in &self.rows {
            out.extend_from_slice(&row.stored.to_le_bytes());
            out.extend_from_slice(&row.decoded.to_le_bytes());
            out.extend_from_slice(&row.crc32.to_le_bytes());
            out.extend_from_slice(&(row.state_end.saturating_sub(before) as u32).to_le_bytes());
            before = row.state_end;
        }
        out.extend_from_slice(&self.states);
        let crc32 = crc32fast::hash(&out);
        out.extend_from_slice(&crc32.to_le_bytes());
        out
    }

    /// Reads what [`StreamIndex::write`] wrote. `None`: these bytes are not that, or of another version.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (bytes, crc32) = bytes.split_last_chunk()?;
        if crc32fast::hash(bytes) != u32::from_le_bytes(*crc32) || !bytes.starts_with(&MAGIC) {
            return None;
        }
        let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
        if u32_at(head, 8)? != VERSION {
            return None;
        }
        let number = u32_at(head, 12)?;
        let codec = codecs().nth(usize::try_from(number & !CUT).ok()?)?;
        let row_count = usize::try_from(u64_at(head, 32)?).ok()?;
        let (rows, states) = rest.split_at_checked(row_count.checked_mul(ROW_BYTES)?)?;
        let index = Self {
            codec,
            stored_bytes: u64_at(head, 16)?,
            decoded_bytes: u64_at(head, 24)?,
            is_cut: number & CUT != 0,
            rows: read_rows(rows)?,
            states: states.to_vec(),
        };
        (states.len() as u64 == u64_at(head, 40)? && index.is_in_order()).then_some(index)
    }

    /// Every interval begins where it may, so that all ranges are ranges.
    fn is_in_order(&self) -> bool {
        let ends = Row {
            stored: self.stored_bytes,
            decoded: self.decoded_bytes,
            crc32: 0,
            state_end: self.states.len(),
        };
        let starts = self.rows.first().is_none_or(|row| row.stored == 0 && row.decoded == 0);
        let next = self.rows.iter().skip(1).chain(std::iter::once(&ends));
        starts
            && self.rows.is_empty() == (self.decoded_bytes == 0)
            && self.rows.iter().zip(next).all(|(row, next)| {
                let length = next.decoded.checked_sub(row.decoded);
                row.stored <= next.stored
                    && length.is_some_and(|length| (1..=MAX_INTERVAL_BYTES).contains(&length))
                    && row.state_end <= next.state_end
            })
    }
}

fn read_rows(bytes: &[u8]) -> Option<Vec<Row>> {
    let mut state_end = 0_usize;
    bytes
        .chunks_exact(ROW_BYTES)
        .map(|row| {
            state_end = state_end.checked_add(usize::try_from(u32_at(row, 20)?).ok()?)?;
            let (stored, decoded) = (u64_at(row, 0)?, u64_at(row, 8)?);
            Some(Row { stored, decoded, crc32: u32_at(row, 16)?, state_end })
        })
        .collect()
}

fn codecs() -> impl Iterator<Item = Codec> {
    CODECS.into_iter().chain(OTHER_CODECS)
}
