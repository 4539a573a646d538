//! Memory: page-aligned buffers from slabs of their own, the allocator, and the footprint of a process that waits.

mod buffer;
pub mod footprint;
pub mod heap;
mod page;
mod slab;

pub use buffer::{Buffer, BufferPool};
pub use page::page_bytes;
pub(in crate::io) use page::page_start;
pub use slab::give_back_idle;
