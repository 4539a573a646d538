//! Which samples are fetched with one read.
//!
//! Imports the sizes of `types.rs`.

use super::types::SPAN_BYTES;
use crate::catalog::{Dataset, Located};
use crate::format::Content;

/// More samples than this are not read together, however small they are.
const MAX_SAMPLES: usize = 4096;
/// A gap between two samples may be this long, or as long as the samples before it together: it is read for nothing.
const MAX_GAP_BYTES: u64 = 64 << 10;
/// One thread reads this much of a compressed stream: at its ends, threads decode the same interval.
const STREAM_SPAN_BYTES: u64 = 16 << 20;

/// Puts samples into a span as long as they lie near each other.
pub(crate) struct SpanPlan<'a> {
    dataset: &'a Dataset,
    span: Option<Extent>,
}

/// What the plan knows of the samples in the span.
struct Extent {
    container: usize,
    is_stream: bool,
    may_join: bool,
    start: u64,
    end: u64,
    samples: usize,
    /// Bytes of the files.
    shown_bytes: u64,
    /// Bytes of the extents.
    stored_bytes: u64,
}

impl<'a> SpanPlan<'a> {
    pub(crate) fn new(dataset: &'a Dataset) -> Self {
        Self { dataset, span: None }
    }

    /// Whether a sample is read together with those before it. The first always is.
    pub(crate) fn add(&mut self, located: &Located) -> bool {
        let (at, extent) = (located.sample, located.sample.extent());
        let is_stream = self.dataset.containers()[located.container].stream().is_some();
        let is_sparse = matches!(at.content, Content::Sparse(_)) && !is_stream;
        let length = extent.end - extent.start;
        let may_join = !at.damaged
            && !is_sparse
            && at.size_bytes() <= SPAN_BYTES
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

/// Samples that are read together, with their numbers in the dataset.
#[derive(Default)]
pub(crate) struct Span {
    pub(crate) samples: Vec<u64>,
    pub(crate) located: Vec<Located>,
}

/// The first of `samples` that are read together: at least one, unless `samples` is at its end.
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
