//! The directories and temporary names that files are written to.
//!
//! Imports no other file of this directory.

use crate::io::files::beneath::Beneath;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The most recently used directory: the next file is usually in it, too.
#[derive(Default)]
pub(super) struct LastDirectory(Option<(PathBuf, Beneath)>);

impl LastDirectory {
    /// The directory that contains `path`, created if `makes`.
    pub(super) fn open(
        &mut self,
        root: &Beneath,
        path: &Path,
        makes: bool,
    ) -> io::Result<&Beneath> {
        let wanted = path.parent().unwrap_or(Path::new(""));
        if self.0.as_ref().is_none_or(|(path, _)| path != wanted) {
            let opened = if makes { root.make_directory(wanted)? } else { root.directory(wanted)? };
            self.0 = Some((wanted.to_owned(), opened));
        }
        match &self.0 {
            Some((_, directory)) => Ok(directory),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// A name that no file has yet. A file with this name is removed unless it is renamed.
pub(super) struct Temporary<'a> {
    directory: &'a Beneath,
    pub(super) name: PathBuf,
    is_named: std::cell::Cell<bool>,
}

impl<'a> Temporary<'a> {
    pub(super) fn new(directory: &'a Beneath) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".ffrfs-{}-{number}", std::process::id()).into();
        Self { directory, name, is_named: false.into() }
    }

    pub(super) fn give_name(&self, name: &Path, replaces: bool) -> io::Result<()> {
        self.directory.rename(&self.name, name, replaces)?;
        self.is_named.set(true);
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.is_named.get() {
            let _ = self.directory.remove(&self.name);
        }
    }
}

pub(super) fn path_of(path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}

pub(super) fn name_of(path: &Path) -> &Path {
    Path::new(path.file_name().unwrap_or_default())
}
