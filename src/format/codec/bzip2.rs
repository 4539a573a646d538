//! bzip2 streams, concatenated, by libbz2-rs. Checkpoints between blocks.
//!
//! ```text
//! "BZh" level (all byte-aligned) | blocks | 0x177245385090 | u32 combined CRC | padding to a byte
//! block, at any bit: 0x314159265359 | u32 CRC | …        the first bit of a byte is its highest
//! ```
//!
//! libbz2 does not say where blocks begin. So the stored bits are searched for magic numbers beside it, and it is fed only
//! up to such a number. libbz2 gives a block's bytes only when it has all of the block's bits, and gives all of them before
//! it reads on: so the number stands at a block's end exactly if libbz2 has given bytes by then.

use super::{FOREIGN_CHECKPOINT, Phased, Place, Step};
use crate::format::{Checkpoint, DecodeError, Decoder, Progress};
use ::bzip2::{Decompress, Status};

const BLOCK_MAGIC: u64 = 0x3141_5926_5359;
const END_MAGIC: u64 = 0x1772_4538_5090;
const MAGIC_BITS: u32 = 48;
const MAGIC_MASK: u64 = (1 << MAGIC_BITS) - 1;
const MARK_BITS: usize = 80;
/// Bytes that hold a magic number and the CRC behind it, also if they begin within a byte.
const MARK_BYTES: usize = 11;
/// Bytes that are searched before they are decoded.
const QUEUE_BYTES: usize = 16 << 10;

pub(super) struct Bzip2 {
    phase: Phase,
    stream: Stream,
    place: Place,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    /// At the beginning of a stream, the first or another one.
    Between {
        is_first: bool,
    },
    /// Behind this number of bytes of a stream's header.
    Head(usize),
    /// At this bit of the queue, where a magic number must stand.
    Mark(usize),
    /// Within a block.
    Block,
    End,
}

/// The stream that is being decoded.
struct Stream {
    core: Decompress,
    level: u8,
    /// Stored bytes that were taken, from a byte on that was not decoded yet, or was decoded recently.
    queue: Vec<u8>,
    /// The number of high bits of each queued byte that belong to the staged byte before it.
    shift: u32,
    /// The number of queued bytes that were staged.
    fed: usize,
    /// The bytes that are being decoded: queued bytes, shifted.
    staged: Vec<u8>,
    staged_at: usize,
    /// The last 64 bits of the queue.
    last_bits: u64,
    /// The bit of the queue at which a magic number begins, if one was found.
    found: Option<usize>,
    /// Whether this block has given a byte.
    has_given: bool,
    /// The checksums of all blocks so far.
    combined_crc: u32,
}

impl Stream {
    /// Begins in front of a block.
    fn new(level: u8, shift: u32, queue: &[u8], combined_crc: u32) -> Result<Self, String> {
        let mut core = Decompress::new(false);
        core.decompress(&[b'B', b'Z', b'h', level], &mut []).map_err(|e| damaged(&e))?;
        Ok(Self {
            core,
            level,
            queue: queue.to_vec(),
            shift,
            fed: 0,
            staged: Vec::new(),
            staged_at: 0,
            last_bits: queue.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte)),
            found: None,
            has_given: false,
            combined_crc,
        })
    }

    fn queued_bits(&self) -> usize {
        self.queue.len().saturating_mul(8)
    }

    fn push(&mut self, byte: u8) {
        self.queue.push(byte);
        self.last_bits = self.last_bits << 8 | u64::from(byte);
    }

    /// The bit at which a magic number begins that ends in the last byte, if there is one.
    fn find(&self) -> Option<usize> {
        let is_magic = |bits| bits == BLOCK_MAGIC || bits == END_MAGIC;
        let behind = (0..8_u32).find(|&k| is_magic(self.last_bits >> k & MAGIC_MASK))?;
        self.queued_bits().checked_sub(behind.saturating_add(MAGIC_BITS) as usize)
    }

    /// The magic number and the checksum in the 80 bits from `at_bit` on. `None` if not all of these bits are queued.
    fn mark(&self, at_bit: usize) -> Option<(u64, u32)> {
        if self.queued_bits() < at_bit.checked_add(MARK_BITS)? {
            return None;
        }
        let bytes = self.queue.get(at_bit / 8..)?;
        let bits =
            bytes.iter().take(MARK_BYTES).fold(0, |bits: u128, b| bits << 8 | u128::from(*b));
        let length = bytes.len().min(MARK_BYTES).saturating_mul(8);
        let bits = bits >> length.saturating_sub(at_bit % 8).saturating_sub(MARK_BITS);
        Some(((bits >> 32) as u64 & MAGIC_MASK, bits as u32))
    }

    /// Stages the bytes that are known to lie before the next magic number. Returns false if there are no such bytes.
    fn stage(&mut self) -> bool {
        if self.found.is_none() {
            self.queue.drain(..self.fed.min(self.queue.len()));
            self.fed = 0;
        }
        // A magic number that begins later is not complete yet.
        let behind = self.queued_bits().saturating_sub(MAGIC_BITS as usize);
        let bits = self.found.unwrap_or(behind).saturating_sub(self.shift as usize);
        let end = if self.found.is_some() { bits.div_ceil(8) } else { bits / 8 };
        let pairs = self.queue.get(self.fed..).unwrap_or_default();
        let next = pairs.iter().skip(1).chain(std::iter::once(&0));
        let shifted = |(a, b): (&u8, &u8)| (u16::from_be_bytes([*a, *b]) << self.shift >> 8) as u8;
        self.staged.clear();
        self.staged.extend(pairs.iter().zip(next).map(shifted).take(end.saturating_sub(self.fed)));
        self.staged_at = 0;
        self.fed = self.fed.max(end);
        !self.staged.is_empty()
    }

    /// Decodes staged bytes. Returns false if no byte was taken or given, though there was room.
    fn decode(&mut self, step: &mut Step) -> Result<bool, String> {
        let before = (self.core.total_in(), self.core.total_out());
        let input = self.staged.get(self.staged_at..).unwrap_or_default();
        let status = self.core.decompress(input, step.room()).map_err(|e| damaged(&e))?;
        if status == Status::StreamEnd {
            return Err("the bzip2 stream ends early".to_owned());
        }
        let length = |now: u64, then: u64| usize::try_from(now.saturating_sub(then)).unwrap_or(0);
        let taken = length(self.core.total_in(), before.0);
        let given = length(self.core.total_out(), before.1);
        self.staged_at = self.staged_at.saturating_add(taken);
        step.give(given);
        self.has_given |= given > 0;
        Ok(taken > 0 || given > 0)
    }
}

impl Bzip2 {
    pub(super) fn new(from: Option<&Checkpoint>) -> Result<Self, String> {
        let place = Place::of(from);
        let (phase, stream) = match from.map(|from| &from.state[..]) {
            None => (Phase::Between { is_first: true }, Stream::new(b'9', 0, &[], 0)?),
            Some([]) => (Phase::Between { is_first: false }, Stream::new(b'9', 0, &[], 0)?),
            Some(&[level @ b'1'..=b'9', shift @ 0..=7, a, b, c, d, ref queue @ ..])
                if queue.len() < MARK_BYTES =>
            {
                let crc = u32::from_le_bytes([a, b, c, d]);
                let stream = Stream::new(level, u32::from(shift), queue, crc)?;
                (Phase::Mark(shift.into()), stream)
            }
            Some(_) => return Err(FOREIGN_CHECKPOINT.to_owned()),
        };
        Ok(Self { phase, stream, place })
    }

    fn pass_mark(&mut self, (magic, crc): (u64, u32)) -> Result<bool, String> {
        let stream = &mut self.stream;
        match magic {
            BLOCK_MAGIC => {
                stream.combined_crc = stream.combined_crc.rotate_left(1) ^ crc;
                stream.has_given = false;
                stream.found = None;
                self.phase = Phase::Block;
                Ok(true)
            }
            END_MAGIC if crc == stream.combined_crc => {
                self.phase = Phase::Between { is_first: false };
                Ok(false)
            }
            END_MAGIC => Err("the bzip2 stream does not match its checksum".to_owned()),
            _ => Err("the bzip2 stream is damaged: no block begins where one should".to_owned()),
        }
    }

    fn advance_block(&mut self, step: &mut Step) -> Result<bool, String> {
        let stream = &mut self.stream;
        if step.room().is_empty() {
            return Ok(false);
        }
        if stream.decode(step)? || stream.stage() {
            return Ok(true);
        }
        // All staged bytes were decoded, and all of the decoded bytes were given.
        if let Some(at_bit) = stream.found {
            if stream.has_given {
                self.phase = Phase::Mark(at_bit);
                // A step without progress would look like a decoder that is stuck.
                return Ok(step.done == Progress::default());
            }
            // Bits within a block that only look like a magic number.
            stream.found = None;
            return Ok(true);
        }
        let before = step.done.taken;
        while stream.found.is_none() && stream.queue.len() < QUEUE_BYTES {
            let Some(byte) = step.take_byte() else { break };
            stream.push(byte);
            stream.found = stream.find();
        }
        Ok(step.done.taken > before)
    }
}

impl Phased for Bzip2 {
    fn advance(&mut self, step: &mut Step, is_last: bool) -> Result<bool, String> {
        match self.phase {
            Phase::Between { is_first } => match step.rest().first() {
                None if is_last && !is_first => self.phase = Phase::End,
                None => return Ok(false),
                Some(b'B') => self.phase = Phase::Head(0),
                Some(_) if is_first => return Err("this is not a bzip2 stream".to_owned()),
                Some(_) => self.phase = Phase::End,
            },
            Phase::Head(seen) => {
                let Some(byte) = step.take_byte() else { return Ok(false) };
                self.phase = match (seen, byte) {
                    (0, b'B') | (1, b'Z') | (2, b'h') => Phase::Head(seen.saturating_add(1)),
                    (3, b'1'..=b'9') => {
                        self.stream = Stream::new(byte, 0, &[], 0)?;
                        Phase::Mark(0)
                    }
                    _ => return Err("this is not a bzip2 stream".to_owned()),
                };
            }
            Phase::Mark(at_bit) => match self.stream.mark(at_bit) {
                Some(mark) => return self.pass_mark(mark),
                None => {
                    let Some(byte) = step.take_byte() else { return Ok(false) };
                    self.stream.push(byte);
                }
            },
            Phase::Block => return self.advance_block(step),
            Phase::End => return Ok(false),
        }
        Ok(true)
    }

    fn is_end(&self) -> bool {
        self.phase == Phase::End
    }

    fn place_mut(&mut self) -> &mut Place {
        &mut self.place
    }
}

impl Decoder for Bzip2 {
    fn decode(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        is_last: bool,
    ) -> Result<Progress, DecodeError> {
        self.decode_phases(input, output, is_last)
    }

    fn checkpoint(&self) -> Option<Checkpoint> {
        match self.phase {
            Phase::Between { is_first: false } => Some(self.place.checkpoint(&[])),
            Phase::Mark(at_bit) => {
                let stream = &self.stream;
                let mut state = vec![stream.level, (at_bit % 8) as u8];
                state.extend_from_slice(&stream.combined_crc.to_le_bytes());
                state.extend_from_slice(stream.queue.get(at_bit / 8..)?);
                Some(self.place.checkpoint(&state))
            }
            _ => None,
        }
    }
}

fn damaged(error: &::bzip2::Error) -> String {
    format!("the bzip2 stream is damaged: {error}")
}
