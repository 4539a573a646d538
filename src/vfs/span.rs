//! A range of a part on its way into memory.

use crate::io::Buffer;
use std::io;
use std::ops::Range;

/// The bytes to fetch, and the memory for them. Bytes before and behind them may have to be fetched, too:
/// past the page cache, reads begin and end at multiples of an alignment.
pub struct Span {
    part: usize,
    range: Range<u64>,
    buffer: Buffer,
    /// Where in the buffer the range begins.
    lead_in: usize,
}

impl Span {
    /// The bytes `range` of part number `part`.
    pub(super) fn new(part: usize, range: Range<u64>, buffer: Buffer) -> Self {
        Self { part, range, buffer, lead_in: 0 }
    }

    /// The index of the part to read.
    #[must_use]
    pub fn part(&self) -> usize {
        self.part
    }

    /// The bytes of the part that are needed.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    pub(super) fn set_range(&mut self, range: Range<u64>) {
        self.range = range;
    }

    /// The number of bytes that are needed.
    pub(super) fn length(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// Returns the offset to read from, a multiple of `alignment_bytes`, and the memory to read into, which reaches
    /// to the next multiple behind the end. The first [`Span::needed_bytes`] of the memory must be filled.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn target(&mut self, alignment_bytes: u64) -> io::Result<(u64, &mut [u8])> {
        let start = self.range.start - self.range.start % alignment_bytes;
        let length = (self.range.end.next_multiple_of(alignment_bytes) - start) as usize;
        self.lead_in = (self.range.start - start) as usize;
        self.buffer.try_reserve(length)?;
        Ok((start, &mut self.buffer.as_mut_slice()[..length]))
    }

    /// The number of bytes of [`Span::target`] that must be read.
    #[must_use]
    pub fn needed_bytes(&self) -> usize {
        self.lead_in + self.length()
    }

    /// Takes the memory of [`Span::target`], to be filled elsewhere. Returns the offset to read from, the memory, and
    /// the number of bytes to read.
    ///
    /// # Errors
    /// As [`Span::target`].
    pub fn take_buffer(&mut self, alignment_bytes: u64) -> io::Result<(u64, Buffer, usize)> {
        let (offset_bytes, target) = self.target(alignment_bytes)?;
        let length = target.len();
        Ok((offset_bytes, self.swap_buffer(Buffer::empty()), length))
    }

    /// Puts back the memory that [`Span::take_buffer`] took.
    pub fn put_buffer(&mut self, buffer: Buffer) {
        self.buffer = buffer;
    }

    pub(super) fn swap_buffer(&mut self, buffer: Buffer) -> Buffer {
        std::mem::replace(&mut self.buffer, buffer)
    }

    /// Whether the bytes are fetched into memory that was lent.
    #[must_use]
    pub fn has_loan(&self) -> bool {
        self.buffer.is_loan()
    }

    /// The place of the range in the buffer.
    pub(super) fn place(&self) -> Range<usize> {
        self.lead_in..self.lead_in + self.length()
    }

    /// The place of a sub-range of the range in the buffer.
    pub(super) fn place_of(&self, part: &Range<u64>) -> Range<usize> {
        let start = self.lead_in + (part.start - self.range.start) as usize;
        start..start + (part.end - part.start) as usize
    }

    /// All of the memory, for places that [`Span::place_of`] returns.
    pub(super) fn unchecked(&self) -> &[u8] {
        self.buffer.as_slice()
    }

    /// The bytes of the range, once they are fetched.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer.as_slice()[self.place()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_widened_to_multiples_and_finds_its_bytes_again() {
        let mut span = Span::new(0, 5000..9000, Buffer::empty());
        let (start, target) = span.target(4096).unwrap();
        assert_eq!((start, target.len()), (4096, 8192));
        target[904..4904].fill(7);
        assert!(span.bytes().iter().all(|&byte| byte == 7));
        assert_eq!((span.needed_bytes(), span.place_of(&(5001..5003))), (4904, 905..907));
        let (start, target) = span.target(1).unwrap();
        assert_eq!((start, target.len(), span.needed_bytes()), (5000, 4000, 4000));
    }
}
