//! Kept indexes: the result of scanning a whole container, and the tree of its names, which the next mount maps. They
//! lie beside the container, or in the user's cache.

use super::beside::{INDEX, beside, without_temporary_name};
use super::decoded::{DecodedCache, Unpacked, unpack_in};
use super::index_head::{HEAD_BYTES, KEY_BYTES, adopted, head, key, may_replace};
use super::opening::{Opening, Watched};
use super::options::{IndexOptions, IndexPlace, Watch, Work};
use crate::catalog::Tree;
use crate::failure::{Exit, Failure};
use crate::format::{
    self, Container, Format, MemorySource, OpenOptions, PartName, SliceSource, Source,
};
use crate::io::{File, user_cache_directory};
use crate::store::Part;
use std::fs::{DirBuilder, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An index to be written once the names are known.
pub(crate) struct Unkept {
    paths: Vec<PathBuf>,
    key: [u8; KEY_BYTES],
    format: &'static str,
}

/// No index could be written; the log has the reasons.
pub(crate) struct NotKept;

/// A container, and what its kept index holds.
pub(crate) struct Found {
    pub(crate) container: Box<dyn Container>,
    pub(crate) tree: Option<Tree>,
    pub(crate) unkept: Option<Unkept>,
    /// The file to which it was decoded.
    pub(crate) spooled: Option<File>,
}

impl Found {
    /// A container in a decoded file is scanned at each mount: that reads only the headers of an archive.
    fn unpacked((container, file): Unpacked) -> Self {
        Self { container, tree: None, unkept: None, spooled: Some(file) }
    }
}

impl IndexOptions {
    /// Opens a container by its index, or by reading all of it.
    pub(super) fn open(
        &self,
        part: &Arc<Part>,
        opening: &Opening<'_>,
        options: &OpenOptions,
        watch: &Arc<dyn Watch>,
    ) -> Result<Found, Failure> {
        let source = opening.source(part);
        let format = format::recognize(source.as_ref(), options)?;
        let found = |container| Found { container, tree: None, unkept: None, spooled: None };
        if !format.is_scanned() {
            let opened = format.open(Arc::clone(&source), options);
            let opened = opened.map_err(|error| format::explained(error, format, source.as_ref()));
            return Ok(found(opened?));
        }
        let unreadable = |e| Failure::unreadable(part.name(), e);
        let key = key(part, source.as_ref(), options).map_err(unreadable)?;
        let paths = if self.is_used() { self.paths(part.name()) } else { Vec::new() };
        for path in &paths {
            if let Some((container, tree)) = load(path, &key, format, &source) {
                return Ok(Found { tree, ..found(container) });
            }
        }
        if self.is_used()
            && let Some(neighbours) = opening.neighbours
            && let Some((name, bytes)) = neighbours.index()?
            && let Some(index) = adopted(&name, bytes, &key)
            && let Some((container, tree)) =
                load_from(&self.place_adopted(index, &name, &paths), &key, format, &source)
        {
            return Ok(Found { tree, ..found(container) });
        }
        let cache = DecodedCache::new(opening.remote).filter(|_| self.spool.is_none());
        if let Some(cache) = cache.as_ref().filter(|_| self.is_used())
            && let Some(unpacked) = cache.find(format, source.as_ref(), &key, options)
        {
            return Ok(Found::unpacked(unpacked));
        }
        let _pass = opening.begin_pass();
        let watched = Arc::new(Watched::new(Arc::clone(&source), Arc::clone(watch)));
        let container = format.open(Arc::clone(&watched) as Arc<dyn Source>, options);
        watch.end();
        let container = match container {
            Err(_) if watch.is_cancelled() => {
                let why = "interrupted: no index was written";
                return Err(Failure::new(Exit::Interrupted, why));
            }
            Err(error @ format::Error::NoCheckpoints { .. }) => {
                watch.begin(Work::Decode, source.len());
                let unpacked = match (&self.spool, &cache) {
                    (Some(directory), _) => {
                        unpack_in(directory, format, watched.as_ref(), options).map(Ok)
                    }
                    (None, Some(cache)) => {
                        cache.decode(format, watched.as_ref(), (&key, self.may_write()), options)
                    }
                    (None, None) => Ok(Err(
                        "not decoded to a cache directory: there is none (--cache none, or no home directory)"
                            .to_owned(),
                    )),
                };
                watch.end();
                if watch.is_cancelled() {
                    return Err(Failure::interrupted());
                }
                let unpacked = unpacked?.map_err(|why| {
                    let said = format!("{error}; {why}");
                    Failure::from(error).saying(&said)
                });
                return unpacked.map(Found::unpacked);
            }
            Err(error) => return Err(format::explained(error, format, source.as_ref()).into()),
            Ok(container) => container,
        };
        let unkept = self.may_write().then(|| Unkept { paths, key, format: format.name() });
        Ok(Found { unkept, ..found(container) })
    }

    /// Stores the index of an object where the next mount finds it, or else in memory.
    fn place_adopted(&self, index: Vec<u8>, name: &PartName, paths: &[PathBuf]) -> Arc<dyn Source> {
        let place = |path: &Path| -> io::Result<File> {
            let directory = path.parent().unwrap_or(Path::new("."));
            std::fs::create_dir_all(directory)?;
            let mut file =
                tempfile::Builder::new().prefix(".ffrfs-index-").tempfile_in(directory)?;
            file.write_all(&index)?;
            file.as_file().set_permissions(Permissions::from_mode(0o644))?;
            file.persist(path)?;
            File::open(path)
        };
        if let Some(path) = paths.first().filter(|_| self.may_write())
            && let Ok(file) = place(path)
        {
            return Arc::new(file);
        }
        Arc::new(MemorySource::new(name.clone(), index))
    }

    /// The directory that `--spool` names. Makes a file in it to report problems now, not to the first reader.
    pub(crate) fn spool(&self) -> Result<Option<PathBuf>, Failure> {
        let Some(directory) = &self.spool else { return Ok(None) };
        let is_usable = tempfile::tempfile_in(directory).map(|_| Some(directory.clone()));
        is_usable
            .map_err(without_temporary_name)
            .map_err(|e| Failure::output(format_args!("--spool {}", directory.display()), e))
    }

    /// Whether kept indexes are used.
    pub(super) fn is_used(&self) -> bool {
        self.place != IndexPlace::None
    }

    /// Whether new indexes are written.
    pub(crate) fn may_write(&self) -> bool {
        self.writes && !matches!(self.place, IndexPlace::None | IndexPlace::Memory)
    }

    /// Whether one file is named for all indexes.
    pub(super) fn is_one_file(&self) -> bool {
        matches!(self.place, IndexPlace::File(_))
    }

    /// The possible paths of an index, the preferred one first.
    pub(crate) fn paths(&self, container: &PartName) -> Vec<PathBuf> {
        if let IndexPlace::File(file) = &self.place {
            return vec![file.clone()];
        }
        let canonical = container.as_path().and_then(|path| path.canonicalize().ok());
        let whole = canonical.map_or_else(|| container.clone(), PartName::from);
        // Containers in different directories may have the same name.
        let name = whole.file_name().to_string_lossy().into_owned();
        let digest = crc32fast::hash(whole.as_bytes());
        let elsewhere = |directory: &Path| directory.join(format!("{name}-{digest:08x}.{INDEX}"));
        if let Some(directory) = &self.directory {
            return vec![elsewhere(directory)];
        }
        let mut paths: Vec<_> =
            whole.as_path().map(|path| beside(path, INDEX)).into_iter().collect();
        paths.extend(user_cache_directory().map(|directory| elsewhere(&directory)));
        paths
    }
}

impl Unkept {
    /// Writes the index to the first path that can be written.
    pub(crate) fn write(
        &self,
        container: &dyn Container,
        tree: Option<&Tree>,
    ) -> Result<PathBuf, NotKept> {
        let mut errors = Vec::new();
        for path in &self.paths {
            match self.write_to(path, container, tree) {
                Ok(()) => return Ok(path.clone()),
                Err(error) => {
                    let error = without_temporary_name(error);
                    errors.push(format!("{}: {error}", path.display()));
                }
            }
        }
        tracing::warn!(
            "the index cannot be kept, the next mount reads everything again: {}",
            errors.join("; ")
        );
        Err(NotKept)
    }

    fn write_to(
        &self,
        path: &Path,
        container: &dyn Container,
        tree: Option<&Tree>,
    ) -> io::Result<()> {
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        if directory.ends_with("ffrfs") {
            // Remote objects are cached there too, so no other user may write to it.
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        if !may_replace(path)? {
            return Err(io::Error::other("the file exists and is not an index: name another one"));
        }
        // The file gets its name when it is whole.
        let file = tempfile::Builder::new().prefix(".ffrfs-index-").tempfile_in(directory)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        out.write_all(&[0; HEAD_BYTES])?;
        let mut counted = Counted { out: &mut out, bytes: 0 };
        container.keep(&mut counted)?;
        let container_bytes = counted.bytes;
        if let Some(tree) = tree {
            tree.write(&mut counted)?;
        }
        let tree_bytes = counted.bytes - container_bytes;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        let head = head(&self.key, self.format, container_bytes, tree_bytes);
        std::os::unix::fs::FileExt::write_all_at(file.as_file(), &head, 0)?;
        file.as_file().set_permissions(Permissions::from_mode(0o644))?;
        file.persist(path)?;
        tracing::info!("index kept in {}", path.display());
        Ok(())
    }
}

/// The index at `path`, if it is whole and of this container.
fn load(
    path: &Path,
    key: &[u8; KEY_BYTES],
    format: &dyn Format,
    source: &Arc<dyn Source>,
) -> Option<(Box<dyn Container>, Option<Tree>)> {
    load_from(&(Arc::new(File::open(path).ok()?) as Arc<dyn Source>), key, format, source)
}

fn load_from(
    file: &Arc<dyn Source>,
    key: &[u8; KEY_BYTES],
    format: &dyn Format,
    source: &Arc<dyn Source>,
) -> Option<(Box<dyn Container>, Option<Tree>)> {
    let path = file.name();
    let stale = |why: &str| tracing::info!("{path}: {why}: the container is read again");
    let mut found = [0; HEAD_BYTES];
    if file.len() < HEAD_BYTES as u64 || file.read_exact_at(&mut found, 0).is_err() {
        stale("no index");
        return None;
    }
    let number = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&found[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    let (container_bytes, tree_bytes) = (number(HEAD_BYTES - 16), number(HEAD_BYTES - 8));
    if found != head(key, format.name(), container_bytes, tree_bytes) {
        stale("of another container, or of an earlier version of it");
        return None;
    }
    let ends = (HEAD_BYTES as u64).checked_add(container_bytes);
    let ends = ends.and_then(|end| end.checked_add(tree_bytes));
    if ends != Some(file.len()) {
        stale("damaged");
        return None;
    }
    let part = SliceSource::new(path.clone(), Arc::clone(file), HEAD_BYTES as u64, container_bytes);
    let opened = match format.open_kept(Arc::clone(source), Arc::new(part)) {
        Ok(Some(container)) => container,
        Ok(None) => {
            stale("kept by another version of ffrfs");
            return None;
        }
        Err(error) => {
            stale(&format!("damaged: {error}"));
            return None;
        }
    };
    let tree = match tree_bytes {
        0 => Some(None),
        _ => {
            let start = HEAD_BYTES as u64 + container_bytes;
            Tree::read_part(file, start, tree_bytes).ok().flatten().map(Some)
        }
    };
    if tree.is_none() {
        stale("damaged");
    }
    Some((opened, tree?))
}

struct Counted<'a, W: Write> {
    out: &'a mut W,
    bytes: u64,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
