//! Random access to a compressed stream: an index of checkpoints, made in one pass over the stream.
//!
//! The index cuts the stream in intervals: decoding one needs its stored bytes and the state that the index keeps (for
//! deflate the window before it, compressed).

mod index;
mod indexer;
#[cfg(test)]
mod tests;

pub use index::{
    INTERVAL_BYTES, Interval, Intervals, MAX_INTERVAL_BYTES, MAX_STORED_BYTES, Order, StreamIndex,
};
pub use indexer::{FREE_BYTES, MAX_DECODED_BYTES, MAX_RATIO};
