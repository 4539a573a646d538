//! Compressed streams without random access (one large frame or block) are decoded to files, which become the parts of
//! the dataset: in the directory that `--spool` names, or else once in the user's cache directory, where the next mount
//! finds them.
//!
//! ```text
//! CACHE/decoded/NAME-PATH-KEY   the decoded bytes; PATH and KEY are hashes of the container's path and version
//! CACHE/decoded/.decoding-…     what is being decoded
//! ```
//!
//! A mount locks the files that it uses; when space runs out the others are removed, the least recently used first.
//! Imports `index_head.rs` of this directory.

use super::beside::without_temporary_name;
use super::index_head::KEY_BYTES;
use crate::failure::Failure;
use crate::format::{self, Container, Format, OpenOptions, PartName, Source};
use crate::io::files::beneath::Beneath;
use crate::io::{self as system, File, Space, share_range, try_lock_range};
use crate::store::remote::{CacheMax, CachePlace, RemoteOptions};
use indicatif::HumanBytes;
use sha2::{Digest, Sha256};
use std::fs::{self, DirBuilder};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
#[cfg(feature = "remote")]
use {crate::io::is_range_locked, serde::Serialize};

/// The directory of decoded copies in the cache directory.
const DECODED: &str = "decoded";
/// One part in this many of the file system stays free.
const FREE_SHARE: u64 = 20;
/// Free space is checked after each write of this many bytes.
const ASK_BYTES: u64 = 64 << 20;
/// Mode bits that let others write to a directory.
const SHARED: u32 = 0o022;
/// What is locked of a file: shared by each mount that uses it, alone by who writes or removes it.
const WHOLE: Range<u64> = 0..u64::MAX;

/// A container in its decoded file, and that file.
pub(super) type Unpacked = (Box<dyn Container>, File);

/// Why a stream was not decoded to a file.
pub(super) enum NotDecoded {
    /// The file cannot be written.
    Output(io::Error),
    /// The stream cannot be read.
    Source(format::Error),
}

/// Decodes a whole compressed file to an unnamed file, and opens that.
pub(super) fn unpack_in(
    directory: &Path,
    format: &dyn Format,
    source: &dyn Source,
    options: &OpenOptions,
) -> Result<Unpacked, Failure> {
    let failed = |e| {
        let e = without_temporary_name(e);
        Failure::output(format_args!("--spool {}", directory.display()), e)
    };
    let file = tempfile::tempfile_in(directory).map_err(failed)?;
    let file = decode_to(file, format, source, &mut |_| Ok(())).map_err(|why| match why {
        NotDecoded::Output(error) => failed(error),
        NotDecoded::Source(error) => error.into(),
    })?;
    open(file, format, source, options)
}

fn decode_to(
    file: fs::File,
    format: &dyn Format,
    source: &dyn Source,
    may_grow: &mut dyn FnMut(u64) -> io::Result<()>,
) -> Result<fs::File, NotDecoded> {
    let out = BufWriter::with_capacity(1 << 20, file);
    let mut out = Recording { out, written_bytes: 0, may_grow, error: None };
    let decoded = format.unpack(source, &mut out);
    if let Some(error) = out.error {
        return Err(NotDecoded::Output(error));
    }
    decoded.map_err(NotDecoded::Source)?;
    let file = out.out.into_inner().map_err(io::IntoInnerError::into_error);
    file.map_err(NotDecoded::Output)
}

/// Opens a stream's decoded file.
fn open(
    file: fs::File,
    format: &dyn Format,
    source: &dyn Source,
    options: &OpenOptions,
) -> Result<Unpacked, Failure> {
    // It is called after its container, and has a name of its own or none: `rm` in the cache directory must not matter.
    let opened = || Ok(File::of(file.try_clone()?, source.name().clone())?.nameless());
    let failed = |e: io::Error| Failure::unreadable(source.name(), e);
    let decoded: Arc<dyn Source> = Arc::new(opened().map_err(failed)?);
    let name = format.unpacked_name(source)?;
    let container = format::compressed::open_decoded(decoded, name, options)?;
    Ok((container, opened().map_err(failed)?))
}

/// Checks the free space before each write, and remembers the error of a failed write.
struct Recording<'a, W: Write> {
    out: W,
    written_bytes: u64,
    may_grow: &'a mut dyn FnMut(u64) -> io::Result<()>,
    error: Option<io::Error>,
}

impl<W: Write> Write for Recording<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written_bytes += bytes.len() as u64;
        let written = (self.may_grow)(self.written_bytes).and_then(|()| self.out.write_all(bytes));
        match written {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                let kind = error.kind();
                self.error = Some(error);
                Err(kind.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The decoded streams in a cache directory.
pub(super) struct DecodedCache {
    directory: PathBuf,
    most: Option<CacheMax>,
    /// The space of the file system; tests must not depend on that of the machine.
    space: fn(&Path) -> io::Result<Space>,
}

impl DecodedCache {
    /// `None` if nothing is to be cached on disk, or if there is no home directory.
    pub(super) fn new(options: &RemoteOptions) -> Option<Self> {
        let cache = match &options.cache {
            CachePlace::None => return None,
            CachePlace::Directory(directory) => directory.clone(),
            CachePlace::User => system::cache_directory()?,
        };
        let (directory, space) = (cache.join(DECODED), system::space);
        Some(Self { directory, most: options.cache_max, space })
    }

    fn path(&self, container: &PartName, key: &[u8; KEY_BYTES]) -> PathBuf {
        let path = container.as_path().and_then(|path| path.canonicalize().ok());
        let whole = path.map_or_else(|| container.clone(), PartName::from);
        let mut name = whole.file_name().as_os_str().to_owned();
        let digest = Sha256::digest(key);
        let version: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        name.push(format!("-{:08x}-{version}", crc32fast::hash(whole.as_bytes())));
        self.directory.join(name)
    }

    /// Opens the file to which this version of the container was decoded before, if there is one.
    pub(super) fn find(
        &self,
        format: &dyn Format,
        source: &dyn Source,
        key: &[u8; KEY_BYTES],
        options: &OpenOptions,
    ) -> Option<Unpacked> {
        if !self.is_private() {
            return None;
        }
        let path = self.path(source.name(), key);
        let file = open_file(&path).ok()?;
        // Who has locked it is about to remove it.
        share_range(&file, &WHOLE).ok().filter(|shared| *shared)?;
        // The least recently used file is removed first.
        let used = fs::FileTimes::new().set_accessed(SystemTime::now());
        // Not the time of its change: mounts that use it would take it for another file.
        let _ = file.set_times(used);
        let found = open(file, format, source, options);
        found.inspect_err(|error| tracing::info!("{}: {error}: decoded again", path.display())).ok()
    }

    /// Decodes a container. With `keeps`, the file stays for the next mount. `Ok(Err(why))` if there is no space.
    pub(super) fn decode(
        &self,
        format: &dyn Format,
        source: &dyn Source,
        (key, keeps): (&[u8; KEY_BYTES], bool),
        options: &OpenOptions,
    ) -> Result<Result<Unpacked, String>, Failure> {
        let directory = self.directory.display();
        let refused = |why: io::Error| {
            let other = "--cache-dir names another cache directory";
            Ok(Err(format!(
                "not decoded to {directory}: {} ({other})",
                without_temporary_name(why)
            )))
        };
        if let Err(error) = self.prepare(source.len()) {
            return refused(error);
        }
        let how_long = match keeps {
            true => "once",
            false => "for this command alone (a mount keeps it)",
        };
        tracing::warn!(
            "{}: {} in one piece cannot be read in the middle: it is decoded to {directory}, {how_long}; in frames or \
             blocks (zstd: pzstd, xz: -T0) it needs no copy",
            source.name(),
            format.name()
        );
        match self.decoded(format, source, keeps.then(|| self.path(source.name(), key))) {
            Ok(file) => open(file, format, source, options).map(Ok),
            Err(NotDecoded::Output(error)) => refused(error),
            Err(NotDecoded::Source(error)) => Err(error.into()),
        }
    }

    /// Decodes a container to a file of this name, or to an unnamed one.
    fn decoded(
        &self,
        format: &dyn Format,
        source: &dyn Source,
        path: Option<PathBuf>,
    ) -> Result<fs::File, NotDecoded> {
        let mut asked_at = 0;
        let mut may_grow = |bytes: u64| {
            if bytes < asked_at {
                return Ok(());
            }
            asked_at = bytes + ASK_BYTES;
            self.make_room(ASK_BYTES)
        };
        let file = tempfile::Builder::new().prefix(".decoding-").tempfile_in(&self.directory);
        let file = file.map_err(NotDecoded::Output)?;
        let handle = file.as_file().try_clone().map_err(NotDecoded::Output)?;
        try_lock_range(&handle, &WHOLE).map_err(NotDecoded::Output)?;
        let decoded = decode_to(handle, format, source, &mut may_grow)?;
        let Some(path) = path else { return Ok(decoded) };
        let keep = || -> io::Result<()> {
            // A file with this name is whole even after a crash of the machine.
            decoded.sync_all()?;
            share_range(&decoded, &WHOLE)?;
            file.persist(&path)?;
            Ok(())
        };
        keep().map_err(NotDecoded::Output)?;
        Ok(decoded)
    }

    /// Makes the directory, and space in it for the decoded bytes, which are hardly ever fewer than `stored_bytes`.
    fn prepare(&self, stored_bytes: u64) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        if !self.is_private() {
            return Err(io::Error::new(
                ErrorKind::PermissionDenied,
                "other users can write to the directory, or it is a link",
            ));
        }
        self.make_room(stored_bytes)
    }

    fn is_private(&self) -> bool {
        let user = nix::unistd::geteuid().as_raw();
        fs::symlink_metadata(&self.directory)
            .is_ok_and(|found| found.is_dir() && found.uid() == user && found.mode() & SHARED == 0)
    }

    /// Removes unused files until there is space for so many bytes.
    fn make_room(&self, bytes: u64) -> io::Result<()> {
        let mut unused: Option<Vec<PathBuf>> = None;
        loop {
            let room = self.room()?;
            if room >= bytes {
                return Ok(());
            }
            let files = unused.get_or_insert_with(|| self.by_age());
            match files.pop() {
                Some(path) if remove_unused(&path) => {
                    tracing::info!("{}: removed to make room", path.display());
                }
                Some(_) => {}
                None => {
                    let why = format!("there is room for {}", HumanBytes(room));
                    return Err(io::Error::new(ErrorKind::StorageFull, why));
                }
            }
        }
    }

    fn room(&self) -> io::Result<u64> {
        let space = (self.space)(&self.directory)?;
        let free = space.available_bytes.saturating_sub(space.total_bytes / FREE_SHARE);
        let most = match self.most {
            None => return Ok(free),
            Some(CacheMax::Bytes(most)) => most,
            Some(CacheMax::Percent(percent)) => space.total_bytes / 100 * u64::from(percent),
        };
        let sizes = files(&self.directory).into_iter().map(|(_, metadata)| occupied(&metadata));
        Ok(free.min(most.saturating_sub(sizes.sum())))
    }

    /// All files, the least recently used last.
    fn by_age(&self) -> Vec<PathBuf> {
        let mut files = files(&self.directory);
        files.sort_by_key(|(_, metadata)| std::cmp::Reverse(metadata.accessed().ok()));
        files.into_iter().map(|(path, _)| path).collect()
    }
}

fn files(directory: &Path) -> Vec<(PathBuf, fs::Metadata)> {
    let names = open_directory(directory).and_then(|directory| directory.names());
    let paths = names.into_iter().flatten().map(|name| directory.join(name));
    let files = paths.filter_map(|path| Some((path.clone(), fs::symlink_metadata(path).ok()?)));
    files.filter(|(_, metadata)| metadata.is_file()).collect()
}

/// Opens the directory of decoded copies. Follows no link: those who share the cache directory could have the files of any
/// directory removed.
fn open_directory(directory: &Path) -> io::Result<Beneath> {
    let none = || io::Error::from(ErrorKind::NotFound);
    let cache = directory.parent().ok_or_else(none)?;
    Beneath::reach(cache)?.directory(Path::new(directory.file_name().ok_or_else(none)?))
}

/// Opens a copy for reading: the cache may lie on a file system that is read-only.
fn open_file(path: &Path) -> io::Result<fs::File> {
    let none = || io::Error::from(ErrorKind::NotFound);
    let (directory, name) = path.parent().zip(path.file_name()).ok_or_else(none)?;
    open_directory(directory)?.open_file(Path::new(name), false)
}

/// What a file takes of the disk, in bytes.
fn occupied(metadata: &fs::Metadata) -> u64 {
    metadata.blocks() * 512
}

/// Removes a file, unless a mount uses it or it is being written; whether it did.
fn remove_unused(path: &Path) -> bool {
    let Some((directory, name)) = path.parent().zip(path.file_name()) else { return false };
    let (Ok(directory), name) = (open_directory(directory), Path::new(name)) else { return false };
    // The lock is held until the file is gone.
    directory.open_file(name, true).is_ok_and(|file| {
        try_lock_range(&file, &WHOLE).unwrap_or(false) && directory.remove(name).is_ok()
    })
}

/// Whether a mount uses a file, or it is being written. Takes no lock, which another command would take for a mount's.
#[cfg(feature = "remote")]
fn is_used(path: &Path) -> bool {
    open_file(path).and_then(|file| is_range_locked(&file, &WHOLE)).unwrap_or(true)
}

/// A decoded copy of a compressed file, as `ffrfs cache` shows it.
#[cfg(feature = "remote")]
#[derive(Debug, Serialize)]
pub(crate) struct DecodedCopy {
    #[serde(serialize_with = "crate::vfs::report::lossy")]
    pub(crate) path: PathBuf,
    /// What it takes of the disk.
    pub(crate) bytes: u64,
    /// Whether a mount uses it, or it is being written.
    pub(crate) is_used: bool,
}

#[cfg(feature = "remote")]
impl DecodedCopy {
    /// Those in a cache directory, by name.
    pub(crate) fn list(cache: &Path) -> Vec<Self> {
        let copy = |(path, metadata): (PathBuf, fs::Metadata)| {
            let is_used = is_used(&path);
            Self { path, bytes: occupied(&metadata), is_used }
        };
        let mut copies: Vec<_> = files(&cache.join(DECODED)).into_iter().map(copy).collect();
        copies.sort_by(|one, other| one.path.cmp(&other.path));
        copies
    }

    /// Removes it, unless it is used by now; whether it did.
    pub(crate) fn remove(&self) -> bool {
        remove_unused(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(directory: &Path, most_bytes: u64) -> DecodedCache {
        let most = Some(CacheMax::Bytes(most_bytes));
        let space = |_: &Path| Ok(Space { total_bytes: 1 << 40, available_bytes: 1 << 39 });
        let cache = DecodedCache { directory: directory.join("decoded"), most, space };
        cache.prepare(0).unwrap();
        cache
    }

    fn write(cache: &DecodedCache, name: &str, age: u64) -> PathBuf {
        let path = cache.directory.join(name);
        fs::write(&path, vec![1; 100_000]).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        let used = SystemTime::now() - std::time::Duration::from_secs(age);
        file.set_times(fs::FileTimes::new().set_accessed(used)).unwrap();
        path
    }

    #[test]
    fn room_is_made_by_removing_what_nobody_uses_the_oldest_first() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path(), 500_000);
        let [old, used, new] =
            [("old", 90), ("used", 60), ("new", 30)].map(|(name, age)| write(&cache, name, age));
        let user = fs::File::open(&used).unwrap();
        assert!(share_range(&user, &WHOLE).unwrap());
        cache.make_room(250_000).unwrap();
        assert_eq!([&old, &used, &new].map(|path| path.exists()), [false, true, true]);
        let full = cache.make_room(450_000).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        assert_eq!([&used, &new].map(|path| path.exists()), [true, false]);
        drop(user);
        cache.make_room(450_000).unwrap();
        assert!(!used.exists());
    }

    #[cfg(feature = "remote")]
    #[test]
    fn commands_that_look_at_the_same_time_take_no_copy_for_used() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path(), 500_000);
        let copy = write(&cache, "copy", 1);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        assert!(DecodedCopy::list(directory.path()).iter().all(|it| !it.is_used));
                    }
                });
            }
        });
        let user = fs::File::open(&copy).unwrap();
        assert!(share_range(&user, &WHOLE).unwrap());
        assert!(DecodedCopy::list(directory.path()).iter().all(|it| it.is_used && !it.remove()));
        drop(user);
        assert!(DecodedCopy::list(directory.path()).iter().all(|it| !it.is_used && it.remove()));
        assert!(!copy.exists());
    }

    #[cfg(feature = "remote")]
    #[test]
    fn no_file_is_removed_through_a_link_that_others_put_there() {
        let (directory, victim) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let precious = victim.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        let cache = cache(directory.path(), 1);
        let copy = write(&cache, "precious", 1);
        let listed = DecodedCopy::list(directory.path());
        assert_eq!((listed.len(), &listed[0].path), (1, &copy));
        fs::rename(&cache.directory, directory.path().join("before")).unwrap();
        std::os::unix::fs::symlink(victim.path(), &cache.directory).unwrap();
        assert!(!listed[0].remove() && DecodedCopy::list(directory.path()).is_empty());
        assert!(cache.prepare(0).unwrap_err().to_string().contains("link"));
        assert!(cache.make_room(1 << 40).is_err());
        assert_eq!(fs::read(precious).unwrap(), b"precious");
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_not_believed() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path(), 1 << 30);
        fs::set_permissions(&cache.directory, fs::Permissions::from_mode(0o770)).unwrap();
        assert_eq!(cache.prepare(0).unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
}
