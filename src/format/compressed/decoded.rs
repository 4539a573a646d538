//! The bytes that a compressed stream decodes to, at any offset.

use crate::format::stream::{Interval, StreamIndex};
use crate::format::{PartName, Source, Table};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// An interval, once it is decoded.
type Slot = Arc<Mutex<Option<Arc<Vec<u8>>>>>;

/// The intervals that were decoded last, of the streams of several containers whose members are opened one after the other:
/// many small members lie in one interval.
#[derive(Debug)]
pub struct RecentIntervals {
    most: usize,
    /// By the number of the container, and of the interval; the last one that was asked for stands last.
    slots: Mutex<Vec<(usize, u64, Slot)>>,
}

impl RecentIntervals {
    /// Keeps `most` of them.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), slots: Mutex::default() }
    }

    /// Gives back the memory of what was decoded.
    pub fn forget(&self) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// An interval of a container. Several threads that ask for it decode it once.
    fn get(
        &self,
        container: usize,
        number: u64,
        decode: impl FnOnce() -> io::Result<Vec<u8>>,
    ) -> io::Result<Arc<Vec<u8>>> {
        let slot = self.slot(container, number);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(decoded) = slot.as_ref() {
            return Ok(Arc::clone(decoded));
        }
        let decoded = Arc::new(decode()?);
        *slot = Some(Arc::clone(&decoded));
        Ok(decoded)
    }

    fn slot(&self, container: usize, number: u64) -> Slot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it =
            |(of, interval, _): &(usize, u64, Slot)| (*of, *interval) == (container, number);
        let found = match slots.iter().position(is_it) {
            Some(place) => slots.remove(place),
            None => (container, number, Slot::default()),
        };
        let slot = Arc::clone(&found.2);
        if slots.len() >= self.most {
            slots.remove(0);
        }
        slots.push(found);
        slot
    }
}

/// A compressed file as what it decodes to. Every read decodes the intervals that it lies in: it is for the few
/// bytes that a container's structure needs, not for samples.
pub(super) struct DecodedSource {
    stored: Arc<dyn Source>,
    stream: Arc<StreamIndex>,
    /// What was decoded last while a container is opened, and the number of the container there.
    recent: Arc<RecentIntervals>,
    container: usize,
}

impl DecodedSource {
    pub(super) fn new(stored: Arc<dyn Source>, stream: Arc<StreamIndex>) -> Self {
        Self::sharing(stored, stream, (Arc::new(RecentIntervals::new(1)), 0))
    }

    /// With what is decoded for others of the same container.
    pub(super) fn sharing(
        stored: Arc<dyn Source>,
        stream: Arc<StreamIndex>,
        (recent, container): (Arc<RecentIntervals>, usize),
    ) -> Self {
        Self { stored, stream, recent, container }
    }

    fn decoded(&self, interval: &Interval) -> io::Result<Arc<Vec<u8>>> {
        self.recent.get(self.container, interval.number, || {
            let mut stored = vec![0; length(&interval.stored)];
            self.stored.read_exact_at(&mut stored, interval.stored.start)?;
            // At most MAX_INTERVAL_BYTES.
            let mut decoded = vec![0; length(&interval.decoded)];
            let done = self.stream.decode(interval.number, &stored, &mut decoded);
            done.map_err(io::Error::other)?;
            Ok(decoded)
        })
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
            let decoded = self.decoded(&interval)?;
            let found = decoded.get(skip..).unwrap_or_default();
            buf.iter_mut().zip(found).for_each(|(to, from)| *to = *from);
            let copied = found.len().min(buf.len());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_that_many_members_lie_in_is_decoded_once() {
        let recent = RecentIntervals::new(2);
        let mut decoded = Vec::new();
        let mut read = |container, number| {
            let decode = || {
                decoded.push((container, number));
                Ok(vec![number as u8])
            };
            recent.get(container, number, decode).unwrap()
        };
        for number in [0, 0, 1, 0, 1, 1, 2, 1, 2] {
            assert_eq!(*read(7, number), [number as u8]);
        }
        read(8, 2);
        assert_eq!(decoded, [(7, 0), (7, 1), (7, 2), (8, 2)]);
    }
}
