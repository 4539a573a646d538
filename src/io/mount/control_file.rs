//! The control files of a mount, where one daemon may take over from another at any time. The mount may be a hostile user's.

use crate::io::process::MOST_MESSAGE_BYTES;
use nix::errno::Errno;
use nix::fcntl::{self, AtFlags, OFlag};
use nix::sys::stat::{Mode, fstatat};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// The inode number of each control directory. The inode numbers of a dataset stay far below.
pub const DIRECTORY_INODE: u64 = 1 << 62;

/// The most bytes that are read of a control file: a child sends them behind an error number.
const MOST_BYTES: u64 = MOST_MESSAGE_BYTES - 4;

/// How often calls are made, for 2 s or longer: while one daemon takes over from another, both answer. The time that a call
/// takes does not count, as it waits where no daemon answers.
const MOST_CALLS: usize = 400;
/// The pause between two calls.
const PAUSE: Duration = Duration::from_millis(5);

/// Reads all bytes of a control file.
///
/// # Errors
/// As for [`open`]; EFBIG if it is larger than any control file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    opened_anew(|| read_whole(&open(path)?, MOST_BYTES))
}

fn read_whole(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(Errno::EFBIG.into()),
        false => Ok(bytes),
    }
}

/// Opens a control file for reading, once (see [`opened_anew`]).
///
/// # Errors
/// As for any file; EINVAL if it is no regular file; ENOTDIR if the mount has no control directory.
pub fn open(path: &Path) -> io::Result<File> {
    let (directory, name) = directory(path)?;
    open_in(&directory, name)
}

/// Opens a file without following a link, and without waiting for the writer of a pipe.
fn open_in(directory: &File, name: &OsStr) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = File::from(fcntl::openat(directory, name, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(Errno::EINVAL.into()),
    }
}

/// The owner of a control file.
///
/// # Errors
/// As for [`open`].
pub fn owner(path: &Path) -> io::Result<u32> {
    opened_anew(|| {
        let (directory, name) = directory(path)?;
        Ok(fstatat(&directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)?.st_uid)
    })
}

/// The control directory that a path leads into, and the file's name in it. With `--no-control`, a dataset may have a directory
/// of that name, or a symbolic link to the control directory of another mount.
fn directory(path: &Path) -> io::Result<(File, &OsStr)> {
    let absent = || Err(Errno::ENOTDIR.into());
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return absent() };
    // The daemon is not asked to open the directory.
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = match fcntl::open(directory, flags, Mode::empty()) {
        Ok(directory) => File::from(directory),
        Err(Errno::ENOENT | Errno::ENOTDIR) => return absent(),
        Err(e) => return Err(e.into()),
    };
    match directory.metadata()?.ino() == DIRECTORY_INODE {
        true => Ok((directory, name)),
        false => absent(),
    }
}

/// Makes a call that opens a control file, and makes it again while it gives ESTALE: the file was opened at one daemon, and
/// another one, which has followed it (`--restarts`, `ffrfs upgrade`), has answered; or EINTR.
///
/// # Errors
/// Those of the call; ESTALE or EINTR if the call gives it for longer than a daemon takes to follow another one.
pub fn opened_anew<T>(call: impl Fn() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..MOST_CALLS {
        match call() {
            // The daemon died while its ring had the request: the kernel says that it was interrupted.
            Err(error) if is_stale(&error) || error.kind() == io::ErrorKind::Interrupted => {
                thread::sleep(PAUSE);
            }
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
    use std::fs;

    #[test]
    fn a_file_of_another_directory_is_no_control_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("info.json");
        fs::write(&file, "{}").unwrap();
        let nowhere = directory.path().join("absent/info.json");
        for file in [file, nowhere] {
            let refused = [read(&file).err(), open(&file).err(), owner(&file).err()];
            assert!(refused.iter().flatten().all(|e| e.raw_os_error() == Some(libc::ENOTDIR)));
            assert_eq!(refused.iter().flatten().count(), 3);
        }
    }

    #[test]
    fn a_file_that_does_not_end_is_not_read_on() {
        let endless = File::open("/dev/zero").unwrap();
        assert_eq!(read_whole(&endless, 10).unwrap_err().raw_os_error(), Some(libc::EFBIG));
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("file"), [7; 10]).unwrap();
        let file = File::open(directory.path().join("file")).unwrap();
        assert_eq!(read_whole(&file, 10).unwrap(), [7; 10]);
    }

    #[test]
    fn neither_a_link_nor_a_pipe_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("file"), "{}").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        nix::unistd::mkfifo(&path("pipe"), Mode::S_IRWXU).unwrap();
        let opened = File::open(directory.path()).unwrap();
        let open = |name: &str| open_in(&opened, OsStr::new(name));
        assert!(open("file").is_ok());
        for (name, errno) in [
            ("link", libc::ELOOP),
            ("pipe", libc::EINVAL),
            (".", libc::EINVAL),
            ("missing", libc::ENOENT),
        ] {
            assert_eq!(open(name).unwrap_err().raw_os_error(), Some(errno), "{name}");
        }
    }

    #[test]
    fn a_file_is_opened_again_as_long_as_it_is_stale_or_the_call_is_interrupted() {
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
        assert_eq!(fails_before(5, libc::EINTR).unwrap(), 5);
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
