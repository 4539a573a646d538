//! Reads of a scan: small members come many at a time, large ones are passed over.

use crate::format::{Error, Result, Source};

/// Read at a time where headers are close to each other.
const CHUNK_BYTES: u64 = 64 << 10;
/// Read at a time where nothing was passed over for this long.
const LONG_BYTES: u64 = 1 << 20;
/// Up to this distance reading on costs less than asking again.
const NEAR_BYTES: u64 = 8 << 10;
/// The distance of headers is a running mean over about so many.
const MEAN_OVER: u64 = 8;

/// What of a source was read last.
pub(in crate::format) struct Window<'a> {
    source: &'a dyn Source,
    start: u64,
    bytes: Vec<u8>,
    /// Where the last request began, and ended.
    last: (u64, u64),
    /// How far apart requests begin.
    mean_distance: u64,
    /// Length of this run of requests, one right behind the other, and of the one before it.
    run: (u64, u64),
}

impl<'a> Window<'a> {
    pub(in crate::format) fn new(source: &'a dyn Source) -> Self {
        Self {
            source,
            start: 0,
            bytes: Vec::new(),
            last: (0, 0),
            mean_distance: NEAR_BYTES.saturating_mul(2),
            run: (0, 0),
        }
    }

    /// The bytes from `at` on: `length` of them, or as many as there are.
    pub(in crate::format) fn get(&mut self, at: u64, length: u64) -> Result<&[u8]> {
        let end = at.saturating_add(length).min(self.source.len());
        let length = end.saturating_sub(at);
        self.learn(at, length);
        let behind = at.wrapping_sub(self.start);
        let is_here = at >= self.start && behind.saturating_add(length) <= self.bytes.len() as u64;
        if !is_here && length > 0 {
            self.fill(at, length)?;
        }
        let from = usize::try_from(at.wrapping_sub(self.start)).unwrap_or(usize::MAX);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let found = self.bytes.get(from..).and_then(|rest| rest.get(..length));
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
        let ahead = match self.run.0 {
            LONG_BYTES.. => LONG_BYTES,
            _ if self.mean_distance <= NEAR_BYTES => CHUNK_BYTES,
            _ => self.run.1.min(CHUNK_BYTES),
        };
        let left = self.source.len().saturating_sub(at);
        let kept = keep_behind(&mut self.bytes, self.start, at);
        let length = length.max(ahead.saturating_add(kept as u64)).min(left);
        // Bounded by the length of the source, and the scan asks for no more than its own limits.
        self.bytes.resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
        self.start = at;
        let offset_bytes = at.saturating_add(kept as u64);
        let rest = self.bytes.get_mut(kept..).unwrap_or_default();
        self.source.read_exact_at(rest, offset_bytes).map_err(|source| {
            self.bytes.clear();
            let (part, what) = (self.source.name().clone(), "the headers");
            Error::Unreadable { part, what, offset_bytes, source }
        })
    }
}

/// Moves what `bytes`, which begin at `start`, have from `at` on to their beginning, and gives its length: it need not be read
/// again.
pub(in crate::format) fn keep_behind(bytes: &mut [u8], start: u64, at: u64) -> usize {
    let passed = at.checked_sub(start).and_then(|passed| usize::try_from(passed).ok());
    let passed = passed.unwrap_or(usize::MAX).min(bytes.len());
    bytes.copy_within(passed.., 0);
    bytes.len().saturating_sub(passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing::Noted;

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
