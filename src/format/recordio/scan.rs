//! Finds the records of a file, header by header, as a state machine: see [`Scanner`]. Of a record's data, only the bytes that
//! tell its labels and the kind of its value are read.

use super::{MAGIC, RecordIo};
use crate::format::bytes::u32_at;
use crate::format::counted;
use crate::format::magic;
use crate::format::records::{DAMAGED, Pass, Row, Shown, TRUNCATED};
use crate::format::scanned::{Scanner, TooMany};
use crate::format::{Container, OpenOptions, PartName, Piece, Result, Source, ending};
use std::sync::Arc;

pub(super) const HEAD_BYTES: u64 = 8;
const KIND_SHIFT: u32 = 29;
const LENGTH_MASK: u32 = (1 << KIND_SHIFT) - 1;
/// Bytes before the labels of an image record.
const LABELS_AT: u64 = 24;
/// The largest value that is read to find out whether it is text.
const MAX_LOOK_BYTES: u64 = 1 << 20;
/// The most parts of a record.
const MAX_PARTS: usize = 1 << 16;

/// A pass over a file.
pub(super) struct RecordIoScanner {
    pass: Pass<RecordIo>,
    state: State,
    /// The last record; whether the file has all of it is known later.
    last: Option<Found>,
    /// Memory for the bytes that are read of the next record.
    spare: Vec<u8>,
}

enum State {
    /// A header is next.
    Header(Option<Found>),
    /// More of the first part's data is next.
    Data(Found),
}

/// A record as far as it is known.
struct Found {
    /// The offset of the record.
    at: u64,
    /// The data of its first part: offset and length.
    first: (u64, u64),
    /// Offsets and lengths of further parts. The magic number between two of them is a part, too.
    more: Vec<(u64, u64)>,
    /// Whether more parts follow.
    goes_on: bool,
    /// The beginning of the first part's data.
    seen: Vec<u8>,
    /// The number of labels, and the code of the value's ending, if it is an image record.
    image: Option<(u32, u8)>,
}

impl Found {
    fn length(&self) -> u64 {
        self.more.iter().fold(self.first.1, |sum, (_, length)| sum.saturating_add(*length))
    }

    fn end(&self) -> u64 {
        let (at, length) = self.more.last().unwrap_or(&self.first);
        at.saturating_add(*length)
    }

    /// The number of labels, the start of the value in the data, and its length. `None` if the labels do not fit.
    fn value(&self) -> Option<(u32, u64, u64)> {
        let labels = u32_at(&self.seen, 0).filter(|_| self.seen.len() as u64 >= LABELS_AT)?;
        let start = LABELS_AT.checked_add(u64::from(labels).checked_mul(4)?)?;
        let is_whole = start <= self.first.1;
        is_whole.then_some((labels, start, self.length().saturating_sub(start)))
    }

    /// The number of bytes of the first part that must be read to find its labels and its value's ending; `None` once they are
    /// known.
    fn look(&mut self) -> Option<u64> {
        let (_, first_bytes) = self.first;
        // Mostly the record has one label, and the first bytes of its value are read, too.
        let few = LABELS_AT.saturating_add(magic::HEAD_BYTES as u64);
        if (self.seen.len() as u64) < first_bytes.min(few) {
            return Some(few);
        }
        let (labels, start, length) = self.value()?;
        let bin = ending::BIN;
        if start > MAX_LOOK_BYTES {
            self.image = Some((labels, bin));
            return None;
        }
        let head_end = start.saturating_add(magic::HEAD_BYTES as u64).min(first_bytes);
        if (self.seen.len() as u64) < head_end {
            return Some(head_end);
        }
        let value = self.seen.get(usize::try_from(start).ok()?..)?;
        // The length of a record in parts is not known yet: one record of a million is in parts.
        let known = ending::code_of_head(value, length);
        let is_small = length <= MAX_LOOK_BYTES && !self.goes_on;
        if known.is_none() && is_small && (self.seen.len() as u64) < first_bytes {
            return Some(first_bytes);
        }
        let code = known.unwrap_or_else(|| if is_small { ending::code_of(value) } else { bin });
        self.image = Some((labels, code));
        None
    }
}

impl RecordIoScanner {
    /// Begins a pass at the first byte. Errors call the file `part`.
    pub(super) fn new(part: &PartName, options: &OpenOptions) -> Self {
        let pass = Pass::new(part, options, HEAD_BYTES);
        Self { pass, state: State::Header(None), last: None, spare: Vec::new() }
    }

    /// Takes a header at `at`: of a record, or of a further part of `found`.
    fn header(&mut self, at: u64, bytes: &[u8], found: Option<Found>) -> Result<()> {
        if bytes.is_empty() && found.is_none() {
            self.pass.want = None;
            return Ok(());
        }
        if let Some(last) = self.last.take() {
            self.add(&last)?;
            self.spare = last.seen;
            self.spare.clear();
        }
        let (Some(magic), Some(word)) = (u32_at(bytes, 0), u32_at(bytes, 4)) else {
            let what = counted(bytes.len(), "byte");
            return self.pass.end(at, "a header of 8 bytes", what, TRUNCATED);
        };
        if magic != MAGIC {
            let found = format!("{magic:#010x}");
            return self.pass.end(at, "the magic number 0xced7230a", found, DAMAGED);
        }
        let (kind, length) = (word >> KIND_SHIFT, u64::from(word & LENGTH_MASK));
        let data_at = at.saturating_add(HEAD_BYTES);
        let is_right = match &found {
            None => matches!(kind, 0 | 1),
            Some(found) => matches!(kind, 2 | 3) && found.more.len() < MAX_PARTS,
        };
        if !is_right {
            let found = format!("a part of kind {kind}");
            return self.pass.end(at, "the next part of a record", found, DAMAGED);
        }
        let Some(mut found) = found else {
            let (first, more, goes_on) = ((data_at, length), Vec::new(), kind == 1);
            let seen = std::mem::take(&mut self.spare);
            return self.data(Found { at, first, more, goes_on, seen, image: None });
        };
        found.more.extend([(at, 4), (data_at, length)]);
        found.goes_on = kind == 2;
        self.next(found);
        Ok(())
    }

    /// Asks for more of the data of a record's first part, or goes on behind it.
    fn data(&mut self, mut found: Found) -> Result<()> {
        let wanted = if self.pass.is_typed { found.look() } else { None };
        let Some(wanted) = wanted else {
            self.next(found);
            return Ok(());
        };
        let ((at, length), seen) = (found.first, found.seen.len() as u64);
        self.pass.want = Some((at.saturating_add(seen), wanted.min(length).saturating_sub(seen)));
        self.state = State::Data(found);
        Ok(())
    }

    /// Goes on behind the last part that is known.
    fn next(&mut self, found: Found) {
        let end = found.end().checked_next_multiple_of(4).unwrap_or(u64::MAX);
        self.pass.want = Some((end, HEAD_BYTES));
        self.state = match found.goes_on {
            true => State::Header(Some(found)),
            false => {
                self.last = Some(found);
                State::Header(None)
            }
        };
    }

    /// Adds a record that the file has as a whole.
    fn add(&mut self, found: &Found) -> Result<()> {
        self.fill(found).map_err(|TooMany| {
            self.pass.malformed(found.at, "fewer than 2³¹ files in parts", "more".to_owned(), "")
        })?;
        self.pass.add(found.at)
    }

    fn fill(&mut self, found: &Found) -> Result<(), TooMany> {
        self.pass.record.clear();
        let ((at, _), length) = (found.first, found.length());
        let image = found.image.zip(found.value());
        let Some(((labels, code), (_, start, value_bytes))) = image else {
            let row = self.row(found, 0, ending::NONE)?;
            self.pass.record.whole(row, length);
            return Ok(());
        };
        let label = match labels {
            0 => self.pass.builder.array((at.saturating_add(4), 4), "<f4", &[]),
            count => {
                let bytes = u64::from(count).saturating_mul(4);
                let place = (at.saturating_add(LABELS_AT), bytes);
                self.pass.builder.array(place, "<f4", &[count.into()])
            }
        };
        self.pass.record.file(&[b"label"], label.ok_or(TooMany)?);
        let row = self.row(found, start, code)?;
        self.pass.record.sized(&[b"data"], row, value_bytes);
        Ok(())
    }

    /// Makes the row of a record's data from byte `start` on.
    fn row(&mut self, found: &Found, start: u64, code: u8) -> Result<Row<RecordIo>, TooMany> {
        let (at, length) = found.first;
        let (at, length) = (at.saturating_add(start), length.saturating_sub(start));
        if found.more.is_empty() {
            return Ok(Row::stored(at, length, code));
        }
        let rest = found.more.iter().copied();
        let mut file_at = 0_u64;
        let pieces = std::iter::once((at, length)).chain(rest).filter(|(_, length)| *length > 0);
        let pieces = pieces.map(|(offset_bytes, length_bytes)| {
            let at_bytes = file_at;
            file_at = file_at.saturating_add(length_bytes);
            Piece { at_bytes, length_bytes, offset_bytes }
        });
        let number = self.pass.builder.pieces(found.length().saturating_sub(start), pieces)?;
        let extent = found.end().saturating_sub(at);
        Ok(Row { shown: Shown::Pieced, number, ..Row::stored(at, extent, code) })
    }
}

impl Scanner for RecordIoScanner {
    fn want(&self) -> Option<(u64, u64)> {
        self.pass.want
    }

    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        let Some((at, length)) = self.pass.want else { return Ok(()) };
        match std::mem::replace(&mut self.state, State::Header(None)) {
            State::Header(found) => self.header(at, bytes, found),
            State::Data(found) if (bytes.len() as u64) < length => {
                let (expected, what) = ("the data of a record", "the end of the file");
                self.pass.end(found.at, expected, what.to_owned(), TRUNCATED)
            }
            State::Data(mut found) => {
                found.seen.extend_from_slice(bytes);
                self.data(found)
            }
        }
    }

    fn finish(mut self: Box<Self>, source: Arc<dyn Source>) -> Result<Box<dyn Container>> {
        if let Some(last) = self.last.take() {
            if last.end() > source.len() {
                let expected = format!("a record that ends at byte {}", last.end());
                let what = format!("a file of {}", counted(source.len(), "byte"));
                self.pass.end(last.at, &expected, what, TRUNCATED)?;
            } else {
                self.add(&last)?;
            }
        }
        self.pass.finish(source)
    }
}
