//! Memory that several samples share, and the right to hold it.

use super::budget::Reservation;
use crate::io::{Buffer, BufferPool};
use std::mem;
use std::ops::Range;
use std::sync::Arc;

/// Memory that several samples lie in, and the right to hold it. When its last user drops it, the memory goes to the pool:
/// new pages cost a fault each, and freeing them interrupts the other CPUs.
pub(in crate::vfs) struct Chunk {
    buffer: Buffer,
    range: Range<usize>,
    _rights: Rights,
    pool: Option<Arc<BufferPool>>,
}

/// The right to hold memory; bytes that are fetched ahead need a second one, as they may not take all memory.
pub(in crate::vfs) type Rights = (Reservation, Option<Reservation>);

impl Chunk {
    /// Makes a chunk of the bytes in `range` of `buffer`.
    pub(in crate::vfs) fn new(buffer: Buffer, range: Range<usize>, rights: Rights) -> Self {
        Self { buffer, range, _rights: rights, pool: None }
    }

    /// The same chunk, with the pool that takes its memory in the end.
    pub(in crate::vfs) fn of_pool(mut self, pool: &Arc<BufferPool>) -> Self {
        self.pool = Some(Arc::clone(pool));
        self
    }

    pub(in crate::vfs) fn into_buffer(mut self) -> Buffer {
        mem::replace(&mut self.buffer, Buffer::empty())
    }

    /// Bytes of memory that are in use.
    pub(in crate::vfs) fn length(&self) -> usize {
        self.range.len()
    }

    /// Bytes as they were read. They leave through [`super::verified::Verified`] alone
    /// wherever samples are checked.
    pub(in crate::vfs) fn unchecked(&self) -> &[u8] {
        &self.buffer.as_slice()[self.range.clone()]
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.give(mem::replace(&mut self.buffer, Buffer::empty()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::memory::budget::Budget;

    #[test]
    fn memory_goes_back_to_the_pool_whoever_drops_it_last() {
        let pool = Arc::new(BufferPool::new(4));
        let budget = Budget::new(1 << 20);
        let mut buffer = pool.take(4096).unwrap();
        buffer.as_mut_slice()[..2].copy_from_slice(b"me");
        let rights = (budget.reserve(4096).unwrap(), None);
        let chunk = Arc::new(Chunk::new(buffer, 0..2, rights).of_pool(&pool));
        let reader = Arc::clone(&chunk);
        drop(chunk);
        assert_eq!((reader.unchecked(), budget.held_bytes()), (&b"me"[..], 4096));
        drop(reader);
        assert_eq!((&pool.take_any().as_slice()[..2], budget.held_bytes()), (&b"me"[..], 0));
    }
}
