//! The memory of a process that only waits: it holds little, and that little stays in memory. Imports nothing of ours.

use std::io;

/// More than this is not locked: somebody else's memory would be short.
const MAX_LOCKED_BYTES: usize = 4 << 20;

/// Gives back what the program has used to start, and keeps what it writes to in memory, if it may: when memory is short
/// it must go on. What it runs through is read again from its file when it is needed.
pub fn shrink_and_lock() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it takes a number; what it gives back is free, under the allocator's own lock.
        unsafe { libc::malloc_trim(0) };
    }
    let Ok(maps) = std::fs::read("/proc/self/maps") else { return };
    let areas: Vec<Area> = String::from_utf8_lossy(&maps).lines().filter_map(Area::parse).collect();
    for area in areas.iter().filter(|area| area.is_program) {
        area.forget();
    }
    let written: usize = areas.iter().filter(|area| area.is_written).map(|area| area.bytes).sum();
    if written <= MAX_LOCKED_BYTES {
        for area in areas.iter().filter(|area| area.is_written) {
            if let Err(error) = area.lock() {
                return tracing::debug!("memory is not locked: {error}");
            }
        }
    }
}

/// A line of /proc/self/maps.
#[derive(Debug, PartialEq, Eq)]
struct Area {
    start: usize,
    bytes: usize,
    /// Instructions of a file.
    is_program: bool,
    /// The process may write to it, and nobody else does.
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

    fn lock(&self) -> io::Result<()> {
        // SAFETY: it changes nothing in memory.
        let done = unsafe {
            libc::mlock2(self.start as *const libc::c_void, self.bytes, libc::MLOCK_ONFAULT)
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
