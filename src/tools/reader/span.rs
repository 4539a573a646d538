//! Groups samples that are fetched with one read.
//!
//! Imports the sizes of `types.rs`.

use super::types::SPAN_BYTES;
use crate::catalog::{Dataset, Located};
use crate::format::Content;

/// The maximum number of samples in a span.
const MAX_SAMPLES: usize = 4096;
/// The gap between two samples, which is read needlessly, may be this long, or as long as all samples before it.
const MAX_GAP_BYTES: u64 = 64 << 10;
/// The length of a span of a compressed stream; the threads of adjacent spans both decode the interval between them.
const STREAM_SPAN_BYTES: u64 = 16 << 20;

/// Adds samples to a span while they lie close together.
pub(crate) struct SpanPlan<'a> {
    dataset: &'a Dataset,
    span: Option<Extent>,
}

/// The extent of the span so far.
struct Extent {
    container: usize,
    is_stream: bool,
    may_join: bool,
    start: u64,
    end: u64,
    samples: usize,
    /// Total bytes of the files.
    shown_bytes: u64,
    /// Total bytes of the extents.
    stored_bytes: u64,
}

impl<'a> SpanPlan<'a> {
    pub(crate) fn new(dataset: &'a Dataset) -> Self {
        Self { dataset, span: None }
    }

    /// Adds a sample and returns true if it is read together with the earlier ones. The first one always is.
    pub(crate) fn add(&mut self, located: &Located) -> bool {
        let (at, extent) = (located.sample, located.sample.extent());
        let is_stream =
            self.dataset.containers()[located.container].intervals(located.index).is_some();
        let is_sparse = matches!(at.content, Content::Sparse(_)) && !is_stream;
        let length = extent.end - extent.start;
        let may_join = !at.damaged
            && !is_sparse
            && at.size_bytes().max(at.scratch_bytes) <= SPAN_BYTES
            && (is_stream || length <= SPAN_BYTES);
        let Some(span) = &mut self.span else {
            self.span = Some(Extent {
                container: located.container,
                is_stream,
                may_join,
                start: extent.start,
                end: extent.end,
                samples: 1,
                shown_bytes: at.size_bytes(),
                stored_bytes: length,
            });
            return true;
        };
        let shown_bytes = span.shown_bytes.saturating_add(at.size_bytes());
        let stored_bytes = span.stored_bytes.saturating_add(length);
        let end = span.end.max(extent.end);
        let is_near = match is_stream {
            true => shown_bytes <= STREAM_SPAN_BYTES,
            false => {
                extent.start >= span.start
                    && end - span.start <= SPAN_BYTES
                    && shown_bytes <= 2 * SPAN_BYTES
                    && extent.start.saturating_sub(span.end) <= MAX_GAP_BYTES.max(stored_bytes)
            }
        };
        let is_alike = span.container == located.container && span.is_stream == is_stream;
        if !(is_near && is_alike && may_join && span.may_join && span.samples < MAX_SAMPLES) {
            return false;
        }
        (span.end, span.shown_bytes, span.stored_bytes) = (end, shown_bytes, stored_bytes);
        span.samples += 1;
        true
    }
}

/// Samples that are read together, and their numbers in the dataset.
#[derive(Default)]
pub(crate) struct Span {
    pub(crate) samples: Vec<u64>,
    pub(crate) located: Vec<Located>,
}

/// The next samples that are read together: at least one, unless `samples` is at its end.
///
/// # Errors
/// A container was changed so that its index cannot be read.
pub(crate) fn next_span(
    dataset: &Dataset,
    samples: &mut std::iter::Peekable<impl Iterator<Item = u64>>,
) -> crate::format::Result<Span> {
    let (mut plan, mut span) = (SpanPlan::new(dataset), Span::default());
    while let Some(&sample) = samples.peek() {
        let Some(located) = dataset.locate(sample)? else { break };
        if !plan.add(&located) {
            break;
        }
        samples.next();
        span.samples.push(sample);
        span.located.push(located);
    }
    Ok(span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::ffrecord::Writer;
    use crate::format::{self, MemorySource, OpenOptions};
    use std::io::Cursor;
    use std::sync::Arc;

    /// Containers of samples of these lengths.
    fn dataset(containers: &[&[usize]]) -> Dataset {
        let open = |lengths: &&[usize]| {
            let mut bytes = Cursor::new(Vec::new());
            let mut writer = Writer::new(&mut bytes, lengths.len() as u64).unwrap();
            for &length in *lengths {
                writer.write_sample(&mut &vec![7; length][..]).unwrap();
            }
            writer.finish().unwrap();
            let source = MemorySource::new("x.ffr", bytes.into_inner());
            format::open(Arc::new(source), &OpenOptions::default()).unwrap()
        };
        Dataset::new(containers.iter().map(open).collect())
    }

    fn spans(dataset: &Dataset, samples: impl Iterator<Item = u64>) -> Vec<Vec<u64>> {
        let mut samples = samples.peekable();
        let mut spans = Vec::new();
        loop {
            let span = next_span(dataset, &mut samples).unwrap();
            if span.samples.is_empty() {
                return spans;
            }
            spans.push(span.samples);
        }
    }

    #[test]
    fn neighbours_are_read_together_and_large_samples_alone() {
        let large = SPAN_BYTES as usize + 1;
        let dataset = dataset(&[&[10, 20, large, 10, 0, 10], &[5, 5]]);
        let expected = [vec![0, 1], vec![2], vec![3, 4, 5], vec![6, 7]];
        assert_eq!(spans(&dataset, 0..8), expected);
    }

    #[test]
    fn samples_that_lie_apart_or_in_another_order_are_not_read_together() {
        let third = SPAN_BYTES as usize / 3;
        let dataset = dataset(&[&[third, 9, third, 9, third, third, 9]]);
        assert_eq!(spans(&dataset, 0..7), [vec![0, 1, 2, 3], vec![4, 5, 6]]);
        assert_eq!(spans(&dataset, [1, 3, 6].into_iter()), [[1], [3], [6]]);
        assert_eq!(spans(&dataset, [6, 3].into_iter()), [[6], [3]]);
    }

    #[test]
    fn a_span_holds_no_more_than_some_thousand_samples() {
        let dataset = dataset(&[&[1; MAX_SAMPLES + 1]]);
        let lengths: Vec<_> = spans(&dataset, 0..dataset.len()).iter().map(Vec::len).collect();
        assert_eq!(lengths, [MAX_SAMPLES, 1]);
    }
}
