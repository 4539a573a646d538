//! The types of the offline reader: memory, chunks, whole files, and why a read stopped.
//!
//! Imports no other file of this directory.

use crate::failure::{Exit, Failure};
use crate::format::{Checksum, Fault};
use crate::io::Buffer;
use std::collections::VecDeque;
use std::ops::Range;

/// The length of a span, so that small samples become large reads.
pub(crate) const SPAN_BYTES: u64 = 4 << 20;

/// The maximum size of the decoded intervals that a thread keeps, if there are several.
const KEPT_BYTES: usize = 256 << 20;

/// How far a thread goes on to the next sample that it reads in order, as others read those between.
const NEAR_SAMPLES: u64 = 64;

/// The memory that a thread reads to and reuses.
pub(crate) struct Scratch {
    pub(crate) buffer: Buffer,
    /// The most recently decoded intervals of a compressed stream.
    pub(super) intervals: DecodedIntervals,
}

/// A decoded interval of a compressed stream.
pub(super) struct DecodedInterval {
    pub(super) container: usize,
    pub(super) number: u64,
    pub(super) bytes: Vec<u8>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self { buffer: Buffer::empty(), intervals: DecodedIntervals::default() }
    }
}

/// The most recently decoded intervals of a container, the latest one last. It is one, unless a sample, or one soon
/// after it, goes back to an earlier one, as they do where the rows of an array lie in several chunks: then it is as
/// many as fit.
#[derive(Default)]
pub(super) struct DecodedIntervals {
    kept: VecDeque<DecodedInterval>,
    /// Bytes of those that are kept.
    bytes: usize,
    /// The sample that was read last.
    sample: u64,
    goes_back: bool,
}

impl DecodedIntervals {
    /// Makes an interval that is kept the latest one; whether it is kept. `place` is the container and the sample
    /// that is read.
    pub(super) fn touch(&mut self, place: (usize, u64), number: u64) -> bool {
        let (container, sample) = place;
        let is_it = |kept: &DecodedInterval| (kept.container, kept.number) == (container, number);
        // Usually the latest one, and the first that is looked at.
        let Some(place) = self.kept.iter().rposition(is_it) else { return false };
        if let Some(found) = self.kept.remove(place) {
            self.kept.push_back(found);
        }
        self.sample = sample;
        true
    }

    /// Makes room for an interval of so many bytes; gives the memory of one that is no longer kept. `place` is the
    /// container and the sample that is read.
    pub(super) fn make_room(&mut self, place: (usize, u64), number: u64, bytes: usize) -> Vec<u8> {
        let (container, sample) = place;
        let is_near = sample.checked_sub(self.sample).is_some_and(|ahead| ahead <= NEAR_SAMPLES);
        self.goes_back = self.kept.back().is_some_and(|last| {
            is_near && last.container == container && (self.goes_back || number < last.number)
        });
        self.sample = sample;
        let most = if self.goes_back { KEPT_BYTES } else { 0 };
        let mut memory = Vec::new();
        while self.bytes.saturating_add(bytes) > most
            && let Some(oldest) = self.kept.pop_front()
        {
            self.bytes -= oldest.bytes.len();
            memory = oldest.bytes;
        }
        memory
    }

    pub(super) fn keep(&mut self, decoded: DecodedInterval) {
        self.bytes += decoded.bytes.len();
        self.kept.push_back(decoded);
    }

    /// The bytes of the latest one.
    pub(super) fn latest(&self) -> &[u8] {
        self.kept.back().map_or(&[], |latest| &latest.bytes)
    }
}

/// A file that was read whole, and checked.
pub(crate) struct WholeFile {
    pub(crate) bytes: FileBytes,
    /// The checksum of the bytes, if it is known.
    pub(crate) checksum: Option<Checksum>,
}

/// Where the bytes of a file are.
pub(crate) enum FileBytes {
    /// In [`Scratch::buffer`].
    InBuffer(Range<usize>),
    Own(Vec<u8>),
}

impl FileBytes {
    /// The bytes; `buffer` is the one that they were read to.
    pub(crate) fn get<'a>(&'a self, buffer: &'a Buffer) -> &'a [u8] {
        match self {
            FileBytes::InBuffer(range) => &buffer.as_slice()[range.clone()],
            FileBytes::Own(bytes) => bytes,
        }
    }
}

/// A piece of a file.
pub(crate) enum Chunk<'a> {
    Data(&'a [u8]),
    /// A hole of this many bytes: zeros that are not stored.
    Hole(u64),
}

static ZEROS: [u8; 65536] = [0; 65536];

impl Chunk<'_> {
    /// Passes the bytes of the chunk to `take`; a hole is zeros.
    pub(crate) fn each_slice<E>(
        &self,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match *self {
            Chunk::Data(bytes) => take(bytes),
            Chunk::Hole(mut left) => {
                while left > 0 {
                    let length = left.min(ZEROS.len() as u64);
                    take(&ZEROS[..length as usize])?;
                    left -= length;
                }
                Ok(())
            }
        }
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> u64 {
        match *self {
            Chunk::Data(bytes) => bytes.len() as u64,
            Chunk::Hole(length) => length,
        }
    }
}

/// Takes the chunks of a file in order.
pub(crate) type TakeChunk<'a> = dyn FnMut(Chunk) -> Result<(), Failure> + 'a;

/// Why a file was not read to its end.
pub(crate) enum Stop {
    /// The file is bad.
    Bad(Fault),
    /// The receiver of the chunks has failed, or the user has interrupted the work.
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Failed(failure)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Stop::Bad(fault)
    }
}

/// The exit code for bad samples, which tells unreadable samples from wrong ones. Encrypted samples decide it only if
/// there are no others.
pub(crate) fn exit_of<'a>(faults: impl Iterator<Item = &'a Fault>) -> Exit {
    let is_locked = std::cell::Cell::new(false);
    let mut faults = faults.filter(|fault| {
        is_locked.set(is_locked.get() || fault.is_encrypted());
        !fault.is_encrypted()
    });
    match faults.next() {
        None if is_locked.get() => Exit::Password,
        None => Exit::Ok,
        Some(first) => match !first.is_permanent() && faults.all(|fault| !fault.is_permanent()) {
            true => Exit::Unreadable,
            false => Exit::Checksum,
        },
    }
}

/// The tool's failure for a bad file.
pub(crate) fn bad_file(path: &[u8], fault: &Fault) -> Failure {
    let exit = exit_of(std::iter::once(fault));
    Failure::new(exit, format!("{}: {fault}", String::from_utf8_lossy(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads these intervals of 10 bytes for these samples; gives which were decoded.
    fn decoded(reads: impl IntoIterator<Item = (u64, u64)>) -> Vec<u64> {
        let (mut intervals, mut decoded) = (DecodedIntervals::default(), Vec::new());
        for (sample, number) in reads {
            if !intervals.touch((0, sample), number) {
                decoded.push(number);
                let mut bytes = intervals.make_room((0, sample), number, 10);
                bytes.clear();
                bytes.resize(10, number as u8);
                intervals.keep(DecodedInterval { container: 0, number, bytes });
            }
            assert_eq!(intervals.latest(), [number as u8; 10]);
            assert_eq!(intervals.bytes, intervals.kept.len() * 10);
        }
        decoded
    }

    #[test]
    fn intervals_that_rows_go_back_to_are_decoded_twice_at_most() {
        // The second row finds that rows go back, and from then on all are kept.
        let rows = (0..100).flat_map(|row| (0..20).map(move |number| (row, number)));
        assert_eq!(decoded(rows).len(), 39);
        let runs = (0..100).flat_map(|_| (0..20).map(|number| (7, number)));
        assert_eq!(decoded(runs).len(), 39);
    }

    #[test]
    fn intervals_that_many_samples_shared_stay_when_one_more_is_decoded() {
        let rows = (0..200).flat_map(|row| (0..20).map(move |number| (row, number)));
        let next = (200..202).flat_map(|row| [0, 5, 25, 3].map(|number| (row, number)));
        assert_eq!(decoded(rows.chain(next)).len(), 40);
    }

    #[test]
    fn samples_in_any_order_keep_one_interval() {
        let far = [(0, 0), (900, 9), (100, 1), (800, 8), (101, 1), (801, 8)];
        assert_eq!(decoded(far), [0, 9, 1, 8, 1, 8]);
    }
}
