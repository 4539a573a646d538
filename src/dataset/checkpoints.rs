//! Checkpoints of large compressed members, kept beside the container (or where `--index` says) from one
//! mount to the next.
//!
//! ```text
//! head of an index (see kept.rs), format "restart points" (what they were called when the file was new)
//! records: u32 CRC-32 of the following 40 bytes | u64 offset | u64 stored | u64 decoded bytes
//!          | u32 kind of the member's checksum (0: none) | u32 that checksum | u32 CRC-32 of the points | u32 their length | points
//! ```
//! Mounts that share the file add records under its lock; readers use those that are whole.

use super::index_head::{HEAD_BYTES, KEY_BYTES, head, key, may_replace};
use super::options::IndexOptions;
use crate::format::{ChecksumKind, OpenOptions, PartName};
use crate::store::Store;
use crate::vfs::{CheckpointKey, CheckpointStore};
use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

const FORMAT: &str = "restart points";
const RECORD_BYTES: usize = 44;

/// The checkpoints of a dataset's containers.
pub struct KeptCheckpoints {
    store: Store,
    indexes: IndexOptions,
    options: OpenOptions,
    books: Mutex<HashMap<usize, Arc<Book>>>,
    writers: Mutex<Vec<JoinHandle<()>>>,
    /// The number of members whose checkpoints could not be written.
    failures: Arc<AtomicU64>,
}

/// The files that hold the checkpoints of one container.
struct Book {
    container: PartName,
    paths: Vec<PathBuf>,
    key: [u8; KEY_BYTES],
    writes: bool,
}

/// A record in its file: the member's key, and where its checkpoints are.
struct Record {
    key: CheckpointKey,
    at: u64,
    length: usize,
    crc32: u32,
}

impl KeptCheckpoints {
    /// `None` if checkpoints are neither written nor read.
    #[must_use]
    pub fn new(store: &Store, indexes: &IndexOptions, options: &OpenOptions) -> Option<Self> {
        indexes.is_used().then(|| Self {
            store: store.clone(),
            indexes: indexes.clone(),
            options: options.clone(),
            books: Mutex::default(),
            writers: Mutex::default(),
            failures: Arc::default(),
        })
    }

    fn book(&self, number: usize) -> Option<Arc<Book>> {
        let mut books = lock(&self.books);
        if let Some(book) = books.get(&number) {
            return Some(Arc::clone(book));
        }
        let part = self.store.parts().get(number)?;
        let key = key(part, part.as_ref(), &self.options).ok()?;
        let (paths, container) = (self.indexes.paths(part.name()), part.name().clone());
        let book = Arc::new(Book { container, paths, key, writes: self.indexes.may_write() });
        books.insert(number, Arc::clone(&book));
        Some(book)
    }
}

impl CheckpointStore for KeptCheckpoints {
    fn load(&self, key: &CheckpointKey) -> Option<Vec<u8>> {
        self.book(key.file)?.load(key)
    }

    fn keep(&self, key: &CheckpointKey, bytes: Vec<u8>) {
        let Some(book) = self.book(key.file).filter(|book| book.writes) else { return };
        let (key, failures) = (*key, Arc::clone(&self.failures));
        let keep = move || {
            if !book.keep(&key, &bytes) {
                failures.fetch_add(1, Ordering::Relaxed);
            }
        };
        match std::thread::Builder::new().name("ffrfs-index".to_owned()).spawn(keep) {
            Ok(writer) => {
                let mut writers = lock(&self.writers);
                writers.retain(|writer| !writer.is_finished());
                writers.push(writer);
            }
            Err(error) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                tracing::warn!("checkpoints cannot be kept: no thread can be started: {error}");
            }
        }
    }
}

impl KeptCheckpoints {
    /// Waits until all checkpoints are written. Returns the number of members for which that failed; the log has the
    /// reasons.
    pub(crate) fn finish(&self) -> u64 {
        for writer in lock(&self.writers).drain(..) {
            let _ = writer.join();
        }
        self.failures.load(Ordering::Relaxed)
    }
}

impl Drop for KeptCheckpoints {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Book {
    fn head(&self) -> [u8; HEAD_BYTES] {
        head(&self.key, FORMAT, 0, 0)
    }

    fn load(&self, key: &CheckpointKey) -> Option<Vec<u8>> {
        self.paths.iter().find_map(|path| {
            let file = fs::File::open(path).ok()?;
            if !self.is_ours(&file) {
                return None;
            }
            // The last record is valid: it was written because the earlier ones were not usable.
            let (records, _) = records(&file);
            let record = records
                .into_iter()
                .rev()
                .find(|record| CheckpointKey { file: key.file, ..record.key } == *key)?;
            let mut points = vec![0; record.length];
            file.read_exact_at(&mut points, record.at).ok()?;
            let is_whole = crc32fast::hash(&points) == record.crc32;
            if !is_whole {
                tracing::info!("{}: damaged: the member is decoded again", path.display());
            }
            is_whole.then_some(points)
        })
    }

    fn is_ours(&self, file: &fs::File) -> bool {
        let mut found = [0; HEAD_BYTES];
        file.read_exact_at(&mut found, 0).is_ok() && found == self.head()
    }

    /// Adds a record to the first file that can be written. False if none can.
    fn keep(&self, key: &CheckpointKey, points: &[u8]) -> bool {
        let mut errors = Vec::new();
        for path in &self.paths {
            match self.keep_in(path, key, points) {
                Ok(()) => {
                    let (path, container) = (path.display(), &self.container);
                    tracing::info!("checkpoints of a member of {container} kept in {path}");
                    return true;
                }
                Err(error) => errors.push(format!("{}: {error}", path.display())),
            }
        }
        tracing::warn!(
            "checkpoints cannot be kept, the next mount decodes the member again: {}",
            errors.join("; ")
        );
        false
    }

    fn keep_in(&self, path: &Path, key: &CheckpointKey, points: &[u8]) -> io::Result<()> {
        let length = u32::try_from(points.len()).map_err(io::Error::other)?;
        let file = match fs::File::options().read(true).write(true).open(path) {
            Ok(file) if self.is_ours(&file) => file,
            Ok(_) => self.create(path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.create(path)?,
            Err(error) => return Err(error),
        };
        file.lock()?;
        // A mount may have been killed while it added a record.
        let (_, end) = records(&file);
        file.set_len(end)?;
        let mut record = record_head(key, length, crc32fast::hash(points));
        record.extend_from_slice(points);
        file.write_all_at(&record, end).inspect_err(|_| {
            let _ = file.set_len(end);
        })
    }

    /// Makes the file under a temporary name, so that it is whole when it gets its own.
    fn create(&self, path: &Path) -> io::Result<fs::File> {
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        if directory.ends_with("ffrfs") {
            fs::create_dir_all(directory)?;
        }
        if !may_replace(path)? {
            return Err(io::Error::other("the file exists and is not an index: name another one"));
        }
        let mut file = tempfile::Builder::new().prefix(".ffrfs-index-").tempfile_in(directory)?;
        file.write_all(&self.head())?;
        file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
        Ok(file.persist(path)?)
    }
}

fn record_head(key: &CheckpointKey, length: u32, crc32: u32) -> Vec<u8> {
    let mut head = vec![0; 4];
    for value in [key.offset_bytes, key.stored_bytes, key.decoded_bytes] {
        head.extend(value.to_le_bytes());
    }
    let member = key.checksum.map_or((0, 0), |member| (member.kind().code(), member.value()));
    for value in [member.0, member.1, crc32, length] {
        head.extend(value.to_le_bytes());
    }
    let digest = crc32fast::hash(&head[4..]);
    head[..4].copy_from_slice(&digest.to_le_bytes());
    head
}

/// All whole records, and the end of the last one.
fn records(file: &fs::File) -> (Vec<Record>, u64) {
    let mut records = Vec::new();
    let mut at = HEAD_BYTES as u64;
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    loop {
        let mut head = [0; RECORD_BYTES];
        if file.read_exact_at(&mut head, at).is_err() {
            return (records, at);
        }
        let long = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap_or_default());
        let short = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap_or_default());
        let points_at = at + RECORD_BYTES as u64;
        let end = points_at + u64::from(short(40));
        if short(0) != crc32fast::hash(&head[4..]) || end > size {
            return (records, at);
        }
        let key = CheckpointKey {
            file: 0,
            offset_bytes: long(4),
            stored_bytes: long(12),
            decoded_bytes: long(20),
            checksum: ChecksumKind::with_code(short(28)).map(|kind| kind.with_value(short(32))),
        };
        let (length, crc32) = (short(40) as usize, short(36));
        records.push(Record { key, at: points_at, length, crc32 });
        at = end;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
