//! Checkpoints as bytes, so that the next mount need not decode the whole sample again.
//!
//! ```text
//! intervals × { u64 stored start | u64 stored end | u64 decoded end | u32 CRC-32 | u32 bytes of state }
//! states                                                                           little-endian
//! ```
//! No checkpoints are kept of an encrypted sample: a state has bytes that were decoded before it.

use super::{Checkpoints, Interval, MAX_INTERVAL_BYTES, MAX_STORED_BYTES, STEP_BYTES};
use crate::format::{Checkpoint, Checksum, Sample};

const ROW_BYTES: usize = 32;

/// Keeps checkpoints from one mount to the next.
pub trait CheckpointStore: Send + Sync {
    /// The bytes that were kept of a sample. It may read a file, and is called once a sample, by a thread that may block.
    fn load(&self, key: &CheckpointKey) -> Option<Vec<u8>>;

    /// Keeps checkpoints of a sample, by writing them later: a reader waits.
    fn keep(&self, key: &CheckpointKey, bytes: Vec<u8>);

    /// Waits until all checkpoints are written.
    fn finish(&self);
}

/// The sample that checkpoints are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CheckpointKey {
    /// The part that the sample lies in, by number.
    pub file: usize,
    /// The offset in the part where the sample begins.
    pub offset_bytes: u64,
    /// The stored length.
    pub stored_bytes: u64,
    /// The decoded length.
    pub decoded_bytes: u64,
    /// The checksum of the decoded bytes, if there is one.
    pub checksum: Option<Checksum>,
}

impl Checkpoints {
    pub(in crate::vfs) fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for interval in &self.intervals {
            out.extend_from_slice(&interval.stored.start.to_le_bytes());
            out.extend_from_slice(&interval.stored.end.to_le_bytes());
            out.extend_from_slice(&interval.decoded.end.to_le_bytes());
            out.extend_from_slice(&interval.crc32.to_le_bytes());
            out.extend_from_slice(&(interval.state().len() as u32).to_le_bytes());
        }
        for interval in &self.intervals {
            out.extend_from_slice(interval.state());
        }
        out
    }

    /// Reads the bytes that [`Checkpoints::write`] wrote for this sample. `None` if these are other bytes.
    pub(in crate::vfs) fn read(bytes: &[u8], at: &Sample) -> Option<Self> {
        let longest = MAX_INTERVAL_BYTES + STEP_BYTES as u64;
        let mut intervals: Vec<Interval> = Vec::new();
        let (mut decoded, mut states) = (0, 0_usize);
        let mut rows = bytes.chunks_exact(ROW_BYTES);
        while decoded < at.size_bytes() {
            let row = rows.next()?;
            let number = |at: usize| Some(u64::from_le_bytes(*row.get(at..)?.first_chunk()?));
            let half = |at: usize| Some(u32::from_le_bytes(*row.get(at..)?.first_chunk()?));
            let (stored, end) = (number(0)?..number(8)?, number(16)?);
            let is_right = stored.end.checked_sub(stored.start)? <= MAX_STORED_BYTES
                && stored.end <= at.length_bytes
                && (intervals.is_empty() == (stored.start == 0))
                && (1..=longest).contains(&end.checked_sub(decoded)?);
            if !is_right {
                return None;
            }
            let checkpoint = Checkpoint {
                stored_bytes: stored.start,
                decoded_bytes: decoded,
                // Empty for now: the states stand behind the rows.
                state: Box::default(),
            };
            states = states.checked_add(half(28)? as usize)?;
            let from = (!intervals.is_empty()).then_some(checkpoint);
            intervals.push(Interval { from, decoded: decoded..end, stored, crc32: half(24)? });
            decoded = end;
        }
        let (rows, mut rest) = bytes.split_at_checked(intervals.len() * ROW_BYTES)?;
        if decoded != at.size_bytes() || rest.len() != states {
            return None;
        }
        for (interval, row) in intervals.iter_mut().zip(rows.chunks_exact(ROW_BYTES)) {
            let length = u32::from_le_bytes(*row.last_chunk()?) as usize;
            let state;
            (state, rest) = rest.split_at_checked(length)?;
            match &mut interval.from {
                Some(from) => from.state = state.into(),
                None if length == 0 => {}
                None => return None,
            }
        }
        Some(Self::new(intervals, None))
    }
}

impl Interval {
    fn state(&self) -> &[u8] {
        self.from.as_ref().map_or(&[], |from| &from.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Content;

    fn checkpoints() -> (Checkpoints, Sample) {
        let from = |stored_bytes, decoded_bytes, state: &[u8]| {
            Some(Checkpoint { stored_bytes, decoded_bytes, state: state.into() })
        };
        let intervals = vec![
            Interval { from: None, decoded: 0..100, stored: 0..41, crc32: 7 },
            Interval { from: from(40, 100, b"abc"), decoded: 100..250, stored: 40..80, crc32: 8 },
            Interval { from: from(80, 250, b""), decoded: 250..300, stored: 80..90, crc32: 9 },
        ];
        let content = Content::Encoded(300);
        (
            Checkpoints::new(intervals, None),
            Sample { length_bytes: 90, content, ..Sample::default() },
        )
    }

    #[test]
    fn checkpoints_are_read_as_they_were_written() {
        let (checkpoints, at) = checkpoints();
        let read = Checkpoints::read(&checkpoints.write(), &at).unwrap();
        assert_eq!(format!("{:?}", read.intervals), format!("{:?}", checkpoints.intervals));
        assert!(read.id != checkpoints.id, "intervals in the cache are told apart");
    }

    #[test]
    fn checkpoints_of_another_sample_and_cut_ones_are_none() {
        let (checkpoints, at) = checkpoints();
        let bytes = checkpoints.write();
        for end in 0..bytes.len() {
            assert!(Checkpoints::read(&bytes[..end], &at).is_none(), "{end} bytes");
        }
        assert!(Checkpoints::read(&[&bytes[..], &[0]].concat(), &at).is_none());
        let shorter = Sample { length_bytes: 89, ..at };
        assert!(Checkpoints::read(&bytes, &shorter).is_none());
        let larger = Sample { content: Content::Encoded(301), ..at };
        assert!(Checkpoints::read(&bytes, &larger).is_none());
    }

    #[test]
    fn checkpoints_with_an_interval_that_is_too_long_to_be_read_at_once_are_none() {
        let (mut checkpoints, mut at) = checkpoints();
        for (length, is_read) in [(MAX_STORED_BYTES, true), (MAX_STORED_BYTES + 1, false)] {
            at.length_bytes = 80 + length;
            checkpoints.intervals[2].stored.end = at.length_bytes;
            assert_eq!(Checkpoints::read(&checkpoints.write(), &at).is_some(), is_read);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_none_or_intervals_in_order(
            bytes in proptest::collection::vec(0_u8..4, 0..300),
            flips in proptest::collection::vec((0_usize..200, 0_u8..255), 0..4),
        ) {
            let (checkpoints, at) = checkpoints();
            let mut flipped = checkpoints.write();
            for (place, bit) in flips {
                if let Some(byte) = flipped.get_mut(place) {
                    *byte ^= bit;
                }
            }
            for bytes in [bytes, flipped] {
                let Some(read) = Checkpoints::read(&bytes, &at) else { continue };
                let mut decoded = 0;
                for interval in &read.intervals {
                    assert!(interval.decoded.start == decoded && interval.decoded.end > decoded);
                    assert!(interval.stored.start <= interval.stored.end);
                    assert!(interval.stored.end <= at.length_bytes);
                    decoded = interval.decoded.end;
                }
                assert_eq!(decoded, at.size_bytes());
            }
        }
    }
}
