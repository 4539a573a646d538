//! Memory that several samples share, and the right to hold it.

use super::budget::Reservation;
use crate::io::Buffer;
use std::ops::Range;

/// Memory that several samples lie in, and the right to hold it.
pub(in crate::vfs) struct Chunk {
    buffer: Buffer,
    range: Range<usize>,
    _rights: Rights,
}

/// The right to hold memory; what is fetched ahead needs a second one, as it may not take all there is.
pub(in crate::vfs) type Rights = (Reservation, Option<Reservation>);

impl Chunk {
    /// What lies in `range` of `buffer`.
    pub(in crate::vfs) fn new(buffer: Buffer, range: Range<usize>, rights: Rights) -> Self {
        Self { buffer, range, _rights: rights }
    }

    pub(in crate::vfs) fn into_buffer(self) -> Buffer {
        self.buffer
    }

    /// Bytes of memory that are in use.
    pub(in crate::vfs) fn length(&self) -> usize {
        self.range.len()
    }

    /// Bytes as they were read. They leave through [`super::verified::Verified`] alone
    /// wherever samples are checked.
    pub(in crate::vfs) fn unchecked(&self) -> &[u8] {
        &self.buffer.as_slice()[self.range.clone()]
    }
}
