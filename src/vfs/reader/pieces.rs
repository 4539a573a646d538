//! A range of a file that is put together piece by piece.

use crate::format::Checksum;
use crate::format::checksum::Hasher;
use crate::io::Buffer;
use crate::vfs::memory::block_checksums::BlockChecksums;
use crate::vfs::memory::cache::Leader;
use std::ops::Range;
use std::sync::Arc;

/// A range of a file on its way into memory; bytes that are not fetched stay zero.
pub(super) struct Pieces {
    buffer: Buffer,
    /// The range of the file that is being fetched, or that came last.
    pub(super) current: Range<u64>,
    /// The offset in the part where `current` begins.
    pub(super) first: u64,
    /// The checksums that the blocks of the stored bytes must match, if the blocks are checked.
    pub(super) checksums: Option<Arc<BlockChecksums>>,
    /// The interval that was fetched again last, as its bytes could not be decoded the first time.
    pub(super) fetched_again: Option<u64>,
    /// Set if the file is made from the range, or if the range is all of a file that is compared with its checksum.
    pub(super) made: Option<Made>,
}

/// The use of a range, once it is complete.
pub(super) struct Made {
    /// The range of the file that was asked for.
    pub(super) want: Range<u64>,
    /// The leader that other reads of the same file follow.
    pub(super) leader: Leader,
    /// If the file is compared with a checksum: the checksum, and the hasher of the pieces so far, which are not kept.
    pub(super) compared: Option<(Checksum, Hasher)>,
    /// The [`crate::vfs::samples::Samples::generation`] before the first piece was read.
    pub(super) generation: u64,
    /// The compared file does not fit in memory: its end would push out its beginning, and all other entries.
    pub(super) is_too_large: bool,
}

impl Pieces {
    /// Makes pieces for the range `want`, in `buffer`, which is as large.
    pub(super) fn new(mut buffer: Buffer, want: &Range<u64>) -> Box<Self> {
        buffer.as_mut_slice()[..(want.end - want.start) as usize].fill(0);
        Box::new(Self {
            buffer,
            current: want.start..want.start,
            first: 0,
            checksums: None,
            fetched_again: None,
            made: None,
        })
    }

    /// Whether a file is compared with its checksum.
    pub(super) fn is_compared(&self) -> bool {
        self.made.as_ref().is_some_and(|made| made.compared.is_some())
    }

    /// How many of `bytes` of an interval the cache counts as read. The intervals of a compared file are read once more, and
    /// kept for that, unless the file is too large.
    pub(super) fn asked(&self, bytes: u64, interval_bytes: u64) -> u64 {
        match &self.made {
            Some(made) if made.is_too_large => interval_bytes,
            Some(Made { compared: Some(_), .. }) => 0,
            _ => bytes,
        }
    }

    /// Whether intervals are not kept for the reads that follow.
    pub(super) fn is_too_large(&self) -> bool {
        self.made.as_ref().is_some_and(|made| made.is_too_large)
    }

    /// Makes pieces for a file that is compared with its checksum, piece by piece.
    pub(super) fn compared(made: Made) -> Box<Self> {
        let mut pieces = Self::new(Buffer::empty(), &(0..0));
        pieces.made = Some(made);
        pieces
    }

    /// The byte of the file up to which the range is complete.
    pub(super) fn end(&self) -> u64 {
        self.current.end
    }

    /// Puts the next bytes, from byte `start` of the file, where they belong in `want`.
    pub(super) fn copy(&mut self, want: &Range<u64>, start: u64, bytes: &[u8]) {
        self.current = start..start + bytes.len() as u64;
        // As in a sidecar: a file with holes is hashed as its pieces, one behind the other.
        if let Some(Made { compared: Some((_, hasher)), .. }) = &mut self.made {
            return hasher.update(bytes);
        }
        let first = (start - want.start) as usize;
        self.buffer.as_mut_slice()[first..first + bytes.len()].copy_from_slice(bytes);
    }

    pub(super) fn into_buffer(self) -> Buffer {
        self.buffer
    }
}
