//! A file that messages are appended to, and that can be rotated. Imports nothing of this directory.

use crate::format::one_line;
use crate::io::memory::heap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A shared file that is larger becomes `NAME.1`, and takes the place of the former `NAME.1`.
const MOST_BYTES: u64 = 1 << 20;

/// A file that can be rotated: moved away while it is open, and then created anew.
pub(super) struct LogFile {
    path: PathBuf,
    file: Mutex<File>,
    /// The beginning of each line of this process, in a file that several processes share.
    label: Option<String>,
    most_bytes: u64,
}

impl LogFile {
    /// Opens a file of this process, which another program rotates.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = append_to(path, 0o666)?;
        heap::say_the_end_in(&file)?;
        let file = Mutex::new(file);
        Ok(Self { path: path.to_owned(), file, label: None, most_bytes: u64::MAX })
    }

    /// Opens a file that processes of this user share. They rotate it themselves.
    pub(super) fn open_shared(path: &Path, label: &str) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let file = append_to(path, 0o600)?;
        heap::say_the_end_in(&file)?;
        let file = Mutex::new(file);
        let label = Some(one_line(label));
        Ok(Self { path: path.to_owned(), file, label, most_bytes: MOST_BYTES })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn lock(&self) -> MutexGuard<'_, File> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on in a new file of the same name.
    pub(super) fn reopen(&self) -> io::Result<()> {
        // Locked while the new file is opened: once that is there, no line goes to the old one.
        let mut file = self.lock();
        *file = append_to(&self.path, if self.label.is_some() { 0o600 } else { 0o666 })?;
        heap::say_the_end_in(&file)
    }

    /// Moves a file away that is too large, unless another process has done that.
    fn rotate(&self, file: &mut File) -> io::Result<()> {
        // One of several processes moves the file, and the others do not wait. `file` cannot be the lock of this process alone:
        // its supervisor has the same open file.
        let lock = append_to(&self.path, 0o600)?;
        if lock.try_lock().is_err() {
            return Ok(());
        }
        let (open, named) = (file.metadata()?, fs::metadata(&self.path));
        if named.is_ok_and(|named| (named.dev(), named.ino()) == (open.dev(), open.ino())) {
            let mut old = self.path.clone().into_os_string();
            old.push(".1");
            if let Err(error) = fs::rename(&self.path, old) {
                // A full disk is worse than lost messages.
                file.set_len(0)?;
                return Err(error);
            }
        }
        *file = append_to(&self.path, 0o600)?;
        heap::say_the_end_in(file)
    }
}

fn append_to(path: &Path, mode: u32) -> io::Result<File> {
    File::options().append(true).create(true).mode(mode).open(path)
}

impl Write for &LogFile {
    /// Takes a whole line.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self.lock();
        let Some(label) = &self.label else { return file.write(bytes) };
        if file.metadata().is_ok_and(|metadata| metadata.len() > self.most_bytes) {
            let _ = self.rotate(&mut file);
        }
        // In one call, so that lines of other processes do not come between.
        file.write_all(&[label.as_bytes(), b": ", bytes].concat())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_file_names_the_mount_of_each_line_and_is_rotated_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/ffrfs.log");
        let open =
            |label| LogFile { most_bytes: 100, ..LogFile::open_shared(&path, label).unwrap() };
        let (one, two) = (open("/mnt/a"), open("/mnt/b\n"));
        (&one).write_all(b"first\n").unwrap();
        (&two).write_all(&[b'x'; 120]).unwrap();
        (&two).write_all(b"second\n").unwrap();
        // It was moved away already.
        (&one).write_all(b"third\n").unwrap();
        let text = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!(text(&path), "/mnt/b\\x0a: second\n/mnt/a: third\n");
        let old = text(&directory.path().join("new/ffrfs.log.1"));
        assert!(old.starts_with("/mnt/a: first\n/mnt/b\\x0a: xxx"), "{old}");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_rotated_file_is_not_locked_though_another_process_of_the_mount_has_it_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ffrfs.log");
        let log = LogFile { most_bytes: 10, ..LogFile::open_shared(&path, "m").unwrap() };
        // As the supervisor has it, of whose process that of the daemon is a copy.
        let _copy = log.lock().try_clone().unwrap();
        for line in ["a line that is long\n", "b\n"] {
            (&log).write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "m: b\n");
        let old = File::open(directory.path().join("ffrfs.log.1")).unwrap();
        old.try_lock().expect("another mount writes on");
    }

    #[test]
    fn what_cannot_be_moved_away_is_emptied() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ffrfs.log");
        let log = LogFile { most_bytes: 10, ..LogFile::open_shared(&path, "m").unwrap() };
        // A directory cannot be replaced by a file.
        fs::create_dir(directory.path().join("ffrfs.log.1")).unwrap();
        for line in ["a line that is long\n", "b\n"] {
            (&log).write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "m: b\n");
    }
}
