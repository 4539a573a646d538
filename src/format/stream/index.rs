//! The index of a compressed stream, and its form on disk:
//!
//! ```text
//! "FFRSTRM\0" | u32 version | u32 codec | u64 stored | u64 decoded | u64 intervals | u64 bytes of states
//! intervals × { u64 stored offset | u64 decoded offset | u32 CRC-32 | u32 bytes of state }
//! states | u32 CRC-32 of all before it                                             little-endian
//! ```

use crate::format::bytes::{u32_at, u64_at};
use crate::format::codec::{Codec, decode_part};
use crate::format::counted;
use crate::format::{Checkpoint, Fault, MemorySource, Source, Table};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::{fmt, io};

/// The least distance between checkpoints, unless the caller gives another one, in decoded bytes.
pub const INTERVAL_BYTES: u64 = 4 << 20;
/// The largest distance between checkpoints: one interval is decoded, and kept, to read any byte of it.
pub const MAX_INTERVAL_BYTES: u64 = 64 << 20;
/// The most stored bytes of an interval, all of which are read at once. No encoder makes bytes twice as long; skippable
/// frames and empty blocks, which decode to nothing, may have any length.
pub const MAX_STORED_BYTES: u64 = 2 * MAX_INTERVAL_BYTES;

const MAGIC: [u8; 8] = *b"FFRSTRM\0";
const VERSION: u32 = 2;
/// The bit beside the number of the codec that says that the stream is cut.
const CUT: u32 = 1 << 31;
const HEAD_BYTES: usize = 48;
const ROW_BYTES: usize = 24;
const CRC_BYTES: u64 = 4;
/// Bytes of the states that are read at a time to check them.
const CHUNK_BYTES: usize = 1 << 20;
const CODECS: [Codec; 4] = [Codec::Gzip, Codec::Bzip2, Codec::Xz, Codec::Zstd];
const OTHER_CODECS: [Codec; 5] =
    [Codec::Deflate, Codec::Deflate64, Codec::Lzma, Codec::Ppmd, Codec::Zlib];

/// The intervals of a stream, with the checkpoints that they begin at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamIndex {
    pub(super) codec: Codec,
    pub(super) stored_bytes: u64,
    pub(super) decoded_bytes: u64,
    pub(super) is_cut: bool,
    pub(super) rows: Vec<Row>,
    pub(super) states: Vec<u8>,
    /// The states of a kept index, which stay in its file; `states` is then empty.
    mapped: Option<Mapped>,
}

/// States in a file.
#[derive(Clone)]
struct Mapped {
    table: Arc<dyn Table>,
    length: usize,
}

impl fmt::Debug for Mapped {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", counted(self.length, "byte"))
    }
}

impl PartialEq for Mapped {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.table, &other.table)
    }
}

impl Eq for Mapped {}

/// One interval, which ends where the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Row {
    pub(super) stored: u64,
    pub(super) decoded: u64,
    pub(super) crc32: u32,
    /// The end of its checkpoint's state among all states.
    pub(super) state_end: usize,
}

/// A part of a stream that is decoded on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    /// Its number, from 0.
    pub number: u64,
    /// The range of its stored bytes in the stream.
    pub stored: Range<u64>,
    /// The range of its decoded bytes in the decoded stream.
    pub decoded: Range<u64>,
    /// CRC-32 (zlib's) of the decoded bytes.
    pub crc32: u32,
}

/// The place of an interval among those that follow each other if samples are read in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// Decoded bytes of all intervals before it: as the start of its decoded range, but without gaps.
    pub start: u64,
    /// The number of the last interval that follows; so do all intervals with numbers in between.
    pub last: u64,
}

/// Bytes that are decoded interval by interval: a compressed stream, or the chunks of a container.
pub trait Intervals: Send + Sync {
    /// The interval that the byte at `decoded_offset` lies in.
    fn interval(&self, decoded_offset: u64) -> Option<Interval>;

    /// The interval of that number.
    fn nth(&self, number: u64) -> Option<Interval>;

    /// The place of the interval of that number where samples are read in order; `None` if no order is known.
    fn order(&self, number: u64) -> Option<Order>;

    /// Decodes an interval from all of its stored bytes; fills `out`, which is as long as its decoded range, and compares
    /// the checksum, if the interval has one.
    ///
    /// # Errors
    /// There is no such interval, the lengths are wrong, the bytes are not an encoding, or do not match a checksum.
    fn decode(&self, number: u64, stored: &[u8], out: &mut [u8]) -> Result<(), Fault>;
}

impl Intervals for StreamIndex {
    fn interval(&self, decoded_offset: u64) -> Option<Interval> {
        Self::interval(self, decoded_offset)
    }

    fn nth(&self, number: u64) -> Option<Interval> {
        Self::nth(self, number)
    }

    fn order(&self, number: u64) -> Option<Order> {
        let start = self.rows.get(usize::try_from(number).ok()?)?.decoded;
        Some(Order { start, last: self.len().saturating_sub(1) })
    }

    fn decode(&self, number: u64, stored: &[u8], out: &mut [u8]) -> Result<(), Fault> {
        Ok(Self::decode(self, number, stored, out)?)
    }
}

impl StreamIndex {
    /// The index of an empty stream.
    pub(super) fn new(codec: Codec) -> Self {
        Self {
            codec,
            stored_bytes: 0,
            decoded_bytes: 0,
            is_cut: false,
            rows: Vec::new(),
            states: Vec::new(),
            mapped: None,
        }
    }

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

    /// Length of the stream as stored. Bytes of the file behind it do not belong to the stream.
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

    /// Whether there is no interval: the stream decodes to no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Memory that the index takes, in bytes.
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
    /// There is no such interval, the lengths are wrong, or the bytes have changed.
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
            state: state.into_owned().into(),
        });
        let next = number.checked_add(1).and_then(|next| self.state(next));
        decode_part(self.codec, from.as_ref(), next.as_deref(), stored, out)?;
        match crc32fast::hash(out) == interval.crc32 {
            true => Ok(()),
            false => Err(format!("interval {number} does not match its checksum")),
        }
    }

    pub(super) fn state(&self, number: u64) -> Option<Cow<'_, [u8]>> {
        let at = usize::try_from(number).ok()?;
        let row = self.rows.get(at)?;
        let before = at.checked_sub(1).and_then(|before| self.rows.get(before));
        self.states_at(before.map_or(0, |row| row.state_end)..row.state_end)
    }

    /// The states in `range`. `None` if they are not there, or their file cannot be read any more.
    fn states_at(&self, range: Range<usize>) -> Option<Cow<'_, [u8]>> {
        let Some(Mapped { table, length }) = &self.mapped else {
            return self.states.get(range).map(Cow::Borrowed);
        };
        if range.end > *length {
            return None;
        }
        let mut bytes = vec![0; range.end.checked_sub(range.start)?];
        table.copy_to(range.start as u64, &mut bytes).ok()?;
        Some(bytes.into())
    }

    fn states_length(&self) -> usize {
        self.mapped.as_ref().map_or(self.states.len(), |mapped| mapped.length)
    }

    /// The index as bytes, to be kept.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let number = codecs().position(|codec| codec == self.codec).unwrap_or(0) as u32;
        out.extend_from_slice(&VERSION.to_le_bytes());
        let cut = if self.is_cut { CUT } else { 0 };
        out.extend_from_slice(&(number | cut).to_le_bytes());
        let states = self.states_at(0..self.states_length()).unwrap_or_default();
        let counts = [self.rows.len() as u64, states.len() as u64];
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
        out.extend_from_slice(&states);
        let crc32 = crc32fast::hash(&out);
        out.extend_from_slice(&crc32.to_le_bytes());
        out
    }

    /// Reads an index that [`StreamIndex::write`] wrote. `None` if `bytes` are no such index, or one of another version.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let source = MemorySource::new("an index in memory", bytes.to_vec());
        let mut index = Self::read_kept(&source, 0..bytes.len() as u64).ok()??;
        index.states = index.states_at(0..index.states_length())?.into_owned();
        index.mapped = None;
        Some(index)
    }

    /// As [`StreamIndex::read`], for an index in a range of a file, where the states stay. No more bytes than `range` has
    /// are read.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read_kept(source: &dyn Source, range: Range<u64>) -> io::Result<Option<Self>> {
        let mut head = [0; HEAD_BYTES];
        let length = range.end.saturating_sub(range.start);
        if length < (HEAD_BYTES as u64).saturating_add(CRC_BYTES) {
            return Ok(None);
        }
        source.read_exact_at(&mut head, range.start)?;
        let Some((mut index, row_bytes, state_bytes)) = Self::from_head(&head) else {
            return Ok(None);
        };
        let lengths = [HEAD_BYTES as u64, row_bytes, state_bytes, CRC_BYTES];
        if lengths.iter().try_fold(0_u64, |sum, &next| sum.checked_add(next)) != Some(length) {
            return Ok(None);
        }
        let rows_at = range.start.saturating_add(HEAD_BYTES as u64);
        let mut rows = vec![0; usize::try_from(row_bytes).unwrap_or(0)];
        source.read_exact_at(&mut rows, rows_at)?;
        let mut crc32 = crc32fast::Hasher::new();
        crc32.update(&head);
        crc32.update(&rows);
        let (states_at, mut at) = (rows_at.saturating_add(row_bytes), 0);
        let mut chunk = vec![0; CHUNK_BYTES.min(usize::try_from(state_bytes).unwrap_or(0))];
        while at < state_bytes {
            let left = usize::try_from(state_bytes.saturating_sub(at)).unwrap_or(usize::MAX);
            let Some(next) = chunk.get_mut(..left.min(CHUNK_BYTES)) else { return Ok(None) };
            source.read_exact_at(next, states_at.saturating_add(at))?;
            crc32.update(next);
            at = at.saturating_add(next.len() as u64);
        }
        let mut stored = [0; CRC_BYTES as usize];
        source.read_exact_at(&mut stored, states_at.saturating_add(state_bytes))?;
        let (Some(rows), Ok(length)) = (read_rows(&rows), usize::try_from(state_bytes)) else {
            return Ok(None);
        };
        index.rows = rows;
        index.mapped = Some(Mapped { table: source.table(states_at, state_bytes)?.into(), length });
        let is_right = u32::from_le_bytes(stored) == crc32.finalize() && index.is_in_order();
        Ok(is_right.then_some(index))
    }

    /// An index without its rows and states, and the bytes of the rows and of the states.
    fn from_head(head: &[u8]) -> Option<(Self, u64, u64)> {
        if !head.starts_with(&MAGIC) || u32_at(head, 8)? != VERSION {
            return None;
        }
        let number = u32_at(head, 12)?;
        let index = Self {
            stored_bytes: u64_at(head, 16)?,
            decoded_bytes: u64_at(head, 24)?,
            is_cut: number & CUT != 0,
            ..Self::new(codecs().nth(usize::try_from(number & !CUT).ok()?)?)
        };
        Some((index, u64_at(head, 32)?.checked_mul(ROW_BYTES as u64)?, u64_at(head, 40)?))
    }

    /// Whether the intervals are in order and no longer than they may be, so that no range ends before it begins.
    fn is_in_order(&self) -> bool {
        let ends = Row {
            stored: self.stored_bytes,
            decoded: self.decoded_bytes,
            crc32: 0,
            state_end: self.states_length(),
        };
        let starts = self.rows.first().is_none_or(|row| row.stored == 0 && row.decoded == 0);
        let next = self.rows.iter().skip(1).chain(std::iter::once(&ends));
        starts
            && self.rows.is_empty() == (self.decoded_bytes == 0)
            && self.rows.iter().zip(next).all(|(row, next)| {
                let length = next.decoded.checked_sub(row.decoded);
                let stored = next.stored.checked_sub(row.stored);
                stored.is_some_and(|stored| stored <= MAX_STORED_BYTES)
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
