//! The control files of a mount, where one daemon may take over from another at any time.

use std::path::Path;
use std::time::Duration;
use std::{fs, io, thread};

/// So often calls are made, for 2 s or longer: while one daemon takes over from another, both answer. The time that a call takes
/// does not count, as it waits where nobody answers.
const MOST_CALLS: usize = 400;
/// The pause between two calls.
const PAUSE: Duration = Duration::from_millis(5);

/// All bytes of a control file.
///
/// # Errors
/// As for any file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    opened_anew(|| fs::read(path))
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
