//! Files of records that mounts add to: what is found of a container's members, one after the other, and kept beside the
//! container (or where `--index` says) from one mount to the next.
//!
//! ```text
//! head of an index (see index_head.rs), its format what the records are
//! records: u32 CRC-32 of the following 40 bytes | 32 bytes of a key | u32 CRC-32 of the bytes | u32 their length | bytes
//! ```
//! Mounts that share the file add records under its lock; readers use those that are whole.

use super::beside::without_temporary_name;
use super::index_head::{HEAD_BYTES, head, key, may_replace};
use super::options::IndexOptions;
use crate::format::{OpenOptions, PartName, Source};
use crate::store::Part;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// What a record is found by.
pub(super) type RecordKey = [u8; 32];

/// So much is read at a time to check a long record.
const CHUNK_BYTES: usize = 1 << 20;
const HEAD: usize = 4 + size_of::<RecordKey>() + 8;

/// The files that hold the records of one container.
pub(super) struct RecordFile {
    pub(super) container: PartName,
    paths: Vec<PathBuf>,
    head: [u8; HEAD_BYTES],
    pub(super) writes: bool,
    /// The file that was last written to.
    last: Mutex<Option<Last>>,
}

struct Last {
    path: PathBuf,
    file: fs::File,
    /// Where the last record ends that is known to be whole.
    end: u64,
}

impl Last {
    /// Whether the file still has its name: nobody has removed or replaced it.
    fn is_linked(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.nlink() > 0)
    }
}

/// A record in its file.
pub(super) struct Record {
    pub(super) key: RecordKey,
    pub(super) at: u64,
    pub(super) length: usize,
    crc32: u32,
}

impl RecordFile {
    /// `format` says what the records are; `paths` are the places of the file, the preferred one first.
    ///
    /// # Errors
    /// The container cannot be read.
    pub(super) fn new(
        part: &Arc<Part>,
        (indexes, paths): (&IndexOptions, Vec<PathBuf>),
        options: &OpenOptions,
        format: &str,
    ) -> io::Result<Self> {
        let key = key(part, part.as_ref(), options)?;
        let (head, writes) = (head(&key, format, 0, 0), indexes.may_write());
        Ok(Self { container: part.name().clone(), paths, head, writes, last: Mutex::default() })
    }

    /// The whole records of each file of this container, and its path.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Path, fs::File, Vec<Record>)> {
        self.paths.iter().filter_map(|path| {
            // To open a pipe would wait for a writer.
            let file = fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
            let file = file.ok().filter(|file| self.is_ours(file))?;
            let (records, _) = records(&file);
            Some((path.as_path(), file, records))
        })
    }

    /// The bytes of a record.
    pub(super) fn load(&self, key: &RecordKey) -> Option<Vec<u8>> {
        self.all().find_map(|(path, file, records)| {
            // The last record is valid: it was written because the earlier ones were not usable.
            let record = records.into_iter().rev().find(|record| record.key == *key)?;
            record.read(&file).or_else(|| {
                tracing::info!("{}: damaged: the member is decoded again", path.display());
                None
            })
        })
    }

    fn is_ours(&self, file: &fs::File) -> bool {
        let mut found = [0; HEAD_BYTES];
        file.read_exact_at(&mut found, 0).is_ok() && found == self.head
    }

    /// Adds a record to the first file that can be written, and returns its path.
    ///
    /// # Errors
    /// No file can be written: why.
    pub(super) fn keep(&self, key: &RecordKey, bytes: &[u8]) -> Result<PathBuf, String> {
        let mut errors = Vec::new();
        for path in &self.paths {
            match self.keep_in(path, key, bytes) {
                Ok(()) => return Ok(path.clone()),
                Err(error) => {
                    let error = without_temporary_name(error);
                    errors.push(format!("{}: {error}", path.display()));
                }
            }
        }
        Err(errors.join("; "))
    }

    fn keep_in(&self, path: &Path, key: &RecordKey, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Last { file, end, .. } =
            match last.take().filter(|last| last.path == path && last.is_linked()) {
                Some(last) => last,
                None => Last { path: path.to_owned(), file: self.open(path)?, end: 0 },
            };
        file.lock()?;
        let written = add(&file, end, (key, length), bytes);
        file.unlock()?;
        *last = Some(Last { path: path.to_owned(), file, end: written? });
        Ok(())
    }

    fn open(&self, path: &Path) -> io::Result<fs::File> {
        match fs::File::options().read(true).write(true).open(path) {
            Ok(file) if self.is_ours(&file) => Ok(file),
            Ok(_) => self.create(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.create(path),
            Err(error) => Err(error),
        }
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
        file.write_all(&self.head)?;
        file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
        Ok(file.persist(path)?)
    }
}

impl Record {
    /// Its bytes. `None`: they cannot be read, or are not what they were.
    pub(super) fn read(&self, file: &fs::File) -> Option<Vec<u8>> {
        let mut bytes = vec![0; self.length];
        file.read_exact_at(&mut bytes, self.at).ok()?;
        self.is_whole(&bytes).then_some(bytes)
    }

    /// Whether these are its bytes.
    pub(super) fn is_whole(&self, bytes: &[u8]) -> bool {
        crc32fast::hash(bytes) == self.crc32
    }

    /// Whether all of a source are its bytes.
    pub(super) fn is_whole_in(&self, source: &dyn Source) -> bool {
        let mut hasher = crc32fast::Hasher::new();
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut at = 0;
        while at < source.len() {
            let length = (source.len() - at).min(CHUNK_BYTES as u64) as usize;
            if source.read_exact_at(&mut chunk[..length], at).is_err() {
                return false;
            }
            hasher.update(&chunk[..length]);
            at += length as u64;
        }
        hasher.finalize() == self.crc32
    }
}

/// Writes a record behind the last whole one, and returns its end. Up to `end` all are known to be whole.
fn add(
    file: &fs::File,
    end: u64,
    (key, length): (&RecordKey, u32),
    bytes: &[u8],
) -> io::Result<u64> {
    // A mount may have been killed while it added a record.
    let end = if file.metadata()?.len() == end { end } else { records(file).1 };
    file.set_len(end)?;
    let mut record = vec![0; 4];
    record.extend_from_slice(key);
    record.extend(crc32fast::hash(bytes).to_le_bytes());
    record.extend(length.to_le_bytes());
    let digest = crc32fast::hash(&record[4..]);
    record[..4].copy_from_slice(&digest.to_le_bytes());
    record.extend_from_slice(bytes);
    file.write_all_at(&record, end).inspect_err(|_| {
        let _ = file.set_len(end);
    })?;
    Ok(end + record.len() as u64)
}

/// All whole records, and the end of the last one.
fn records(file: &fs::File) -> (Vec<Record>, u64) {
    let mut records = Vec::new();
    let mut at = HEAD_BYTES as u64;
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    loop {
        let mut head = [0; HEAD];
        if file.read_exact_at(&mut head, at).is_err() {
            return (records, at);
        }
        let short = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap_or_default());
        let bytes_at = at + HEAD as u64;
        let end = bytes_at + u64::from(short(40));
        if short(0) != crc32fast::hash(&head[4..]) || end > size {
            return (records, at);
        }
        let (length, crc32) = (short(40) as usize, short(36));
        let key = head[4..36].try_into().unwrap_or_default();
        records.push(Record { key, at: bytes_at, length, crc32 });
        at = end;
    }
}
