//! Whether a file can be written, without making or opening it. Imports nothing of ours.

use nix::unistd::{AccessFlags, eaccess};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most links that the kernel follows.
const MOST_LINKS: usize = 40;

/// Looks whether this user may write a file, or make it if it does not exist.
///
/// # Errors
/// As for opening the file to write.
pub fn check_writable(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        Ok(_) => Ok(eaccess(path, AccessFlags::W_OK)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => check_makeable(&led_to(path)?),
        Err(error) => Err(error),
    }
}

/// The path at which a file is made: the path that a link at `path` leads to.
fn led_to(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..=MOST_LINKS {
        let Ok(link) = fs::read_link(&path) else { return Ok(path) };
        path = path.parent().unwrap_or(&path).join(link);
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// Looks whether this user may make a file that does not exist.
///
/// # Errors
/// As for making the file.
pub fn check_makeable(path: &Path) -> io::Result<()> {
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    let path = std::path::absolute(path)?;
    let directory = path.parent().unwrap_or(&path);
    if !fs::metadata(directory)?.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
    }
    Ok(eaccess(directory, AccessFlags::W_OK | AccessFlags::X_OK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_written_is_found_without_writing() {
        let place = tempfile::tempdir().unwrap();
        let (there, new) = (place.path().join("there"), place.path().join("new"));
        fs::write(&there, "text").unwrap();
        check_writable(&there).unwrap();
        check_writable(&new).unwrap();
        check_makeable(&new).unwrap();
        let link = |name: &str, to: &str| {
            let path = place.path().join(name);
            std::os::unix::fs::symlink(to, &path).unwrap();
            path
        };
        check_writable(&link("to_new", "./new")).unwrap();
        fs::create_dir(place.path().join("below")).unwrap();
        check_writable(&link("below/to_link", "../to_new")).unwrap();
        check_writable(&link("to_below", "below/to_link")).unwrap();
        for (wrong, errno) in [
            (link("to_nowhere", "none/new"), libc::ENOENT),
            (link("below/to_nowhere", "../to_nowhere"), libc::ENOENT),
            (link("to_itself", "to_itself"), libc::ELOOP),
            (link("to_directory", "new/"), libc::EISDIR),
            (link("to_it", "to_directory"), libc::EISDIR),
            (place.path().join("new/"), libc::EISDIR),
            (place.path().to_owned(), libc::EISDIR),
            (place.path().join("none/new"), libc::ENOENT),
            (there.join("new"), libc::ENOTDIR),
        ] {
            let error = check_writable(&wrong).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(errno), "{}", wrong.display());
        }
        assert!(!new.exists() && fs::read(&there).unwrap() == b"text");
    }
}
