//! Whether the page cache holds a file, or a range of it, found out without reading. Imports `page`.

use crate::io::memory::page_bytes;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The number of cachestat(2), the same on every architecture; the libc crate does not know it yet.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range`: offset, length.
#[repr(C)]
struct Range {
    offset_bytes: u64,
    length_bytes: u64,
}

/// `struct cachestat`.
#[repr(C)]
#[derive(Default)]
struct Pages {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// After this many reads past the page cache, the cache is looked at again.
const UNCACHED_READS: u32 = 1024;
/// How many places of the file are looked at, and the size of each.
const PLACES: u64 = 64;
const PLACE_BYTES: u64 = 16 << 10;
/// How many of these places the page cache must hold.
const CACHED_PLACES: usize = 48;

/// Whether the page cache holds most of a file, as after it was copied. Where it holds little, reads past the cache
/// are better: through it, the kernel reads ahead, and keeps each byte a second time.
#[derive(Debug, Default)]
pub(super) struct Residency {
    is_mostly_cached: AtomicBool,
    reads: AtomicU32,
}

impl Residency {
    /// Whether reads should try the page cache first. Looks there now and then.
    pub(super) fn is_mostly_cached(&self, file: &File, file_bytes: u64) -> bool {
        if self.is_mostly_cached.load(Ordering::Relaxed) {
            return true;
        }
        let read = self.reads.fetch_add(1, Ordering::Relaxed);
        if !read.is_multiple_of(UNCACHED_READS) {
            return false;
        }
        let step = file_bytes / PLACES;
        let is_cached = |place: &u64| {
            let length = PLACE_BYTES.min(file_bytes - place * step);
            is_cached(file, place * step, length)
        };
        let is_mostly_cached = (0..PLACES).filter(is_cached).count() >= CACHED_PLACES;
        self.is_mostly_cached.store(is_mostly_cached, Ordering::Relaxed);
        is_mostly_cached
    }

    /// Whether the page cache held most of the file when it was last looked at.
    pub(super) fn was_mostly_cached(&self) -> bool {
        self.is_mostly_cached.load(Ordering::Relaxed)
    }

    /// Notes that a read did not find its bytes in the page cache.
    pub(super) fn missed(&self) {
        self.is_mostly_cached.store(false, Ordering::Relaxed);
        self.reads.store(1, Ordering::Relaxed);
    }
}

/// Whether the page cache holds all of a range; `false` where the kernel cannot say (Linux before 6.5).
fn is_cached(file: &File, offset_bytes: u64, length_bytes: u64) -> bool {
    if length_bytes == 0 {
        return true;
    }
    let range = Range { offset_bytes, length_bytes };
    let mut pages = Pages::default();
    // SAFETY: cachestat(2) reads a `cachestat_range` and writes a `cachestat`; both are laid out as the
    // kernel has them and outlive the call.
    let failed = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut pages, 0)
    };
    let page = page_bytes() as u64;
    let last = offset_bytes.saturating_add(length_bytes - 1) / page;
    failed == 0 && pages.cached > last - offset_bytes / page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::testing::skip;
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::io::Write;

    /// A file in memory, which stays in the page cache though somebody drops that.
    fn file_of(length_bytes: usize) -> File {
        let mut file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        file.write_all(&vec![1; length_bytes]).unwrap();
        file
    }

    #[test]
    fn what_was_just_written_is_cached_and_what_lies_behind_the_end_is_not() {
        let file = file_of(20_000);
        if !is_cached(&file, 0, 20_000) {
            return skip("this kernel has no cachestat(2)");
        }
        assert!(is_cached(&file, 5000, 1) && is_cached(&file, 0, 0));
        assert!(!is_cached(&file, 0, 40_000), "the file ends before");
    }

    #[test]
    fn a_cached_file_counts_as_cached_until_a_read_misses_and_is_looked_at_again_later() {
        let file = file_of(3 << 20);
        let residency = Residency::default();
        if !residency.is_mostly_cached(&file, 3 << 20) {
            return skip("this kernel has no cachestat(2)");
        }
        residency.missed();
        let looks = (0..2048).filter(|_| residency.is_mostly_cached(&file, 3 << 20)).count();
        assert_eq!(looks, 2048 - 1023);
        assert!(
            !Residency::default().is_mostly_cached(&file, 30 << 20),
            "most of the file is not cached"
        );
    }
}
