//! Page-aligned buffers that grow and are used again.

use crossbeam_queue::ArrayQueue;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::NonNull;

const PAGE_BYTES: usize = 4096;

/// Page-aligned memory. Its content is whatever was last written there; it begins as zeros.
pub struct Buffer {
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: the memory behind `start` belongs to this buffer alone (`with_capacity` allocates it, `drop`
// frees it), so that moving the buffer to another thread moves the only access to it.
unsafe impl Send for Buffer {}
// SAFETY: a shared buffer only hands out shared slices (`as_slice` takes `&self`).
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A buffer without memory.
    #[must_use]
    pub const fn empty() -> Self {
        Self { start: NonNull::dangling(), capacity: 0 }
    }

    /// A buffer of at least `bytes` bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        if bytes == 0 {
            return Self::empty();
        }
        let layout = Self::layout(bytes.next_multiple_of(PAGE_BYTES));
        // SAFETY: the layout's size is not 0: `bytes` is not, and it was rounded up.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self { start, capacity: layout.size() }
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, PAGE_BYTES).expect("a buffer fits in the address space")
    }

    /// How many bytes it holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes room for `bytes` bytes; what was in it may be lost.
    pub fn reserve(&mut self, bytes: usize) {
        if self.capacity < bytes {
            *self = Self::with_capacity(bytes.next_power_of_two());
        }
    }

    /// All of its memory.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `start` is valid for `capacity` initialised bytes (`with_capacity` allocated and zeroed
        // them; for `empty` it is dangling and the length 0), and `&self` keeps writers away.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.capacity) }
    }

    /// All of its memory, to write to.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; `&mut self` makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.capacity) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // SAFETY: `with_capacity` allocated exactly this layout at `start`, and nobody freed it.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.capacity)) }
        }
    }
}

/// The largest buffer that is kept for later.
const MAX_IDLE_BYTES: usize = 4 << 20;

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
    #[must_use]
    pub fn take(&self, bytes: usize) -> Buffer {
        let mut buffer = LAST.replace(Buffer::empty());
        if buffer.capacity() == 0 {
            buffer = self.idle.pop().unwrap_or(Buffer::empty());
        }
        buffer.reserve(bytes);
        buffer
    }

    /// Gives a buffer back. It is freed if enough are idle.
    pub fn give(&self, buffer: Buffer) {
        if (1..=MAX_IDLE_BYTES).contains(&buffer.capacity()) {
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
        let mut buffer = Buffer::with_capacity(5000);
        assert_eq!(buffer.capacity(), 8192);
        assert_eq!(buffer.as_slice().as_ptr().align_offset(PAGE_BYTES), 0);
        buffer.as_mut_slice()[8191] = 7;
        assert_eq!(buffer.as_slice()[8191], 7);
        buffer.reserve(8192);
        assert_eq!(buffer.as_slice()[8191], 7);
        buffer.reserve(8193);
        assert_eq!(buffer.capacity(), 16384);
    }

    #[test]
    fn an_empty_buffer_is_an_empty_slice() {
        assert!(Buffer::empty().as_slice().is_empty());
        assert!(Buffer::with_capacity(0).as_mut_slice().is_empty());
    }

    #[test]
    fn a_pool_hands_out_buffers_that_came_back() {
        let pool = BufferPool::new(1);
        let mut buffer = pool.take(4096);
        buffer.as_mut_slice()[0] = 9;
        pool.give(buffer);
        assert_eq!(pool.take(100).as_slice()[0], 9);
        assert_eq!(pool.take(100).as_slice()[0], 0);
    }
}
