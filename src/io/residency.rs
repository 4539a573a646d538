//! Whether the page cache holds a file, or a range of it, without reading it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The same number on every architecture; the libc crate does not know it yet.
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

/// So many reads go past the page cache before it is looked at again.
const COLD_READS: u32 = 1024;
/// Where it is looked at: so many places, of this size.
const PLACES: u64 = 64;
const PLACE_BYTES: u64 = 16 << 10;
/// How many of them it must hold.
const HOT_PLACES: usize = 48;

/// Whether most of a file is in the page cache, such as after it was copied there. Where little of it is,
/// what is read through the cache has the kernel read ahead, and all is kept twice.
#[derive(Debug, Default)]
pub(super) struct Heat {
    is_hot: AtomicBool,
    reads: AtomicU32,
}

impl Heat {
    /// Whether to look into the page cache.
    pub(super) fn is_hot(&self, file: &File, file_bytes: u64) -> bool {
        if self.is_hot.load(Ordering::Relaxed) {
            return true;
        }
        let read = self.reads.fetch_add(1, Ordering::Relaxed);
        if !read.is_multiple_of(COLD_READS) {
            return false;
        }
        let step = file_bytes / PLACES;
        let is_cached = |place: &u64| {
            let length = PLACE_BYTES.min(file_bytes - place * step);
            is_cached(file, place * step, length)
        };
        let is_hot = (0..PLACES).filter(is_cached).count() >= HOT_PLACES;
        self.is_hot.store(is_hot, Ordering::Relaxed);
        is_hot
    }

    /// Whether the page cache held most of it when that was last looked at.
    pub(super) fn was_hot(&self) -> bool {
        self.is_hot.load(Ordering::Relaxed)
    }

    /// The page cache did not have what it was expected to have.
    pub(super) fn missed(&self) {
        self.is_hot.store(false, Ordering::Relaxed);
        self.reads.store(1, Ordering::Relaxed);
    }
}

/// Whether all of a range is in the page cache; no if that cannot be known (Linux before 6.5).
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
    let page = super::page_bytes() as u64;
    let last = offset_bytes.saturating_add(length_bytes - 1) / page;
    failed == 0 && pages.cached > last - offset_bytes / page
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_just_written_is_cached_and_what_was_dropped_is_not() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[1; 20_000]).unwrap();
        if !is_cached(file.as_file(), 0, 20_000) {
            eprintln!("skipped: this kernel has no cachestat");
            return;
        }
        assert!(is_cached(file.as_file(), 5000, 1) && is_cached(file.as_file(), 0, 0));
        assert!(!is_cached(file.as_file(), 0, 40_000), "it ends before");
        file.as_file().sync_all().unwrap();
        use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
        posix_fadvise(file.as_file(), 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
        // In a file system that lives in memory it stays.
        let _ = is_cached(file.as_file(), 0, 20_000);
    }

    #[test]
    fn a_file_is_hot_until_it_is_missed_and_then_looked_at_now_and_then() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![1; 3 << 20]).unwrap();
        let heat = Heat::default();
        if !heat.is_hot(file.as_file(), 3 << 20) {
            eprintln!("skipped: this kernel has no cachestat");
            return;
        }
        heat.missed();
        let looks = (0..2048).filter(|_| heat.is_hot(file.as_file(), 3 << 20)).count();
        assert_eq!(looks, 2048 - 1023);
        assert!(!Heat::default().is_hot(file.as_file(), 30 << 20), "most of it is not there");
    }
}
