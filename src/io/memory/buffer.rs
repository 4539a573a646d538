//! Page-aligned buffers that grow and are used again.

use super::heap;
use super::page::page_bytes;
use super::slab::{self, Piece};
use crossbeam_queue::ArrayQueue;
use memmap2::{MmapMut, UncheckedAdvice};
use std::cell::Cell;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// Capacities are multiples of this, as reads past the page cache may have to be.
const GRANULE_BYTES: usize = 4096;

/// Page-aligned memory. New memory is zero; memory that is used again holds the bytes that were last written there.
///
/// Mapped, not allocated: freed memory goes back to the system at once, whichever thread frees it.
pub struct Buffer(Memory);

enum Memory {
    None,
    Own(MmapMut),
    /// A piece of a huge page; given back when it is dropped.
    Piece(Piece),
    /// Memory lent by an owner ([`Buffer::lend`]), which cannot reach it as long as the loan lives.
    Loan {
        start: NonNull<u8>,
        capacity: usize,
        _owner: Arc<Buffer>,
    },
}

// SAFETY: a loan's memory can be reached through this buffer alone: `lend` has made sure that there is no other loan, and
// `Arc::get_mut` refuses the owner as long as the loan lives. So moving the buffer to another thread moves the only access. The
// other variants are `Send` by themselves.
unsafe impl Send for Buffer {}
// SAFETY: a shared buffer only hands out shared slices (`as_slice` takes `&self`).
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A buffer without memory.
    #[must_use]
    pub const fn empty() -> Self {
        Self(Memory::None)
    }

    /// A buffer of at least `bytes` bytes.
    ///
    /// # Errors
    /// There is no memory.
    pub fn with_capacity(bytes: usize) -> io::Result<Self> {
        if bytes == 0 {
            return Ok(Self::empty());
        }
        let bytes = bytes.checked_next_multiple_of(GRANULE_BYTES);
        let memory = MmapMut::map_anon(bytes.ok_or(io::ErrorKind::OutOfMemory)?)?;
        heap::check_headroom()?;
        Ok(Self(Memory::Own(memory)))
    }

    /// Lends the memory of `owner` out as a buffer, unless it is lent already. As long as the loan lives, `Arc::get_mut`
    /// refuses the owner; its holder must read and write the owner only through `Arc::get_mut`.
    #[must_use]
    pub fn lend(owner: &mut Arc<Buffer>) -> Option<Self> {
        let memory = Arc::get_mut(owner)?.as_mut_slice();
        let capacity = memory.len();
        let start = NonNull::new(memory.as_mut_ptr())?;
        Some(Self(Memory::Loan { start, capacity, _owner: Arc::clone(owner) }))
    }

    /// Whether its memory is lent.
    #[must_use]
    pub fn is_loan(&self) -> bool {
        matches!(self.0, Memory::Loan { .. })
    }

    /// The number of bytes that the buffer holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.as_slice().len()
    }

    /// Makes room for `bytes` bytes; the content may be lost.
    ///
    /// # Errors
    /// There is no memory; the buffer is as it was.
    pub fn try_reserve(&mut self, bytes: usize) -> io::Result<()> {
        if self.capacity() < bytes {
            if let Some(piece) = slab::take(bytes)? {
                heap::check_headroom()?;
                *self = Self(Memory::Piece(piece));
                return Ok(());
            }
            let bytes = bytes.checked_next_power_of_two().ok_or(io::ErrorKind::OutOfMemory)?;
            *self = Self::with_capacity(bytes)?;
        }
        Ok(())
    }

    /// Gives the memory from byte `from` on back to the system, as far as it is whole pages; it is zero when it is used again.
    /// A loan gives nothing back.
    pub fn give_back(&mut self, from: usize) {
        let from = from.next_multiple_of(page_bytes());
        if let Memory::Own(memory) = &self.0
            && from < memory.len()
        {
            // SAFETY: the mapping is anonymous and our own, so that its pages become zero, which any bytes may be;
            // `&mut self` makes this the only access.
            let given = unsafe {
                memory.unchecked_advise_range(UncheckedAdvice::DontNeed, from, memory.len() - from)
            };
            // Locked memory stays.
            let _ = given;
        }
    }

    /// All memory of the buffer.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Memory::None => &[],
            Memory::Own(memory) => memory,
            Memory::Piece(piece) => piece.as_slice(),
            // SAFETY: `lend` took `start` and `capacity` from the owner's slice; the owner lives as long as
            // `_owner`, does not move its memory, and is not reached by others (see `Send`).
            Memory::Loan { start, capacity, .. } => unsafe {
                std::slice::from_raw_parts(start.as_ptr(), *capacity)
            },
        }
    }

    /// All memory of the buffer, to write to.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::None => &mut [],
            Memory::Own(memory) => memory,
            Memory::Piece(piece) => piece.as_mut_slice(),
            // SAFETY: as in `as_slice`; `&mut self` makes this the only access.
            Memory::Loan { start, capacity, .. } => unsafe {
                std::slice::from_raw_parts_mut(start.as_ptr(), *capacity)
            },
        }
    }
}

/// The largest buffer that is kept for later.
const MAX_IDLE_BYTES: usize = 1 << 20;

thread_local! {
    /// The buffer that this thread used last: still in its CPU's cache.
    static LAST: Cell<Buffer> = const { Cell::new(Buffer::empty()) };
}

/// Buffers that wait to be used again, so that their pages need not be faulted in again: one a thread,
/// and a few for all.
pub struct BufferPool {
    idle: ArrayQueue<Buffer>,
}

impl BufferPool {
    /// Keeps at most `count` idle buffers beside those of the threads.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { idle: ArrayQueue::new(count.max(1)) }
    }

    /// A buffer of at least `bytes` bytes.
    ///
    /// # Errors
    /// There is no memory.
    pub fn take(&self, bytes: usize) -> io::Result<Buffer> {
        let mut buffer = self.take_any();
        buffer.try_reserve(bytes)?;
        Ok(buffer)
    }

    /// A buffer of any size, perhaps an empty one: the buffer that this thread has used last, if there is one.
    #[must_use]
    pub fn take_any(&self) -> Buffer {
        let buffer = LAST.replace(Buffer::empty());
        match buffer.capacity() {
            0 => self.idle.pop().unwrap_or(Buffer::empty()),
            _ => buffer,
        }
    }

    /// Frees the idle buffers, but for those of other threads.
    pub fn clear(&self) {
        drop(LAST.replace(Buffer::empty()));
        while self.idle.pop().is_some() {}
    }

    /// Gives a buffer back. It is freed if enough are idle.
    pub fn give(&self, buffer: Buffer) {
        if !buffer.is_loan() && (1..=MAX_IDLE_BYTES).contains(&buffer.capacity()) {
            let before = LAST.replace(buffer);
            if before.capacity() > 0 {
                let _ = self.idle.push(before);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_page_aligned_and_keep_what_is_written() {
        let mut buffer = Buffer::with_capacity(5000).unwrap();
        assert_eq!(buffer.capacity(), 8192);
        assert_eq!(buffer.as_slice().as_ptr().align_offset(crate::io::page_bytes()), 0);
        buffer.as_mut_slice()[8191] = 7;
        assert_eq!(buffer.as_slice()[8191], 7);
        buffer.try_reserve(8192).unwrap();
        assert_eq!(buffer.as_slice()[8191], 7);
        buffer.try_reserve(8193).unwrap();
        assert_eq!(buffer.capacity(), 16384);
    }

    #[test]
    fn memory_that_is_given_back_is_zero_and_what_stands_before_it_stays() {
        let page = page_bytes();
        let mut buffer = Buffer::with_capacity(4 * page).unwrap();
        buffer.as_mut_slice().fill(7);
        buffer.give_back(page + 1);
        assert_eq!(buffer.capacity(), 4 * page);
        assert!(buffer.as_slice()[..2 * page].iter().all(|&byte| byte == 7));
        assert!(buffer.as_slice()[2 * page..].iter().all(|&byte| byte == 0));
        for beyond in [4 * page, 5 * page] {
            buffer.give_back(beyond);
        }
        Buffer::empty().give_back(0);
        assert_eq!(buffer.as_slice()[0], 7);
    }

    #[test]
    fn lent_memory_has_one_user_at_a_time_and_comes_back_with_what_was_written() {
        let mut owner = Arc::new(Buffer::with_capacity(4096).unwrap());
        let mut loan = Buffer::lend(&mut owner).unwrap();
        assert!(Buffer::lend(&mut owner).is_none() && Arc::get_mut(&mut owner).is_none());
        loan.as_mut_slice()[7] = 1;
        BufferPool::new(4).give(loan);
        assert_eq!(Arc::get_mut(&mut owner).unwrap().as_slice()[7], 1);
        let mut loan = Buffer::lend(&mut owner).unwrap();
        // It grows into memory of its own.
        loan.try_reserve(10_000).unwrap();
        assert!(Arc::get_mut(&mut owner).is_some() && loan.capacity() >= 10_000);
    }

    #[test]
    fn memory_that_there_is_not_is_an_error() {
        assert!(Buffer::with_capacity(usize::MAX).is_err());
        let mut buffer = Buffer::with_capacity(4096).unwrap();
        buffer.as_mut_slice()[0] = 5;
        assert!(buffer.try_reserve(1 << 62).is_err() && buffer.try_reserve(usize::MAX).is_err());
        assert_eq!(buffer.as_slice()[0], 5);
        assert!(BufferPool::new(1).take(1 << 62).is_err());
    }

    #[test]
    fn an_empty_buffer_is_an_empty_slice() {
        assert!(Buffer::empty().as_slice().is_empty());
        assert!(Buffer::with_capacity(0).unwrap().as_mut_slice().is_empty());
    }

    #[test]
    fn a_pool_hands_out_buffers_that_came_back() {
        let pool = BufferPool::new(1);
        let mut buffer = pool.take(4096).unwrap();
        buffer.as_mut_slice()[0] = 9;
        pool.give(buffer);
        assert_eq!(pool.take(100).unwrap().as_slice()[0], 9);
        assert_eq!(pool.take(100).unwrap().as_slice()[0], 0);
    }

    #[test]
    fn a_pool_that_is_cleared_hands_out_new_memory() {
        let pool = BufferPool::new(4);
        for mut buffer in [pool.take(4096).unwrap(), pool.take(4096).unwrap()] {
            buffer.as_mut_slice()[0] = 9;
            pool.give(buffer);
        }
        pool.clear();
        let buffers = [pool.take(4096).unwrap(), pool.take(4096).unwrap()];
        assert!(buffers.iter().all(|buffer| buffer.as_slice()[0] == 0));
    }
}
