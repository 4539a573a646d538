//! Warming up: samples in a store go into the node's cache, without a copy in memory; samples on a local disk are
//! announced.

use super::Prefetch;
use super::fetch::{Fetch, Target};
use super::orders::UNNAMED;
use super::queue::{Again, Fill, add};
use crate::io::{Buffer, ReadError};
use crate::vfs::Errno;
use crate::vfs::span::Span;
use std::io::ErrorKind;
use std::ops::Range;
use std::time::Instant;

/// The most ranges that may wait, unless one warm-up has more: some 50 MB, however often the same samples are asked for.
const MAX_FILLS: usize = 1 << 20;

impl Prefetch {
    /// Has samples fetched that will be read some time, by number: into the cache of this node if their part has one,
    /// else as [`Prefetch::announce`] does. All of them are queued or none.
    ///
    /// # Errors
    /// EINVAL if there is no such sample. ENOSPC if too many ranges wait, or as for `announce`.
    pub(in crate::vfs) fn warm_up(&self, samples: &[u64]) -> Result<(), Errno> {
        let count = self.samples.dataset().len();
        if samples.iter().any(|sample| *sample >= count) {
            return Err(Errno::EINVAL);
        }
        let (mut extents, mut announced) = (Vec::new(), Vec::new());
        for &sample in samples {
            match self.samples.locate(sample) {
                // A sample that cannot be read fails as announced samples do: its bytes are of no use in a cache.
                Ok(at) if !at.sample.damaged && self.samples.store().part(at.part).has_cache() => {
                    extents.push((at.part, at.sample.extent()));
                }
                _ => announced.push(sample),
            }
        }
        let count = extents.len() as u64;
        let unit = |part: usize| self.samples.store().part(part).profile().fill_bytes;
        let fills = fills(extents, unit);
        let waiting = self.lock().fills.len();
        if waiting > 0 && waiting + fills.len() > MAX_FILLS {
            return Err(Errno::ENOSPC);
        }
        self.announce(UNNAMED, &announced)?;
        add(&self.counts.announced, count);
        let mut queue = self.lock();
        if std::mem::take(&mut queue.cache_is_full) {
            let left: u64 = queue.fills.drain(..).map(|fill| fill.samples).sum();
            add(&self.counts.done, left);
        }
        queue.fills.extend(fills);
        drop(queue);
        self.wake();
        Ok(())
    }

    /// The fetch of the next range that a cache is to hold.
    pub(super) fn next_fill(&self, fills: &mut std::collections::VecDeque<Fill>) -> Option<Fetch> {
        let Fill { part, range, samples } = fills.pop_front()?;
        let (_in_flight, since) = (self.in_flight(samples), Instant::now());
        let span = Span::new(part, range, Buffer::empty());
        let (target, is_announced) = (Target::Cache(samples), true);
        let (is_looked_up, again) = (false, Again::default());
        Some(Fetch { span, target, is_announced, is_looked_up, again, since, _in_flight })
    }

    /// Notes that a cache holds a range now, or that filling it failed.
    pub(super) fn filled(&self, fetch: &Fetch, samples: u64, filled: Result<(), ReadError>) {
        match filled {
            Ok(()) => {
                self.samples.stats().fetched(fetch.span.length() as u64);
                add(&self.counts.done, samples);
            }
            Err(ReadError::Io(error)) if error.kind() == ErrorKind::StorageFull => {
                let (part, range) = (fetch.span.part(), fetch.span.range());
                let mut queue = self.lock();
                queue.cache_is_full = true;
                queue.fills.push_front(Fill { part, range, samples });
            }
            Err(error) => {
                tracing::warn!("{}: {error}", self.samples.store().part(fetch.span.part()).name());
                add(&self.counts.failed, samples);
                add(&self.counts.done, samples);
            }
        }
    }
}

/// The ranges that hold these extents, in order: one for each unit of its part (in bytes) in which extents begin. An extent
/// that ends in the next unit makes no range of its own: that range would wait beside the others for bytes that they fetch,
/// and take the place of a fetch.
fn fills(mut extents: Vec<(usize, Range<u64>)>, unit: impl Fn(usize) -> u64) -> Vec<Fill> {
    extents.sort_unstable_by_key(|(part, extent)| (*part, extent.start));
    let mut fills: Vec<Fill> = Vec::new();
    for (part, extent) in extents {
        let unit = unit(part);
        match fills.last_mut() {
            Some(last) if last.part == part && last.range.start / unit == extent.start / unit => {
                last.range.end = last.range.end.max(extent.end);
                last.samples += 1;
            }
            _ => fills.push(Fill { part, range: extent, samples: 1 }),
        }
    }
    fills
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_make_one_range_for_each_unit_in_which_some_begin() {
        let extents =
            [(0, 5..30), (0, 40..95), (0, 95..110), (0, 110..260), (0, 260..270), (1, 0..9)];
        let fills = fills(extents.into_iter().rev().collect(), |_| 100);
        let shown: Vec<_> = fills.iter().map(|f| (f.part, f.range.clone(), f.samples)).collect();
        assert_eq!(shown, [(0, 5..110, 3), (0, 110..260, 1), (0, 260..270, 1), (1, 0..9, 1)]);
    }
}
