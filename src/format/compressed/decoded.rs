//! The bytes that a compressed stream decodes to, at any offset.

use crate::format::stream::{Interval, StreamIndex};
use crate::format::{PartName, Source, Table, counted, table_in_memory};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The decoded bytes of an interval, once it is decoded.
type Slot = Arc<Mutex<Option<Arc<Vec<u8>>>>>;

/// Bytes that a container asked for last while it is opened, and may ask for again at no cost: its structure is scattered.
pub const LATELY_BYTES: u64 = 64 << 20;
/// The most intervals that are kept for each reader, however small.
const MOST_RECENT: usize = 256;

/// The intervals that were decoded last, of the streams of several containers whose members are opened one after the other:
/// many small members lie in one interval.
#[derive(Debug)]
pub struct RecentIntervals {
    slots: Mutex<Slots>,
    /// Bytes that are kept for one reader.
    each_bytes: u64,
}

#[derive(Debug)]
struct Slots {
    /// Number of the container, number and length of the interval, and its slot; the interval that was asked for last
    /// stands last.
    all: Vec<(usize, u64, u64, Slot)>,
    /// The number of intervals that are kept, however large.
    least: usize,
    /// Further intervals are kept up to this number, and up to `most_bytes`.
    most: usize,
    most_bytes: u64,
}

impl RecentIntervals {
    /// Keeps an interval for each of `readers` at a time, and further ones while they are no more than `each_bytes` for
    /// each, as the structure of many containers is scattered. So the intervals that a reader may ask for again at no cost
    /// are kept, whatever the others ask for.
    #[must_use]
    pub fn new(readers: usize, each_bytes: u64) -> Self {
        let slots = Slots {
            all: Vec::new(),
            least: readers,
            most: MOST_RECENT.saturating_mul(readers),
            most_bytes: each_bytes.saturating_mul(readers as u64),
        };
        Self { slots: Mutex::new(slots), each_bytes }
    }

    /// Keeps intervals of a member that is a stream of its own, with as many bytes for its one reader.
    pub(super) fn of_one(&self) -> Self {
        Self::new(1, self.each_bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees the memory of decoded intervals. From now on no interval is kept: there may be many containers.
    pub fn forget(&self) {
        *self.lock() = Slots { all: Vec::new(), least: 0, most: 0, most_bytes: 0 };
    }

    /// The decoded bytes of a container's interval. Several threads that ask for it decode it once.
    fn get(
        &self,
        container: usize,
        (number, length_bytes): (u64, u64),
        decode: impl FnOnce() -> io::Result<Vec<u8>>,
    ) -> io::Result<Arc<Vec<u8>>> {
        let slot = self.slot(container, number, length_bytes);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(decoded) = slot.as_ref() {
            return Ok(Arc::clone(decoded));
        }
        let decoded = Arc::new(decode()?);
        *slot = Some(Arc::clone(&decoded));
        Ok(decoded)
    }

    fn slot(&self, container: usize, number: u64, length_bytes: u64) -> Slot {
        let mut slots = self.lock();
        let is_it =
            |(of, interval, ..): &(usize, u64, u64, Slot)| (*of, *interval) == (container, number);
        let found = match slots.all.iter().position(is_it) {
            Some(place) => slots.all.remove(place),
            None => (container, number, length_bytes, Slot::default()),
        };
        let slot = Arc::clone(&found.3);
        slots.all.push(found);
        let is_too_much =
            |slots: &Slots| slots.bytes() > slots.most_bytes || slots.all.len() > slots.most;
        while slots.all.len() > slots.least && is_too_much(&slots) {
            slots.all.remove(0);
        }
        slot
    }
}

impl Slots {
    fn bytes(&self) -> u64 {
        self.all.iter().map(|(.., length_bytes, _)| *length_bytes).fold(0, u64::saturating_add)
    }
}

/// The decoded bytes of a compressed file. Every read decodes the intervals that it lies in: it is for the few bytes that a
/// container's structure needs, not for samples.
pub(super) struct DecodedSource {
    stored: Arc<dyn Source>,
    stream: Arc<StreamIndex>,
    /// The intervals that were decoded last while a container is opened, and the number of the container among them.
    recent: Arc<RecentIntervals>,
    container: usize,
    limit: Mutex<Option<Limit>>,
}

/// The bound on decoding while a container is opened. It counts the intervals that the container asks for, however many of
/// them make room for containers that are opened at the same time: a container that opens once always opens.
struct Limit {
    /// Bytes that may still be decoded; 0 once there were too few.
    left_bytes: u64,
    /// Number and length of intervals that cost nothing; the interval that was asked for last stands last.
    lately: Vec<(u64, u64)>,
}

impl Limit {
    /// Counts an interval that is asked for. Returns whether it is allowed.
    fn allows(&mut self, number: u64, length_bytes: u64) -> bool {
        let place = self.lately.iter().position(|(known, _)| *known == number);
        if let Some(place) = place {
            self.lately.remove(place);
        } else {
            self.left_bytes = self.left_bytes.saturating_sub(length_bytes);
        }
        self.lately.push((number, length_bytes));
        let bytes = |all: &[(u64, u64)]| all.iter().map(|(_, bytes)| *bytes).sum::<u64>();
        while self.lately.len() > 1 && bytes(&self.lately) > LATELY_BYTES {
            self.lately.remove(0);
        }
        self.left_bytes > 0
    }
}

impl DecodedSource {
    pub(super) fn new(stored: Arc<dyn Source>, stream: Arc<StreamIndex>) -> Self {
        Self::sharing(stored, stream, (Arc::new(RecentIntervals::new(1, 0)), 0))
    }

    /// Shares decoded intervals with others that read the same container.
    pub(super) fn sharing(
        stored: Arc<dyn Source>,
        stream: Arc<StreamIndex>,
        (recent, container): (Arc<RecentIntervals>, usize),
    ) -> Self {
        Self { stored, stream, recent, container, limit: Mutex::default() }
    }

    /// Decodes fewer than `most_bytes` until [`DecodedSource::end_limit`].
    pub(super) fn limit(&self, most_bytes: u64) {
        *self.limit_now() = Some(Limit { left_bytes: most_bytes, lately: Vec::new() });
    }

    /// Ends the bound: the container is open.
    ///
    /// # Errors
    /// The container has asked for more bytes.
    pub(super) fn end_limit(&self) -> io::Result<()> {
        match self.limit_now().take() {
            Some(Limit { left_bytes: 0, .. }) => Err(too_often()),
            _ => Ok(()),
        }
    }

    fn limit_now(&self) -> MutexGuard<'_, Option<Limit>> {
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decoded(&self, interval: &Interval) -> io::Result<Arc<Vec<u8>>> {
        let length_bytes = interval.decoded.end.saturating_sub(interval.decoded.start);
        // Many stored bytes that decode to few take as long as many decoded ones.
        let cost = length_bytes.max(length(&interval.stored) as u64);
        let mut limit = self.limit_now();
        if limit.as_mut().is_some_and(|limit| !limit.allows(interval.number, cost)) {
            return Err(too_often());
        }
        drop(limit);
        self.recent.get(self.container, (interval.number, length_bytes), || {
            let mut stored = zeros(length(&interval.stored))?;
            self.stored.read_exact_at(&mut stored, interval.stored.start)?;
            // At most MAX_INTERVAL_BYTES.
            let mut decoded = zeros(length(&interval.decoded))?;
            let done = self.stream.decode(interval.number, &stored, &mut decoded);
            done.map_err(io::Error::other)?;
            Ok(decoded)
        })
    }
}

/// The most bytes of a table, which stays in memory, for each of its stored bytes: a table of names, sizes and checksums
/// shrinks to a tenth at most.
const TABLE_RATIO: u64 = 32;
/// Bytes that a table may have in any case.
const FREE_TABLE_BYTES: u64 = 256 << 20;

fn too_often() -> io::Error {
    io::Error::other(
        "its structure lies so scattered that opening it would decode the stream many times: decompress it first",
    )
}

fn zeros(length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| ErrorKind::OutOfMemory)?;
    bytes.resize(length, 0);
    Ok(bytes)
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

    /// Makes a table in memory.
    fn table(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Box<dyn Table>> {
        let first = self.stream.interval(offset_bytes);
        let last =
            self.stream.interval(offset_bytes.saturating_add(length_bytes).saturating_sub(1));
        let stored = first
            .zip(last)
            .map_or(0, |(first, last)| last.stored.end.saturating_sub(first.stored.start));
        if length_bytes > stored.saturating_mul(TABLE_RATIO).saturating_add(FREE_TABLE_BYTES) {
            return Err(io::Error::other(format!(
                "a table of {}, decoded from {stored}: it looks like a decompression bomb",
                counted(length_bytes, "byte")
            )));
        }
        table_in_memory(self, offset_bytes, length_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::MemorySource;
    use crate::format::codec::Codec;
    use crate::format::stream::INTERVAL_BYTES;

    /// Decodes frames of zstd.
    fn decoded(stored: Vec<u8>) -> DecodedSource {
        let source: Arc<dyn Source> = Arc::new(MemorySource::new("x", stored));
        let take = &mut |_: u64, _: &[u8]| Ok(());
        let stream = StreamIndex::build(source.as_ref(), Codec::Zstd, INTERVAL_BYTES, take);
        DecodedSource::new(source, Arc::new(stream.unwrap()))
    }

    #[test]
    fn only_so_much_is_decoded_until_the_limit_ends() {
        let stored = zstd::bulk::compress(&[7; 3000], 1).unwrap();
        let decoded = decoded(stored);
        let read = || decoded.read_exact_at(&mut [0; 10], 2000);
        decoded.limit(3001);
        read().unwrap();
        // What was asked for lately costs nothing, whether it is kept or not.
        decoded.recent.forget();
        read().unwrap();
        decoded.end_limit().unwrap();
        decoded.limit(3000);
        assert!(read().unwrap_err().to_string().contains("decompress it first"));
        assert!(decoded.end_limit().is_err());
        read().unwrap();
        decoded.end_limit().unwrap();
    }

    #[test]
    fn stored_bytes_that_decode_to_nothing_count_for_the_limit() {
        let skipped = [&[0x50, 0x2a, 0x4d, 0x18][..], &10_000_u32.to_le_bytes(), &[0; 10_000]];
        let stored = [skipped.concat(), zstd::bulk::compress(&[7; 30], 1).unwrap()].concat();
        let decoded = decoded(stored);
        let read = || decoded.read_exact_at(&mut [0; 10], 0);
        decoded.limit(20_000);
        read().unwrap();
        decoded.end_limit().unwrap();
        decoded.limit(10_000);
        assert!(read().is_err());
    }

    #[test]
    fn a_table_that_is_decoded_from_next_to_nothing_takes_no_memory() {
        let frame = zstd::bulk::compress(&vec![0; 16 << 20], 1).unwrap();
        let decoded = decoded(frame.repeat(20));
        let refused = decoded.table(0, decoded.len()).err().unwrap().to_string();
        assert!(refused.contains("bomb"), "{refused}");
        let table = decoded.table(5 << 20, 30 << 20).unwrap();
        let mut bytes = [1; 100];
        table.copy_to((30 << 20) - 100, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 100]);
        assert!(table.copy_to((30 << 20) - 99, &mut bytes).is_err());
        assert!(decoded.table(decoded.len(), 1).is_err());
    }

    #[test]
    fn intervals_cost_again_when_others_were_asked_for_between() {
        let mut limit = Limit { left_bytes: u64::MAX, lately: Vec::new() };
        let mut cost = |numbers: &[u64]| {
            let before = limit.left_bytes;
            assert!(numbers.iter().all(|number| limit.allows(*number, LATELY_BYTES / 2)));
            (before - limit.left_bytes) / (LATELY_BYTES / 2)
        };
        assert_eq!(cost(&[1, 2, 1, 2, 2, 1]), 2);
        assert_eq!(cost(&[3, 1, 2, 3]), 3);
    }

    #[test]
    fn an_interval_that_many_members_lie_in_is_decoded_once() {
        let recent = RecentIntervals::new(2, 0);
        let mut decoded = Vec::new();
        let mut read = |container, number| {
            let decode = || {
                decoded.push((container, number));
                Ok(vec![number as u8])
            };
            recent.get(container, (number, 1), decode).unwrap()
        };
        for number in [0, 0, 1, 0, 1, 1, 2, 1, 2] {
            assert_eq!(*read(7, number), [number as u8]);
        }
        read(8, 2);
        assert_eq!(decoded, [(7, 0), (7, 1), (7, 2), (8, 2)]);
    }

    #[test]
    fn intervals_are_kept_as_long_as_there_is_room_until_all_is_open() {
        let recent = RecentIntervals::new(1, 30);
        let times = |numbers: &[u64]| {
            let mut decoded = 0;
            for number in numbers {
                let decode = || {
                    decoded += 1;
                    Ok(Vec::new())
                };
                recent.get(7, (*number, 10), decode).unwrap();
            }
            decoded
        };
        assert_eq!(times(&[0, 1, 2, 0, 1, 2]), 3);
        assert_eq!(times(&[3, 1, 2, 0, 0]), 2);
        recent.forget();
        assert_eq!(times(&[1, 1]), 2);
    }

    #[test]
    fn what_one_reader_goes_back_to_is_kept_whatever_another_one_asks_for() {
        let recent = RecentIntervals::new(2, 20);
        let mut decoded = 0;
        for (container, number) in [(7, 0), (8, 0), (7, 1), (8, 1)].repeat(5) {
            let decode = || {
                decoded += 1;
                Ok(Vec::new())
            };
            recent.get(container, (number, 10), decode).unwrap();
        }
        assert_eq!(decoded, 4);
    }
}
