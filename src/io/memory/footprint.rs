//! The memory of a process that only waits: it holds little memory, which stays present. Imports `page`.

use super::page::page_bytes;
use std::io;
use std::ops::Range;

/// The most bytes that are locked: with more, other programs would lack memory.
const MAX_LOCKED_BYTES: usize = 2 << 20;
/// The longest gap between two parts in memory that is locked with them: it is likely to be used.
const MAX_GAP_BYTES: usize = 16 << 10;

/// Gives back the memory that the program has used to start, and locks the memory that it writes to, if it may: when memory is
/// short it must go on. Its instructions are read again from their file when they are needed.
pub fn shrink_and_lock() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the call takes a number; it gives back only free memory, under the allocator's own lock.
        unsafe { libc::malloc_trim(0) };
    }
    let Ok(maps) = std::fs::read("/proc/self/maps") else { return };
    let areas: Vec<Area> = String::from_utf8_lossy(&maps).lines().filter_map(Area::parse).collect();
    for area in areas.iter().filter(|area| area.is_program) {
        area.forget();
    }
    // Memory that the heap has given back stays a part of its area, and would count as locked.
    let used: Vec<Area> =
        areas.iter().filter(|area| area.is_written).flat_map(Area::in_memory).collect();
    let bytes: usize = used.iter().map(|area| area.bytes).sum();
    if bytes > MAX_LOCKED_BYTES {
        return tracing::debug!("memory is not locked: {bytes} bytes are in use");
    }
    for area in used {
        if let Err(error) = area.lock() {
            return tracing::debug!("memory is not locked: {error}");
        }
    }
}

/// A line of /proc/self/maps.
#[derive(Debug, PartialEq, Eq)]
struct Area {
    start: usize,
    bytes: usize,
    /// Whether the area has instructions of a file.
    is_program: bool,
    /// Whether the process may write to the area, and no other process does.
    is_written: bool,
}

impl Area {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let bytes = usize::from_str_radix(end, 16).ok()?.checked_sub(start)?;
        let rights = fields.next()?;
        let name = fields.nth(3).unwrap_or_default();
        let is_program = rights == "r-xp" && name.starts_with('/');
        let is_written = rights == "rw-p";
        Some(Self { start, bytes, is_program, is_written })
    }

    fn forget(&self) {
        // SAFETY: the kernel has named this area of the process, which has one thread and unmaps nothing meanwhile. It
        // is a private mapping of a file that cannot be written to: its pages are read again from the file.
        unsafe {
            libc::madvise(self.start as *mut libc::c_void, self.bytes, libc::MADV_DONTNEED);
        }
    }

    /// The parts of this area that are in memory; all of it if they cannot be known.
    fn in_memory(&self) -> Vec<Self> {
        let page = page_bytes();
        let mut present = vec![0_u8; self.bytes.div_ceil(page)];
        // SAFETY: the call reads nothing of the area, and writes a byte for each page of it to the vector, which has as many.
        let known = unsafe {
            libc::mincore(self.start as *mut libc::c_void, self.bytes, present.as_mut_ptr())
        };
        let pages = present.iter().map(|&flags| known != 0 || flags & 1 == 1);
        runs(pages, MAX_GAP_BYTES / page)
            .into_iter()
            .map(|run| Self {
                start: self.start + run.start * page,
                bytes: run.len() * page,
                is_program: false,
                is_written: true,
            })
            .collect()
    }

    fn lock(&self) -> io::Result<()> {
        // SAFETY: the call changes nothing in memory.
        let done = unsafe {
            libc::mlock2(self.start as *const libc::c_void, self.bytes, libc::MLOCK_ONFAULT)
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// The runs of `true`, joined where no more than `gap` others lie between.
fn runs(flags: impl Iterator<Item = bool>, gap: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, _) in flags.enumerate().filter(|(_, flag)| *flag) {
        match runs.last_mut() {
            Some(last) if at - last.end <= gap => last.end = at + 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_joined_over_short_gaps() {
        let found = |text: &str, gap| runs(text.bytes().map(|byte| byte == b'x'), gap);
        assert_eq!(found(" xx x   x", 1), [1..5, 8..9]);
        assert_eq!(found("x x", 0), [0..1, 2..3]);
        assert!(found("   ", 2).is_empty());
    }

    #[test]
    fn areas_are_told_apart_by_their_rights() {
        let area =
            |line| Area::parse(line).map(|area| (area.bytes, area.is_program, area.is_written));
        let program = "55bc2707f000-55bc27081000 r-xp 00000000 fe:00 1  /usr/bin/a b";
        assert_eq!(area(program), Some((8192, true, false)));
        assert_eq!(area("1000-3000 rw-p 00000000 00:00 0 [heap]"), Some((8192, false, true)));
        assert_eq!(area("1000-3000 r-xp 00000000 00:00 0 [vdso]"), Some((8192, false, false)));
        assert_eq!(area("1000-3000 rw-s 00000000 00:01 7 /dev/shm/x"), Some((8192, false, false)));
        assert_eq!(area("nonsense"), None);
    }
}
