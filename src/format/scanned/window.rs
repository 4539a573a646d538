//! Reads of a scan: small members are read many at a time, large ones are passed over.

use crate::format::{Error, Result, Source};

/// Bytes of the first read where headers are close to each other; each further read that goes on where the last one ended
/// is twice as long.
const CHUNK_BYTES: u64 = 64 << 10;
/// Bytes that are read at a time where no byte was passed over for this long.
const LONG_BYTES: u64 = 1 << 20;
/// The distance up to which reading on costs less than another read.
const NEAR_BYTES: u64 = 8 << 10;
/// The approximate number of headers over which their mean distance runs.
const MEAN_OVER: u64 = 8;
/// The address of a byte in memory equals its offset in the file, modulo this: a copy out of the page cache to an address a
/// few bytes higher takes some processors six times as long.
const PLACE_BYTES: u64 = 4096;

/// The bytes of a source that were read last.
pub(in crate::format) struct Window<'a> {
    source: &'a dyn Source,
    start: u64,
    bytes: Placed,
    /// Beginning and end of the last request.
    last: (u64, u64),
    /// The mean distance between the beginnings of requests.
    mean_distance: u64,
    /// Length of this run of requests, one right behind the other, and of the run before it.
    run: (u64, u64),
    /// The end of the last read, and the length of the next one if it goes on there.
    ahead: (u64, u64),
}

impl<'a> Window<'a> {
    pub(in crate::format) fn new(source: &'a dyn Source) -> Self {
        Self {
            source,
            start: 0,
            bytes: Placed::default(),
            last: (0, 0),
            mean_distance: NEAR_BYTES.saturating_mul(2),
            run: (0, 0),
            ahead: (0, CHUNK_BYTES),
        }
    }

    /// The bytes from `at` on: `length` of them, or as many as there are.
    pub(in crate::format) fn get(&mut self, at: u64, length: u64) -> Result<&[u8]> {
        let end = at.saturating_add(length).min(self.source.len());
        let length = end.saturating_sub(at);
        self.learn(at, length);
        let behind = at.wrapping_sub(self.start);
        let is_here = at >= self.start && behind.saturating_add(length) <= self.bytes.length as u64;
        if !is_here && length > 0 {
            self.fill(at, length)?;
        }
        let from = usize::try_from(at.wrapping_sub(self.start)).unwrap_or(usize::MAX);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let found = self.bytes.all().get(from..).and_then(|rest| rest.get(..length));
        Ok(found.unwrap_or_default())
    }

    fn learn(&mut self, at: u64, length: u64) {
        let distance = at.saturating_sub(self.last.0);
        let others = self.mean_distance.saturating_mul(MEAN_OVER.saturating_sub(1));
        self.mean_distance = others.saturating_add(distance) / MEAN_OVER;
        if at == self.last.1 {
            self.run.0 = self.run.0.saturating_add(length);
        } else {
            self.run = (length, self.run.0);
        }
        self.last = (at, at.saturating_add(length));
    }

    fn fill(&mut self, at: u64, length: u64) -> Result<()> {
        let near = self.ahead.0.saturating_add(NEAR_BYTES);
        let goes_on = (self.start..=near).contains(&at);
        let chunk = if goes_on { self.ahead.1 } else { CHUNK_BYTES };
        let ahead = match self.run.0 {
            LONG_BYTES.. => LONG_BYTES,
            _ if self.mean_distance <= NEAR_BYTES => chunk,
            _ => self.run.1.min(CHUNK_BYTES),
        };
        let left = self.source.len().saturating_sub(at);
        let kept = self.bytes.length.saturating_sub(passed(self.bytes.length, self.start, at));
        let length = length.max(ahead.saturating_add(kept as u64)).min(left);
        // Bounded by the length of the source, and the scan asks for no more than its own limits.
        self.bytes.move_to(at, kept, usize::try_from(length).unwrap_or(usize::MAX));
        self.start = at;
        self.ahead = (at.saturating_add(length), chunk.saturating_mul(2).min(LONG_BYTES));
        let offset_bytes = at.saturating_add(kept as u64);
        let rest = self.bytes.all_mut().get_mut(kept..).unwrap_or_default();
        self.source.read_exact_at(rest, offset_bytes).map_err(|source| {
            self.bytes.length = 0;
            let (part, what) = (self.source.name().clone(), "the headers");
            Error::Unreadable { part, what, offset_bytes, source }
        })
    }
}

/// Bytes of a file whose addresses in memory are their offsets in the file, modulo [`PLACE_BYTES`].
#[derive(Default)]
struct Placed {
    memory: Vec<u8>,
    from: usize,
    length: usize,
}

impl Placed {
    fn all(&self) -> &[u8] {
        self.memory.get(self.from..).and_then(|rest| rest.get(..self.length)).unwrap_or_default()
    }

    fn all_mut(&mut self) -> &mut [u8] {
        let rest = self.memory.get_mut(self.from..);
        rest.and_then(|rest| rest.get_mut(..self.length)).unwrap_or_default()
    }

    /// Holds `length` bytes from offset `at` of the file: the last `kept` ones of those held before, and room for others.
    fn move_to(&mut self, at: u64, kept: usize, length: usize) {
        let end = self.from.saturating_add(self.length);
        let kept_at = end.saturating_sub(kept)..end;
        let room = length.saturating_add(PLACE_BYTES as usize);
        if self.memory.len() < room {
            let more = self.memory.len().saturating_add(self.memory.len() / 2);
            let mut larger = vec![0; room.max(more)];
            let from = place(&larger, at);
            let old = self.memory.get(kept_at).unwrap_or_default();
            if let Some(new) = larger.get_mut(from..).and_then(|rest| rest.get_mut(..old.len())) {
                new.copy_from_slice(old);
            }
            (self.memory, self.from) = (larger, from);
        } else {
            self.from = place(&self.memory, at);
            self.memory.copy_within(kept_at, self.from);
        }
        self.length = length;
    }
}

/// The first place in `memory` whose address is, modulo [`PLACE_BYTES`], `at`.
fn place(memory: &[u8], at: u64) -> usize {
    let begins = memory.as_ptr().addr() as u64;
    let distance = at.wrapping_sub(begins) % PLACE_BYTES;
    usize::try_from(distance).unwrap_or(0)
}

/// The number of bytes before `at`, of `length` bytes that begin at `start`.
fn passed(length: usize, start: u64, at: u64) -> usize {
    let passed = at.checked_sub(start).and_then(|passed| usize::try_from(passed).ok());
    passed.unwrap_or(usize::MAX).min(length)
}

/// Moves those of `bytes`, which begin at offset `start`, that lie from `at` on to the beginning, and returns their number:
/// they need not be read again.
pub(in crate::format) fn keep_behind(bytes: &mut [u8], start: u64, at: u64) -> usize {
    let passed = passed(bytes.len(), start, at);
    bytes.copy_within(passed.., 0);
    bytes.len().saturating_sub(passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing::Noted;

    #[test]
    fn bytes_stand_in_memory_as_in_the_file() {
        let source = Noted::new(vec![7; 5 << 20]);
        let mut window = Window::new(&source);
        for record in [100_u64, 40_000, 3_000_000, 1000] {
            for at in (12..2 << 20).step_by(usize::try_from(record).unwrap()) {
                let found = window.get(at, record).unwrap();
                assert_eq!(found.as_ptr().addr() as u64 % PLACE_BYTES, at % PLACE_BYTES);
            }
        }
    }

    #[test]
    fn reads_of_near_headers_grow() {
        const LENGTH: u64 = 9 << 20;
        let source = Noted::new(vec![7; LENGTH as usize]);
        let mut window = Window::new(&source);
        (0..LENGTH).step_by(3000).for_each(|at| assert_eq!(window.get(at, 40).unwrap()[39], 7));
        let reads = source.reads();
        assert!(reads.len() < 24, "{reads:?}");
        assert!(reads.iter().all(|(_, length)| *length <= LONG_BYTES), "{reads:?}");
        // Elsewhere they begin anew.
        window.get(100, 40).unwrap();
        assert!(source.reads().last().unwrap().1 <= CHUNK_BYTES);
    }

    #[test]
    fn a_pass_over_all_bytes_reads_each_once_and_one_behind_the_other() {
        const LENGTH: u64 = 9 << 20;
        let bytes: Vec<u8> = (0..LENGTH).map(|at| (at * 7 + at / 251) as u8).collect();
        for record in [100, 3_000, 110_000, 700_000, 1_500_000] {
            let source = Noted::new(bytes.clone());
            let mut window = Window::new(&source);
            for at in (0..LENGTH).step_by(record as usize) {
                let found = window.get(at, record).unwrap();
                let end = LENGTH.min(at + record) as usize;
                assert!(found == &bytes[at as usize..end], "{record} at {at}");
            }
            let mut end = 0;
            for (at, length) in source.reads() {
                assert_eq!(at, end, "{record}");
                end = at + length;
            }
            assert_eq!(end, LENGTH);
        }
    }
}
