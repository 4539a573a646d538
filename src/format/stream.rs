//! Random access to a compressed stream: an index of places to decode from, made in one pass over it.
//!
//! The index of a stream cuts it in intervals: decoding one needs its stored bytes and what the index keeps
//! (for deflate the window before it, compressed). Kept on disk:
//!
//! ```text
//! "FFRSTRM\0" | u32 version | u32 codec | u64 stored | u64 decoded | u64 intervals | u64 bytes of states
//! intervals × { u64 stored offset | u64 decoded offset | u32 CRC-32 | u32 bytes of state }
//! states | u32 CRC-32 of all before it                                             little-endian
//! ```

use super::bytes::{u32_at, u64_at};
use super::codec::{Codec, ENDS_EARLY, decode_part, decoder};
use super::{Error, Progress, Restart, Result, Source};
use std::ops::Range;

/// How far apart restart points are at least, unless the caller says otherwise, in decoded bytes.
pub const INTERVAL_BYTES: u64 = 4 << 20;
/// How far apart they may be: one interval is decoded, and kept, to read any byte of it.
pub const MAX_INTERVAL_BYTES: u64 = 64 << 20;
/// How much a byte may become: no deflate stream exceeds 1032, so what every tool reads passes, and a bzip2
/// or zstd bomb (up to 1,000,000) does not.
pub const MAX_RATIO: u64 = 1100;
/// What a stream may become whatever its ratio: sparse images of disks are legal.
pub const FREE_BYTES: u64 = 1 << 30;
/// What a stream may become at all. At a gigabyte a second it would take five hours to index.
pub const MAX_DECODED_BYTES: u64 = 16 << 40;

const CUT_HINT: &str =
    ": the file is truncated (of an archive, --allow-damaged serves the members that are whole)";
const PIECE_BYTES: usize = 256 << 10;
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
    codec: Codec,
    stored_bytes: u64,
    decoded_bytes: u64,
    is_cut: bool,
    rows: Vec<Row>,
    states: Vec<u8>,
}

/// One interval. Its end is where the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Row {
    stored: u64,
    decoded: u64,
    crc32: u32,
    /// Where its state ends.
    state_end: usize,
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
    /// Decodes all of `source` once, in bounded memory, and verifies the format's own checksums. Every
    /// decoded byte is given to `on_bytes`, with its offset, in order; an error of it ends the pass.
    ///
    /// # Errors
    /// The source cannot be read, is no such stream, is damaged, or has too few restart points.
    pub fn build(
        source: &dyn Source,
        codec: Codec,
        interval_bytes: u64,
        on_bytes: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<Self> {
        Pass::new(source, codec, interval_bytes)?.run(on_bytes)
    }

    /// As [`StreamIndex::build`], but a stream that ends early, as a truncated file's, has the bytes up to
    /// there: [`StreamIndex::is_cut`].
    ///
    /// # Errors
    /// As [`StreamIndex::build`].
    pub fn build_cut(
        source: &dyn Source,
        codec: Codec,
        interval_bytes: u64,
        on_bytes: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<Self> {
        let mut pass = Pass::new(source, codec, interval_bytes)?;
        pass.may_be_cut = true;
        pass.run(on_bytes)
    }

    /// Decodes all of `source` as [`StreamIndex::build`] does, but needs no restart points, and keeps none.
    ///
    /// # Errors
    /// The source cannot be read, is no such stream, or is damaged; or what `on_bytes` says.
    pub fn decode_all(
        source: &dyn Source,
        codec: Codec,
        on_bytes: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut pass = Pass::new(source, codec, MAX_INTERVAL_BYTES)?;
        pass.needs_restarts = false;
        pass.run(on_bytes).map(drop)
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
        let from = self.state(number).filter(|_| number > 0).map(|state| Restart {
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

    fn state(&self, number: u64) -> Option<&[u8]> {
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

/// The pass that makes an index.
struct Pass<'a> {
    source: &'a dyn Source,
    decoder: Box<dyn super::Decoder>,
    interval_bytes: u64,
    index: StreamIndex,
    /// What was read and not taken yet.
    input: Vec<u8>,
    input_at: usize,
    read_bytes: u64,
    crc: crc32fast::Hasher,
    needs_restarts: bool,
    may_be_cut: bool,
}

impl<'a> Pass<'a> {
    fn new(source: &'a dyn Source, codec: Codec, interval_bytes: u64) -> Result<Self> {
        let decoder = decoder(codec, None).map_err(|why| refused(source, codec, 0, why, ""))?;
        let Some(decoder) = decoder else {
            return Err(no_restarts(source, codec, 0, "none".into()));
        };
        let index = StreamIndex {
            codec,
            stored_bytes: 0,
            decoded_bytes: 0,
            is_cut: false,
            rows: Vec::new(),
            states: Vec::new(),
        };
        let interval_bytes = interval_bytes.clamp(1, MAX_INTERVAL_BYTES);
        let (input, crc) = (Vec::new(), crc32fast::Hasher::new());
        Ok(Self {
            source,
            decoder,
            interval_bytes,
            index,
            input,
            input_at: 0,
            read_bytes: 0,
            crc,
            needs_restarts: true,
            may_be_cut: false,
        })
    }

    fn run(mut self, on_bytes: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<StreamIndex> {
        let mut output = vec![0; PIECE_BYTES];
        loop {
            self.refill()?;
            let input = self.input.get(self.input_at..).unwrap_or_default();
            let is_last = self.read_bytes == self.source.len();
            let step = match self.decoder.decode(input, &mut output, is_last) {
                Ok(step) => step,
                Err(why) if why == ENDS_EARLY && self.may_be_cut => {
                    self.index.is_cut = true;
                    return Ok(self.finish());
                }
                Err(why) if why == ENDS_EARLY => return Err(self.refuse(why, CUT_HINT)),
                Err(why) => return Err(self.refuse(why, "")),
            };
            if step == Progress::default() {
                return Err(self.refuse("a decoder that cannot go on".into(), ""));
            }
            self.input_at = self.input_at.saturating_add(step.taken);
            self.index.stored_bytes = self.index.stored_bytes.saturating_add(step.taken as u64);
            self.take(output.get(..step.given).unwrap_or_default(), on_bytes)?;
            if step.is_end {
                return Ok(self.finish());
            }
            self.mark()?;
        }
    }

    fn finish(mut self) -> StreamIndex {
        self.end_interval();
        self.index.rows.shrink_to_fit();
        self.index.states.shrink_to_fit();
        self.index
    }

    /// Reads on when all was taken: decoders take all that they are given, or stop where they may restart.
    fn refill(&mut self) -> Result<()> {
        if self.input_at < self.input.len() {
            return Ok(());
        }
        let left = self.source.len().saturating_sub(self.read_bytes);
        let length = usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        self.input.resize(length, 0);
        self.input_at = 0;
        let offset_bytes = self.read_bytes;
        self.source.read_exact_at(&mut self.input, offset_bytes).map_err(|e| {
            let part = self.source.name().clone();
            Error::Unreadable { part, what: "the compressed stream", offset_bytes, source: e }
        })?;
        self.read_bytes = offset_bytes.saturating_add(length as u64);
        Ok(())
    }

    fn take(
        &mut self,
        given: &[u8],
        on_bytes: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if given.is_empty() {
            return Ok(());
        }
        if self.index.rows.is_empty() {
            self.index.rows.push(Row::default());
        }
        self.crc.update(given);
        on_bytes(self.index.decoded_bytes, given)?;
        self.index.decoded_bytes = self.index.decoded_bytes.saturating_add(given.len() as u64);
        self.check_size()
    }

    fn check_size(&self) -> Result<()> {
        let decoded = self.index.decoded_bytes;
        let fair = self.index.stored_bytes.saturating_mul(MAX_RATIO).saturating_add(FREE_BYTES);
        if decoded > fair.min(MAX_DECODED_BYTES) {
            let found = format!("{decoded} bytes and more from {}", self.index.stored_bytes);
            return Err(self.refuse(found, ": it looks like a decompression bomb"));
        }
        if self.open_bytes() > MAX_INTERVAL_BYTES && self.needs_restarts {
            let found = format!("{} bytes without one", self.open_bytes());
            let codec = self.index.codec;
            return Err(no_restarts(self.source, codec, self.index.stored_bytes, found));
        }
        Ok(())
    }

    /// Length of the interval that is not complete yet.
    fn open_bytes(&self) -> u64 {
        let start = self.index.rows.last().map_or(0, |row| row.decoded);
        self.index.decoded_bytes.saturating_sub(start)
    }

    /// Ends the interval if it is long enough and the next one can begin here.
    fn mark(&mut self) -> Result<()> {
        if self.open_bytes() < self.interval_bytes || !self.needs_restarts {
            return Ok(());
        }
        let Some(restart) = self.decoder.restart() else { return Ok(()) };
        if u32::try_from(restart.state.len()).is_err() {
            return Err(self.refuse("a state that is too long".into(), ""));
        }
        self.end_interval();
        self.index.states.extend_from_slice(&restart.state);
        let state_end = self.index.states.len();
        let (stored, decoded) = (restart.stored_bytes, restart.decoded_bytes);
        self.index.rows.push(Row { stored, decoded, crc32: 0, state_end });
        Ok(())
    }

    fn end_interval(&mut self) {
        let crc32 = std::mem::take(&mut self.crc).finalize();
        // One that was begun at the very end has no bytes.
        if self.open_bytes() == 0 && self.index.rows.pop().is_some() {
            let end = self.index.rows.last().map_or(0, |row| row.state_end);
            self.index.states.truncate(end);
            return;
        }
        if let Some(row) = self.index.rows.last_mut() {
            row.crc32 = crc32;
        }
    }

    fn refuse(&self, found: String, hint: &'static str) -> Error {
        refused(self.source, self.index.codec, self.index.stored_bytes, found, hint)
    }
}

fn no_restarts(source: &dyn Source, codec: Codec, offset_bytes: u64, found: String) -> Error {
    let (part, format) = (source.name().clone(), codec.name());
    Error::NoRestarts { part, format, offset_bytes, found }
}

fn refused(
    source: &dyn Source,
    codec: Codec,
    offset_bytes: u64,
    found: String,
    hint: &'static str,
) -> Error {
    Error::Malformed {
        part: source.name().clone(),
        format: codec.name(),
        offset_bytes,
        expected: format!("a {} stream with places to decode from", codec.name()),
        found,
        hint,
    }
}

#[cfg(test)]
mod tests;
