//! The heap of the C library. Where the address space is limited (`ulimit -v`), large buffers leave some of it to the heap:
//! they can do without it, while a small allocation that fails ends the process without a word.

use memmap2::MmapMut;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::File;
use std::io::{self, Write};
use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The bytes that buffers and threads leave free: a thread's stack, and several steps by which the heap grows.
const HEADROOM_BYTES: usize = 8 << 20;
/// The bytes that must be left, once a mount is made, for buffers of its reads and for samples that are kept.
const BUFFERS_BYTES: usize = 24 << 20;

/// Has large memory go back to the system at once when it is freed, whichever thread frees it: else memory that decoders use
/// for a moment would stay with each thread that has ever decoded. Where address space is limited, all threads share one heap,
/// as another one would reserve 64 MiB.
pub fn set_up() {
    #[cfg(target_env = "gnu")]
    {
        const LARGE_BYTES: i32 = 1 << 20;
        // SAFETY: the call sets a number in the allocator, under the allocator's own lock.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) };
        if is_limited().unwrap_or(false) {
            // SAFETY: as above.
            unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
        }
    }
}

/// Looks whether there is room for more than small allocations.
///
/// # Errors
/// There is no such room (ENOMEM).
pub fn check_headroom() -> io::Result<()> {
    check(HEADROOM_BYTES)
}

/// Looks whether a mount whose threads have been started has room for its reads.
///
/// # Errors
/// There is no such room (ENOMEM).
pub fn check_room_to_read() -> io::Result<()> {
    check(HEADROOM_BYTES + BUFFERS_BYTES)
}

/// As [`check_room_to_read`], for a mount that will also take this many bytes.
///
/// # Errors
/// There would be no such room (ENOMEM).
pub fn check_room_beside(bytes: usize) -> io::Result<()> {
    check(bytes.saturating_add(HEADROOM_BYTES + BUFFERS_BYTES))
}

/// The largest allocation that waits for memory.
const SMALL_BYTES: usize = 64 << 10;
/// How often an allocation is tried again, and the pause before each attempt: other threads give memory back within milliseconds.
/// Not a time: the other threads may have to wait for a CPU, as this one.
const ATTEMPTS: u32 = 400;
const PAUSE: Duration = Duration::from_millis(5);

/// The heap of the C library. A small allocation without memory waits for some, as its failure would end the process.
pub struct Heap;

// SAFETY: each call goes to `System` with its own arguments, once or until it does not fail; the guarantees of `System` hold
// for the results, which are passed on unchanged.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is that of `System`.
        patiently(layout.size(), || unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        patiently(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as for `alloc`; a call that fails leaves `memory` as it was.
        patiently(bytes, || unsafe { System.realloc(memory, layout, bytes) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as for `alloc`; `memory` came from `System`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[inline]
fn patiently(bytes: usize, allocate: impl Fn() -> *mut u8) -> *mut u8 {
    let memory = allocate();
    if memory.is_null() && bytes <= SMALL_BYTES { wait_for(allocate) } else { memory }
}

#[cold]
fn wait_for(allocate: impl Fn() -> *mut u8) -> *mut u8 {
    for _ in 0..ATTEMPTS {
        thread::sleep(PAUSE);
        let memory = allocate();
        if !memory.is_null() {
            return memory;
        }
    }
    say_the_end();
    ptr::null_mut()
}

/// The file for the message that the process ends for lack of memory, when nothing can be logged any more; else standard error.
static LOG: Mutex<Option<File>> = Mutex::new(None);

/// Has this file get the message if the process ends for lack of memory, in place of the file before.
///
/// # Errors
/// There is no descriptor left.
pub fn say_the_end_in(log: &File) -> io::Result<()> {
    *LOG.lock().unwrap_or_else(PoisonError::into_inner) = Some(log.try_clone()?);
    Ok(())
}

/// Writes that the process ends. Allocates nothing.
fn say_the_end() {
    const WORDS: &[u8] =
        b"ffrfs: this process ends: there is no memory for a small allocation (ulimit -v)\n";
    let _ = match LOG.try_lock() {
        Ok(mut log) => match log.as_mut() {
            Some(log) => log.write_all(WORDS),
            // A command, or a mount that has no log yet.
            None => io::stderr().write_all(WORDS),
        },
        Err(_) => Ok(()),
    };
}

fn check(bytes: usize) -> io::Result<()> {
    if is_limited()? {
        drop(MmapMut::map_anon(bytes)?);
    }
    Ok(())
}

/// Whether the address space of this process is limited.
///
/// # Errors
/// The limit cannot be read.
pub fn is_limited() -> io::Result<bool> {
    limit_bytes().map(|limit| limit.is_some())
}

/// The address space that this process may have (`ulimit -v`); `None` if there is no limit.
///
/// # Errors
/// The limit cannot be read.
pub fn limit_bytes() -> io::Result<Option<u64>> {
    let (limit, _) = getrlimit(Resource::RLIMIT_AS)?;
    Ok((limit != RLIM_INFINITY).then_some(limit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_small_allocation_waits_for_memory_and_says_so_in_the_log_if_there_is_none() {
        let (tries, mut byte) = (Cell::new(0), 0_u8);
        let memory = &raw mut byte;
        let after = |most: u32| {
            tries.set(0);
            let tries = &tries;
            move || {
                tries.set(tries.get() + 1);
                if tries.get() < most { ptr::null_mut() } else { memory }
            }
        };
        assert_eq!((patiently(100, after(3)), tries.get()), (memory, 3));
        assert!(patiently(SMALL_BYTES + 1, after(3)).is_null() && tries.get() == 1, "it is large");
        let log = tempfile::NamedTempFile::new().unwrap();
        say_the_end_in(log.as_file()).unwrap();
        assert!(patiently(100, after(u32::MAX)).is_null());
        assert!(std::fs::read_to_string(log.path()).unwrap().contains("no memory"));
    }
}
