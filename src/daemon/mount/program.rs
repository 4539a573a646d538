//! The program that serves a mount, and the one that has taken its place on disk since.

use std::env;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A program that stays the same file, whatever takes its place on disk.
pub(super) struct Program {
    file: File,
    identity: Identity,
}

/// Device, inode, and time of the last change.
type Identity = (u64, u64, i64, i64);

impl Program {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).custom_flags(libc::O_PATH).open(path)?;
        let identity = identity(&file.metadata()?);
        Ok(Self { file, identity })
    }

    /// Whether both are the same file, without a write in between.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.identity == other.identity
    }

    /// A path by which this process and its children can run the program, while `self` is held.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }
}

fn identity(file: &fs::Metadata) -> Identity {
    (file.dev(), file.ino(), file.mtime(), file.mtime_nsec())
}

/// The program that serves a mount.
pub(super) struct Programs {
    /// The path at which the program was found.
    path: Option<PathBuf>,
    /// The identity of this process's program.
    own: Option<Identity>,
    /// The program that serves, if it is not that of this process.
    pub(super) serving: Option<Program>,
}

impl Programs {
    /// The program of this process.
    pub(super) fn new() -> Self {
        let own = fs::metadata("/proc/self/exe").ok().as_ref().map(identity);
        let is_own =
            |path: &Path| own.is_some() && fs::metadata(path).ok().as_ref().map(identity) == own;
        // The path by which it was called, since that may be a link whose target carries a version in its name.
        let called = env::args_os().next().map(PathBuf::from).unwrap_or_default();
        let called = match called.components().count() {
            0 | 1 => {
                let path = env::var_os("PATH").unwrap_or_default();
                env::split_paths(&path)
                    .map(|directory| directory.join(&called))
                    .find(|path| is_own(path))
            }
            _ => std::path::absolute(&called).ok().filter(|path| is_own(path)),
        };
        Self { path: called.or_else(|| env::current_exe().ok()), own, serving: None }
    }

    /// The program that is at the path now.
    ///
    /// # Errors
    /// No program is at the path.
    pub(super) fn now(&self) -> io::Result<Program> {
        Program::open(self.path.as_deref().ok_or(io::ErrorKind::NotFound)?)
    }

    /// Whether another program has taken the place of the one that serves.
    pub(super) fn has_changed(&self) -> bool {
        let serving = self.serving.as_ref().map(|program| program.identity).or(self.own);
        self.now().is_ok_and(|now| serving.is_some_and(|serving| serving != now.identity))
    }
}
