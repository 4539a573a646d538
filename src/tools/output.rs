//! Outputs that get their names only when they are whole, and are removed otherwise.

use crate::dataset::beside::without_temporary_name;
use crate::failure::Failure;
use crate::io::{preallocate, rename_to_free, start_writing};
use nix::fcntl::AT_FDCWD;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempDir};

/// After this many bytes the kernel is told to start writing them to the disk, so that little is left for the end.
const BEGIN_BYTES: u64 = 16 << 20;

/// Refuses an existing output, unless it may be replaced and is a file.
pub(crate) fn check_free(output: &Path, force: bool) -> Result<(), Failure> {
    match output.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Failure::output(output.display(), e)),
        Ok(_) if force => check_is_file(output).map_err(|e| Failure::output(output.display(), e)),
        Ok(_) => Err(Failure::output(output.display(), is_there())),
    }
}

pub(crate) fn is_there() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "exists already (--force replaces it)")
}

pub(crate) fn check_is_file(output: &Path) -> io::Result<()> {
    let is_link = output.symlink_metadata()?.file_type().is_symlink();
    // `/dev/stdout` is one, also where that leads to a regular file.
    let is_for_programs = || {
        let directory = parent_of(output).canonicalize();
        let is_below = |directory: &Path, root| directory.starts_with(root);
        directory.is_ok_and(|it| {
            is_below(&it, "/proc") || is_below(&it, "/dev") && !is_below(&it, "/dev/shm")
        })
    };
    let is_file = match output.metadata() {
        // It leads nowhere.
        Err(e) if is_link && e.kind() == io::ErrorKind::NotFound => true,
        metadata => metadata?.is_file(),
    };
    match is_file && !(is_link && is_for_programs()) {
        true => Ok(()),
        false => Err(io::Error::other("is not a regular file; it is not replaced")),
    }
}

/// Refuses an output inside of the directory that is read.
pub(crate) fn check_outside(directory: &Path, output: &Path, done: &str) -> Result<(), Failure> {
    let whole =
        directory.canonicalize().map_err(|e| Failure::unreadable(directory.display(), e))?;
    let parent = parent_of(output);
    let parent = parent
        .canonicalize()
        .map_err(|e| Failure::output(output.display(), not_made(output, e)))?;
    let is_itself = output.canonicalize().is_ok_and(|output| output == whole);
    match parent.starts_with(&whole) || is_itself {
        false => Ok(()),
        true => Err(Failure::usage(format!(
            "{}: the output would lie in the directory that is {done}",
            output.display()
        ))),
    }
}

pub(crate) fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file that is removed unless it is given a name; with the permissions of any file that the user makes.
pub(crate) fn file_beside(output: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(".ffrfs-")
        .permissions(fs::Permissions::from_mode(0o666 & !umask()))
        .tempfile_in(parent_of(output))
        .map_err(|e| not_made(output, e))
}

/// A directory that is removed unless it is given a name.
pub(crate) fn directory_beside(output: &Path) -> io::Result<TempDir> {
    tempfile::Builder::new()
        .prefix(".ffrfs-")
        .permissions(fs::Permissions::from_mode(0o777 & !umask()))
        .tempdir_in(parent_of(output))
        .map_err(|e| not_made(output, e))
}

/// Says why nothing can be made in the directory of an output, and what to do.
pub(crate) fn not_made(output: &Path, error: io::Error) -> io::Error {
    let (error, directory) = (without_temporary_name(error), parent_of(output).display());
    let why = match error.kind() {
        io::ErrorKind::NotFound => {
            format!("there is no directory {directory}: make it, or name another output")
        }
        io::ErrorKind::NotADirectory => {
            format!("{directory} is not a directory: name another output")
        }
        io::ErrorKind::PermissionDenied => {
            format!("nothing can be made in {directory}: {error}: name another output")
        }
        _ => return error,
    };
    io::Error::new(error.kind(), why)
}

/// Gives a whole file its name, and makes the name durable.
pub(crate) fn give_name(
    temporary: tempfile::TempPath,
    output: &Path,
    force: bool,
) -> io::Result<()> {
    let named = match force {
        true => temporary.persist(output).map_err(|e| e.error),
        false => rename_to_free(AT_FDCWD, &temporary, output).map(|()| drop(temporary.keep())),
    };
    named.map_err(|e| if e.kind() == io::ErrorKind::AlreadyExists { is_there() } else { e })?;
    sync_directory(parent_of(output))
}

/// Gives a whole directory its name. An existing directory is moved aside first, and removed afterwards.
pub(crate) fn give_directory_name(
    directory: TempDir,
    output: &Path,
    force: bool,
) -> io::Result<()> {
    sync_directory(directory.path())?;
    let aside = tempfile::Builder::new().prefix(".ffrfs-old-").tempdir_in(parent_of(output))?;
    let old = aside.path().join("old");
    if force && output.exists() {
        fs::rename(output, &old)?;
    }
    fs::rename(directory.path(), output).inspect_err(|_| {
        let _ = fs::rename(&old, output);
    })?;
    let _ = directory.keep();
    sync_directory(parent_of(output))
}

/// The umask can only be read by setting it; no other thread creates files meanwhile.
pub(crate) fn umask() -> u32 {
    use nix::sys::stat::{Mode, umask};
    let mask = umask(Mode::from_bits_truncate(0o077));
    umask(mask);
    mask.bits()
}

/// Makes the entries of a directory durable, if the file system can do that.
fn sync_directory(path: &Path) -> io::Result<()> {
    match File::open(path)?.sync_all() {
        Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            Ok(())
        }
        synced => synced,
    }
}

/// A large file that is written once: its space is allocated first, and the disk is kept busy.
pub(crate) struct LargeFile<'a> {
    file: &'a File,
    position: u64,
    begun: u64,
}

impl<'a> LargeFile<'a> {
    /// `bytes` is the approximate length of the file.
    pub(crate) fn new(file: &'a File, bytes: u64) -> io::Result<Self> {
        preallocate(file, bytes)?;
        Ok(Self { file, position: 0, begun: 0 })
    }

    /// Writes the rest to the disk, and frees the space that was not needed.
    pub(crate) fn finish(file: &File) -> io::Result<()> {
        file.set_len(file.metadata()?.len())?;
        file.sync_all()
    }
}

impl Write for LargeFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.position += written as u64;
        if self.position >= self.begun + BEGIN_BYTES {
            start_writing(self.file, self.begun, self.position - self.begun);
            self.begun = self.position;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for LargeFile<'_> {
    fn seek(&mut self, place: SeekFrom) -> io::Result<u64> {
        self.position = self.file.seek(place)?;
        Ok(self.position)
    }
}

/// The temporary files of a set of outputs.
pub(crate) struct Set {
    files: Vec<(tempfile::TempPath, PathBuf)>,
}

impl Set {
    pub(crate) fn new() -> Self {
        Self { files: Vec::new() }
    }

    pub(crate) fn add(&mut self, temporary: NamedTempFile, output: PathBuf) {
        self.files.push((temporary.into_temp_path(), output));
    }

    /// Gives all files their names.
    pub(crate) fn give_names(self, force: bool) -> Result<(), Failure> {
        for (temporary, output) in self.files {
            give_name(temporary, &output, force)
                .map_err(|e| Failure::output(output.display(), e))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_made_may_also_be_a_directory() {
        let denied = io::Error::from_raw_os_error(libc::EACCES);
        let said = not_made(Path::new("/d/out/"), denied).to_string();
        assert!(said.starts_with("nothing can be made in /d: Permission denied"), "{said}");
        assert!(said.ends_with(": name another output"), "{said}");
    }
}
