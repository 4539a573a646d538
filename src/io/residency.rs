//! Whether the page cache holds a range of a file, without reading it.

use std::fs::File;
use std::os::fd::AsRawFd;

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

/// Whether all of a range is in the page cache; no if that cannot be known (Linux before 6.5).
pub(super) fn is_cached(file: &File, offset_bytes: u64, length_bytes: u64) -> bool {
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
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    let page = page.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(4096);
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
}
