//! Bytes that were checked. A [`Verified`] cannot be made from bytes that do not match.

use super::chunk::Chunk;
use crate::format::{Checksum, Mismatch};
use crate::io::Buffer;
use std::ops::Range;
use std::sync::Arc;

/// A whole sample whose bytes match its checksum.
pub struct Verified {
    bytes: Bytes,
    range: Range<usize>,
    /// The chunk whose rights cover the memory; `None` if the cache must pay for it.
    rights: Option<Arc<Chunk>>,
}

/// Bytes, by the memory that they lie in.
pub(in crate::vfs) enum Bytes {
    Own(Buffer),
    /// In memory that other samples use, too.
    Shared(Arc<Chunk>),
}

impl Bytes {
    pub(in crate::vfs) fn bytes(&self) -> &[u8] {
        match self {
            Bytes::Own(buffer) => buffer.as_slice(),
            Bytes::Shared(chunk) => chunk.unchecked(),
        }
    }
}

impl Verified {
    /// Checks the bytes in `range` of `bytes`, if there is a checksum to check them with.
    pub(in crate::vfs) fn check(
        bytes: Bytes,
        range: Range<usize>,
        expected: Option<Checksum>,
    ) -> Result<Self, Mismatch> {
        if let Some(expected) = expected {
            expected.check(&bytes.bytes()[range.clone()])?;
        }
        Ok(Self { bytes, range, rights: None })
    }

    /// Makes a sample of bytes that were checked otherwise, such as interval by interval.
    pub(in crate::vfs) fn made(buffer: Buffer, range: Range<usize>) -> Self {
        Self { bytes: Bytes::Own(buffer), range, rights: None }
    }

    /// Covers the memory by the rights of `chunk`: it is part of the memory that was reserved for the chunk.
    pub(in crate::vfs) fn with_rights(mut self, chunk: &Arc<Chunk>) -> Self {
        if matches!(self.bytes, Bytes::Own(_)) {
            self.rights = Some(Arc::clone(chunk));
        }
        self
    }

    /// The sample's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes.bytes()[self.range.clone()]
    }

    /// The bytes of memory that this sample alone keeps from another use.
    pub(in crate::vfs) fn capacity(&self) -> u64 {
        match &self.bytes {
            Bytes::Own(buffer) if self.rights.is_none() => buffer.capacity() as u64,
            Bytes::Own(_) | Bytes::Shared(_) => 0,
        }
    }

    /// The memory, if no other sample uses it, and the place of the sample in it, if the memory is the sample's own.
    pub(in crate::vfs) fn into_buffer(self) -> (Buffer, Range<usize>) {
        match self.bytes {
            Bytes::Own(buffer) => (buffer, self.range),
            Bytes::Shared(chunk) => {
                let buffer = Arc::into_inner(chunk).map_or_else(Buffer::empty, Chunk::into_buffer);
                (buffer, 0..0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::ChecksumKind;

    #[test]
    fn bytes_that_do_not_match_are_never_verified() {
        let memory = || {
            let mut buffer = Buffer::with_capacity(10).unwrap();
            buffer.as_mut_slice()[..3].copy_from_slice(b"abc");
            Bytes::Own(buffer)
        };
        let wrong = Verified::check(memory(), 0..3, Some(Checksum::Crc32(0))).err().unwrap();
        assert_eq!(wrong.found, ChecksumKind::Crc32.of(b"abc"));
        let verified = Verified::check(memory(), 0..3, Some(wrong.found)).ok().unwrap();
        assert_eq!(verified.bytes(), b"abc");
    }
}
