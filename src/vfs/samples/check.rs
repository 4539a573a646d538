//! From the stored bytes of a sample to the bytes of its file: header bytes are checked, encodings are undone,
//! the checksum is compared, and the prefix of the view is put before the bytes.

use super::Samples;
use crate::catalog::Located;
use crate::format::{Content, Fault, Sample, shown};
use crate::io::Buffer;
use crate::vfs::memory::verified::{Bytes, Verified};
use std::ops::Range;

/// Why fetched bytes are not given out.
pub(in crate::vfs) enum Unfit {
    /// The sample lies elsewhere: its container now knows where.
    Moved,
    /// The bytes are wrong, or cannot be decoded or checked.
    Fault(Fault),
}

/// The bytes of the container that a range of a file is made of, if they are stored as they are.
pub(in crate::vfs) fn stored_range(at: &Sample, range: &Range<u64>) -> Range<u64> {
    let prefix = match at.content {
        Content::Prefixed(prefix) => u64::from(prefix),
        _ => 0,
    };
    let place = |byte: u64| at.offset_bytes + byte.saturating_sub(prefix);
    place(range.start)..place(range.end)
}

impl Samples {
    /// Makes a sample's file, checked, from its whole extent, which lies in `range` of `bytes`.
    pub(in crate::vfs) fn check_whole(
        &self,
        sample: u64,
        located: &Located,
        bytes: Bytes,
        range: Range<usize>,
    ) -> Result<Verified, Unfit> {
        let at = located.sample;
        let stored = range.start + at.header_bytes as usize..range.end;
        self.check_header(located, &bytes.bytes()[range.start..stored.start])?;
        let must_check = self.must_check(sample, located);
        let expected = at.checksum.filter(|_| must_check);
        let checked = match at.content {
            Content::Encoded(size) => {
                let decoded = self.decode(located, &bytes.bytes()[stored], size)?;
                Verified::check(Bytes::Own(decoded), 0..size as usize, expected)
            }
            _ => Verified::check(bytes, stored, expected),
        };
        let checked = checked.map_err(|mismatch| Unfit::Fault(Fault::Checksum(mismatch)))?;
        if must_check {
            self.stats.verified();
            self.verified.set(sample);
        }
        match at.content {
            Content::Prefixed(_) => self.behind_prefix(located, &checked),
            _ => Ok(checked),
        }
    }

    /// Checks the header bytes of a sample.
    pub(in crate::vfs) fn check_header(
        &self,
        located: &Located,
        header: &[u8],
    ) -> Result<(), Unfit> {
        match shown::check_header(self.container(located), located.index, header) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Unfit::Moved),
            Err(fault) => Err(Unfit::Fault(fault)),
        }
    }

    fn decode(&self, located: &Located, stored: &[u8], size: u64) -> Result<Buffer, Unfit> {
        let size = size as usize;
        let mut buffer = self.buffer(size).map_err(Unfit::Fault)?;
        let out = &mut buffer.as_mut_slice()[..size];
        match shown::decode(self.container(located), located.index, stored, out) {
            Ok(()) => Ok(buffer),
            Err(fault) => {
                self.buffers.give(buffer);
                Err(Unfit::Fault(fault))
            }
        }
    }

    fn behind_prefix(&self, located: &Located, stored: &Verified) -> Result<Verified, Unfit> {
        let prefix = self.prefix(located).map_err(Unfit::Fault)?;
        let (first, length) = (prefix.len(), prefix.len() + stored.bytes().len());
        let mut buffer = self.buffer(length).map_err(Unfit::Fault)?;
        buffer.as_mut_slice()[..first].copy_from_slice(&prefix);
        buffer.as_mut_slice()[first..length].copy_from_slice(stored.bytes());
        Ok(Verified::made(buffer, 0..length))
    }

    /// The bytes that a file shows before its stored bytes.
    pub(in crate::vfs) fn prefix(&self, located: &Located) -> Result<Vec<u8>, Fault> {
        shown::prefix(self.container(located), located.index, &located.sample)
    }
}
