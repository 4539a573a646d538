//! The size of a page of memory: 4 KiB on most machines, 16 or 64 KiB on some with aarch64.

use nix::unistd::{SysconfVar, sysconf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The size of a page if the kernel does not tell it.
const USUAL_BYTES: usize = 4096;

/// The size of a page; 0 until it was asked for.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Returns the bytes of a page. After the first call this is no more than a load, and may be done in a signal handler.
#[must_use]
pub fn page_bytes() -> usize {
    match PAGE_BYTES.load(Ordering::Relaxed) {
        0 => {
            let told = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
            let bytes = told.and_then(|bytes| usize::try_from(bytes).ok());
            let bytes = bytes.filter(|bytes| bytes.is_power_of_two()).unwrap_or(USUAL_BYTES);
            PAGE_BYTES.store(bytes, Ordering::Relaxed);
            bytes
        }
        bytes => bytes,
    }
}

/// The address of the page that an address lies in, if a page has `page_bytes`, a power of two.
pub(in crate::io) fn page_start(address: usize, page_bytes: usize) -> usize {
    address & !(page_bytes - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_begins_at_a_multiple_of_its_size_whatever_that_is() {
        let address = 0x7f12_3456_789a;
        assert_eq!(page_start(address, 4 << 10), 0x7f12_3456_7000);
        assert_eq!(page_start(address, 16 << 10), 0x7f12_3456_4000);
        assert_eq!(page_start(address, 64 << 10), 0x7f12_3456_0000);
        for page_bytes in [4 << 10, 16 << 10, 64 << 10] {
            assert_eq!(page_start(3 * page_bytes, page_bytes), 3 * page_bytes);
            assert_eq!(page_start(3 * page_bytes - 1, page_bytes), 2 * page_bytes);
        }
    }

    #[test]
    fn mappings_begin_at_multiples_of_the_page_size() {
        let map = memmap2::MmapMut::map_anon(1).unwrap();
        assert_eq!(map.as_ptr() as usize % page_bytes(), 0);
        assert!(page_bytes() >= 4096 && page_bytes().is_power_of_two());
    }
}
