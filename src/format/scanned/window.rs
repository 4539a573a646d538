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
        let length = length.max(ahead).min(left);
        // Bounded by the length of the source, and the scan asks for no more than its own limits.
        self.bytes.resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
        self.start = at;
        self.source.read_exact_at(&mut self.bytes, at).map_err(|source| Error::Unreadable {
            part: self.source.name().clone(),
            what: "the headers",
            offset_bytes: at,
            source,
        })
    }
}
