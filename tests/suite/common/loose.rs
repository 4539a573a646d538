//! Loose files: a directory as all the entries that a container must give back.

use super::noise;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// An entry as it is found on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Loose {
    File { bytes: Vec<u8>, mode: u32, modified: i64 },
    Directory { mode: u32, modified: i64 },
    Symlink(PathBuf),
}

impl Loose {
    /// The entry as a format without permissions and times keeps it.
    pub(crate) fn plain(self) -> Self {
        match self {
            Loose::File { bytes, .. } => Loose::File { bytes, mode: 0, modified: 0 },
            Loose::Directory { .. } => Loose::Directory { mode: 0, modified: 0 },
            link => link,
        }
    }

    /// The entry with its time cut to a multiple of `nanos` nanoseconds.
    pub(crate) fn cut(self, nanos: i64) -> Self {
        let cut = |modified: i64| modified.div_euclid(nanos) * nanos;
        match self {
            Loose::File { bytes, mode, modified } => {
                Loose::File { bytes, mode, modified: cut(modified) }
            }
            Loose::Directory { mode, modified } => {
                Loose::Directory { mode, modified: cut(modified) }
            }
            link => link,
        }
    }
}

/// Everything below a directory, by its path.
pub(crate) fn loose(root: &Path) -> BTreeMap<PathBuf, Loose> {
    let walk = walkdir::WalkDir::new(root).min_depth(1).into_iter().map(|entry| {
        let entry = entry.expect("walk a directory");
        let (path, metadata) = (entry.path(), entry.metadata().expect("look at a file"));
        let mode = metadata.mode() & 0o7777;
        let modified = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
        let found = if metadata.is_symlink() {
            Loose::Symlink(fs::read_link(path).expect("read a link"))
        } else if metadata.is_dir() {
            Loose::Directory { mode, modified }
        } else {
            Loose::File { bytes: fs::read(path).expect("read a file"), mode, modified }
        };
        (path.strip_prefix(root).expect("below").to_owned(), found)
    });
    walk.collect()
}

/// A directory with files of all sizes, permissions and times, odd names, links and an empty directory.
pub(crate) fn mixed_directory(root: &Path) {
    let write = |path: &str, bytes: &[u8], mode: u32, nanos: u64| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_nanos(nanos)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    };
    write("a/x.jpg", &noise(1, 3000), 0o600, 1_234_567_890_123_456_700);
    write("a/x.json", b"{}", 0o640, 1_000_000_000_000_000_000);
    write("a/empty", b"", 0o444, 1_500_000_000);
    write("b/big", &noise(2, 9 << 20), 0o755, 1_600_000_000_000_000_001);
    write("b/é日本 .txt", b"text", 0o644, 2_500_000_000_000_000_000);
    write(&format!("{0}/{0}/{0}", "d".repeat(200)), b"deep", 0o644, 7);
    for file in 0..200u64 {
        let bytes = noise(file, (file * 7919 % 20_000) as usize);
        write(&format!("many/{file:04}.bin"), &bytes, 0o644, 1_700_000_000_000_000_000 + file);
    }
    fs::create_dir(root.join("hollow")).unwrap();
    fs::set_permissions(root.join("hollow"), Permissions::from_mode(0o711)).unwrap();
    symlink("../a/x.jpg", root.join("b/link")).unwrap();
    symlink("/nowhere/at/all", root.join("absolute")).unwrap();
    symlink("z".repeat(150), root.join("long")).unwrap();
}
