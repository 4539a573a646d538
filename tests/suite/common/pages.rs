//! The pages of a file that the kernel holds. It may evict a page at any time, also right after the page was filled and
//! with much free memory: some machines page out memory that was not used for a while (DAMON).

use super::skip_forced;
use memmap2::Mmap;
use nix::unistd::{SysconfVar, sysconf};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// A file that the kernel does not forget, even if caches are dropped meanwhile.
pub(crate) struct Held {
    /// Keeps the name and the attributes.
    _file: File,
    /// Keeps the pages, which are locked.
    _pages: Mmap,
}

impl Held {
    /// Reads all of a file.
    #[track_caller]
    pub(crate) fn new(path: &Path) -> Self {
        let file = File::open(path).expect("open it");
        // SAFETY: nothing is read through the mapping.
        let pages = unsafe { Mmap::map(&file) }.expect("map it");
        pages.lock().expect("lock its pages");
        Self { _file: file, _pages: pages }
    }
}

/// Runs a test whose findings hold only while the host does not drop its caches (`/proc/sys/vm/drop_caches`), after which
/// the kernel asks anew. A test that fails is run again if caches were dropped meanwhile; otherwise it fails.
#[track_caller]
pub(crate) fn undisturbed(test: impl Fn()) {
    const TIMES: usize = 20;
    for _ in 0..TIMES {
        let before = caches_dropped();
        let Err(failure) = catch_unwind(AssertUnwindSafe(&test)) else { return };
        if !dropped_since(&before) {
            resume_unwind(failure);
        }
        let _ = writeln!(io::stderr(), "the host has dropped its caches meanwhile: once more");
    }
    skip_forced(&format!("the host has dropped its caches in each of {TIMES} tries"));
}

/// Whether the host has dropped its caches since then. The kernel counts a drop at its end, which a busy machine takes
/// seconds to reach: pages that a test missed may be gone by a drop that is still under way.
fn dropped_since(before: &[String]) -> bool {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if caches_dropped() != before {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// The counters of how often the host was told to drop its caches.
fn caches_dropped() -> Vec<String> {
    let counts = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    counts.lines().filter(|line| line.starts_with("drop_")).map(str::to_owned).collect()
}

/// The number of cachestat(2), the same on every architecture; the libc crate does not know it yet.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat`.
#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// How many pages of a file were once filled and then evicted by the kernel; `None` if this kernel cannot tell. A page that
/// was never filled, or that was invalidated, is neither held nor evicted: then the test fails.
#[track_caller]
pub(crate) fn evicted_pages(file: &File) -> Option<u64> {
    let length_bytes = file.metadata().unwrap().len();
    let range = [0, length_bytes];
    let mut stat = CacheStat::default();
    // SAFETY: the kernel reads two u64, and writes the five of `stat`; both live until it returns.
    let done =
        unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), &raw mut stat, 0) };
    if done != 0 {
        let error = std::io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSYS), "{error}");
        return None;
    }
    let CacheStat { cached, evicted, .. } = stat;
    let page_bytes = sysconf(SysconfVar::PAGE_SIZE).unwrap().unwrap() as u64;
    assert_eq!(
        cached + evicted,
        length_bytes.div_ceil(page_bytes),
        "{cached} held, {evicted} evicted"
    );
    Some(evicted)
}
