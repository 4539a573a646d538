//! The bytes that a compressed stream decodes to, at any offset.

use crate::format::stream::{Interval, StreamIndex};
use crate::format::{PartName, Source, Table};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A compressed file as what it decodes to. Every read decodes the intervals that it lies in: it is for the few
/// bytes that a container's structure needs, not for samples.
pub(super) struct DecodedSource {
    stored: Arc<dyn Source>,
    stream: Arc<StreamIndex>,
    /// The last interval that was decoded, and its number, while a container is opened.
    last: Mutex<Option<(u64, Vec<u8>)>>,
}

impl DecodedSource {
    pub(super) fn new(stored: Arc<dyn Source>, stream: Arc<StreamIndex>) -> Self {
        Self { stored, stream, last: Mutex::new(None) }
    }

    /// Gives back the memory of what was decoded last.
    pub(super) fn forget(&self) {
        *self.last() = None;
    }

    fn last(&self) -> MutexGuard<'_, Option<(u64, Vec<u8>)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the bytes of an interval.
    fn with<T>(&self, interval: &Interval, work: impl FnOnce(&[u8]) -> T) -> io::Result<T> {
        let mut last = self.last();
        if let Some((_, decoded)) = last.as_ref().filter(|(number, _)| *number == interval.number) {
            return Ok(work(decoded));
        }
        let mut stored = vec![0; length(&interval.stored)];
        self.stored.read_exact_at(&mut stored, interval.stored.start)?;
        // At most MAX_INTERVAL_BYTES.
        let mut decoded = vec![0; length(&interval.decoded)];
        let done = self.stream.decode(interval.number, &stored, &mut decoded);
        done.map_err(io::Error::other)?;
        let (_, decoded) = last.insert((interval.number, decoded));
        Ok(work(decoded))
    }
}

fn length(range: &Range<u64>) -> usize {
    usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX)
}

impl Source for DecodedSource {
    fn name(&self) -> &PartName {
        self.stored.name()
    }

    fn len(&self) -> u64 {
        self.stream.decoded_bytes()
    }

    fn read_exact_at(&self, mut buf: &mut [u8], mut offset_bytes: u64) -> io::Result<()> {
        while !buf.is_empty() {
            let interval = self.stream.interval(offset_bytes).ok_or(ErrorKind::UnexpectedEof)?;
            let skip = length(&(interval.decoded.start..offset_bytes));
            let copied = self.with(&interval, |decoded| {
                let found = decoded.get(skip..).unwrap_or_default();
                buf.iter_mut().zip(found).for_each(|(to, from)| *to = *from);
                found.len().min(buf.len())
            })?;
            offset_bytes = interval.decoded.end;
            buf = buf.split_at_mut(copied).1;
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
