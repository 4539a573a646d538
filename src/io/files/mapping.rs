//! A part of a file mapped into memory, safe against a file that is truncated under it.
//!
//! Touching a page beyond the end of a truncated file raises SIGBUS. The handler here looks whether the address lies in one of
//! our mappings; if so it puts zeros over the rest of that mapping and marks it damaged, and the access goes on. Readers look
//! at the mark afterwards. (systemd's journal reader does the same.) A SIGBUS from anywhere else kills the process as ever.

use crate::format::Table;
use crate::io::memory::{page_bytes, page_start};
use memmap2::{Mmap, MmapOptions};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, Once};
use std::{fs, io};

/// The most mappings that are guarded at a time; a reader that gets no place reads into memory instead.
const GUARDS: usize = 1024;

/// The place of a mapping, which the signal handler may look at: atomics only.
struct Guard {
    /// 0 if this place is free.
    start: AtomicUsize,
    length: AtomicUsize,
    damaged: AtomicPtr<AtomicBool>,
}

static GUARDED: [Guard; GUARDS] = [const {
    Guard {
        start: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
        damaged: AtomicPtr::new(std::ptr::null_mut()),
    }
}; GUARDS];

/// Serialises threads that take and free places; the handler never takes this lock.
static PLACES: Mutex<()> = Mutex::new(());

/// A guarded read-only mapping.
pub struct Mapping {
    /// Never handed out as a slice: the file may change under it.
    map: Mmap,
    length: usize,
    /// Lives on the heap so that the handler's pointer to it stays good when the mapping is moved.
    damaged: Box<AtomicBool>,
    place: usize,
}

impl Mapping {
    /// Maps `length_bytes` from `offset_bytes`. `None` if there is no place to guard the mapping.
    ///
    /// # Errors
    /// The operating system refuses the mapping.
    pub fn new(file: &fs::File, offset_bytes: u64, length_bytes: u64) -> io::Result<Option<Self>> {
        install_handler();
        let length = usize::try_from(length_bytes).map_err(io::Error::other)?;
        let mut options = MmapOptions::new();
        options.offset(offset_bytes).len(length);
        // SAFETY: the danger of a mapping is that the file changes under it. Nothing here makes a slice of
        // it: `copy_to` copies with volatile reads, any bit pattern is a valid u8, and the guard that is
        // entered below turns the SIGBUS of a truncated file into zeros and a mark.
        let map = unsafe { options.map(file)? };
        let damaged = Box::new(AtomicBool::new(false));
        let _lock = PLACES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let free = GUARDED.iter().position(|guard| guard.start.load(Ordering::Relaxed) == 0);
        let Some(place) = free else { return Ok(None) };
        let guard = &GUARDED[place];
        // Who sees one of these sees as well that the former mapping has left.
        guard.damaged.store(std::ptr::from_ref(damaged.as_ref()).cast_mut(), Ordering::Release);
        guard.length.store(length, Ordering::Release);
        guard.start.store(map.as_ptr() as usize, Ordering::Release);
        Ok(Some(Self { map, length, damaged, place }))
    }
}

impl Mapping {
    /// `N` bytes at `at`, which `copy_to` has found to be within the mapping.
    fn load<const N: usize>(&self, at: usize) -> [u8; N] {
        debug_assert!(at + N <= self.length);
        // SAFETY: `at .. at + N` is within the mapping (`copy_to` checks the whole range), which lives as
        // long as `self`; arrays of bytes need no alignment. The read is volatile because other processes
        // may write to the file; the guard entered by `new` makes it give zeros where the file has ended.
        unsafe { self.map.as_ptr().add(at).cast::<[u8; N]>().read_volatile() }
    }
}

impl Table for Mapping {
    fn copy_to(&self, offset_bytes: u64, out: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset_bytes).unwrap_or(usize::MAX);
        if start.checked_add(out.len()).is_none_or(|end| end > self.length) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "past the end of the index"));
        }
        // Eight bytes at a time: an offset is one load.
        let (words, rest) = out.as_chunks_mut::<8>();
        for (number, word) in words.iter_mut().enumerate() {
            *word = self.load(start + number * 8);
        }
        let rest_start = start + words.len() * 8;
        for (number, byte) in rest.iter_mut().enumerate() {
            [*byte] = self.load(rest_start + number);
        }
        if self.damaged.load(Ordering::Relaxed) {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file was truncated while it was in use",
            ));
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let _lock = PLACES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // The place is freed before the memory is unmapped (fields are dropped after this).
        GUARDED[self.place].start.store(0, Ordering::Release);
    }
}

fn install_handler() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // The handler may not ask the system for the size of a page.
        let _ = page_bytes();
        // SAFETY: an all-zero sigaction is valid; the fields that matter are set below.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_sigbus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        // SAFETY: `action` is complete, and `on_sigbus` has the signature that SA_SIGINFO asks for and
        // does only what is allowed in a signal handler. The old action is not wanted.
        unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) };
    });
}

extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo to a handler installed with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as usize;
    for guard in &GUARDED {
        let start = guard.start.load(Ordering::Acquire);
        let length = guard.length.load(Ordering::Acquire);
        let damaged = guard.damaged.load(Ordering::Acquire);
        if start == 0 || address < start || address - start >= length {
            continue;
        }
        // Another mapping may have taken the place meanwhile: its length does not count from this start.
        if guard.start.load(Ordering::Relaxed) != start {
            continue;
        }
        let page = page_start(address, page_bytes());
        let rest = start + length - page;
        // SAFETY: `page .. page + rest` lies within the mapping that this place stands for (its first page
        // is the one that was touched); the owner is alive, since it is one of its reads that trapped.
        // mmap over it is a bare system call, and zeros are as good as any content to the reader.
        let zeros = unsafe {
            libc::mmap(
                page as *mut libc::c_void,
                rest,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if zeros != libc::MAP_FAILED && !damaged.is_null() {
            // SAFETY: `new` stored a pointer to a heap flag that the mapping owns until after it has left
            // this place, and the mapping is alive (see above).
            unsafe { (*damaged).store(true, Ordering::Relaxed) };
            return;
        }
    }
    // The address is not ours: lets the access fault again, without a handler.
    // SAFETY: resetting a signal to its default action is always allowed, also in a handler.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn temporary(bytes: &[u8]) -> fs::File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn a_mapping_gives_the_bytes_of_an_unaligned_range() {
        let bytes: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
        let map = Mapping::new(&temporary(&bytes), 12, 19_000).unwrap().unwrap();
        let mut out = [0; 8];
        map.copy_to(4_099, &mut out).unwrap();
        assert_eq!(out, bytes[4_111..4_119]);
        assert!(map.copy_to(18_993, &mut out).is_err());
        assert!(map.copy_to(u64::MAX, &mut out).is_err());
    }

    #[test]
    fn a_file_truncated_under_its_mapping_gives_errors_and_not_sigbus() {
        let file = temporary(&vec![7; 1 << 20]);
        let map = Mapping::new(&file, 12, (1 << 20) - 12).unwrap().unwrap();
        let mut out = [0; 8];
        map.copy_to(900_000, &mut out).unwrap();
        file.set_len(100_000).unwrap();
        assert!(map.copy_to(900_000, &mut out).is_err());
        assert!(map.copy_to(0, &mut out).is_err());
        file.set_len(1 << 20).unwrap();
        assert!(map.copy_to(900_000, &mut out).is_err());
    }

    #[test]
    fn several_mappings_are_guarded_independently() {
        let files: Vec<_> = (0..8).map(|_| temporary(&vec![3; 1 << 16])).collect();
        let maps: Vec<_> =
            files.iter().map(|f| Mapping::new(f, 0, 1 << 16).unwrap().unwrap()).collect();
        files[3].set_len(0).unwrap();
        let mut out = [0; 1];
        for (number, map) in maps.iter().enumerate() {
            assert_eq!(map.copy_to(60_000, &mut out).is_err(), number == 3);
        }
    }
}
