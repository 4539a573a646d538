//! gzip members, concatenated (RFC 1952). Checkpoints at members and between deflate's blocks.

use super::deflate::Inflate;
use super::{FOREIGN_CHECKPOINT, Part as StreamPart, Phased, Place, Step, fill};
use crate::format::{Checkpoint, DecodeError, Decoder, Progress};
use libdeflater::Decompressor;

/// The most bytes of a header (its name and comment have no limit of their own).
const MAX_HEADER_BYTES: usize = 256 << 10;
const TRAILER_BYTES: usize = 8;
/// The shortest member: header, one empty block, trailer.
const MIN_MEMBER_BYTES: usize = 20;

const HAS_HEADER_CRC: u8 = 2;
const HAS_EXTRA: u8 = 4;
const HAS_NAME: u8 = 8;
const HAS_COMMENT: u8 = 16;
const RESERVED: u8 = 0xe0;

/// Decodes all members: a single one, as in most files, the fast way.
pub(super) fn decode(input: &[u8], out: &mut [u8]) -> Result<(), String> {
    let trailer = input.last_chunk::<TRAILER_BYTES>().filter(|_| input.len() >= MIN_MEMBER_BYTES);
    if let Some(&[a, b, c, d, size @ ..]) = trailer
        && u64::from(u32::from_le_bytes(size)) == out.len() as u64
        && Decompressor::new().gzip_decompress(input, out) == Ok(out.len())
        // The trailer is this member's: no bytes follow.
        && crc32fast::hash(out) == u32::from_le_bytes([a, b, c, d])
    {
        return Ok(());
    }
    fill(&mut Gzip::new(None)?, input, out)
}

/// The part of one member's deflate stream that the bytes between two checkpoints begin with, and the states of deflate at
/// its ends. `None` if the part is not that simple.
pub(super) fn deflate_part<'a>(part: &StreamPart<'a>) -> Option<StreamPart<'a>> {
    let (stored, state) = match part.state {
        None | Some([AT_MEMBER]) => (part.stored.get(header_bytes(part.stored)?..)?, None),
        Some(state) => (part.stored, Some(state.get(STATE_BYTES..)?)),
    };
    let next = match part.next {
        None | Some([AT_MEMBER]) => None,
        Some(state) => Some(state.get(STATE_BYTES..)?),
    };
    Some(StreamPart { stored, state, next })
}

fn header_bytes(bytes: &[u8]) -> Option<usize> {
    Head::read(bytes).map(|head| head.bytes.len())
}

/// Facts that a member stores about the file that it was made from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GzipHeader {
    /// The file's name, in Latin-1 as a rule, if it was stored.
    pub name: Option<Vec<u8>>,
    /// Time of the file's last modification, in seconds since 1970; `None` if it was not stored.
    pub modified: Option<u32>,
}

impl GzipHeader {
    /// Reads the header that `bytes` begin with. `None` if there is no header, or it does not end within `bytes`.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Head::read(bytes).map(Head::summary)
    }
}

/// A header as far as it was read.
#[derive(Default)]
struct Head {
    bytes: Vec<u8>,
    part: Part,
    name: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Part {
    #[default]
    Fixed,
    ExtraLength,
    /// Up to this byte of the header.
    Extra(usize),
    Name,
    Comment,
    /// Up to this byte of the header.
    Crc(usize),
    End,
}

impl Head {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut head = Self::default();
        for byte in bytes {
            if head.take(*byte).ok()? {
                return Some(head);
            }
        }
        None
    }

    /// Takes one byte. Returns true if it was the last one.
    fn take(&mut self, byte: u8) -> Result<bool, String> {
        self.bytes.push(byte);
        let length = self.bytes.len();
        if length > MAX_HEADER_BYTES {
            return Err(format!("the gzip header has more than {MAX_HEADER_BYTES} bytes"));
        }
        match self.part {
            Part::Fixed => self.take_fixed()?,
            Part::ExtraLength if length < 12 => {}
            Part::ExtraLength => {
                let extra = self.bytes.last_chunk().map_or(0, |&b| u16::from_le_bytes(b));
                self.part = Part::Extra(length.saturating_add(extra.into()));
                self.skip_empty();
            }
            Part::Extra(_) => self.skip_empty(),
            Part::Name if byte == 0 => self.enter(Part::Comment),
            Part::Name => self.name.get_or_insert_default().push(byte),
            Part::Comment if byte == 0 => self.enter(Part::End),
            Part::Comment | Part::End => {}
            Part::Crc(end) if length < end => {}
            Part::Crc(_) => self.check_crc()?,
        }
        Ok(self.part == Part::End)
    }

    fn flags(&self) -> u8 {
        self.bytes.get(3).copied().unwrap_or(0)
    }

    fn take_fixed(&mut self) -> Result<(), String> {
        match self.bytes.as_slice() {
            [0x1f] | [0x1f, 0x8b] | [0x1f, 0x8b, 8] => Ok(()),
            [0x1f, 0x8b, 8, flags, rest @ ..] if flags & RESERVED == 0 => {
                if rest.len() == 6 {
                    self.enter(Part::ExtraLength);
                }
                Ok(())
            }
            _ => Err("this is not a gzip header".to_owned()),
        }
    }

    /// Goes on to a part, or to the first part behind it that the header has.
    fn enter(&mut self, part: Part) {
        let flags = self.flags();
        let crc = Part::Crc(self.bytes.len().saturating_add(2));
        let order = [
            (Part::ExtraLength, HAS_EXTRA),
            (Part::Name, HAS_NAME),
            (Part::Comment, HAS_COMMENT),
            (crc, HAS_HEADER_CRC),
        ];
        let part = if part == Part::End { crc } else { part };
        let found = order.iter().skip_while(|(p, _)| *p != part).find(|(_, bit)| flags & bit != 0);
        self.part = found.map_or(Part::End, |(part, _)| *part);
    }

    fn skip_empty(&mut self) {
        if self.part == Part::Extra(self.bytes.len()) {
            self.enter(Part::Name);
        }
    }

    /// Compares the header's checksum: the lower half of the CRC-32 of all bytes before it.
    fn check_crc(&mut self) -> Result<(), String> {
        let Some((before, crc)) = self.bytes.split_last_chunk() else { return Ok(()) };
        self.part = Part::End;
        let found = crc32fast::hash(before) & 0xffff;
        match u32::from(u16::from_le_bytes(*crc)) == found {
            true => Ok(()),
            false => Err("the gzip header does not match its checksum".to_owned()),
        }
    }

    fn summary(self) -> GzipHeader {
        let modified = self.bytes.get(4..8).and_then(|b| b.first_chunk());
        let modified = modified.map(|&b| u32::from_le_bytes(b)).filter(|&seconds| seconds != 0);
        GzipHeader { name: self.name, modified }
    }
}

pub(super) struct Gzip {
    phase: Phase,
    place: Place,
}

enum Phase {
    /// Behind a member, or at the start.
    Between {
        is_start: bool,
    },
    Head(Head),
    Body(Body),
    Trailer {
        expected: [u8; TRAILER_BYTES],
        seen: usize,
    },
    End,
}

struct Body {
    inflate: Inflate,
    /// CRC-32 and number of the bytes that this member has given.
    crc: crc32fast::Hasher,
    length_bytes: u64,
}

/// The first byte of a checkpoint's state between members.
const AT_MEMBER: u8 = 0;
/// The first byte of a checkpoint's state in a member: CRC-32 and length of the bytes that the member has given follow,
/// then deflate's own state.
const IN_MEMBER: u8 = 1;
/// The length of that byte, CRC-32 and length.
const STATE_BYTES: usize = 13;

impl Gzip {
    pub(super) fn new(from: Option<&Checkpoint>) -> Result<Self, String> {
        let phase = match from.map(|from| &from.state[..]) {
            None => Phase::Between { is_start: true },
            Some([AT_MEMBER]) => Phase::Between { is_start: false },
            Some([IN_MEMBER, rest @ ..]) => Phase::Body(Body::resume(from, rest)?),
            Some(_) => return Err(FOREIGN_CHECKPOINT.to_owned()),
        };
        Ok(Self { phase, place: Place::of(from) })
    }
}

impl Body {
    fn new(from: Option<&Checkpoint>) -> Result<Self, String> {
        let inflate = Inflate::new(from)?;
        Ok(Self { inflate, crc: crc32fast::Hasher::new(), length_bytes: 0 })
    }

    fn resume(from: Option<&Checkpoint>, state: &[u8]) -> Result<Self, String> {
        let foreign = || FOREIGN_CHECKPOINT.to_owned();
        let (crc, state) = state.split_first_chunk().ok_or_else(foreign)?;
        let (length, state) = state.split_first_chunk().ok_or_else(foreign)?;
        let length_bytes = u64::from_le_bytes(*length);
        let crc = u32::from_le_bytes(*crc);
        let place = Place::of(from).checkpoint(state);
        Ok(Self {
            inflate: Inflate::new(Some(&place))?,
            crc: crc32fast::Hasher::new_with_initial_len(crc, length_bytes),
            length_bytes,
        })
    }

    /// Returns true if the deflate stream has ended.
    fn advance(&mut self, step: &mut Step, is_last: bool) -> Result<bool, String> {
        let Self { inflate, crc, length_bytes } = self;
        inflate.step(step, is_last, |decoded| {
            crc.update(decoded);
            *length_bytes = length_bytes.saturating_add(decoded.len() as u64);
        })
    }

    fn is_at_boundary(&self) -> bool {
        self.inflate.is_at_boundary()
    }

    fn trailer(&self) -> [u8; TRAILER_BYTES] {
        let crc = u64::from(self.crc.clone().finalize());
        (crc | self.length_bytes << 32).to_le_bytes()
    }

    fn state(&self) -> Option<Vec<u8>> {
        let inflate = self.inflate.state()?;
        let mut state = vec![IN_MEMBER];
        state.extend_from_slice(&self.crc.clone().finalize().to_le_bytes());
        state.extend_from_slice(&self.length_bytes.to_le_bytes());
        state.extend_from_slice(&inflate);
        Some(state)
    }
}

impl Phased for Gzip {
    fn advance(&mut self, step: &mut Step, is_last: bool) -> Result<bool, String> {
        match &mut self.phase {
            Phase::Between { is_start } => match step.rest().first() {
                None if is_last && !*is_start => self.phase = Phase::End,
                None => return Ok(false),
                // Padding to a block of a tape or disk.
                Some(0) if !*is_start => step.take(1),
                Some(0x1f) => self.phase = Phase::Head(Head::default()),
                Some(_) if *is_start => return Err("this is not a gzip header".to_owned()),
                Some(_) => self.phase = Phase::End,
            },
            Phase::Head(head) => {
                let Some(byte) = step.take_byte() else { return Ok(false) };
                if head.take(byte)? {
                    self.phase = Phase::Body(Body::new(None)?);
                }
            }
            Phase::Body(body) => {
                let before = step.done;
                if body.advance(step, is_last)? {
                    self.phase = Phase::Trailer { expected: body.trailer(), seen: 0 };
                } else {
                    return Ok(step.done != before && !body.is_at_boundary());
                }
            }
            Phase::Trailer { expected, seen } => {
                let Some(byte) = step.take_byte() else { return Ok(false) };
                if expected.get(*seen) != Some(&byte) {
                    return Err("the gzip member does not match its checksum".to_owned());
                }
                *seen = seen.saturating_add(1);
                if *seen == TRAILER_BYTES {
                    self.phase = Phase::Between { is_start: false };
                    return Ok(false);
                }
            }
            Phase::End => return Ok(false),
        }
        Ok(true)
    }

    fn is_end(&self) -> bool {
        matches!(self.phase, Phase::End)
    }

    fn place_mut(&mut self) -> &mut Place {
        &mut self.place
    }
}

impl Decoder for Gzip {
    fn decode(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        is_last: bool,
    ) -> Result<Progress, DecodeError> {
        self.decode_phases(input, output, is_last)
    }

    fn checkpoint(&self) -> Option<Checkpoint> {
        match &self.phase {
            Phase::Between { is_start: false } => Some(self.place.checkpoint(&[AT_MEMBER])),
            Phase::Body(body) => body.state().map(|state| self.place.checkpoint(&state)),
            _ => None,
        }
    }
}
