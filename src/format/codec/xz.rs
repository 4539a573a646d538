//! `.xz` (the .xz file format 1.2.1) by liblzma. Checkpoints between blocks: liblzma does not tell them, so the frame of
//! the file is followed beside it, and a decoder that begins at a checkpoint is given a stream header of its own.
//!
//! ```text
//! stream header (12) | blocks | index | stream footer (12) | padding of 4 n zeros | next stream …
//! block: header of (b + 1) × 4 bytes, b its first byte | LZMA2 chunks | padding to 4 | check
//! ```

use super::lzma::process;
use super::{FOREIGN_CHECKPOINT, MAX_WINDOW_BYTES, Phased, Place, Step};
use crate::format::{Checkpoint, DecodeError, Decoder, Progress};
use liblzma::stream::Stream;

const MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];
const FOOTER_BYTES: u64 = 12;
/// Memory that liblzma needs beside the dictionary.
const OWN_BYTES: u64 = 1 << 20;
/// The length of each of the sixteen kinds of check (section 2.1.1.2).
const CHECK_BYTES: [u8; 16] = [0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64];

pub(super) struct Xz {
    core: Option<Stream>,
    frame: Frame,
    /// Whether decoding began behind the stream's start, so that liblzma would not agree with the stream's index.
    is_resumed: bool,
    place: Place,
}

/// The place of a decoder in the file's structure.
#[derive(Default)]
struct Frame {
    at: At,
    /// The header field or other bytes that are being collected.
    field: Vec<u8>,
    /// The stream's flags.
    flags: [u8; 2],
    /// Length of the block, or of the index, so far.
    part_bytes: u64,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum At {
    #[default]
    Start,
    /// Behind a stream.
    Between,
    StreamHeader,
    /// At the beginning of a block or of the index.
    Block,
    /// Bytes left of a block's header.
    BlockHeader(u64),
    /// An LZMA2 chunk's header.
    Chunk,
    /// Bytes left of a chunk.
    ChunkData(u64),
    /// Bytes left of padding and check behind the chunks.
    BlockEnd(u64),
    /// The number of records, so far, and the bits seen.
    IndexCount(u64, u32),
    /// Numbers left in the records.
    IndexRecords(u64),
    /// Bytes left of padding, checksum and footer.
    IndexEnd(u64),
    End,
}

impl Frame {
    /// The most bytes that are left of the part that the decoder is in.
    fn part_left(&self) -> u64 {
        match self.at {
            At::BlockHeader(left) | At::ChunkData(left) => left,
            At::BlockEnd(left) | At::IndexEnd(left) => left,
            At::Start | At::End => 0,
            _ => 1,
        }
    }

    /// Goes on behind `bytes`, which are no more than [`Frame::part_left`].
    fn pass(&mut self, bytes: &[u8]) -> Result<(), String> {
        let length = bytes.len() as u64;
        let Some(&byte) = bytes.first() else { return Ok(()) };
        self.part_bytes = self.part_bytes.saturating_add(length);
        let left = self.part_left().saturating_sub(length);
        self.at = match self.at {
            At::StreamHeader => return self.stream_header(byte),
            At::Block => {
                self.part_bytes = 1;
                match u64::from(byte) {
                    0 => At::IndexCount(0, 0),
                    b => At::BlockHeader(b.saturating_mul(4).saturating_add(3)),
                }
            }
            At::BlockHeader(_) if left > 0 => At::BlockHeader(left),
            At::BlockHeader(_) => At::Chunk,
            At::Chunk => return self.chunk(byte),
            At::ChunkData(_) if left > 0 => At::ChunkData(left),
            At::ChunkData(_) => At::Chunk,
            At::BlockEnd(_) if left > 0 => At::BlockEnd(left),
            At::BlockEnd(_) => At::Block,
            At::IndexCount(count, bits) => return self.index_count(byte, count, bits),
            At::IndexRecords(numbers) if byte & 0x80 != 0 => At::IndexRecords(numbers),
            At::IndexRecords(numbers) => self.index_records(numbers.saturating_sub(1)),
            At::IndexEnd(_) if left > 0 => At::IndexEnd(left),
            At::IndexEnd(_) => At::Between,
            other @ (At::Start | At::Between | At::End) => other,
        };
        Ok(())
    }

    fn stream_header(&mut self, byte: u8) -> Result<(), String> {
        self.field.push(byte);
        if let [head @ .., _, _, _, _] = self.field.as_slice()
            && let Some([a, b]) = head.strip_prefix(&MAGIC)
        {
            self.flags = [*a, *b];
            self.field.clear();
            self.at = At::Block;
        } else if self.field.len() >= 12 {
            return Err("this is not an xz stream".to_owned());
        }
        Ok(())
    }

    /// Takes a byte of a chunk's header. LZMA2: a control byte, 2 to 5 more, data of the length that these bytes give.
    fn chunk(&mut self, byte: u8) -> Result<(), String> {
        self.field.push(byte);
        let number = |a: u8, b: u8| u64::from(u16::from_be_bytes([a, b])).saturating_add(1);
        self.at = match *self.field.as_slice() {
            [0] => {
                let padding = self.part_bytes.wrapping_neg() & 3;
                let check = CHECK_BYTES.get(usize::from(self.flags[1] & 15)).copied();
                match padding.saturating_add(u64::from(check.unwrap_or(0))) {
                    0 => At::Block,
                    left => At::BlockEnd(left),
                }
            }
            [3..=0x7f, ..] => return Err("an LZMA2 chunk is damaged".to_owned()),
            [1 | 2, a, b] => At::ChunkData(number(a, b)),
            [0x80..=0xbf, _, _, a, b] => At::ChunkData(number(a, b)),
            [0xc0..=0xff, _, _, a, b] => At::ChunkData(number(a, b).saturating_add(1)),
            _ => return Ok(()),
        };
        self.field.clear();
        Ok(())
    }

    fn index_count(&mut self, byte: u8, count: u64, bits: u32) -> Result<(), String> {
        let Some(high) = u64::from(byte & 0x7f).checked_shl(bits).filter(|_| bits < 63) else {
            return Err("the index of an xz stream is damaged".to_owned());
        };
        let count = count | high;
        self.at = match byte & 0x80 {
            0 => self.index_records(count.saturating_mul(2)),
            _ => At::IndexCount(count, bits.saturating_add(7)),
        };
        Ok(())
    }

    fn index_records(&self, numbers: u64) -> At {
        if numbers > 0 {
            return At::IndexRecords(numbers);
        }
        let padding = self.part_bytes.wrapping_neg() & 3;
        At::IndexEnd(padding.saturating_add(4).saturating_add(FOOTER_BYTES))
    }

    fn is_in_index(&self) -> bool {
        matches!(self.at, At::IndexCount(..) | At::IndexRecords(_) | At::IndexEnd(_))
    }
}

impl Xz {
    pub(super) fn new(from: Option<&Checkpoint>) -> Result<Self, String> {
        let mut xz =
            Self { core: None, frame: Frame::default(), is_resumed: false, place: Place::of(from) };
        match from.map(|from| &from.state[..]) {
            None => {}
            Some([]) => xz.frame.at = At::Between,
            Some(&[a, b]) => xz.resume([a, b])?,
            Some(_) => return Err(FOREIGN_CHECKPOINT.to_owned()),
        }
        Ok(xz)
    }

    fn resume(&mut self, flags: [u8; 2]) -> Result<(), String> {
        let mut core = new_core()?;
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&flags);
        header.extend_from_slice(&crc32fast::hash(&flags).to_le_bytes());
        process(&mut core, &header, &mut [])?;
        self.core = Some(core);
        self.frame.at = At::Block;
        self.frame.flags = flags;
        self.is_resumed = true;
        Ok(())
    }

    fn between(&mut self, step: &mut Step, is_last: bool) -> Result<bool, String> {
        match step.rest().first() {
            None if is_last && self.frame.at == At::Between => self.frame.at = At::End,
            None => return Ok(false),
            Some(0) if self.frame.at == At::Between => step.take(1),
            Some(0xfd) => {
                self.core = Some(new_core()?);
                self.is_resumed = false;
                self.frame = Frame { at: At::StreamHeader, ..Frame::default() };
            }
            Some(_) if self.frame.at == At::Start => {
                return Err("this is not an xz stream".to_owned());
            }
            Some(_) => self.frame.at = At::End,
        }
        Ok(true)
    }
}

impl Phased for Xz {
    fn advance(&mut self, step: &mut Step, is_last: bool) -> Result<bool, String> {
        if matches!(self.frame.at, At::Start | At::Between) {
            return self.between(step, is_last);
        }
        let left = usize::try_from(self.frame.part_left()).unwrap_or(usize::MAX);
        let rest = step.rest();
        let part = rest.get(..left.min(rest.len())).unwrap_or_default();
        let is_index =
            self.frame.is_in_index() || (self.frame.at == At::Block && part.first() == Some(&0));
        let did = match &mut self.core {
            Some(core) if !(is_index && self.is_resumed) => process(core, part, step.room())?,
            _ => Progress { taken: part.len(), ..Progress::default() },
        };
        self.frame.pass(part.get(..did.taken).unwrap_or_default())?;
        step.take(did.taken);
        step.give(did.given);
        let is_moving = did.taken > 0 || did.given > 0;
        Ok(is_moving && !(did.taken > 0 && self.frame.at == At::Block))
    }

    fn is_end(&self) -> bool {
        self.frame.at == At::End
    }

    fn place_mut(&mut self) -> &mut Place {
        &mut self.place
    }
}

impl Decoder for Xz {
    fn decode(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        is_last: bool,
    ) -> Result<Progress, DecodeError> {
        self.decode_phases(input, output, is_last)
    }

    fn checkpoint(&self) -> Option<Checkpoint> {
        match self.frame.at {
            At::Block => Some(self.place.checkpoint(&self.frame.flags)),
            At::Between => Some(self.place.checkpoint(&[])),
            _ => None,
        }
    }
}

fn new_core() -> Result<Stream, String> {
    let memory_bytes = MAX_WINDOW_BYTES.saturating_add(OWN_BYTES);
    Stream::new_stream_decoder(memory_bytes, 0).map_err(|e| e.to_string())
}
