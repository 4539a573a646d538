//! Large encoded samples: all of a sample is decoded once, in bounded memory, checked, and checkpoints are
//! recorded; after that a read decodes the intervals that it needs.
//!
//! Where an encoding has no checkpoints, the decoded bytes go to a file, the spool, and intervals are read
//! from there.

pub(super) mod decode;
mod kept;
pub(super) mod spool;

pub use kept::{CheckpointKey, CheckpointStore};

/// An interval must fit in memory; encodings whose intervals are larger cannot be read in the middle.
pub(super) use crate::format::stream::{MAX_INTERVAL_BYTES, MAX_STORED_BYTES};

use crate::format::{Checkpoint, Fault};
use crate::io::Buffer;
use spool::Spool;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The fewest bytes that are decoded for a read in the middle.
pub(super) const INTERVAL_BYTES: u64 = 4 << 20;
/// The bytes that are read from the spool at a time.
pub(super) const SPOOLED_INTERVAL_BYTES: u64 = 1 << 20;
/// The bytes that a spooled sample counts in the cache, so that there are not too many spool files.
const SPOOLED_BYTES: u64 = 256 << 10;
/// The most bytes that are decoded at a time.
pub(super) const STEP_BYTES: usize = 256 << 10;

/// The places where decoding of a large encoded sample can begin.
pub(super) struct Checkpoints {
    id: u64,
    intervals: Vec<Interval>,
    memory_bytes: u64,
    /// The file that the sample was decoded to, if it was: intervals are read from there.
    spool: Option<Spool>,
}

/// The bytes from one checkpoint to the next.
#[derive(Debug)]
pub(super) struct Interval {
    /// `None` for the start of the encoding.
    pub(super) from: Option<Checkpoint>,
    pub(super) decoded: Range<u64>,
    pub(super) stored: Range<u64>,
    pub(super) crc32: u32,
}

impl Checkpoints {
    fn new(intervals: Vec<Interval>, spool: Option<Spool>) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let states = intervals.iter().filter_map(|interval| interval.from.as_ref());
        let memory_bytes = states.map(|from| from.state.len() as u64).sum::<u64>()
            + (intervals.capacity() * size_of::<Interval>()) as u64
            + spool.as_ref().map_or(0, |_| SPOOLED_BYTES);
        Self { id: IDS.fetch_add(1, Ordering::Relaxed), intervals, memory_bytes, spool }
    }

    /// The number that tells the sample's intervals in the cache from those of other samples.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// The file that the sample was decoded to, if it was.
    pub(super) fn spool(&self) -> Option<&Spool> {
        self.spool.as_ref()
    }

    /// Reads an interval from the spool, and gives its length; this is file I/O.
    pub(super) fn read_spooled(&self, number: u64) -> Result<(Buffer, usize), Fault> {
        let (spool, interval) = self.spool().zip(self.interval(number)).ok_or(Fault::Damaged)?;
        let Range { start, end } = interval.decoded;
        Ok((spool.read(&interval.decoded, interval.crc32)?, (end - start) as usize))
    }

    pub(super) fn interval(&self, number: u64) -> Option<&Interval> {
        self.intervals.get(usize::try_from(number).ok()?)
    }

    /// The number of the interval with this byte of the decoded sample.
    pub(super) fn number_at(&self, decoded_bytes: u64) -> u64 {
        self.intervals.partition_point(|interval| interval.decoded.end <= decoded_bytes) as u64
    }
}
