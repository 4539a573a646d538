//! The control files of a mount, where one daemon may take over from another at any time.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// The inode number of each control directory. The numbers of what a dataset has stay far below.
pub const DIRECTORY_INODE: u64 = 1 << 62;

/// So often calls are made, for 2 s or longer: while one daemon takes over from another, both answer. The time that a call takes
/// does not count, as it waits where nobody answers.
const MOST_CALLS: usize = 400;
/// The pause between two calls.
const PAUSE: Duration = Duration::from_millis(5);

/// All bytes of a control file.
///
/// # Errors
/// As of [`open`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    opened_anew(|| {
        let mut bytes = Vec::new();
        open(path)?.read_to_end(&mut bytes).map(|_| bytes)
    })
}

/// Opens a control file for reading, once (see [`opened_anew`]).
///
/// # Errors
/// As for any file; ENOENT: also if the mount has no control directory, and its dataset has a file of that name.
pub fn open(path: &Path) -> io::Result<File> {
    check(path)?;
    File::open(path)
}

/// What `stat` shows of a control file.
///
/// # Errors
/// As of [`open`].
pub fn metadata(path: &Path) -> io::Result<fs::Metadata> {
    opened_anew(|| {
        check(path)?;
        fs::metadata(path)
    })
}

/// An error unless a path leads into a control directory. With `--no-control`, a dataset may have a directory of that name, or a
/// symbolic link to the control directory of another mount.
fn check(path: &Path) -> io::Result<()> {
    let directory = path.parent().map(fs::symlink_metadata).transpose()?;
    match directory.is_some_and(|directory| directory.ino() == DIRECTORY_INODE) {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::ENOENT)),
    }
}

/// Makes a call that opens a control file, and makes it again while it gives ESTALE: the file was opened at one daemon, and
/// another one has answered, which has followed it (`--restarts`, `ffrfs upgrade`).
///
/// # Errors
/// Those of the call; ESTALE: it gives that for longer than a daemon takes to follow another one.
pub fn opened_anew<T>(call: impl Fn() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..MOST_CALLS {
        match call() {
            Err(error) if is_stale(&error) => thread::sleep(PAUSE),
            ended => return ended,
        }
    }
    call()
}

/// Whether a control file was opened at another daemon than the one that serves its mount now.
#[must_use]
pub fn is_stale(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESTALE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_file_of_another_directory_is_no_control_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("info.json");
        fs::write(&file, "{}").unwrap();
        let refused = [read(&file).err(), open(&file).err(), metadata(&file).err()];
        assert!(refused.iter().flatten().all(|e| e.raw_os_error() == Some(libc::ENOENT)));
        assert_eq!(refused.iter().flatten().count(), 3);
    }

    #[test]
    fn a_file_is_opened_again_as_long_as_it_is_stale() {
        let calls = Cell::new(0);
        let fails_before = |number: u32, errno: i32| {
            calls.set(0);
            opened_anew(|| {
                calls.set(calls.get() + 1);
                match calls.get() {
                    call if call == number => Ok(call),
                    _ => Err(io::Error::from_raw_os_error(errno)),
                }
            })
        };
        assert_eq!(fails_before(20, libc::ESTALE).unwrap(), 20);
        assert_eq!(fails_before(1, libc::ESTALE).unwrap(), 1);
        let other = fails_before(3, libc::ENOTCONN).unwrap_err();
        assert_eq!((other.raw_os_error(), calls.get()), (Some(libc::ENOTCONN), 1));
        assert!(is_stale(&fails_before(u32::MAX, libc::ESTALE).unwrap_err()), "not for ever");
        calls.set(0);
        let waits = opened_anew(|| match calls.replace(calls.get() + 1) {
            0 => {
                thread::sleep(Duration::from_millis(2_100));
                Err(io::Error::from_raw_os_error(libc::ESTALE))
            }
            call => Ok(call),
        });
        assert_eq!(waits.unwrap(), 1, "it has waited for a daemon");
    }
}
