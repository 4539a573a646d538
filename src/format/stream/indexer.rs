//! The pass over a compressed stream that makes its index.

use super::index::{MAX_INTERVAL_BYTES, MAX_STORED_BYTES, Row, StreamIndex};
use crate::format::codec::{Codec, ENDS_EARLY, decoder};
use crate::format::counted;
use crate::format::{DecodeError, Decoder, Error, Progress, Result, Source};

/// The most decoded bytes of a stored byte: no deflate stream exceeds 1032, so streams that every tool reads pass, and a
/// bzip2 or zstd bomb (up to 1,000,000) does not.
pub const MAX_RATIO: u64 = 1100;
/// Decoded bytes that a stream may have whatever its ratio: sparse images of disks are legal.
pub const FREE_BYTES: u64 = 1 << 30;
/// The most decoded bytes of any stream. At a gigabyte a second it would take five hours to index.
pub const MAX_DECODED_BYTES: u64 = 16 << 40;

const CUT_HINT: &str =
    ": the file is truncated (of an archive, --allow-damaged serves the members that are whole)";
const PIECE_BYTES: usize = 256 << 10;

impl StreamIndex {
    /// Decodes all of `source` once, in bounded memory, and verifies the format's own checksums. Every decoded byte is
    /// given to `on_bytes`, with its offset, in order; an error that `on_bytes` returns ends the pass.
    ///
    /// # Errors
    /// The source cannot be read, is no such stream, is damaged, or has too few checkpoints.
    pub fn build(
        source: &dyn Source,
        codec: Codec,
        interval_bytes: u64,
        on_bytes: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<Self> {
        Indexer::new(source, codec, interval_bytes)?.run(on_bytes)
    }

    /// As [`StreamIndex::build`], but a stream that ends early, as in a truncated file, is indexed up to there:
    /// [`StreamIndex::is_cut`].
    ///
    /// # Errors
    /// As [`StreamIndex::build`].
    pub fn build_cut(
        source: &dyn Source,
        codec: Codec,
        interval_bytes: u64,
        on_bytes: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<Self> {
        let mut indexer = Indexer::new(source, codec, interval_bytes)?;
        indexer.may_be_cut = true;
        indexer.run(on_bytes)
    }

    /// Decodes all of `source` as [`StreamIndex::build`] does, but needs and keeps no checkpoints.
    ///
    /// # Errors
    /// The source cannot be read, is no such stream, or is damaged; or an error that `on_bytes` returns.
    pub fn decode_all(
        source: &dyn Source,
        codec: Codec,
        on_bytes: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut indexer = Indexer::new(source, codec, MAX_INTERVAL_BYTES)?;
        indexer.needs_checkpoints = false;
        indexer.run(on_bytes).map(drop)
    }
}

/// The pass that makes an index.
struct Indexer<'a> {
    source: &'a dyn Source,
    decoder: Box<dyn Decoder>,
    interval_bytes: u64,
    index: StreamIndex,
    /// Bytes that were read, of which the decoder has taken the first `input_at`.
    input: Vec<u8>,
    input_at: usize,
    read_bytes: u64,
    crc: crc32fast::Hasher,
    needs_checkpoints: bool,
    may_be_cut: bool,
}

impl<'a> Indexer<'a> {
    fn new(source: &'a dyn Source, codec: Codec, interval_bytes: u64) -> Result<Self> {
        let decoder = decoder(codec, None).map_err(|why| refused(source, codec, 0, why, ""))?;
        let Some(decoder) = decoder else {
            return Err(no_checkpoints(source, codec, 0, "none".into()));
        };
        let index = StreamIndex::new(codec);
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
            needs_checkpoints: true,
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
                Err(DecodeError::Damaged(why)) if why == ENDS_EARLY && self.may_be_cut => {
                    self.index.is_cut = true;
                    return self.finish();
                }
                Err(DecodeError::Damaged(why)) if why == ENDS_EARLY => {
                    return Err(self.refuse(why, CUT_HINT));
                }
                Err(why) => return Err(self.refuse(why.into(), "")),
            };
            if step == Progress::default() {
                return Err(self.refuse("a decoder that makes no progress".into(), ""));
            }
            self.input_at = self.input_at.saturating_add(step.taken);
            self.index.stored_bytes = self.index.stored_bytes.saturating_add(step.taken as u64);
            self.take(output.get(..step.given).unwrap_or_default(), on_bytes)?;
            self.check_stored()?;
            if step.is_end {
                return self.finish();
            }
            self.mark()?;
        }
    }

    fn finish(mut self) -> Result<StreamIndex> {
        self.end_interval();
        // All stored bytes at the end that decode to nothing belong to the last interval.
        self.check_stored()?;
        self.index.rows.shrink_to_fit();
        self.index.states.shrink_to_fit();
        Ok(self.index)
    }

    /// Reads on when the decoder has taken all input: decoders take all of it, or stop at a checkpoint.
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
            let found = format!(
                "{} or more, decoded from {}",
                counted(decoded, "byte"),
                self.index.stored_bytes
            );
            return Err(self.refuse(found, ": it looks like a decompression bomb"));
        }
        if self.open_bytes() > MAX_INTERVAL_BYTES && self.needs_checkpoints {
            let found = format!("{} without one", counted(self.open_bytes(), "byte"));
            let codec = self.index.codec;
            return Err(no_checkpoints(self.source, codec, self.index.stored_bytes, found));
        }
        Ok(())
    }

    /// Refuses an interval of too many stored bytes: an interval is read as a whole, and bytes that decode to nothing must
    /// not make it as long as the file.
    fn check_stored(&self) -> Result<()> {
        let stored = self.open_stored_bytes();
        if stored <= MAX_STORED_BYTES || !self.needs_checkpoints {
            return Ok(());
        }
        let (stored, decoded) = (counted(stored, "byte"), self.open_bytes());
        let found = format!("{stored} of the stream, which decode to {decoded}, without one");
        Err(no_checkpoints(self.source, self.index.codec, self.index.stored_bytes, found))
    }

    /// Decoded length of the interval that is not complete yet.
    fn open_bytes(&self) -> u64 {
        let start = self.index.rows.last().map_or(0, |row| row.decoded);
        self.index.decoded_bytes.saturating_sub(start)
    }

    /// Stored length of that interval. A stream without decoded bytes yet has no interval.
    fn open_stored_bytes(&self) -> u64 {
        let start = self.index.rows.last().map_or(u64::MAX, |row| row.stored);
        self.index.stored_bytes.saturating_sub(start)
    }

    /// Ends the interval if it is long enough, decoded or stored, and the next one can begin here.
    fn mark(&mut self) -> Result<()> {
        let is_long = self.open_bytes() >= self.interval_bytes
            || self.open_bytes() > 0 && self.open_stored_bytes() / 2 >= self.interval_bytes;
        if !is_long || !self.needs_checkpoints {
            return Ok(());
        }
        let Some(checkpoint) = self.decoder.checkpoint() else { return Ok(()) };
        if u32::try_from(checkpoint.state.len()).is_err() {
            return Err(self.refuse("a checkpoint that is too large".into(), ""));
        }
        self.end_interval();
        self.index.states.extend_from_slice(&checkpoint.state);
        let state_end = self.index.states.len();
        let (stored, decoded) = (checkpoint.stored_bytes, checkpoint.decoded_bytes);
        self.index.rows.push(Row { stored, decoded, crc32: 0, state_end });
        Ok(())
    }

    fn end_interval(&mut self) {
        let crc32 = std::mem::take(&mut self.crc).finalize();
        // An interval that was begun at the very end has no bytes.
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

fn no_checkpoints(source: &dyn Source, codec: Codec, offset_bytes: u64, found: String) -> Error {
    let (part, format) = (source.name().clone(), codec.name());
    Error::NoCheckpoints { part, format, offset_bytes, found }
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
        expected: format!("a valid {} stream", codec.name()),
        found,
        hint,
    }
}
