//! The offline reader, on which all tools stand: samples are put into spans in the order of the container, fetched
//! with one read, checked, decoded, and handed over; large ones chunk by chunk in bounded memory.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `span` | which samples are fetched together |
//! | `samples` | one sample of any size, chunk by chunk |
//! | `together` | the samples of a span, whole, in memory |
//! | `check` | samples whose bytes nobody wants |
//! | `copy` | one sample, checked before its first byte is given out |
//! | `threads` | several threads, results as they come or in order |

mod check;
mod copy;
mod samples;
mod span;
mod threads;
mod together;
mod types;

pub(crate) use check::{CheckedSample, SampleChecker};
pub(crate) use samples::SampleReader;
pub(crate) use span::{Span, SpanPlan, next_span};
pub(crate) use threads::{OrderedWork, for_each, in_order, thread_count};
pub(crate) use types::{
    Chunk, FileBytes, SPAN_BYTES, Scratch, Stop, TakeChunk, WholeFile, bad_file, exit_of,
};
