//! The offline reader of all tools: groups samples into spans in the order of the container, fetches each span with one
//! read, checks and decodes its samples, and passes them on; large samples chunk by chunk in bounded memory.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `span` | which samples are fetched together |
//! | `samples` | one sample of any size, chunk by chunk |
//! | `together` | the samples of a span, whole, in memory |
//! | `check` | samples that are only checked |
//! | `copy` | one sample, checked before its first byte is written |
//! | `threads` | several threads, results as they come or in order |

mod check;
mod copy;
mod samples;
mod span;
mod threads;
mod together;
mod types;

pub(crate) use check::{CheckedSample, SampleChecker};
pub(crate) use samples::{SampleReader, reserve};
pub(crate) use span::{Span, SpanPlan, next_span};
pub(crate) use threads::{OrderedWork, for_each, in_order, thread_count};
pub(crate) use types::{
    Chunk, FileBytes, SPAN_BYTES, Scratch, Stop, TakeChunk, WholeFile, bad_file, exit_of,
};
