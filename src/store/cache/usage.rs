//! Hits and misses of an entry: how many reads found their bytes in it. Each process counts separately, and adds its
//! counts to a file of the entry when it closes the entry; a process that is killed loses its counts. Imports
//! `directory`.

use super::directory::open_plain;
use crate::io as system;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The length of the file: hits and misses, little-endian.
pub(super) const FILE_BYTES: usize = 16;
/// How often to try to lock the file while another process holds the lock, and the pause between attempts.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(1);

/// Reads of an entry.
#[derive(Debug, Default)]
pub(super) struct Usage {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Usage {
    /// Counts a read that found all its bytes.
    pub(super) fn note_hit(&self) {
        self.hits.fetch_add(1, Relaxed);
    }

    /// Counts a read that did not find all its bytes.
    pub(super) fn note_miss(&self) {
        self.misses.fetch_add(1, Relaxed);
    }

    /// Adds the counts to those in the file, which must exist.
    ///
    /// # Errors
    /// The file cannot be written, or other processes keep it locked.
    pub(super) fn save(&self, path: &Path) -> io::Result<()> {
        let more = (self.hits.swap(0, Relaxed), self.misses.swap(0, Relaxed));
        if more == (0, 0) {
            return Ok(());
        }
        let file = open_plain(path, true)?;
        let all = 0..FILE_BYTES as u64;
        for _ in 0..TRIES {
            // Closing the file releases the lock.
            if system::try_lock_range(&file, &all)? {
                let (hits, misses) = parse(&file)?;
                let sums = [hits.saturating_add(more.0), misses.saturating_add(more.1)];
                return file.write_all_at(&sums.map(u64::to_le_bytes).concat(), 0);
            }
            std::thread::sleep(PAUSE);
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Hits and misses of all processes that have closed the entry. `None` if they were not counted.
    pub(super) fn read(path: &Path) -> Option<(u64, u64)> {
        parse(&open_plain(path, false).ok()?).ok()
    }
}

fn parse(file: &File) -> io::Result<(u64, u64)> {
    let mut counts = [0; FILE_BYTES];
    file.read_exact_at(&mut counts, 0)?;
    let count = u128::from_le_bytes(counts);
    Ok((count as u64, (count >> 64) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_several_processes_add_up_and_a_torn_file_has_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("use");
        std::fs::write(&path, [0; FILE_BYTES]).unwrap();
        for _ in 0..3 {
            let usage = Usage::default();
            usage.note_hit();
            usage.note_hit();
            usage.note_miss();
            usage.save(&path).unwrap();
            usage.save(&path).unwrap();
        }
        assert_eq!(Usage::read(&path), Some((6, 3)));
        std::fs::write(&path, [1; 5]).unwrap();
        assert_eq!(Usage::read(&path), None);
        assert_eq!(Usage::read(&directory.path().join("none")), None);
    }
}
