//! Whether a file system supports reads past the page cache, and with which alignment. Imports the buffers.

use crate::io::memory::Buffer;
use rustix::fs::{AtFlags, StatxFlags, statx};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Whether and how a file can be read with O_DIRECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direct {
    /// The file can be read so. Addresses in memory, and offsets and lengths in the file, must be multiples of these.
    Works {
        /// The multiple for addresses.
        memory_bytes: u32,
        /// The multiple for offsets and lengths.
        offset_bytes: u32,
    },
    /// Its file system does not support O_DIRECT.
    Refused,
}

/// Asks the kernel for the alignment; where the kernel does not know it, tries some.
///
/// # Errors
/// The file cannot be opened or read at all.
pub fn direct(path: &Path) -> io::Result<Direct> {
    let opened =
        File::options().read(true).custom_flags(libc::O_DIRECT | libc::O_NONBLOCK).open(path);
    let file = match opened {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return Ok(Direct::Refused),
        other => other?,
    };
    match stated_alignment(&file) {
        Some((0, _) | (_, 0)) => Ok(Direct::Refused),
        Some((memory_bytes, offset_bytes)) => Ok(Direct::Works { memory_bytes, offset_bytes }),
        None => found_alignment(&file),
    }
}

/// The alignment of memory and of offsets that statx(2) states since Linux 6.1, for file systems that state one.
pub(super) fn stated_alignment(file: &File) -> Option<(u32, u32)> {
    let stated = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let is_stated = stated.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    is_stated.then_some((stated.stx_dio_mem_align, stated.stx_dio_offset_align))
}

/// Finds the alignment by reads of growing length at the beginning of the file.
fn found_alignment(file: &File) -> io::Result<Direct> {
    for bytes in [512, 4096] {
        let mut buffer = Buffer::with_capacity(bytes)?;
        match file.read_at(&mut buffer.as_mut_slice()[..bytes], 0) {
            Ok(_) => {
                let bytes = bytes as u32;
                return Ok(Direct::Works { memory_bytes: bytes, offset_bytes: bytes });
            }
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(Direct::Refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_alignment_that_is_told_or_tried_can_be_read_with() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        let Direct::Works { memory_bytes, offset_bytes } = direct(file.path()).unwrap() else {
            // Then a read with O_DIRECT must fail, or the file system hides that it is not direct.
            return assert!(stated_alignment(file.as_file()).is_none_or(|(a, b)| a == 0 || b == 0));
        };
        assert!(memory_bytes.is_power_of_two() && offset_bytes.is_power_of_two());
        let direct = File::options().read(true).custom_flags(libc::O_DIRECT).open(file.path());
        let mut buffer = Buffer::with_capacity(2 * offset_bytes as usize).unwrap();
        let target = &mut buffer.as_mut_slice()[..offset_bytes as usize];
        let read = direct.unwrap().read_at(target, u64::from(offset_bytes)).unwrap();
        assert!(read > 0 && target[..read].iter().all(|&byte| byte == 7));
    }

    #[test]
    fn what_is_not_there_is_an_error_and_what_has_no_storage_is_refused() {
        assert_eq!(direct(Path::new("/nowhere")).unwrap_err().kind(), io::ErrorKind::NotFound);
        let outcome = direct(Path::new("/proc/self/status"));
        assert!(matches!(outcome, Ok(Direct::Refused) | Err(_)), "{outcome:?}");
    }
}
