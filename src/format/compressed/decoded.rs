//! The bytes that a compressed stream decodes to, at any offset.

use crate::format::stream::StreamIndex;
use crate::format::{PartName, Source, Table};
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// A compressed file as what it decodes to. Every read decodes the intervals that it lies in: it is for the few
/// bytes that a container's structure needs, not for samples.
pub(super) struct DecodedSource {
    stored: Arc<dyn Source>,
    stream: Arc<StreamIndex>,
}

impl DecodedSource {
    pub(super) fn new(stored: Arc<dyn Source>, stream: Arc<StreamIndex>) -> Self {
        Self { stored, stream }
    }
}

impl Source for DecodedSource {
    fn name(&self) -> &PartName {
        self.stored.name()
    }

    fn len(&self) -> u64 {
        self.stream.decoded_bytes()
    }

    fn read_exact_at(&self, mut buf: &mut [u8], mut offset_bytes: u64) -> io::Result<()> {
        let length = |range: &std::ops::Range<u64>| {
            usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX)
        };
        while !buf.is_empty() {
            let interval = self.stream.interval(offset_bytes).ok_or(ErrorKind::UnexpectedEof)?;
            let mut stored = vec![0; length(&interval.stored)];
            self.stored.read_exact_at(&mut stored, interval.stored.start)?;
            // At most MAX_INTERVAL_BYTES.
            let mut decoded = vec![0; length(&interval.decoded)];
            let done = self.stream.decode(interval.number, &stored, &mut decoded);
            done.map_err(io::Error::other)?;
            let skip = length(&(interval.decoded.start..offset_bytes));
            let found = decoded.get(skip..).unwrap_or_default();
            let (target, rest) = buf.split_at_mut(found.len().min(buf.len()));
            target.iter_mut().zip(found).for_each(|(to, from)| *to = *from);
            offset_bytes = interval.decoded.end;
            buf = rest;
        }
        Ok(())
    }

    fn check_unchanged(&self) -> io::Result<()> {
        self.stored.check_unchanged()
    }

    /// In memory.
    fn table(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Box<dyn Table>> {
        let is_there = offset_bytes.checked_add(length_bytes).is_some_and(|end| end <= self.len());
        let length = usize::try_from(length_bytes).ok().filter(|_| is_there);
        let mut bytes = vec![0; length.ok_or(ErrorKind::UnexpectedEof)?];
        self.read_exact_at(&mut bytes, offset_bytes)?;
        Ok(Box::new(bytes))
    }
}
